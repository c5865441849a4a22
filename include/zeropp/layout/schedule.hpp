#pragma once
/// \file
/// Sizes of a call: chunks, bytes of messages, and workspaces. The predictions in plan/ use them, too.

#include <zeropp/layout/chunking.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace zeropp::detail {

/// Division of a call into chunks, and sizes of its messages in `Count` formats. Every rank's shard is cut into chunks,
/// between blocks of every format. Each chunk has a message in each format.
template <class Division, std::size_t Count>
struct schedule {
    Division whole;
    std::array<message_format, Count> formats;
    typename Division::chunks cut;

    schedule(const Division& of, int chunks, const std::array<message_format, Count>& in)
        : whole(of), formats(in), cut(of, chunks, std::ranges::max(in, {}, &message_format::block_size).block_size) {}

    /// Number of bytes of the message of chunk c in format f.
    std::size_t bytes(std::size_t c, int f) const { return formats[static_cast<std::size_t>(f)].bytes_of(cut[c]); }
    std::size_t largest(int f) const {
        std::size_t most = 0;
        for (std::size_t c = 0; c != cut.size(); ++c) most = std::max(most, bytes(c, f));
        return most;
    }
    /// Number of bytes of all chunks' messages in format f, for one slot.
    std::size_t total(int f) const {
        std::size_t sum = 0;
        for (std::size_t c = 0; c != cut.size(); ++c) sum += bytes(c, f);
        return sum;
    }

    /// Calls f(c, address, bytes) for each chunk c. At `address` lie the chunk's `slots` messages of `bytes` bytes
    /// each, in format 0. The first chunk's address is `messages`; each chunk's messages follow the previous chunk's.
    template <class F>
    void for_each(std::byte* messages, std::size_t slots, F f) const {
        for (std::size_t c = 0; c != cut.size(); ++c) {
            f(c, messages, bytes(c, 0));
            messages += slots * bytes(c, 0);
        }
    }
};

/// Most bytes of a call in `wanted` chunks: bytes(`wanted`). For `auto_chunks`, the larger of bytes(c) for the number c
/// of chunks with overlap of hops, and for the number without. `message_bytes`, the size of a whole shard's message on
/// the last level, decides these numbers.
template <topology Topology, class Bytes>
std::size_t largest_for_chunks(int wanted, const Topology& ranks, std::size_t message_bytes, Bytes bytes) {
    return std::max(bytes(chunks_for(wanted, ranks, message_bytes, false)),
                    bytes(chunks_for(wanted, ranks, message_bytes, true)));
}

/// Number of bytes of the messages of all slots and chunks of an all-gather.
template <topology Topology, class Division>
std::size_t gather_bytes(const Topology& ranks, const schedule<Division, 1>& sizes) {
    return static_cast<std::size_t>(slot_count(ranks)) * sizes.total(0);
}
/// Workspace bytes of an all-gather of `whole` in `wanted` chunks.
template <topology Topology, class Division>
std::size_t gather_workspace(const Topology& ranks, const Division& whole, const message_format& format, int wanted) {
    return largest_for_chunks(wanted, ranks, format.bytes_of(whole), [&](int chunks) {
        return gather_bytes(ranks, schedule(whole, chunks, std::array{format}));
    });
}

/// Workspace of a quantized_update: offsets in bytes of its buffers, and its size. It begins with the messages of
/// differences, in format 0, of all chunks, with room for the slots of the rank that serves the most.
struct update_buffers {
    /// Offset of messages of all slots and chunks in format 1, if the update gathers whole tensors. They also have room
    /// for messages of whole shards, because the update of an empty replica has one chunk.
    std::size_t gathered;
    /// Offset of this rank's messages of all chunks in format 0, if their sizes vary.
    std::size_t own;
    /// Offset of the messages' sizes, if they vary: for each slot that a rank serves, 8 bytes for each chunk.
    std::size_t lengths;
    /// Number of bytes of the workspace.
    std::size_t bytes;

    template <topology Topology, class Division>
    update_buffers(const Topology& ranks, const schedule<Division, 2>& sizes, bool gathers)
        : gathered(most_served(ranks) * sizes.total(0)), own(gathered) {
        // A cut between two tensors of a list drops padding, so chunks can need fewer bytes than one whole message.
        const std::size_t one = std::max(sizes.total(1), sizes.formats[1].bytes_of(sizes.whole));
        if (gathers) own += static_cast<std::size_t>(slot_count(ranks)) * one;
        lengths = bytes = own;
        if (!sizes.formats[0].varies) return;
        lengths += sizes.total(0);
        bytes = lengths + most_served(ranks) * sizes.cut.size() * sizeof(std::uint64_t);
    }
};

/// Workspace bytes of an update of `whole` in `wanted` chunks.
template <topology Topology, class Division>
std::size_t update_workspace(const Topology& ranks, const Division& whole, const std::array<message_format, 2>& formats,
                             int wanted, bool gathers) {
    return largest_for_chunks(wanted, ranks, formats[0].bytes_of(whole), [&](int chunks) {
        return update_buffers(ranks, schedule(whole, chunks, formats), gathers).bytes;
    });
}

template <topology Topology>
constexpr std::size_t first_hop_of(const Topology& ranks) {
    int level = 0;
    while (!has_hop(ranks, level)) ++level;
    return static_cast<std::size_t>(level);
}

/// Sizes of a reduction over `Levels` levels: of chunks, of messages in each level's format, and of buffers. Each chunk
/// has two buffers for each level, one to send and one to receive. A workspace has the buffers of two chunks if there
/// are several chunks, which use them in turn.
template <class Division, std::size_t Count, int Levels>
struct reduction_plan {
    schedule<Division, Count> sizes;
    /// Number of bytes, by level, of the buffer to send, and also of the buffer to receive. They suffice for the rank
    /// that sends the most, messages to itself included.
    by_level<std::size_t, Levels> sent;

    template <topology Topology>
    reduction_plan(const Topology& ranks, const schedule<Division, Count>& of) : sizes(of) {
        static_assert(Count >= Levels, "a reduction has a format for each level");
        for (int l = 0; l != Levels; ++l) {
            sent[static_cast<std::size_t>(l)] = reduction_slots(ranks, l) * sizes.largest(l);
        }
    }

    std::size_t workspace_bytes() const { return std::min<std::size_t>(sizes.cut.size(), 2) * offset(Levels); }

    /// Address of the messages of chunk c that this rank sends along `level`. Chunks c and c + 2 use the same memory.
    std::byte* to_send(std::byte* workspace, std::size_t c, int level) const {
        return workspace + c % 2 * offset(Levels) + offset(level);
    }
    /// Address of the messages of chunk c that this rank receives along `level`.
    std::byte* to_receive(std::byte* workspace, std::size_t c, int level) const {
        return to_send(workspace, c, level) + sent[static_cast<std::size_t>(level)];
    }

private:
    /// Offset in bytes of the buffers for `level` among a chunk's buffers; offset(Levels) is the size of all.
    std::size_t offset(int level) const {
        std::size_t bytes = 0;
        for (int l = 0; l != level; ++l) bytes += 2 * sent[static_cast<std::size_t>(l)];
        return bytes;
    }
};
template <topology Topology, class Division, std::size_t Count>
reduction_plan(const Topology&, const schedule<Division, Count>&) -> reduction_plan<Division, Count, Topology::levels>;

/// Workspace bytes of a reduce-scatter of `whole` in `wanted` chunks, in a format for each level.
template <topology Topology, class Division, std::size_t Count>
std::size_t reduce_workspace(const Topology& ranks, const Division& whole,
                             const std::array<message_format, Count>& formats, int wanted) {
    return largest_for_chunks(wanted, ranks, formats[Topology::levels - 1].bytes_of(whole), [&](int chunks) {
        return reduction_plan(ranks, schedule(whole, chunks, formats)).workspace_bytes();
    });
}

}  // namespace zeropp::detail
