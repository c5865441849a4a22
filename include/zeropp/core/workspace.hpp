#pragma once
/// \file
/// Scratch memory: collectives never allocate on the hot path, they work in what the caller hands them.

#include <zeropp/core/view.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace zeropp {

/// What the start of a workspace, and every message inside it, is aligned to, in bytes.
inline constexpr std::size_t workspace_alignment = 16;

/// Owns scratch memory in `Space`. Allocates on construction; specialised for each space.
template <class Space>
class workspace;

/// Scratch memory of the processor.
template <>
class workspace<host_space> {
public:
    /// Owns `bytes` bytes, set to zero.
    explicit workspace(std::size_t bytes) : memory_(bytes) {}

    host_view<std::byte> view() { return {memory_.data(), memory_.size()}; }
    host_view<const std::byte> view() const { return {memory_.data(), memory_.size()}; }

    /// Copies `bytes` of host memory to the start. Blocks.
    void assign(const void* from, std::size_t bytes) {
        if (bytes != 0) std::memcpy(memory_.data(), from, bytes);
    }

private:
    std::vector<std::byte> memory_;
};

namespace detail {
[[gnu::cold]] inline std::string workspace_too_small(std::size_t size, std::size_t needed) {
    return "expected a workspace of at least " + std::to_string(needed) + " bytes, given " + std::to_string(size);
}
[[gnu::cold]] inline std::string workspace_misaligned(std::size_t by) {
    return "expected a workspace aligned to " + std::to_string(workspace_alignment) + " bytes, given one that starts " +
           std::to_string(by) + " bytes past a boundary";
}
}  // namespace detail

/// Why `scratch` cannot serve as `needed` bytes of workspace, as "expected ..., given ..."; empty when it can.
template <class Space>
std::string workspace_problem(view<std::byte, Space> scratch, std::size_t needed) {
    if (scratch.size() < needed) return detail::workspace_too_small(scratch.size(), needed);
    const std::size_t off = reinterpret_cast<std::uintptr_t>(scratch.data()) % workspace_alignment;
    return off == 0 ? std::string() : detail::workspace_misaligned(off);
}

}  // namespace zeropp
