/// \file
/// The host codec, on one or several threads, beside a plain loop that reads and writes equally many bytes.

#include "support/checks.hpp"
#include "support/data.hpp"
#include "support/interleaved.hpp"
#include "support/options.hpp"
#include "support/plain_loop.hpp"
#include "support/processor.hpp"
#include "support/quantizers.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

#include <zeropp/zeropp.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace {

using namespace zeropp_bench;
using codec = zeropp::codec<zeropp::host_threads>;

constexpr std::uint64_t first_seed = 1;
constexpr std::array contributor_counts{2, 4, 8};

std::vector<column> columns_of(const options& o) {
    std::vector<column> columns{{"", "size", "(B)", 12, "/size"},
                                {"", "count", "(elements)", 12, "/count"},
                                {"", "type", "", 8, "/type"},
                                {"", "quantizer", "", 24, "/quantizer"},
                                {"", "operation", "", 15, "/operation"},
                                {"codec", "time", "(us)", 10, "/time_us", 2},
                                {"codec", "p99", "(us)", 10, "/p99_us", 2},
                                {"codec", "speed", "(GB/s)", 7, "/speed_gbs", 2},
                                {"codec", "element", "(ns)", 7, "/element_ns", 4},
                                {"plain loop", "time", "(us)", 10, "/loop_time_us", 2},
                                {"plain loop", "speed", "(GB/s)", 7, "/loop_speed_gbs", 2},
                                {"", "codec/", "loop", 6, "/fraction_of_loop", 3}};
    if (o.threads > 1) {
        const std::string threads = std::to_string(o.threads) + " threads";
        columns.push_back({threads, "codec", "times", 6, "/threads_times", 2});
        columns.push_back({threads, "loop", "times", 6, "/threads_loop_times", 2});
    }
    columns.push_back({"", "#wrong", "", 6, "/wrong"});
    columns.push_back({"", "SQNR", "(dB)", 6, "/sqnr_db", 2, "exact"});
    return columns;
}

/// One operation of the codec with one quantizer.
struct operation {
    std::string quantizer;
    std::string name;
    pass_shape shape;
    std::function<void(const zeropp::host_threads&)> run;
    /// Runs the operation and checks its decoded result.
    std::function<tally()> check;
};

template <class T>
struct tensors {
    std::vector<T> in;
    std::vector<T> out;

    explicit tensors(std::size_t elements) : in(elements), out(elements) { fill<T>(in, first_seed, 0); }
};

/// Messages of one quantizer: the contributors' and the result.
template <class T, zeropp::quantizer Q>
struct messages {
    std::size_t bytes;
    std::vector<std::byte> from_contributors;
    std::vector<std::byte> result;

    messages(const Q& q, const zeropp::host_threads& one, tensors<T>& t, const zeropp::slices& all)
        : bytes(zeropp::wire_bytes(q, all.count)), from_contributors(contributor_counts.back() * bytes), result(bytes) {
        // Downwards, so that t.in ends as the first contributor's tensor.
        for (int c = contributor_counts.back(); c-- > 0;) {
            fill<T>(t.in, first_seed + static_cast<std::uint64_t>(c), 0);
            codec::write(one, q, t.in.data(), all, &from_contributors[static_cast<std::size_t>(c) * bytes]);
        }
    }
};

template <class T, zeropp::quantizer Q>
void add_operations(const Q& q, const zeropp::host_threads& one, std::shared_ptr<tensors<T>> t,
                    std::vector<operation>& to) {
    using threads = zeropp::host_threads;
    const std::size_t n = t->in.size();
    const auto all = zeropp::slices::single(n, 0, n);
    const auto m = std::make_shared<messages<T, Q>>(q, one, *t, all);
    const std::string name = zeropp::short_text(q.name()).str();

    const auto decode_result = [=] { codec::read(one, zeropp::message_sum{q, m->result.data()}, all, t->out.data()); };
    const auto check_one = [=] {
        return check_gathered<T>(q, std::span<const T>(t->out), zeropp::partition(n, 1), first_seed);
    };
    const auto encode = [=](const threads& on) { codec::write(on, q, t->in.data(), all, m->result.data()); };
    to.push_back({name, "encode", {1, n * sizeof(T), m->bytes}, encode, [=] {
                      encode(one);
                      decode_result();
                      return check_one();
                  }});
    const auto decode = [=](const threads& on) {
        codec::read(on, zeropp::message_sum{q, m->from_contributors.data()}, all, t->out.data());
    };
    to.push_back({name, "decode", {1, m->bytes, n * sizeof(T)}, decode, [=] {
                      decode(one);
                      return check_one();
                  }});
    // Float formats have no bound without the element's exact binade. Their check is the number of bytes that differ
    // from the bytes of the sum in float, encoded by itself. Sums of rotated messages stay rotated.
    [[maybe_unused]] const auto other_bytes = [=](int contributors) -> std::uint64_t {
        std::vector<float> sums(n);
        std::vector<std::byte> expected(m->bytes);
        const auto alone = [&] {
            if constexpr (zeropp::rotating_quantizer<Q>)
                return typename zeropp::detail::unrotated<Q>::type{q};
            else
                return q;
        }();
        codec::read(one, zeropp::message_sum{alone, m->from_contributors.data(), contributors}, all, sums.data());
        codec::write(one, alone, sums.data(), all, expected.data());
        return std::inner_product(expected.begin(), expected.end(), m->result.begin(), std::uint64_t{0}, std::plus<>(),
                                  std::not_equal_to<>());
    };
    for (const int contributors : contributor_counts) {
        const auto streams = static_cast<std::size_t>(contributors);
        const std::string of = "_" + std::to_string(contributors);
        const auto reduce_encode = [=](const threads& on) {
            codec::write(on, q, zeropp::message_sum{q, m->from_contributors.data(), contributors}, all,
                         m->result.data());
        };
        to.push_back({name, "reduce_encode" + of, {streams, m->bytes, m->bytes}, reduce_encode, [=]() -> tally {
                          reduce_encode(one);
                          decode_result();
                          tally found = compare_in_pieces<T>(
                              std::span<const T>(t->out), [&](std::size_t begin, std::size_t some) {
                                  estimates expected = expected_sum<T>(q, contributors, first_seed, begin, some);
                                  if constexpr (zeropp::integer_quantizer<Q>) {
                                      quantize(q, expected);
                                  } else {
                                      std::ranges::fill(expected.error, std::numeric_limits<double>::infinity());
                                  }
                                  return expected;
                              });
                          if constexpr (!zeropp::integer_quantizer<Q>) found.wrong += other_bytes(contributors);
                          return found;
                      }});
        const auto reduce_decode = [=](const threads& on) {
            codec::read(on, zeropp::message_sum{q, m->from_contributors.data(), contributors}, all, t->out.data());
        };
        to.push_back({name, "reduce_decode" + of, {streams, m->bytes, n * sizeof(T)}, reduce_decode, [=] {
                          reduce_decode(one);
                          return compare_in_pieces<T>(
                              std::span<const T>(t->out), [&](std::size_t begin, std::size_t some) {
                                  return expected_sum<T>(q, contributors, first_seed, begin, some);
                              });
                      }});
    }
}

/// Standard deviations of the changes of weights between two exact updates, in 2^-m, where a 16-bit element has m bits
/// of mantissa. About 45, 10 and 1 % of the elements change, and none.
constexpr std::array exact_changes{0.23f, 0.025f, 0.0015f, 0.0f};

/// Weights of type T and their old elements in 16 bits, of type Old. Messages of exact differences to the weights, and
/// back, so that a replica can be decoded into any number of times.
template <class T, class Old>
struct exact_case {
    std::vector<T> weights;
    std::vector<Old> old, rounded, replica;
    std::vector<std::byte> room;
    std::array<std::vector<std::byte>, 2> messages;
    bool has_weights = false;  // the replica, or old elements

    exact_case(const zeropp::host_threads& one, std::size_t n, float change)
        : weights(n), old(n), rounded(n), room(zeropp::format_of<zeropp::exact_differences>.bytes(n)) {
        const float unit = std::is_same_v<Old, zeropp::half> ? 0x1p-10f : 0x1p-7f;
        for (std::size_t i = 0; i != n; ++i) {
            using zeropp::element_traits;
            const float weight = value_at(first_seed, i);
            old[i] = element_traits<Old>::from_float(weight);
            weights[i] = element_traits<T>::from_float(weight + change * unit * value_at(first_seed + 1, i));
            rounded[i] = element_traits<Old>::from_float(element_traits<T>::to_float(weights[i]));
        }
        replica = old;
        messages = {message(one, weights, old), message(one, old, rounded)};
    }
    zeropp::slices all() const { return zeropp::slices::single(old.size(), 0, old.size()); }
    std::uint64_t encode(const zeropp::host_threads& on) { return encode(on, weights, old); }
    void decode(const zeropp::host_threads& on) {
        const std::vector<std::byte>& from = messages[has_weights ? 1 : 0];
        codec::read_exact(on, from.data(), from.size(), all(), replica.data());
        has_weights = !has_weights;
    }

private:
    template <class From>
    std::uint64_t encode(const zeropp::host_threads& on, const std::vector<From>& to, const std::vector<Old>& from) {
        std::uint64_t bytes = 0;
        codec::write_exact(on, zeropp::difference{to.data(), from.data()}, all(), room.data(), &bytes);
        return bytes;
    }
    template <class From>
    std::vector<std::byte> message(const zeropp::host_threads& one, const std::vector<From>& to,
                                   const std::vector<Old>& from) {
        std::vector<std::byte> bytes(encode(one, to, from));
        codec::place_exact(one, all(), room.data(), bytes.data(), bytes.size());
        return bytes;
    }
};

/// Exact differences of weights of type T to old elements in 16 bits. Of float, encoding rounds to bfloat16.
template <class T>
void add_exact_operations(std::size_t n, const zeropp::host_threads& one, std::vector<operation>& to) {
    using old_type = std::conditional_t<std::is_same_v<T, float>, zeropp::bfloat16, T>;
    const auto differing = [](const std::vector<old_type>& a, const std::vector<old_type>& b) {
        return std::inner_product(a.begin(), a.end(), b.begin(), std::uint64_t{0}, std::plus<>(),
                                  [](old_type x, old_type y) { return x.bits == y.bits ? 0u : 1u; });
    };
    for (const float change : exact_changes) {
        const auto c = std::make_shared<exact_case<T, old_type>>(one, n, change);
        const auto check = [=]() -> tally {
            const bool right = c->encode(one) == c->messages[0].size();
            c->decode(one);
            return {.wrong = (right ? 0 : n) + differing(c->replica, c->has_weights ? c->rounded : c->old)};
        };
        const std::string share = "_" + std::to_string((200 * differing(c->rounded, c->old) + n) / (2 * n)) + "%";
        constexpr std::size_t size = sizeof(old_type);
        const std::size_t bytes = c->messages[0].size();
        to.push_back({"exact",
                      "encode" + share,
                      {1 + sizeof(T) / size, n * size, bytes},
                      [=](const zeropp::host_threads& on) { c->encode(on); },
                      check});
        to.push_back({"exact",
                      "decode" + share,
                      {1, bytes + n * size, n * size},
                      [=](const zeropp::host_threads& on) { c->decode(on); },
                      check});
    }
}

/// Operations of `quantizer` on tensors of `elements` elements.
template <class T>
std::vector<operation> operations_of(std::size_t elements, const zeropp::host_threads& one,
                                     const std::string& quantizer) {
    std::vector<operation> operations;
    std::visit(
        [&]<class Q>(const Q& q) {
            if constexpr (zeropp::quantizer<Q>) {
                add_operations<T>(q, one, std::make_shared<tensors<T>>(elements), operations);
            } else {
                add_exact_operations<T>(elements, one, operations);
            }
        },
        codec_quantizers::parse(quantizer));
    return operations;
}

/// Measures operations on tensors of one size and type, alternating with plain loops. Returns the number of wrong
/// elements.
std::uint64_t measure(report& rows, const options& o, std::size_t bytes, std::size_t elements, const std::string& type,
                      const zeropp::host_threads& one, const std::vector<operation>& operations) {
    const zeropp::host_threads several(o.threads);
    std::size_t most_read = 0;
    std::size_t most_written = 0;
    for (const operation& op : operations) {
        most_read = std::max(most_read, op.shape.streams * op.shape.stream_bytes);
        most_written = std::max(most_written, op.shape.written_bytes);
    }
    // Written, because unwritten memory is one shared page of zeros.
    const std::vector<std::byte> loop_from(most_read, std::byte{1});
    std::vector<std::byte> loop_to(most_written);
    std::vector<std::function<void()>> contestants;
    const std::size_t each = o.threads > 1 ? 4 : 2;
    for (const operation& op : operations) {
        const auto loop = [&](const zeropp::host_threads& on) {
            return [&] { plain_loop_on(on, op.shape, loop_from.data(), op.shape.stream_bytes, loop_to.data()); };
        };
        contestants.push_back([&] { op.run(one); });
        contestants.push_back(loop(one));
        if (o.threads > 1) {
            contestants.push_back([&] { op.run(several); });
            contestants.push_back(loop(several));
        }
    }
    std::vector<tally> found(operations.size());
    for (int i = 0; i != o.checks; ++i) {
        for (std::size_t k = 0; k != operations.size(); ++k) found[k].add(operations[k].check());
    }
    const auto seconds = time_interleaved(contestants, o.warmup_iterations, o.iterations, [] {});

    std::uint64_t wrong = 0;
    for (std::size_t k = 0; k != operations.size(); ++k) {
        const operation& op = operations[k];
        const timing ours = summary(seconds[each * k]);
        const timing loop = summary(seconds[each * k + 1]);
        const double gigabytes = static_cast<double>(op.shape.bytes()) * 1e-9;
        const double fraction = loop.median / ours.median;
        const double element_ns = ours.median * 1e9 / static_cast<double>(elements);
        wrong += found[k].wrong;
        nlohmann::ordered_json row{{"size", bytes},
                                   {"count", elements},
                                   {"type", type},
                                   {"quantizer", op.quantizer},
                                   {"operation", op.name},
                                   {"bytes_read", op.shape.streams * op.shape.stream_bytes},
                                   {"bytes_written", op.shape.written_bytes},
                                   {"time_us", ours.median * 1e6},
                                   {"p99_us", ours.p99 * 1e6},
                                   {"speed_gbs", gigabytes / ours.median},
                                   {"element_ns", element_ns},
                                   {"loop_time_us", loop.median * 1e6},
                                   {"loop_speed_gbs", gigabytes / loop.median},
                                   {"fraction_of_loop", fraction}};
        if (o.threads > 1) {
            row["threads_times"] = ours.median / summary(seconds[each * k + 2]).median;
            row["threads_loop_times"] = loop.median / summary(seconds[each * k + 3]).median;
        }
        add_check(row, o.checks != 0 ? std::optional(found[k]) : std::nullopt);
        rows.row(std::move(row));
    }
    return wrong;
}

int run(const options& o, const program_facts& program) {
    report rows(true, columns_of(o));
    describe_program(rows, program, o);
    rows.fact("processor", processor("model name"));
    rows.fact("family and model", processor("cpu family") + " " + processor("model"));
    rows.fact("features", features());
    rows.fact("target", take_target(o.target));
    rows.fact("clock (GHz)", json_number(clock_ghz()));
    rows.fact("threads", o.threads);
    rows.comment("size, count: of one tensor; speed: bytes read and written; time: median over iterations");
    rows.comment(
        "plain loop: over as many bytes in as many streams, computing next to nothing, in turns with the codec");
    if (o.threads > 1) rows.comment("times: as fast as on one thread, codec and plain loop");
    rows.heading();
    const zeropp::host_threads one(1);
    std::uint64_t wrong = 0;
    for (const std::string& type : o.datatypes) {
        for (const std::size_t bytes : o.sizes()) {
            for (const std::string& quantizer : o.quantizers) {
                with_datatype(type, [&]<class T>(T) {
                    const std::size_t elements = bytes / sizeof(T);
                    wrong += measure(rows, o, elements * sizeof(T), elements, type, one,
                                     operations_of<T>(elements, one, quantizer));
                });
            }
        }
    }
    return finish_report(rows, o, wrong);
}

}  // namespace

int main(int argc, char** argv) {
    const program_facts program{.name = "codec_perf",
                                .purpose =
                                    "Times the host codec beside a plain loop that reads and writes as many bytes, "
                                    "in turns.",
                                .quantizers = {"int8:256", "int4:128"},
                                .quantizes = wire::codec,
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
