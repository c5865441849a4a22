#pragma once
/// \file
/// Scratch memory, which the caller provides, so that collectives do not allocate on the hot path.

#include <zeropp/core/view.hpp>

#include <cstddef>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <string>
#include <type_traits>

namespace zeropp {

/// Alignment of a workspace, and of every message in it, in bytes.
inline constexpr std::size_t workspace_alignment = 16;

/// True if R allocates memory in `Space`, so that calls accept it as scratch. On the host: a type that converts to
/// std::pmr::memory_resource*. On a GPU: a `device_memory_resource` (execution/cuda_workspace.hpp).
template <class R, class Space>
inline constexpr bool allocates_in = false;
template <class R>
inline constexpr bool allocates_in<R, host_space> =
    std::is_convertible_v<R, std::pmr::memory_resource*> && !std::is_null_pointer_v<R>;

/// Owns scratch memory in `Space`. Allocates on construction. Specialised for each space.
template <class Space>
class workspace;

/// Owns scratch memory of the host.
template <>
class workspace<host_space> {
public:
    /// Allocates `bytes` zero bytes from `resource`, which is not null and must outlive the workspace.
    explicit workspace(std::size_t bytes, std::pmr::memory_resource* resource = std::pmr::get_default_resource())
        : memory_(nullptr, {resource, bytes}) {
        if (bytes == 0) return;
        memory_.reset(static_cast<std::byte*>(resource->allocate(bytes, workspace_alignment)));
        std::memset(memory_.get(), 0, bytes);
    }

    host_view<std::byte> view() { return {memory_.get(), size()}; }
    host_view<const std::byte> view() const { return {memory_.get(), size()}; }

    /// Copies `bytes` bytes of host memory to the start of the workspace. Blocks until the copy is complete. Requires
    /// `bytes` to be at most the workspace's size.
    void assign(const void* from, std::size_t bytes) {
        if (bytes != 0) std::memcpy(memory_.get(), from, bytes);
    }

private:
    struct release {
        std::pmr::memory_resource* resource;
        std::size_t bytes;

        void operator()(std::byte* memory) const { resource->deallocate(memory, bytes, workspace_alignment); }
    };

    /// Size of the workspace in bytes; 0 after a move.
    std::size_t size() const { return memory_ ? memory_.get_deleter().bytes : 0; }

    std::unique_ptr<std::byte, release> memory_;
};

/// Reason why `scratch` cannot be a workspace of `needed` bytes, as "expected ..., given ..."; empty if it can.
template <class Space>
std::string workspace_problem(view<std::byte, Space> scratch, std::size_t needed) {
    if (scratch.size() < needed) {
        return "expected a workspace of at least " + std::to_string(needed) + " bytes, given " +
               std::to_string(scratch.size());
    }
    const std::size_t off = detail::address_of(scratch.data()) % workspace_alignment;
    if (off == 0) return {};
    return "expected a workspace aligned to " + std::to_string(workspace_alignment) + " bytes, given one that starts " +
           std::to_string(off) + " bytes past a boundary";
}

}  // namespace zeropp
