#pragma once
/// \file
/// Weight differences to a prediction: nodes continue the recent motion of their replicas.

#include <zeropp/zeropp.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pareto {

/// `Base` for differences to a prediction. All nodes hold a running mean of decoded moves, which keeps `Kept` percent
/// of its old value. They predict a move of `Ahead` percent of it. This is differential pulse-code modulation of motion
/// that Adam's first moment makes predictable.
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

/// A replica that holds the running mean too: one more 16-bit number for each stored element.
template <class Exact, class Space>
struct moving_replica : zeropp::secondary_replica<Exact, Space> {
    using zeropp::secondary_replica<Exact, Space>::secondary_replica;
    std::vector<zeropp::bfloat16> motion;
};

/// Runs quantized_update with the prediction. Waits for `exec`.
template <class Exec, class Communicator, class Q, class Shard, class Exact, class Space, class Full, class Scratch>
void update_predicted(const Exec& exec, Communicator& comm, const Q& q, Shard&& shard,
                      moving_replica<Exact, Space>& replica, std::uint64_t version, Full&& full, Scratch&& scratch) {
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
    zeropp::quantized_update(exec, comm, q, shard, replica.to(version, full), {}, scratch);
    exec.wait();
    for (std::size_t i = 0; known && i != count; ++i) {
        const float moved = value(stored[i]) - value(before[i]);
        replica.motion[i] = zeropp::bfloat16(Q::kept * value(replica.motion[i]) + (1 - Q::kept) * moved);
    }
}

}  // namespace pareto
