/// \file
/// Adaptive precision: the same choice on every rank, the right one, and its bytes accounted for.

#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/adaptive_precision.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/lossless.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/transport/counting.hpp>

using namespace collective_test;

namespace {

using int4 = zeropp::block_integer<4, 128>;
using int6 = zeropp::block_integer<6, 128>;
using int8 = zeropp::block_integer<8, 256>;
using policy = zeropp::adaptive_precision<int4, int6, int8>;

struct outcome {
    std::size_t index = 99;
    double sqnr_db = 0;
    bool holds = false;
};

template <class Exec = zeropp::host>
std::vector<outcome> choices(const policy& p, const std::vector<std::vector<float>>& data) {
    std::vector<outcome> results(data.size());
    on_ranks(static_cast<int>(data.size()), "a choice", [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::flat(transport.size()), transport);
        const std::vector<float>& mine = data[at(comm.rank())];
        zeropp::workspace<zeropp::host_space> scratch(policy::workspace_bytes(mine.size(), comm.size()));
        const auto choice = p.choose(Exec(), comm, mine, scratch.view());
        results[at(comm.rank())] = {choice.quantizer.index(), choice.sqnr_db, choice.holds};
    });
    return results;
}

/// In dB, over all ranks, from the reference's quantizers.
double measured(const std::string& name, const std::vector<std::vector<float>>& data) {
    double signal = 0, error = 0;
    for (const auto& of_rank : data) {
        const auto values = reference::quantizer(name).through(of_rank).values;
        for (std::size_t i = 0; i != of_rank.size(); ++i) {
            const double x = static_cast<double>(of_rank[i]);
            signal += x * x;
            error += (x - static_cast<double>(values[i])) * (x - static_cast<double>(values[i]));
        }
    }
    return 10 * std::log10(signal / error);
}

}  // namespace

TEST_CASE("adaptive precision: the cheapest that holds the ratio over all ranks, on every rank") {
    // Ranks disagree about their own data: the last one's is easy, the second has none.
    const std::vector<std::vector<float>> data{
        tensor_of(3000, reference::fp32, 1), {}, tensor_of(5001, reference::fp32, 2), std::vector<float>(700, 1.0f)};
    const std::vector<double> of_candidate{measured("int4:128", data), measured("int6:128", data),
                                           measured("int8:256", data)};
    REQUIRE((of_candidate[0] < of_candidate[1] && of_candidate[1] < of_candidate[2]));
    for (std::size_t c = 0; c != of_candidate.size(); ++c) {
        for (const double margin : {-0.01, 0.01}) {
            const policy p(of_candidate[c] + margin);
            const std::size_t expected = margin < 0 ? c : std::min<std::size_t>(c + 1, 2);
            for (const auto& results : {choices(p, data), choices<zeropp::host_queue>(p, data)}) {
                for (const outcome& o : results) {
                    CHECK(o.index == expected);
                    CHECK(std::fabs(o.sqnr_db - of_candidate[expected]) < 1e-6);
                    CHECK(o.holds == (margin < 0 || c != 2));
                }
            }
        }
    }
}

TEST_CASE("adaptive precision: zeros need the fewest bits, NaN and Inf get the most") {
    const std::vector<float> zeros(500);
    for (const outcome& o : choices(policy(100), {zeros, zeros})) {
        CHECK((o.index == 0 && o.holds && std::isinf(o.sqnr_db)));
    }
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        std::vector<float> broken(500, 1.0f);
        broken[3] = bad;
        for (const outcome& o : choices(policy(1), {zeros, broken})) CHECK((o.index == 2 && !o.holds));
    }
}

TEST_CASE("adaptive precision: nobody has data") {
    for (const outcome& o : choices(policy(30), {{}, {}})) CHECK((o.index == 0 && o.holds));
}

TEST_CASE("adaptive precision: 16 bytes for each candidate from each rank to each, under its own name") {
    on_ranks(3, "a count", [&](zeropp::thread_transport& transport) {
        zeropp::counting world(transport, zeropp::flat(3));
        zeropp::communicator comm(zeropp::flat(3), world.split(std::vector<int>{0, 1, 2}));
        const std::vector<float> mine(1000, 1.0f);
        zeropp::workspace<zeropp::host_space> scratch(policy::workspace_bytes(mine.size(), 3));
        policy(20).choose(zeropp::host(), comm, mine, scratch.view());
        const zeropp::traffic total = world.total();
        if (total.bytes_inside + total.bytes_across != 2 * 3 * 16) throw zeropp::error("other bytes than 96");
    });
}

TEST_CASE("adaptive precision: what cannot be is refused") {
    CHECK_THROWS_AS(policy(std::numeric_limits<double>::quiet_NaN()), zeropp::precondition_error);
    const auto errors = errors_on_ranks(2, "little", [](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::flat(2), transport);
        std::vector<std::byte> little(64);
        policy(20).choose(zeropp::host(), comm, std::vector<float>(100), little);
    });
    for (const std::string& error : errors) {
        CHECK(error.starts_with("adaptive_precision: expected a workspace of at least "));
    }
}
