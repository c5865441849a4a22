#include "support/collective_rows.hpp"

#include "support/interleaved.hpp"
#include "support/rank_times.hpp"

#include <zeropp/core/error.hpp>

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace zeropp_bench {

namespace {

constexpr double not_there = std::numeric_limits<double>::quiet_NaN();

const std::vector<column> columns{{"", "size", "(B)", 12},
                                  {"", "count", "(elements)", 12},
                                  {"", "type", "", 8},
                                  {"", "quantizer", "", 29},
                                  {"out-of-place", "time", "(us)", 10},
                                  {"out-of-place", "algbw", "(GB/s)", 7},
                                  {"out-of-place", "busbw", "(GB/s)", 7},
                                  {"out-of-place", "#wrong", "", 6},
                                  {"in-place", "time", "(us)", 10},
                                  {"in-place", "algbw", "(GB/s)", 7},
                                  {"in-place", "busbw", "(GB/s)", 7},
                                  {"in-place", "#wrong", "", 6},
                                  {"", "p99", "(us)", 10},
                                  {"", "SQNR", "(dB)", 6},
                                  {"wire bytes, all ranks", "intra_node", "(B)", 12},
                                  {"wire bytes, all ranks", "inter_node", "(B)", 12},
                                  {"wire bytes, all ranks", "ratio", "", 6},
                                  {"native", "fp32", "(us)", 10},
                                  {"native", "bf16", "(us)", 10},
                                  {"ours", "bf16", "(us)", 10},
                                  {"speed-up over", "fp32", "", 6},
                                  {"speed-up over", "bf16", "", 6},
                                  {"speed-up over", "ours", "", 6},
                                  {"bare exchange", "time", "(us)", 10},
                                  {"bare exchange", "ours/", "", 6},
                                  {"processor, all ranks", "ours", "(us)", 10},
                                  {"processor, all ranks", "bare", "(us)", 10}};

/// Total over all ranks of a hop in which every rank moves `to_each` to each peer.
std::size_t from_all_ranks(const hop& h, std::size_t to_each, const zeropp::two_level& nodes) {
    return static_cast<std::size_t>(nodes.size()) * static_cast<std::size_t>(h.ranks(nodes) - 1) * to_each;
}

/// Processor time of all ranks in one iteration, in seconds: the mean over the last `iterations`. Collective.
double processor_time(rank_context& ranks, const std::vector<double>& spent, int iterations) {
    const double all = std::accumulate(spent.end() - iterations, spent.end(), 0.0);
    const std::vector<double> of_ranks = ranks.gather(ranks.speaks_for_process() ? all : 0.0);
    return std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0) / iterations;
}

}  // namespace

collective_rows::collective_rows(const program_facts& program, const options& o, rank_context& ranks,
                                 const std::string& native_name)
    : options_(o), ranks_(ranks), report_(ranks.rank() == 0, columns) {
    describe_program(report_, program, o);
    report_.fact("transport", ranks.transport_name());
    report_.fact("ranks", ranks.size());
    report_.fact("nodes", ranks.nodes().groups());
    report_.fact("ranks_per_node", ranks.nodes().group_size(0));
    if (program.has_chunks) report_.fact("chunks", o.chunks);
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
    report_.comment(
        "processor: the time that all ranks' processes spent in one iteration, the mean; waiting in MPI spends it too");
    report_.heading();
}

void collective_rows::measure(const tensor_facts& tensor, const unquantized_cases& unquantized,
                              const std::vector<quantized_case>& cases) {
    struct checked_case {
        sent_bytes bytes;
        std::optional<tally> out_of_place;
        std::optional<tally> in_place;
    };
    const std::pair<std::string, const unquantized_cases::form*> opponents[] = {
        {"native_fp32", &unquantized.native_fp32},
        {"native_bf16", &unquantized.native_bf16},
        {"ours_bf16", &unquantized.ours_bf16}};
    std::vector<std::optional<tally>> opponents_checked;
    std::vector<std::string> algorithms;
    std::vector<std::function<void()>> contestants;
    for (const auto& [name, form] : opponents) {
        opponents_checked.push_back(check(*form));
        form->call();
        algorithms.push_back(form->algorithm());
        contestants.push_back(form->call);
    }
    std::vector<checked_case> checked;
    for (const quantized_case& c : cases) checked.push_back({count_bytes(c), check(c, false), check(c, true)});

    constexpr std::size_t absent = 0;
    struct places {
        std::size_t out_of_place;
        std::size_t in_place;
        std::size_t first_bare;
        std::size_t after_bare;
    };
    std::vector<places> at;
    for (const quantized_case& c : cases) {
        places p{contestants.size(), absent, 0, 0};
        contestants.push_back([&c] { c.call(false); });
        if (c.has_in_place) {
            p.in_place = contestants.size();
            contestants.push_back([&c] { c.call(true); });
        }
        p.first_bare = contestants.size();
        for (auto& exchange : ranks_.bare_exchanges(c.hops)) contestants.push_back(std::move(exchange));
        p.after_bare = contestants.size();
        at.push_back(p);
    }
    std::vector<std::vector<double>> spent(contestants.size());
    for (std::size_t c = 0; c != contestants.size(); ++c) {
        contestants[c] = watched(std::move(contestants[c]), spent[c]);
    }
    const auto seconds =
        time_interleaved(contestants, options_.warmup_iterations, options_.iterations, [this] { ranks_.barrier(); });
    std::vector<timing> times;
    for (const auto& s : seconds) times.push_back(slowest(ranks_, s));
    std::vector<double> processor;
    for (const auto& s : spent) processor.push_back(processor_time(ranks_, s, options_.iterations));

    const auto bytes = static_cast<double>(tensor.bytes);
    const auto bandwidths = [&](double time) {
        struct {
            double algbw, busbw;
        } const result{bytes / time * 1e-9, bytes / time * 1e-9 * tensor.bus_factor};
        return result;
    };
    const auto add_form = [&](std::vector<std::string>& cells, double time, const std::optional<tally>& t) {
        const auto [algbw, busbw] = bandwidths(time);
        cells.insert(cells.end(),
                     {cell(time * 1e6, 2), cell(algbw, 3), cell(busbw, 3), t ? std::to_string(t->wrong) : "N/A"});
    };
    const auto json_wrong = [](const std::optional<tally>& t) {
        return t ? nlohmann::ordered_json(t->wrong) : nlohmann::ordered_json(nullptr);
    };
    const auto json_form = [&](const timing& time, const std::optional<tally>& t) {
        const auto [algbw, busbw] = bandwidths(time.median);
        return nlohmann::ordered_json{{"time_us", time.median * 1e6},
                                      {"p99_us", time.p99 * 1e6},
                                      {"algbw_gbs", algbw},
                                      {"busbw_gbs", busbw},
                                      {"wrong", json_wrong(t)},
                                      {"sqnr_db", t ? json_number(t->sqnr_db()) : nlohmann::ordered_json(nullptr)}};
    };

    for (std::size_t i = 0; i != cases.size(); ++i) {
        const quantized_case& c = cases[i];
        const auto& [sent, out_of_place, in_place] = checked[i];
        const timing& ours = times[at[i].out_of_place];
        std::size_t bare_place = at[i].first_bare;
        for (std::size_t k = bare_place; k != at[i].after_bare; ++k) {
            if (times[k].median < times[bare_place].median) bare_place = k;
        }
        const timing& bare = times[bare_place];
        const double our_processor = processor[at[i].out_of_place];
        const double bare_processor = processor[bare_place];
        const bool has_in_place = at[i].in_place != absent;

        std::size_t elements = 0;
        for (const hop& h : c.hops) elements += from_all_ranks(h, h.elements, ranks_.nodes());
        const double element_bytes = static_cast<double>(elements * tensor.element_bytes);
        const double compression = element_bytes / static_cast<double>(sent.intra_node + sent.inter_node);
        const double of_bare = ours.median / bare.median;

        std::vector<std::string> cells{std::to_string(tensor.bytes), std::to_string(tensor.shard_elements),
                                       std::string(tensor.type), c.quantizer};
        add_form(cells, ours.median, out_of_place);
        add_form(cells, has_in_place ? times[at[i].in_place].median : not_there, in_place);
        cells.insert(cells.end(),
                     {cell(ours.p99 * 1e6, 2), out_of_place ? sqnr_cell(*out_of_place) : "N/A",
                      std::to_string(sent.intra_node), std::to_string(sent.inter_node), cell(compression, 2)});
        nlohmann::ordered_json row{
            {"size", tensor.bytes},
            {"count", tensor.shard_elements},
            {"elements", tensor.elements},
            {"type", tensor.type},
            {"quantizer", c.quantizer},
            {"out_of_place", json_form(ours, out_of_place)},
            {"in_place", has_in_place ? json_form(times[at[i].in_place], in_place) : nlohmann::ordered_json(nullptr)},
            {"intra_node_wire_bytes", sent.intra_node},
            {"inter_node_wire_bytes", sent.inter_node},
            {"compression_ratio", json_number(compression)}};
        std::vector<std::string> speedups;
        for (std::size_t k = 0; k != std::size(opponents); ++k) {
            const double speedup = times[k].median / ours.median;
            cells.push_back(cell(times[k].median * 1e6, 2));
            speedups.push_back(cell(speedup, 2));
            row[opponents[k].first] = {{"time_us", times[k].median * 1e6},
                                       {"p99_us", times[k].p99 * 1e6},
                                       {"wrong", json_wrong(opponents_checked[k])},
                                       {"speedup", speedup},
                                       {"algorithm", algorithms[k]}};
        }
        cells.insert(cells.end(), speedups.begin(), speedups.end());
        cells.insert(cells.end(), {cell(bare.median * 1e6, 2), cell(of_bare, 2), cell(our_processor * 1e6, 0),
                                   cell(bare_processor * 1e6, 0)});
        row["bare_exchange"] = {
            {"time_us", bare.median * 1e6}, {"p99_us", bare.p99 * 1e6}, {"ours_over_bare", of_bare}};
        row["processor_us"] = {{"ours", our_processor * 1e6}, {"bare_exchange", bare_processor * 1e6}};
        report_.row(cells, row);
        busbw_sum_ += bandwidths(ours.median).busbw;
        ++busbw_count_;
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
        (h.where == hop::link::intra_node ? expected.intra_node : expected.inter_node) +=
            from_all_ranks(h, h.bytes, ranks_.nodes());
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
    const double mean = busbw_sum_ / static_cast<double>(busbw_count_);
    report_.comment("Avg bus bandwidth    : " + cell(mean, 5));
    return finish_report(report_, options_, wrong_);
}

}  // namespace zeropp_bench
