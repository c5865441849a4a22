#pragma once
/// \file
/// The memory limit of a codec pass: a loop with the pass's accesses and almost no computation.

#include <zeropp/codec/host/target.hpp>
#include <zeropp/execution/host.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace zeropp_bench {

/// Memory accesses of a pass: reads `streams` streams of `stream_bytes` bytes, writes `written_bytes` bytes.
struct pass_shape {
    std::size_t streams;
    std::size_t stream_bytes;
    std::size_t written_bytes;

    std::size_t bytes() const { return streams * stream_bytes + written_bytes; }

    /// Offset of part `part` of `parts` equal parts of `bytes` bytes, in lines of 64 bytes.
    static std::size_t line(std::size_t bytes, std::size_t part, std::size_t parts) {
        return bytes / 64 * part / parts;
    }
};

/// Reads parts [begin, end) of `parts` of the streams, which are `stride` bytes apart. After each part, writes that
/// part of `to`, as a codec pass does. Bytes after the last whole line are left out.
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

/// Runs all parts on `threads`. A part is about 64 lines of the longest stream; a thread takes 64 parts at a time.
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
