#pragma once
/// \file
/// Non-owning arrays with their memory space as a type.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace zeropp {

/// Tag type of host memory, which the processor reads and writes.
struct host_space {};
/// Tag type of GPU memory, which host code cannot read.
struct device_space {};

/// An array in memory of `Space`: a pointer and a number of elements. Does not own the elements.
template <class T, class Space>
class view {
public:
    using element_type = T;
    using space = Space;

    constexpr view() = default;
    constexpr view(T* data, std::size_t size) : data_(data), size_(size) {}

    template <class U>
        requires(!std::is_const_v<U> && std::same_as<const U, T>)
    constexpr view(const view<U, Space>& other) : data_(other.data()), size_(other.size()) {}

    /// Address of the first element.
    constexpr T* data() const { return data_; }
    /// Number of elements.
    constexpr std::size_t size() const { return size_; }

    /// Size of the array in bytes.
    constexpr std::size_t size_bytes() const { return size_ * sizeof(T); }

    /// Elements [offset, offset + count). Requires offset + count <= size().
    constexpr view subview(std::size_t offset, std::size_t count) const { return {data_ + offset, count}; }

private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

/// A view of host memory.
template <class T>
using host_view = view<T, host_space>;
/// A view of GPU memory.
template <class T>
using device_view = view<T, device_space>;

namespace detail {
template <class T>
inline constexpr bool is_view = false;
template <class T, class Space>
inline constexpr bool is_view<view<T, Space>> = true;
}  // namespace detail

/// True if R, a type with data() and size(), is an array in GPU memory. Specialise it for such a type, as
/// zeropp/cuda_span.cuh does for cuda::std::span.
template <class R>
inline constexpr bool is_device_array = false;

/// An array that collectives accept in `Space`: a view of that space or, for host memory, any contiguous range
/// (std::vector, std::span, std::array). Device memory needs a `device_view` or a type with `is_device_array`, so that
/// a host container never reaches a kernel.
template <class R, class Space>
concept array_in =
    (detail::is_view<std::remove_cvref_t<R>> && std::same_as<typename std::remove_cvref_t<R>::space, Space>) ||
    (is_device_array<std::remove_cvref_t<R>> && std::same_as<Space, device_space>) ||
    (!detail::is_view<std::remove_cvref_t<R>> && !is_device_array<std::remove_cvref_t<R>> &&
     std::same_as<Space, host_space> && requires(std::remove_reference_t<R>& array) { std::span(array); });

/// A view of the elements of `array`, with `Space` in its type.
template <class Space, array_in<Space> R>
constexpr auto as_view(R&& array) {
    if constexpr (detail::is_view<std::remove_cvref_t<R>>) {
        return array;
    } else if constexpr (is_device_array<std::remove_cvref_t<R>>) {
        return view<std::remove_pointer_t<decltype(array.data())>, Space>(array.data(), array.size());
    } else {
        const std::span elements(array);
        return view<typename decltype(elements)::element_type, Space>(elements.data(), elements.size());
    }
}

namespace detail {
/// The address p as an integer, since pointers into different arrays have no order.
inline std::uintptr_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

template <class A, class B, class Space>
bool overlap(const view<A, Space>& a, const view<B, Space>& b) {
    return a.size() != 0 && b.size() != 0 && address_of(a.data()) < address_of(b.data() + b.size()) &&
           address_of(b.data()) < address_of(a.data() + a.size());
}
}  // namespace detail

/// An array that collectives accept in `Space` (`array_in`), with writable elements.
template <class R, class Space>
concept mutable_array_in =
    array_in<R, Space> && !std::is_const_v<typename decltype(as_view<Space>(std::declval<R&>()))::element_type>;

}  // namespace zeropp
