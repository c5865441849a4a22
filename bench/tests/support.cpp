#include "support/any_transport.hpp"
#include "support/catch.hpp"
#include "support/checks.hpp"
#include "support/collective_rows.hpp"
#include "support/data.hpp"
#include "support/json_file.hpp"
#include "support/launch.hpp"
#include "support/options.hpp"
#include "support/quantizers.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

#include <zeropp/zeropp.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

// Tests that the benchmarks' checks find errors.

namespace {

using namespace zeropp_bench;

constexpr double inf = std::numeric_limits<double>::infinity();

parsed_options parse(std::vector<const char*> arguments, bool two_hops = false) {
    arguments.insert(arguments.begin(), "perf");
    const program_facts program{.name = "perf",
                                .purpose = "",
                                .quantizers = {"int8:256"},
                                .quantizes = two_hops ? zeropp_bench::wire::two_hops : zeropp_bench::wire::one_hop,
                                .has_chunks = two_hops};
    return parse_options(static_cast<int>(arguments.size()), arguments.data(), program);
}

/// A transport that changes one byte that each rank receives from another rank.
class faulty_transport : public zeropp::adaptor<faulty_transport, zeropp::thread_transport> {
public:
    explicit faulty_transport(zeropp::thread_transport inner) : adaptor(std::move(inner)) {}

    template <zeropp::host_execution E>
    void move(const E& exec, const zeropp::operation& what, const std::byte* send, std::byte* recv) {
        adaptor::move(exec, what, send, recv);
        const int sources = what.kind == zeropp::operation::broadcast ? what.roots : size();
        if (rank() == 0 && sources == 1) return;  // receives nothing from others
        const auto other = static_cast<std::size_t>(rank() == 0 ? sources - 1 : 0);
        exec.enqueue([recv, at = other * what.bytes] { recv[at] ^= std::byte{0x40}; });
    }
};

constexpr std::size_t elements = 4 * 1000 + 3;
constexpr zeropp::block_integer<8, 256> int8;
constexpr zeropp::block_integer<4, 128> int4;

template <class T, class Transport>
tally gathered_over(zeropp::communicator<zeropp::two_level, Transport>& comm) {
    const zeropp::partition part(elements, comm.size());
    std::vector<T> shard(part.size(comm.rank()));
    std::vector<T> full(elements);
    fill<T>(shard, 5, part.offset(comm.rank()));
    zeropp::quantized_all_gather(zeropp::host{}, comm, int8, shard, full);
    return check_gathered<T>(int8, std::span<const T>(full), part, 5);
}

template <class T, class Transport>
tally reduced_over(zeropp::communicator<zeropp::two_level, Transport>& comm) {
    const zeropp::partition part(elements, comm.size());
    std::vector<T> full(elements);
    std::vector<T> shard(part.size(comm.rank()));
    fill<T>(full, 5 + static_cast<std::uint64_t>(comm.rank()), 0);
    zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{int8, int4}, full, shard);
    return check_reduced<T>(zeropp::hops{int8, int4}, comm.topology(), std::span<const T>(shard),
                            part.offset(comm.rank()), 5);
}

template <class T, class Transport>
tally exchanged_over(zeropp::communicator<zeropp::two_level, Transport>& comm) {
    const zeropp::partition part(1200 * static_cast<std::size_t>(comm.size()), comm.size());
    std::vector<T> all(part.count());
    fill<T>(all, 5 + static_cast<std::uint64_t>(comm.rank()), 0);
    zeropp::quantized_all_to_all(zeropp::host{}, comm, int8, all, all);
    return check_exchanged<T>(int8, std::span<const T>(all), part, comm.rank(), 5);
}

/// Broadcasts from rank 0. `wrong` is 1 if this rank received other bytes.
template <class Transport>
tally broadcast_over(zeropp::communicator<zeropp::two_level, Transport>& comm) {
    const std::vector<std::byte> sent(100, std::byte{7});
    std::vector<std::byte> received(sent.size());
    comm.world().broadcast(zeropp::host{}, sent.data(), received.data(), sent.size(), 1);
    return {.wrong = received == sent ? 0u : 1u};
}

/// Number of wrong elements on all ranks of `nodes`.
template <class Transport, class Collective>
std::uint64_t wrong_over(const zeropp::two_level& nodes, Collective collective) {
    std::vector<std::uint64_t> wrong(static_cast<std::size_t>(nodes.size()));
    zeropp::run_on_threads(nodes.size(), [&](zeropp::thread_transport transport) {
        const auto rank = static_cast<std::size_t>(transport.rank());
        zeropp::communicator comm(nodes, Transport(std::move(transport)));
        wrong[rank] = collective(comm).wrong;
    });
    std::uint64_t all = 0;
    for (const std::uint64_t w : wrong) all += w;
    return all;
}

template <class T>
void sees_what_is_wrong() {
    const auto gather = [](auto& comm) { return gathered_over<T>(comm); };
    const auto reduce = [](auto& comm) { return reduced_over<T>(comm); };
    const auto exchange = [](auto& comm) { return exchanged_over<T>(comm); };
    const auto broadcast = [](auto& comm) { return broadcast_over(comm); };
    for (const zeropp::two_level& nodes : {zeropp::two_level(2, 2), zeropp::two_level(1, 4), zeropp::two_level(3, 1)}) {
        CHECK(wrong_over<zeropp::thread_transport>(nodes, gather) == 0);
        CHECK(wrong_over<zeropp::thread_transport>(nodes, reduce) == 0);
        CHECK(wrong_over<zeropp::thread_transport>(nodes, exchange) == 0);
        CHECK(wrong_over<zeropp::thread_transport>(nodes, broadcast) == 0);
        CHECK(wrong_over<faulty_transport>(nodes, gather) > 0);
        CHECK(wrong_over<faulty_transport>(nodes, reduce) > 0);
        CHECK(wrong_over<faulty_transport>(nodes, exchange) > 0);
        CHECK(wrong_over<faulty_transport>(nodes, broadcast) == static_cast<std::uint64_t>(nodes.size() - 1));
    }
}

}  // namespace

TEST_CASE("an element beyond its bound is wrong, and one that is not finite always", "[bench]") {
    estimates expected(3);
    expected.exact = {1, -2, 0};
    expected.error = {0.25, 0.5, 0};
    const auto wrong = [&](float a, float b, float c) {
        const std::vector<float> results{a, b, c};
        return compare<float>(results, expected).wrong;
    };
    CHECK(wrong(1, -2, 0) == 0);
    CHECK(wrong(1.25f, -1.5f, 0) == 0);
    CHECK(wrong(0.75f, -2.5f, 0) == 0);
    CHECK(wrong(1.2501f, -2, 0) == 1);
    CHECK(wrong(0.7499f, -2.5001f, 1e-30f) == 3);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(wrong(nan, -2, 0) == 1);
    CHECK(wrong(1, -INFINITY, nan) == 2);
    expected.error = {inf, inf, std::nan("")};
    CHECK(wrong(1000, 1000, 0) == 1);
    CHECK(wrong(nan, INFINITY, 0) == 3);
}

TEST_CASE("the signal to noise ratio is that of the errors", "[bench]") {
    CHECK(tally{0, 100, 1}.sqnr_db() == Approx(20));
    CHECK(tally{0, 100, 0}.sqnr_db() == inf);
    CHECK(std::isnan(tally{1, 100, inf}.sqnr_db()));
    CHECK(json_number(inf).is_null());
    CHECK(json_number(2.5) == 2.5);
}

// bench/tests/results_json.py expects this text from Python.
TEST_CASE("a JSON file has one record a line", "[bench]") {
    const std::string text = R"({
 "name": "\u0001 \"",
 "facts": {"a":1,"b":2.5},
 "rows": [
  {"a":{"b":[1,2]}},
  {"c":[],"d":null}
 ],
 "by_name": {
  "k": {"n":1},
  "l": {}
 },
 "none": []
})";
    const auto value = nlohmann::ordered_json::parse(text);
    CHECK(json_text(value) == text);
    CHECK(json_text(value["rows"]) == "[\n {\"a\":{\"b\":[1,2]}},\n {\"c\":[],\"d\":null}\n]");
    CHECK(json_text(value["none"]) == "[]");
    CHECK(json_text(value["facts"]) == "{\n \"a\": 1,\n \"b\": 2.5\n}");
}

TEST_CASE("a cell names values that are missing or infinite", "[bench]") {
    nlohmann::ordered_json row{{"a", {{"time_us", 1.25}}}, {"b", nullptr}, {"count", 7}, {"name", "int8"}};
    add_check(row["a"], tally{2, 100, 1});
    add_check(row["exact"], tally{0, 100, 0});
    add_check(row["not_finite"], tally{1, 100, inf});
    add_check(row["unchecked"], std::nullopt);
    const auto text = [&](const std::string& value) { return cell(row, {"", "", "", 6, value, 1, "exact"}); };
    CHECK(text("/a/time_us") == "1.2");
    CHECK(text("/count") == "7");
    CHECK(text("/name") == "int8");
    CHECK(text("/b/time_us") == "N/A");
    CHECK(text("/a/wrong") == "2");
    CHECK(text("/a/sqnr_db") == "20.0");
    CHECK(text("/exact/sqnr_db") == "exact");
    CHECK(text("/not_finite/sqnr_db") == "N/A");
    CHECK(text("/unchecked/sqnr_db") == "N/A");
    CHECK(cell(row, {"", "", "", 6, "/unchecked/wrong"}) == "N/A");
}

TEST_CASE("results of the collectives are right, and wrong over a transport that is", "[bench]") {
    sees_what_is_wrong<float>();
    sees_what_is_wrong<zeropp::bfloat16>();
}

TEST_CASE("bounds are not much wider than the errors", "[bench]") {
    // A bound that lets everything pass would pass every other test here.
    estimates e(256);
    fill_exact<float>(e.exact, 3, 0);
    quantize(int8, e);
    for (const double error : e.error) {
        CHECK(error > 0.005);
        CHECK(error < 0.02);
    }
    quantize(int4, e);
    for (const double error : e.error) CHECK(error < 0.35);
    CHECK(half_spacing<float>(1.0) == 0x1p-24);
    CHECK(half_spacing<zeropp::half>(1.5) == 0x1p-11);
    CHECK(half_spacing<zeropp::bfloat16>(2.0) == 0x1p-7);
    CHECK(half_spacing<zeropp::half>(0.0) == 0x1p-25);
}

TEST_CASE("other bytes than the route says, and wrong elements, are errors of the program", "[bench]") {
    const program_facts program{.name = "perf", .purpose = "", .quantizers = {}};
    const auto run = [&](std::size_t bytes_of_route, tally found, tally native_found) {
        const char* arguments[] = {"perf", "-n", "1", "--ranks-per-node", "2"};
        const parsed_options parsed = parse_options(5, arguments, program);
        return launch_in_this_process(parsed, program, {[&](const options& o, ranks_on<host_place>& ranks) {
                                          collective_rows rows(program, o, ranks, "nothing");
                                          comm_on<host_place> comm(ranks.nodes(), ranks.world());
                                          quantized_case c;
                                          c.quantizer = "none";
                                          c.hops = {{1, hop::pattern::all_gather,
                                                     zeropp::peer_ranks(ranks.nodes(), 1, ranks.rank()), bytes_of_route,
                                                     4}};
                                          c.has_in_place = false;
                                          set_calls(c, ranks, comm, [](comm_on<host_place>& on, bool) {
                                              std::byte sent[16] = {};
                                              std::byte received[32];
                                              on.peers(1).all_gather(zeropp::host{}, sent, received, 16);
                                          });
                                          c.reset = [] {};
                                          c.check = [=](bool) { return found; };
                                          rows.measure({16, 4, 1, "float", 4, 0.75},
                                                       {{[] {}, [=] { return native_found; }},
                                                        {[] {}, [] { return tally{}; }},
                                                        {[] {}, [] { return tally{}; }}},
                                                       {c});
                                          return rows.finish();
                                      }},
                                      false);
    };
    CHECK(run(16, {}, {}) == 0);
    CHECK(run(32, {}, {}) == 1);
    CHECK(run(16, {.wrong = 1}, {}) == 1);
    CHECK(run(16, {}, {.wrong = 1}) == 1);
}

TEST_CASE("median and 99th percentile", "[bench]") {
    CHECK(summary({3}).median == 3);
    CHECK(summary({3}).p99 == 3);
    CHECK(summary({4, 1, 3, 2}).median == 2.5);
    CHECK(summary({5, 1, 3, 2, 4}).median == 3);
    std::vector<double> many;
    for (int i = 200; i != 0; --i) many.push_back(i);
    CHECK(summary(many).p99 == 198);
    many.resize(99);
    CHECK(summary(many).p99 == 200);
    CHECK_THROWS_AS(summary({}), std::invalid_argument);
}

TEST_CASE("sizes have suffixes", "[bench]") {
    CHECK(parse_size("4096") == 4096u);
    CHECK(parse_size("64K") == 65536u);
    CHECK(parse_size("64k") == 65536u);
    CHECK(parse_size("1.5M") == 1572864u);
    CHECK(parse_size("2G") == std::size_t{2} << 30);
    for (const char* wrong :
         {"", "K", "M4", "4KB", "4 K", "-4", "inf", "nan", "1e99", "4T", "0x10", "1e3", ".", "1.2.3"}) {
        INFO(wrong);
        CHECK_FALSE(parse_size(wrong).has_value());
    }
}

TEST_CASE("options mean what they mean in nccl-tests", "[bench]") {
    const options o = parse({"-b", "8", "-e", "128", "-f", "4", "-n", "7", "-w", "0", "-c", "0"}).wanted.value();
    CHECK(o.sizes() == std::vector<std::size_t>{8, 32, 128});
    CHECK(o.iterations == 7);
    CHECK(o.warmup_iterations == 0);
    CHECK(o.checks == 0);
    CHECK(parse({"-b", "8", "-e", "21", "-i", "6"}).wanted.value().sizes() == std::vector<std::size_t>{8, 14, 20});
    CHECK(parse({}).wanted.value().sizes() == std::vector<std::size_t>{32u << 20});
    const options two = parse({"--quantizer", "int8:256+int4:128,bf16", "-d", "half,float"}, true).wanted.value();
    CHECK(two.quantizers == std::vector<std::string>{"int8:256+int4:128", "bf16"});
    CHECK(two.datatypes == std::vector<std::string>{"half", "float"});
    CHECK(parse({"--help"}).exit_code == 0);
}

TEST_CASE("mistakes in options are one line each, and end with 2", "[bench]") {
    const std::vector<std::vector<const char*>> mistakes{{"-q", "int9"},
                                                         {"-q", "int8:256+int4:128"},
                                                         {"-d", "int"},
                                                         {"-b", "x"},
                                                         {"-b", "2"},
                                                         {"-b", "8", "-e", "4"},
                                                         {"-n", "0"},
                                                         {"-f", "0"},
                                                         {"-c", "-1"},
                                                         {"--nothing"},
                                                         {"-n"},
                                                         {"-i", "0"},
                                                         {"--chunks", "2"},
                                                         {"-J", "/none/x"},
                                                         {"--ranks-per-node", "0"}};
    for (const auto& arguments : mistakes) {
        const parsed_options parsed = parse(arguments);
        INFO(arguments.front() << ": " << parsed.message);
        CHECK_FALSE(parsed.wanted.has_value());
        CHECK(parsed.exit_code == 2);
        CHECK(parsed.message.rfind("perf: ", 0) == 0);
        CHECK(parsed.message.find('\n') == parsed.message.size() - 1);
    }
    CHECK(parse({"-q", "bf16+fp32"}, true).message.find("fewer bits across") != std::string::npos);
    CHECK(parse({"-q", "int8:256+"}, true).exit_code == 2);
}
