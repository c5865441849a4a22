#pragma once
/// \file
/// What memory allows a pass of the codec: a loop of the same shape that computes next to nothing.

#include <zeropp/codec/host/target.hpp>
#include <zeropp/execution/host_threads.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace zeropp_bench {

/// What a pass reads and writes: so many streams of so many bytes, and one that it writes.
struct pass_shape {
    std::size_t streams;
    std::size_t stream_bytes;
    std::size_t written_bytes;

    std::size_t bytes() const { return streams * stream_bytes + written_bytes; }

    /// Where the n-th of so many equal parts begins, in lines of 64 bytes.
    static std::size_t line(std::size_t bytes, std::size_t part, std::size_t parts) {
        return bytes / 64 * part / parts;
    }
};

/// Reads the streams, which are `stride` bytes apart, and writes the same proportion of `to` behind every few lines of
/// them, as a pass does; of the parts [begin, end) of `parts`. What is less than a line is left out.
inline void plain_loop(const pass_shape& shape, const std::byte* from, std::size_t stride, std::byte* to,
                       std::size_t begin, std::size_t end, std::size_t parts) {
    using line [[gnu::vector_size(64)]] = std::uint64_t;
    const auto loop = [&] {
        line mixed = {};
        for (std::size_t part = begin; part != end; ++part) {
            const std::size_t last = pass_shape::line(shape.stream_bytes, part + 1, parts);
            for (std::size_t i = pass_shape::line(shape.stream_bytes, part, parts); i != last; ++i) {
                for (std::size_t s = 0; s != shape.streams; ++s) {
                    line read;
                    std::memcpy(&read, from + s * stride + i * 64, sizeof read);
                    mixed ^= read;
                }
            }
            const std::size_t end_of_written = pass_shape::line(shape.written_bytes, part + 1, parts);
            for (std::size_t i = pass_shape::line(shape.written_bytes, part, parts); i != end_of_written; ++i) {
                std::memcpy(to + i * 64, &mixed, sizeof mixed);
            }
        }
    };
#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
    const auto target = zeropp::detail::active_host_target();
    if (target != zeropp::detail::host_target::baseline) {
        return zeropp::detail::run_on_target(target, [&](auto) { loop(); });
    }
#endif
    loop();
}

/// The whole loop, on each of the threads that take its parts in turns, of which the longest stream has 64 lines.
inline void plain_loop_on(const zeropp::host_threads& threads, const pass_shape& shape, const std::byte* from,
                          std::size_t stride, std::byte* to) {
    const std::size_t parts = std::max<std::size_t>(std::max(shape.stream_bytes, shape.written_bytes) / 4096, 1);
    constexpr std::size_t turn = 64;
    std::atomic<std::size_t> next = 0;
    threads.on_each([&] {
        for (std::size_t begin = next.fetch_add(turn); begin < parts; begin = next.fetch_add(turn)) {
            plain_loop(shape, from, stride, to, begin, std::min(parts, begin + turn), parts);
        }
    });
}

}  // namespace zeropp_bench
