#include "support/collective_rows.hpp"

#include "support/rank_times.hpp"

#include <zeropp/core/error.hpp>

#include <algorithm>
#include <utility>

namespace zeropp_bench {

namespace {

const std::vector<column> columns{{"", "size", "(B)", 12, "/size"},
                                  {"", "count", "(elements)", 12, "/count"},
                                  {"", "type", "", 8, "/type"},
                                  {"", "quantizer", "", 29, "/quantizer"},
                                  {"out-of-place", "time", "(us)", 10, "/out_of_place/time_us", 2},
                                  {"out-of-place", "algbw", "(GB/s)", 7, "/out_of_place/algbw_gbs", 3},
                                  {"out-of-place", "busbw", "(GB/s)", 7, "/out_of_place/busbw_gbs", 3},
                                  {"out-of-place", "#wrong", "", 6, "/out_of_place/wrong"},
                                  {"in-place", "time", "(us)", 10, "/in_place/time_us", 2},
                                  {"in-place", "algbw", "(GB/s)", 7, "/in_place/algbw_gbs", 3},
                                  {"in-place", "busbw", "(GB/s)", 7, "/in_place/busbw_gbs", 3},
                                  {"in-place", "#wrong", "", 6, "/in_place/wrong"},
                                  {"", "p99", "(us)", 10, "/out_of_place/p99_us", 2},
                                  {"", "SQNR", "(dB)", 6, "/out_of_place/sqnr_db", 2, "exact"},
                                  {"wire bytes, all ranks", "intra_node", "(B)", 12, "/intra_node_wire_bytes"},
                                  {"wire bytes, all ranks", "inter_node", "(B)", 12, "/inter_node_wire_bytes"},
                                  {"wire bytes, all ranks", "ratio", "", 6, "/compression_ratio", 2},
                                  {"native", "fp32", "(us)", 10, "/native_fp32/time_us", 2},
                                  {"native", "bf16", "(us)", 10, "/native_bf16/time_us", 2},
                                  {"ours", "bf16", "(us)", 10, "/ours_bf16/time_us", 2},
                                  {"speed-up over", "fp32", "", 6, "/native_fp32/speedup", 2},
                                  {"speed-up over", "bf16", "", 6, "/native_bf16/speedup", 2},
                                  {"speed-up over", "ours", "", 6, "/ours_bf16/speedup", 2},
                                  {"bare exchange", "time", "(us)", 10, "/bare_exchange/time_us", 2},
                                  {"bare exchange", "ours/", "", 6, "/bare_exchange/ours_over_bare", 2},
                                  {"processor, all ranks", "ours", "(us)", 10, "/processor_us/ours", 0},
                                  {"processor, all ranks", "bare", "(us)", 10, "/processor_us/bare_exchange", 0}};

}  // namespace

collective_rows::collective_rows(const program_facts& program, const options& o, rank_context& ranks,
                                 const std::string& native_name)
    : options_(o), ranks_(ranks), report_(ranks.rank() == 0, columns) {
    describe_program(report_, program, o, ranks);
    report_.fact("native", native_name);
    report_.comment(
        "size: bytes of the whole tensor in its type; count: elements of it on one rank (the largest shard)");
    report_.comment(
        "time: of the slowest rank from a barrier on, the median over iterations; p99 and SQNR: out of place");
    report_.comment(
        "wire bytes: sent by all ranks together in one call; ratio: the same messages unquantized over them");
    report_.comment("native: " + native_name +
                    ", same number of elements, by the fastest algorithm it has; ours: this collective, unquantized");
    report_.comment("bare exchange: the wire bytes, moved alone, the faster way to wait");
    report_.comment("processor: the time that all ranks' processes spent in one iteration, the median; waiting in MPI "
                    "spends it too");
    report_.heading();
}

void collective_rows::measure(const tensor_facts& tensor, const unquantized_cases& unquantized,
                              const std::vector<quantized_case>& cases) {
    using json = nlohmann::ordered_json;
    std::vector<std::function<void()>> contestants;
    const auto add = [&](std::function<void()> contestant) {
        contestants.push_back(std::move(contestant));
        return contestants.size() - 1;
    };
    struct opponent {
        const char* name;
        const unquantized_cases::form& form;
        std::size_t contestant = 0;
        json facts = {};
    };
    opponent opponents[] = {{"native_fp32", unquantized.native_fp32},
                            {"native_bf16", unquantized.native_bf16},
                            {"ours_bf16", unquantized.ours_bf16}};
    for (opponent& o : opponents) {
        add_check(o.facts, check(o.form));
        o.form.call();
        o.facts["algorithm"] = o.form.algorithm();
        o.contestant = add(o.form.call);
    }
    struct contest {
        const quantized_case& of;
        sent_bytes sent;
        json out_of_place = {};
        json in_place = {};
        std::size_t ours = 0;
        std::size_t ours_in_place = 0;
        std::vector<std::size_t> bare = {};
    };
    std::vector<contest> contests;
    for (const quantized_case& c : cases) {
        contest& made = contests.emplace_back(contest{c, count_bytes(c)});
        add_check(made.out_of_place, check(c, false));
        made.ours = add([&c] { c.call(false); });
        if (c.has_in_place) {
            add_check(made.in_place, check(c, true));
            made.ours_in_place = add([&c] { c.call(true); });
        }
        for (auto& exchange : ranks_.bare_exchanges(c.hops)) made.bare.push_back(add(std::move(exchange)));
    }
    const std::vector<rank_times> times = measure_in_turns(ranks_, options_, std::move(contestants));

    const auto add_times = [](json& form, const rank_times& t) {
        form["time_us"] = t.slowest.median * 1e6;
        form["p99_us"] = t.slowest.p99 * 1e6;
    };
    const auto add_form = [&](json& form, const rank_times& t) {
        add_times(form, t);
        const double algbw = static_cast<double>(tensor.bytes) / t.slowest.median * 1e-9;
        form["algbw_gbs"] = algbw;
        form["busbw_gbs"] = algbw * tensor.bus_factor;
    };
    for (contest& c : contests) {
        const rank_times& ours = times[c.ours];
        const rank_times& bare = times[*std::ranges::min_element(
            c.bare, {}, [&](std::size_t contestant) { return times[contestant].slowest.median; })];
        std::size_t elements = 0;
        for (const hop& h : c.of.hops) elements += h.from_all(ranks_.size(), h.elements);
        add_form(c.out_of_place, ours);
        if (c.of.has_in_place) add_form(c.in_place, times[c.ours_in_place]);
        json row{{"size", tensor.bytes},
                 {"count", tensor.shard_elements},
                 {"elements", tensor.elements},
                 {"type", tensor.type},
                 {"quantizer", c.of.quantizer},
                 {"out_of_place", c.out_of_place},
                 {"in_place", c.in_place},
                 {"intra_node_wire_bytes", c.sent.intra_node},
                 {"inter_node_wire_bytes", c.sent.inter_node},
                 {"compression_ratio", json_number(static_cast<double>(elements * tensor.element_bytes) /
                                                   static_cast<double>(c.sent.intra_node + c.sent.inter_node))}};
        for (const opponent& o : opponents) {
            json& facts = row[o.name] = o.facts;
            add_times(facts, times[o.contestant]);
            facts["speedup"] = times[o.contestant].slowest.median / ours.slowest.median;
        }
        add_times(row["bare_exchange"], bare);
        row["bare_exchange"]["ours_over_bare"] = ours.slowest.median / bare.slowest.median;
        row["processor_us"] = {{"ours", ours.processor * 1e6}, {"bare_exchange", bare.processor * 1e6}};
        busbw_sum_ += c.out_of_place["busbw_gbs"].get<double>();
        ++busbw_count_;
        report_.row(std::move(row));
    }
}

sent_bytes collective_rows::count_bytes(const quantized_case& c) {
    sent_bytes total{0, 0};
    for (const sent_bytes& sent : ranks_.gather(c.count())) {
        total.intra_node += sent.intra_node;
        total.inter_node += sent.inter_node;
    }
    sent_bytes expected{0, 0};
    for (const hop& h : c.hops) {
        (h.level == 0 ? expected.intra_node : expected.inter_node) += h.from_all(ranks_.size(), h.bytes);
    }
    if (total.intra_node != expected.intra_node || total.inter_node != expected.inter_node) {
        const auto text = [](const sent_bytes& w) {
            return std::to_string(w.intra_node) + " bytes inside nodes and " + std::to_string(w.inter_node) + " across";
        };
        throw zeropp::error(c.quantizer + " was counted to send " + text(total) + ", and by its route sends " +
                            text(expected));
    }
    return total;
}

std::optional<tally> collective_rows::check(const quantized_case& c, bool in_place) {
    if (in_place && !c.has_in_place) return std::nullopt;
    const auto call = [&] {
        c.reset();
        c.call(in_place);
    };
    const std::optional<tally> found = check(call, [&] { return c.check(in_place); });
    c.reset();
    return found;
}

std::optional<tally> collective_rows::check(const unquantized_cases::form& unquantized) {
    return check(unquantized.call, unquantized.check);
}

std::optional<tally> collective_rows::check(const std::function<void()>& call, const std::function<tally()>& compared) {
    if (options_.checks == 0) return std::nullopt;
    tally all;
    for (int i = 0; i != options_.checks; ++i) {
        call();
        for (const tally& t : ranks_.gather(compared())) all.add(t);
    }
    wrong_ += all.wrong;
    return all;
}

int collective_rows::finish() {
    report_.comment("Avg bus bandwidth    : " + cell(busbw_sum_ / static_cast<double>(busbw_count_), 5));
    return finish_report(report_, options_, wrong_);
}

}  // namespace zeropp_bench
