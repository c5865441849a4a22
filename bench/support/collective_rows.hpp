#pragma once
/// \file
/// Rows of the collective benchmarks: each quantizer beside the native collectives and the bare exchange.

#include "support/bounds.hpp"
#include "support/options.hpp"
#include "support/ranks.hpp"
#include "support/report.hpp"

#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/counting.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zeropp_bench {

/// One tensor, equal for all contestants.
struct tensor_facts {
    std::size_t bytes;
    std::size_t elements;
    /// Elements of the largest shard.
    std::size_t shard_elements;
    std::string_view type;
    std::size_t element_bytes;
    /// Fraction of `bytes` that a rank must send or receive: NCCL's factor from algbw to busbw.
    double bus_factor;
};

/// Bytes sent within nodes (`intra_node`) and between nodes (`inter_node`).
struct sent_bytes {
    std::size_t intra_node;
    std::size_t inter_node;
};

/// The collective with one quantizer or pair.
struct quantized_case {
    std::string quantizer;
    route hops;
    std::function<void(bool in_place)> call;
    /// Makes a call, and returns the bytes that this rank sent in it.
    std::function<sent_bytes()> count;
    /// Whether the collective has an in-place form.
    bool has_in_place;
    /// Restores the arrays' contents before the first call.
    std::function<void()> reset;
    /// Compares the result of the last call.
    std::function<tally(bool in_place)> check;
};

/// Sets a case's `call` to call(comm, in_place) on `comm`, and its `count` to a call on a counting communicator.
/// `ranks` and `comm` must outlive the case.
template <class Place, class Call>
void set_calls(quantized_case& c, ranks_on<Place>& ranks, comm_on<Place>& comm, Call call) {
    using transport = typename Place::transport;
    c.call = [&comm, call](bool in_place) { call(comm, in_place); };
    c.count = [&ranks, call] {
        const auto counter =
            std::make_shared<zeropp::counting<transport, zeropp::two_level>>(ranks.world(), ranks.nodes());
        comm_on<Place> counted(ranks.nodes(), transport(counter));
        call(counted, false);
        const zeropp::traffic sent = counter->total();
        return sent_bytes{sent.intra_node_bytes, sent.inter_node_bytes};
    };
}

/// The collective without quantization.
struct unquantized_cases {
    struct form {
        std::function<void()> call;
        /// Checks the result of the last call, because a baseline must do all the work.
        std::function<tally()> check;
        /// Names the algorithm of the last call; empty if unknown.
        std::function<std::string()> algorithm = [] { return std::string(); };
    };
    /// The transport's own collectives.
    form native_fp32;
    form native_bf16;
    /// The library's, with the hops and chunks of the quantized ones: a gain over it comes from fewer bits alone.
    form ours_bf16;
};

/// Measures and reports one tensor at a time. Collective.
class collective_rows {
public:
    /// `native_name` names the collective beside the library's.
    collective_rows(const program_facts& program, const options& o, rank_context& ranks,
                    const std::string& native_name);

    /// Measures and reports one row for each case. Throws zeropp::error if a case sends other bytes than its route:
    /// the bare exchange would be no measure of it.
    void measure(const tensor_facts& tensor, const unquantized_cases& unquantized,
                 const std::vector<quantized_case>& cases);

    /// Writes the last lines and the JSON file. Returns the exit status: 1 if elements were wrong.
    int finish();

private:
    sent_bytes count_bytes(const quantized_case& c);
    std::optional<tally> check(const quantized_case& c, bool in_place);
    std::optional<tally> check(const unquantized_cases::form& unquantized);
    std::optional<tally> check(const std::function<void()>& call, const std::function<tally()>& compared);

    const options& options_;
    rank_context& ranks_;
    report report_;
    std::uint64_t wrong_ = 0;
    double busbw_sum_ = 0;
    std::size_t busbw_count_ = 0;
};

}  // namespace zeropp_bench
