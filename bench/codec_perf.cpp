/// \file
/// The host codec on one thread beside memcpy, which moves as many bytes.

#include "support/checks.hpp"
#include "support/data.hpp"
#include "support/interleaved.hpp"
#include "support/options.hpp"
#include "support/quantizers.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

#include <zeropp/zeropp.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace {

using namespace zeropp_bench;
using codec = zeropp::codec<zeropp::host>;

constexpr std::uint64_t first_seed = 1;
constexpr int contributors = 4;

const std::vector<column> columns{
    {"", "size", "(B)", 12},          {"", "count", "(elements)", 12}, {"", "type", "", 8},
    {"", "quantizer", "", 20},        {"", "operation", "", 15},       {"codec", "time", "(us)", 10},
    {"codec", "p99", "(us)", 10},     {"codec", "speed", "(GB/s)", 7}, {"memcpy", "time", "(us)", 10},
    {"memcpy", "speed", "(GB/s)", 7}, {"", "codec/", "memcpy", 7},     {"", "#wrong", "", 6},
    {"", "SQNR", "(dB)", 6}};

/// One operation of the codec with one quantizer.
struct operation {
    std::string quantizer;
    std::string name;
    std::size_t bytes_read;
    std::size_t bytes_written;
    std::function<void()> run;
    /// Runs it and compares what its result decodes to.
    std::function<tally()> check;
};

template <class T>
struct tensors {
    std::vector<T> in;
    std::vector<T> out;

    explicit tensors(std::size_t elements) : in(elements), out(elements) { fill<T>(in, first_seed, 0); }
};

/// The messages of one quantizer: the contributors', and the one that is written.
template <class T, zeropp::quantizer Q>
struct messages {
    std::size_t bytes;
    std::vector<std::byte> from_contributors;
    std::vector<std::byte> result;

    messages(const Q& q, tensors<T>& t, const zeropp::slices& all)
        : bytes(zeropp::wire_bytes(q, all.count)), from_contributors(contributors * bytes), result(bytes) {
        // The first contributor's tensor is t.in.
        for (int c = contributors; c-- > 0;) {
            fill<T>(t.in, first_seed + static_cast<std::uint64_t>(c), 0);
            codec::encode(zeropp::host{}, q, t.in.data(), all, &from_contributors[static_cast<std::size_t>(c) * bytes]);
        }
    }
};

template <class T, zeropp::quantizer Q>
void add_operations(const Q& q, std::shared_ptr<tensors<T>> t, std::vector<operation>& to) {
    const std::size_t n = t->in.size();
    const auto all = zeropp::slices::single(n, 0, n);
    const auto m = std::make_shared<messages<T, Q>>(q, *t, all);
    const std::string name = zeropp::short_text(q.name()).str();
    const zeropp::host exec;

    const auto decode_result = [=] { codec::decode(exec, q, m->result.data(), all, t->out.data()); };
    const auto check_one = [=] {
        return check_gathered<T>(q, std::span<const T>(t->out), zeropp::partition(n, 1), first_seed);
    };
    const auto encode = [=] { codec::encode(exec, q, t->in.data(), all, m->result.data()); };
    to.push_back({name, "encode", n * sizeof(T), m->bytes, encode, [=] {
                      encode();
                      decode_result();
                      return check_one();
                  }});
    const auto decode = [=] { codec::decode(exec, q, m->from_contributors.data(), all, t->out.data()); };
    to.push_back({name, "decode", m->bytes, n * sizeof(T), decode, [=] {
                      decode();
                      return check_one();
                  }});
    const auto reduce_encode = [=] {
        codec::reduce_encode(exec, q, m->from_contributors.data(), contributors, all, q, m->result.data());
    };
    const std::string of = "_" + std::to_string(contributors);
    to.push_back({name, "reduce_encode" + of, contributors * m->bytes, m->bytes, reduce_encode, [=] {
                      reduce_encode();
                      decode_result();
                      return compare_in_pieces<T>(std::span<const T>(t->out), [&](std::size_t begin, std::size_t some) {
                          estimates expected = expected_sum<T>(q, contributors, first_seed, begin, some);
                          quantize(q, expected);
                          return expected;
                      });
                  }});
    const auto reduce_decode = [=] {
        codec::reduce_decode(exec, q, m->from_contributors.data(), contributors, all, t->out.data(), {});
    };
    to.push_back({name, "reduce_decode" + of, contributors * m->bytes, n * sizeof(T), reduce_decode, [=] {
                      reduce_decode();
                      return compare_in_pieces<T>(std::span<const T>(t->out), [&](std::size_t begin, std::size_t some) {
                          return expected_sum<T>(q, contributors, first_seed, begin, some);
                      });
                  }});
}

/// Measures all operations on tensors of one size and type, each in turn with a memcpy of its own. Returns the number
/// of wrong elements.
template <class T>
std::uint64_t measure(report& rows, const options& o, std::size_t bytes) {
    const std::size_t elements = bytes / sizeof(T);
    const auto t = std::make_shared<tensors<T>>(elements);
    std::vector<operation> operations;
    for (const std::string& name : o.quantizers) {
        std::visit([&](const auto& q) { add_operations<T>(q, t, operations); }, bench_quantizers::parse(name));
    }

    std::size_t most = 0;
    for (const operation& op : operations) most = std::max(most, (op.bytes_read + op.bytes_written) / 2);
    const std::vector<std::byte> copy_from(most);
    std::vector<std::byte> copy_to(most);
    std::vector<std::function<void()>> contestants;
    for (const operation& op : operations) {
        contestants.push_back(op.run);
        // memcpy reads as many bytes as it writes.
        contestants.push_back([&copy_from, &copy_to, half = (op.bytes_read + op.bytes_written) / 2] {
            std::memcpy(copy_to.data(), copy_from.data(), half);
        });
    }
    std::vector<tally> found(operations.size());
    for (int i = 0; i != o.checks; ++i) {
        for (std::size_t k = 0; k != operations.size(); ++k) found[k].add(operations[k].check());
    }
    const auto seconds = time_interleaved(contestants, o.warmup_iterations, o.iterations, [] {});

    std::uint64_t wrong = 0;
    for (std::size_t k = 0; k != operations.size(); ++k) {
        const operation& op = operations[k];
        const timing ours = summary(seconds[2 * k]);
        const timing copy = summary(seconds[2 * k + 1]);
        const double gigabytes = static_cast<double>(op.bytes_read + op.bytes_written) * 1e-9;
        const double fraction = copy.median / ours.median;
        const bool checked = o.checks != 0;
        wrong += found[k].wrong;
        rows.row({std::to_string(elements * sizeof(T)), std::to_string(elements), std::string(datatype<T>),
                  op.quantizer, op.name, cell(ours.median * 1e6, 2), cell(ours.p99 * 1e6, 2),
                  cell(gigabytes / ours.median, 2), cell(copy.median * 1e6, 2), cell(gigabytes / copy.median, 2),
                  cell(fraction, 3), checked ? std::to_string(found[k].wrong) : "N/A",
                  checked ? sqnr_cell(found[k]) : "N/A"},
                 {{"size", elements * sizeof(T)},
                  {"count", elements},
                  {"type", datatype<T>},
                  {"quantizer", op.quantizer},
                  {"operation", op.name},
                  {"bytes_read", op.bytes_read},
                  {"bytes_written", op.bytes_written},
                  {"time_us", ours.median * 1e6},
                  {"p99_us", ours.p99 * 1e6},
                  {"speed_gbs", gigabytes / ours.median},
                  {"memcpy_time_us", copy.median * 1e6},
                  {"memcpy_speed_gbs", gigabytes / copy.median},
                  {"fraction_of_memcpy", fraction},
                  {"wrong", checked ? nlohmann::ordered_json(found[k].wrong) : nlohmann::ordered_json(nullptr)},
                  {"sqnr_db", checked ? json_number(found[k].sqnr_db()) : nlohmann::ordered_json(nullptr)}});
    }
    return wrong;
}

int run(const options& o, const program_facts& program) {
    report rows(true, columns);
    describe_program(rows, program, o);
    rows.comment("size, count: of one tensor; speed: bytes read and written; time: median over iterations");
    rows.comment("memcpy: as many bytes read and written, in turns with the codec");
    rows.heading();
    std::uint64_t wrong = 0;
    for (const std::string& type : o.datatypes) {
        for (const std::size_t bytes : o.sizes()) {
            with_datatype(type, [&]<class T>(T) { wrong += measure<T>(rows, o, bytes); });
        }
    }
    return finish_report(rows, o, wrong);
}

}  // namespace

int main(int argc, char** argv) {
    const program_facts program{.name = "codec_perf",
                                .purpose =
                                    "Times the host codec on one thread beside memcpy, which moves as many bytes, "
                                    "in turns.",
                                .quantizers = {"int8:256", "int4:128"},
                                .has_ranks = false};
    const parsed_options parsed = parse_options(argc, argv, program);
    if (!parsed.wanted) {
        std::fputs(parsed.message.c_str(), parsed.exit_code == 0 ? stdout : stderr);
        return parsed.exit_code;
    }
    try {
        return run(*parsed.wanted, program);
    } catch (const std::exception& e) {
        std::fputs(mistake(program, e.what()).c_str(), stderr);
        return 1;
    }
}
