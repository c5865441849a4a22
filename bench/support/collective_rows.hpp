#pragma once
/// \file
/// The rows of the three collective benchmarks: each quantizer beside the native collectives and the bare exchange.

#include "support/bounds.hpp"
#include "support/options.hpp"
#include "support/ranks.hpp"
#include "support/report.hpp"

#include <cstddef>
#include <functional>
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

/// The collective with one quantizer, or pair of them.
struct quantized_case {
    std::string quantizer;
    route hops;
    std::function<void(comm_type&, bool in_place)> call;
    /// Whether the collective has such a form.
    bool has_in_place;
    /// Sets the arrays as they were before the first call.
    std::function<void()> reset;
    /// Compares the result of the last call.
    std::function<tally(bool in_place)> check;
};

/// The same collective without quantization, at 32 and at 16 bits for each element.
struct native_case {
    struct form {
        std::function<void()> call;
        /// Compares the result of the last call: a baseline that does less is none.
        std::function<tally()> check;
    };
    form fp32;
    form bf16;
};

/// Measures and reports one tensor at a time. Collective.
class collective_rows {
public:
    /// `native_name` is what stands beside the library's collective.
    collective_rows(const program_facts& program, const options& o, rank_context& ranks,
                    const std::string& native_name);

    /// The communicator that the timed calls are made on.
    comm_type& comm() { return comm_; }

    /// One row for each case. Throws zeropp::error where a case sends other bytes than its route says: the bare
    /// exchange would be no measure of it.
    void measure(const tensor_facts& tensor, const native_case& native, const std::vector<quantized_case>& cases);

    /// The last lines and the JSON file. Returns the exit status: 1 where elements were wrong.
    int finish();

private:
    struct wire {
        std::size_t inside;
        std::size_t across;
    };
    wire count_bytes(const quantized_case& c);
    std::optional<tally> check(const quantized_case& c, bool in_place);
    std::optional<tally> check(const native_case::form& native);
    std::optional<tally> check(const std::function<void()>& call, const std::function<tally()>& compared);

    const options& options_;
    rank_context& ranks_;
    comm_type comm_;
    report report_;
    std::uint64_t wrong_ = 0;
    double busbw_sum_ = 0;
    std::size_t busbw_count_ = 0;
};

}  // namespace zeropp_bench
