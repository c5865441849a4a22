#pragma once
/// \file
/// Replaces operator new to count allocations and to make one fail. Include it in only one source file of a program.

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

// ThreadSanitizer has its own operator new, which cannot be replaced.
#if defined(__SANITIZE_THREAD__)
#define ZEROPP_TEST_KEEPS_NEW
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ZEROPP_TEST_KEEPS_NEW
#endif
#endif

namespace zeropp_test {

inline std::atomic<std::size_t> allocation_count{0};

/// Number of allocations that this thread still gets before one fails; negative: none fails.
inline thread_local long allocations_until_failure = -1;

/// True if operator new is the one of this file: ThreadSanitizer and valgrind have their own.
inline bool counts_allocations() {
    const std::size_t before = allocation_count;
    ::operator delete(::operator new(1));
    return allocation_count != before;
}

/// Makes one allocation of this thread throw std::bad_alloc, after `granted` others. Later allocations work again.
class failing_allocation {
public:
    explicit failing_allocation(long granted) { allocations_until_failure = granted; }
    ~failing_allocation() { allocations_until_failure = -1; }
    failing_allocation(const failing_allocation&) = delete;
    failing_allocation& operator=(const failing_allocation&) = delete;

    /// True if the allocation has failed.
    static bool happened() { return allocations_until_failure < 0; }
};

inline void* allocate(std::size_t bytes, std::size_t alignment) {
    ++allocation_count;
    if (allocations_until_failure >= 0 && allocations_until_failure-- == 0) throw std::bad_alloc();
    const std::size_t size = bytes == 0 ? 1 : bytes;
    void* const memory = alignment == 0 ? std::malloc(size)
                                        : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace zeropp_test

#if !defined(ZEROPP_TEST_KEEPS_NEW)
// Not inlined: g++ would see malloc in only one half of a new and delete, and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return zeropp_test::allocate(bytes, 0); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return zeropp_test::allocate(bytes, 0); }
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return zeropp_test::allocate(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, std::align_val_t alignment) {
    return zeropp_test::allocate(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    try {
        return zeropp_test::allocate(bytes, 0);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif
