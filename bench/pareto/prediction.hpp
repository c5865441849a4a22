#pragma once
/// \file
/// Differences to what weights are predicted to be: nodes move those that they keep on as these have moved before.

#include <zeropp/zeropp.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace pareto {

/// `Base`, of differences to a prediction: all nodes hold a running mean of the moves decoded, of which `Kept` percent
/// is what it was before, and expect `Ahead` percent of it to come. That is differential pulse-code modulation of what
/// Adam's first moment makes predictable.
template <class Base, int Ahead, int Kept>
struct predicted : Base {
    static constexpr float ahead = Ahead / 100.0f;
    static constexpr float kept = Kept / 100.0f;
    static constexpr zeropp::short_text name() {
        return zeropp::short_text(Base{}.name()).append(":ahead").append(Ahead).append(":kept").append(Kept);
    }
};

template <class Q>
concept predicts = requires {
    Q::ahead;
};

/// A replica that can hold the running mean: one more 16-bit number for each that is stored.
template <class Exact, class Space>
struct moving_replica : zeropp::secondary_replica<Exact, Space> {
    using zeropp::secondary_replica<Exact, Space>::secondary_replica;
    std::vector<zeropp::bfloat16> motion;
};

/// quantized_update_gather, around which the prediction is made; `exec` has finished on return.
template <class Exec, class Communicator, class Q, class Shard, class Exact, class Space, class... More>
void update_predicted(const Exec& exec, Communicator& comm, const Q& q, Shard&& shard,
                      moving_replica<Exact, Space>& replica, More&&... more) {
    exec.wait();
    auto* const stored = reinterpret_cast<zeropp::bfloat16*>(replica.slot(0));
    const std::size_t count =
        static_cast<std::size_t>(replica.owners().groups()) * replica.slot_bytes() / sizeof *stored;
    const auto value = [](zeropp::bfloat16 x) { return static_cast<float>(x); };
    const bool known = replica.version().has_value();
    const std::vector<zeropp::bfloat16> before(stored, stored + count);
    replica.motion.resize(count, zeropp::bfloat16(0.0f));
    for (std::size_t i = 0; known && i != count; ++i) {
        stored[i] = zeropp::bfloat16(value(before[i]) + Q::ahead * value(replica.motion[i]));
    }
    zeropp::quantized_update_gather(exec, comm, q, shard, replica, std::forward<More>(more)...);
    exec.wait();
    for (std::size_t i = 0; known && i != count; ++i) {
        const float moved = value(stored[i]) - value(before[i]);
        replica.motion[i] = zeropp::bfloat16(Q::kept * value(replica.motion[i]) + (1 - Q::kept) * moved);
    }
}

}  // namespace pareto
