#pragma once
/// \file
/// The part that benchmarks of gathers share: arrays, and the transport's own all-gather.

#include "support/checks.hpp"
#include "support/collective_perf.hpp"

#include <zeropp/quantizer/cast_to.hpp>

#include <cstdint>

namespace zeropp_bench {

struct gather_perf {
    static constexpr std::uint64_t seed = 1;
    static constexpr wire quantizes = wire::one_hop;
    static constexpr shard_sizes shards = shard_sizes::equal_in_native;
    static constexpr double passes = 1;

    template <class T, class Place>
    using tensors = arrays<T, Place>;

    template <class T, class Place>
    static void call_native(native_collectives& native, native_format format, arrays<T, Place>& a) {
        native.all_gather(format, a.shard.view().data(), a.full.view().data(), a.shard.size());
    }
    template <class T, class Place>
    static tally check_native(arrays<T, Place>& a) {
        return check<T>(zeropp::cast_to<T>(), a);
    }

    /// Compares `full` with all ranks' shards after quantization by `q`.
    template <class T, class Place, zeropp::quantizer Q>
    static tally check(const Q& q, arrays<T, Place>& a) {
        const auto full = a.full.read(0, a.full.size());
        return check_gathered<T>(q, full, a.part, seed);
    }
};

}  // namespace zeropp_bench
