#pragma once
/// \file
/// The hops of collectives, level by level: of an all-gather, and of a reduction with chunks and buffers.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/prologue.hpp>
#include <zeropp/core/config.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/operands.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/quantizer/hops.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/communicator.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <type_traits>

namespace zeropp::detail {

/// Address of an array operand, which is a single tensor without gaps.
template <class T, class Space>
T* only_tensor(const array_operand<T, Space>& tensors) {
    return tensors.array.data();
}
/// Address of the tensor of a list that has only one, without gaps between shards; nullptr for other lists.
template <class T, class Space>
T* only_tensor(const list_operand<T, Space>& tensors) {
    return tensors.list.size() == 1 && !tensors.has_gaps() ? tensors.list[0].data() : nullptr;
}

/// Address of `tensors` if their memory can serve as the messages of all slots; otherwise nullptr. It can if Q stores
/// elements, each slot is the rank of its number, and `chunk` is all of a single tensor. This tensor must begin at a
/// multiple of 16 bytes, and have equal shards of a multiple of 16 bytes. Ranks may decide differently, because encoded
/// messages have equal bytes.
template <quantizer Q, class Operand, class Slices, topology Topology>
auto messages_in_place([[maybe_unused]] const Operand& tensors, [[maybe_unused]] const Slices& chunk,
                       [[maybe_unused]] const Topology& ranks) {
    using T = std::remove_pointer_t<decltype(only_tensor(tensors))>;
    using byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    byte* messages = nullptr;
    if constexpr (stores_elements<Q, std::remove_const_t<T>>) {
        T* const first = only_tensor(tensors);
        const std::size_t shard = chunk.last_count();
        const bool equal_shards = static_cast<std::size_t>(ranks.size()) * shard == tensors.elements();
        const bool aligned = address_of(first) % 16 == 0 && format_of<Q>.bytes_of(chunk) == shard * sizeof(T);
        if (slots_are_ranks(ranks) && equal_shards && aligned) messages = reinterpret_cast<byte*>(first);
    }
    return messages;
}

/// The execution of `exec` that moves messages along `level`: `inter_node` for the last of several levels, otherwise
/// `intra_node`.
template <int Levels, execution Execution>
const Execution& execution_of(const pipeline<Execution>& exec, int level) {
    return Levels > 1 && level == Levels - 1 ? exec.inter_node : exec.intra_node;
}

/// Enqueues the first part of an all-gather: the hop along the last of several levels. `messages` has a message of
/// `bytes` bytes for each slot.
template <execution Execution, class Communicator>
void gather_across(const Execution& exec, Communicator& comm, std::byte* messages, std::size_t bytes) {
    if constexpr (Communicator::levels > 1) comm.gather(Communicator::levels - 1, exec, messages, bytes);
}

/// Enqueues the rest of an all-gather: hops along all levels but the last, or along the only level. `messages` has a
/// message of `bytes` bytes for each slot.
template <execution Execution, class Communicator>
void gather_within(const Execution& exec, Communicator& comm, std::byte* messages, std::size_t bytes) {
    for (int l = std::max(Communicator::levels - 2, 0); l >= 0; --l) comm.gather(l, exec, messages, bytes);
}

template <class Hops>
inline constexpr std::array<message_format, 0> formats_of{};
template <quantizer... Q>
inline constexpr std::array formats_of<hops<Q...>>{format_of<Q>...};

/// True if `Execution` has a codec for all quantizers of `Hops`, and elements of type T.
template <class Execution, class Hops, class T>
inline constexpr bool has_codecs = false;
template <class Execution, quantizer... Q, class T>
inline constexpr bool has_codecs<Execution, hops<Q...>, T> = (codec_execution<Execution, Q, T> && ...);

/// Adds to `call` the terms of a reduction on which ranks must agree: quantizers, tensors, the text `options`, and the
/// residuals' number of uses.
template <class Hops, class Division, class Memory>
void agree_on_reduction(prologue& call, const Hops& by_level, const Division& whole, const agreed_text& options,
                        const Memory& memory) {
    call.quantize_with(by_level);
    call.agree(whole.text());
    call.agree(options);
    call.agree(memory.text());
}

/// Calls f(level<L>) for the first level L along which messages move; for the last level if there is none. Returns the
/// result of f.
template <topology Topology, class F, int Level = 0>
auto with_first_hop(const Topology& ranks, F f, level_t<Level> = {}) {
    if constexpr (Level + 1 < Topology::levels) {
        if (!has_hop(ranks, Level)) return with_first_hop(ranks, f, level<Level + 1>);
    }
    return f(level<Level>);
}

/// Enqueues the hops of chunk c of a reduction. `Call` is a reduction_call; `last` is a function that decodes or
/// encodes the last sum.
template <class Call, class Slices, class Last>
struct reduced_chunk {
    static constexpr int levels = Call::levels;

    const Call& call;
    std::size_t c;
    Slices chunk;
    Last last;

    /// Exchanges `sent`, the messages for the shards of `slots`, along one level. Then goes on with the received
    /// messages.
    template <int Level>
    void exchange(level_t<Level> along, const slot_range& slots, const std::byte* sent) const {
        const auto& on = execution_of<levels>(call.exec, Level);
        start_after(on, call.exec.intra_node);
        call.comm.exchange(
            Level, on, slots, {sent, call.plan.to_receive(call.work, c, Level), bytes(Level)},
            [&](const slot_range& summed, int contributors) { go_on(along, level<Level + 1>, summed, contributors); });
    }

    /// Sums the messages that were received along `from`: one from each of `contributors` ranks for each shard of
    /// `slots`. Sends the sums along the next level with a hop, `to` or a later one. If there is none, calls `last`,
    /// which sums.
    template <int From, int To>
    void go_on(level_t<From> from, level_t<To> to, const slot_range& slots, int contributors) const {
        const auto& ranks = call.comm.topology();
        const auto& q = call.by_level.at(from);
        const std::byte* const received = call.plan.to_receive(call.work, c, From);
        if constexpr (To == levels) {
            last(execution_of<levels>(call.exec, From), q, received, contributors);
        } else if (!has_hop(ranks, To)) {
            go_on(from, level<To + 1>, slots, contributors);
        } else {
            std::byte* const sums =
                call.plan.to_send(call.work, c, To) + static_cast<std::size_t>(slots.place) * bytes(To);
            Call::codec::write(call.exec.intra_node, in_phase(call.by_level.at(to), phase_of_sums(To)),
                               message_sum{q, received, contributors},
                               chunk.in_slots(ranks.order(), slots.first, slots.count), sums,
                               call.memory.at(to, slots.place));
            exchange(to, slots, sums);
        }
    }

private:
    std::size_t bytes(int level) const {
        return call.plan.sizes.formats[static_cast<std::size_t>(level)].bytes_of(chunk);
    }
};

/// Arguments of a reduction that all its chunks share: among them the workspace `work`, and the residuals `memory`.
template <execution Execution, class Communicator, class Hops, class Plan, class Full, class Memory>
struct reduction_call {
    static constexpr int levels = Communicator::levels;
    using execution_type = Execution;
    using codec = zeropp::codec<Execution>;

    const pipeline<Execution>& exec;
    Communicator& comm;
    const Hops& by_level;
    const Plan& plan;
    const Full& full;
    std::byte* work;
    const Memory& memory;

    /// Enqueues the hops of chunk c. For the last sum, calls last(exec, quantizer, messages, contributors), with the
    /// received messages and the number of ranks that sent one each.
    template <class Last>
    void reduce(std::size_t c, Last last) const {
        const auto chunk = plan.sizes.cut[c];
        with_first_hop(comm.topology(), [&]<int Level>(level_t<Level> first) {
            using Q = typename Hops::template at_level<Level>;
            const auto& residuals = memory.at(first, 0);
            const std::byte* sent = nullptr;
            if constexpr (std::same_as<std::remove_cvref_t<decltype(residuals)>, none>) {
                sent = messages_in_place<Q>(full, chunk, comm.topology());
            }
            const int slots = slot_count(comm.topology());
            if (sent == nullptr) {
                std::byte* const to = plan.to_send(work, c, Level);
                codec::write(exec.intra_node, by_level.at(first), full.tensor(),
                             chunk.in_slots(comm.topology().order(), 0, slots), to, residuals);
                sent = to;
            }
            reduced_chunk{*this, c, chunk, last}.exchange(first, {0, slots}, sent);
        });
    }
};

}  // namespace zeropp::detail
