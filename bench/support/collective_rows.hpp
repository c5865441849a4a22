#pragma once
/// \file
/// The rows of the three collective benchmarks: each quantizer beside the native collectives and the bare exchange.

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

/// One tensor, the same for all contestants.
struct tensor_facts {
    std::size_t bytes;
    std::size_t elements;
    /// What a rank holds of it, at most.
    std::size_t shard_elements;
    std::string_view type;
    std::size_t element_bytes;
    /// Of all the bytes, what a rank must receive or send: NCCL's factor from algbw to busbw.
    double bus_factor;
};

/// What crosses links, inside nodes and between them.
struct sent_bytes {
    std::size_t inside;
    std::size_t across;
};

/// The collective with one quantizer, or pair of them.
struct quantized_case {
    std::string quantizer;
    route hops;
    std::function<void(bool in_place)> call;
    /// Makes a call, and says what this rank has sent in it.
    std::function<sent_bytes()> count;
    /// Whether the collective has such a form.
    bool has_in_place;
    /// Sets the arrays as they were before the first call.
    std::function<void()> reset;
    /// Compares the result of the last call.
    std::function<tally(bool in_place)> check;
};

/// Sets a case's `call` and `count` to call(comm, in_place): on `comm`, and on a communicator that counts. Refers to
/// both.
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
        return sent_bytes{sent.bytes_inside, sent.bytes_across};
    };
}

/// The same collective without quantization.
struct unquantized_cases {
    struct form {
        std::function<void()> call;
        /// Compares the result of the last call: a baseline that does less is none.
        std::function<tally()> check;
        /// Names the algorithm of the last call, where the transport's own collectives have several.
        std::function<std::string()> algorithm = [] { return std::string(); };
    };
    /// The transport's own.
    form native_fp32;
    form native_bf16;
    /// The library's, with the same hops and chunks as the quantized ones: a gain over it comes from the bits alone.
    form ours_bf16;
};

/// Measures and reports one tensor at a time. Collective.
class collective_rows {
public:
    /// `native_name` is what stands beside the library's collective.
    collective_rows(const program_facts& program, const options& o, rank_context& ranks,
                    const std::string& native_name);

    /// One row for each case. Throws zeropp::error where a case sends other bytes than its route says: the bare
    /// exchange would be no measure of it.
    void measure(const tensor_facts& tensor, const unquantized_cases& unquantized,
                 const std::vector<quantized_case>& cases);

    /// The last lines and the JSON file. Returns the exit status: 1 where elements were wrong.
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
