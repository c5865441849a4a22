#pragma once
/// \file
/// The part that benchmarks share if the result is as large as a rank's tensor.

#include "support/collective_perf.hpp"
#include "support/data.hpp"

#include <cstdint>

namespace zeropp_bench {

struct whole_perf {
    static constexpr std::uint64_t first_seed = 1;
    static constexpr bool has_in_place = true;

    template <class T, class Place>
    using tensors = whole_arrays<T, Place>;

    template <class T, class Place>
    static void reset(whole_arrays<T, Place>& a) {
        fill_full(a, first_seed);
        clear(a.result);
    }
};

}  // namespace zeropp_bench
