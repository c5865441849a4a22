#pragma once
/// \file
/// A host memory resource that checks its users.

#include <cstddef>
#include <cstring>
#include <map>
#include <memory_resource>
#include <mutex>
#include <utility>

namespace zeropp_test {

/// Counts allocations, poisons freed memory, and counts as `mistakes` frees that do not match an allocation.
/// Thread-safe.
class counting_resource : public std::pmr::memory_resource {
    template <class F>
    auto with_lock(F f) const {
        const std::lock_guard lock(mutex_);
        return f();
    }

public:
    std::size_t allocations() const {
        return with_lock([&] { return allocations_; });
    }
    std::size_t live() const {
        return with_lock([&] { return live_.size(); });
    }
    std::size_t mistakes() const {
        return with_lock([&] { return mistakes_; });
    }

private:
    void* do_allocate(std::size_t bytes, std::size_t alignment) override {
        void* const p = std::pmr::new_delete_resource()->allocate(bytes, alignment);
        std::memset(p, 0x5a, bytes);
        with_lock([&] {
            ++allocations_;
            live_[p] = {bytes, alignment};
        });
        return p;
    }
    void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
        with_lock([&] {
            const auto it = live_.find(p);
            if (it == live_.end() || it->second != std::pair(bytes, alignment)) ++mistakes_;
            live_.erase(p);
        });
        std::memset(p, 0xa5, bytes);
        std::pmr::new_delete_resource()->deallocate(p, bytes, alignment);
    }
    bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

    mutable std::mutex mutex_;
    std::map<void*, std::pair<std::size_t, std::size_t>> live_;
    std::size_t allocations_ = 0;
    std::size_t mistakes_ = 0;
};

}  // namespace zeropp_test
