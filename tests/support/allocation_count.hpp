#pragma once
/// \file
/// Counts allocations by replacing operator new: include it in one source file of a program only.

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define ZEROPP_TEST_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ZEROPP_TEST_SANITIZED
#endif

namespace zeropp_test {

inline std::atomic<std::size_t> allocation_count{0};

/// Sanitizers bring an operator new of their own, which cannot be replaced.
#if defined(ZEROPP_TEST_SANITIZED)
inline constexpr bool counts_allocations = false;
#else
inline constexpr bool counts_allocations = true;
#endif

}  // namespace zeropp_test

#if !defined(ZEROPP_TEST_SANITIZED)
// Not inlined: g++ would see malloc behind one half of a new and delete and miss it behind the other, and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    ++zeropp_test::allocation_count;
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return operator new(bytes); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
#endif
