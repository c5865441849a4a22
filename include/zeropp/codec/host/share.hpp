#pragma once
/// \file
/// Divides the work of one codec call among threads.

#include <zeropp/execution/host_threads.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace zeropp::detail {

/// One thread's share of a loop over parts, which are ranges of at most `most` elements. Every thread visits all parts
/// in the same order; each part is taken by one thread.
class share {
public:
    /// Elements of the largest part: whole blocks of every quantizer, and enough work to be worth taking.
    static constexpr std::size_t most = 65536;

    /// For a single thread: takes all parts.
    share() = default;
    /// Takes parts together with all shares of the counter `next`, which begins at 0.
    explicit share(std::atomic<std::size_t>& next) : next_(&next) {}

    /// True if this thread takes the next part, of n <= `most` elements.
    bool takes(std::size_t n) {
        if (next_ == nullptr) return true;
        // Parts that begin in the same `run` of `most` elements are taken together: tensors may be small and many.
        const std::size_t run = passed_ / most;
        passed_ += n;
        for (; taken_ <= run; taken_ = next_->fetch_add(1, std::memory_order_relaxed) + 1) {
        }
        return taken_ == run + 1;
    }

    /// Calls f(first, n) for the parts of `size` elements that this thread takes.
    template <class F>
    void for_each_part(std::size_t size, const F& f) {
        for (std::size_t first = 0; first < size; first += most) {
            const std::size_t n = std::min(most, size - first);
            if (takes(n)) f(first, n);
        }
    }

private:
    std::atomic<std::size_t>* next_ = nullptr;
    std::size_t passed_ = 0;
    /// Number of the last `run` taken, plus one.
    std::size_t taken_ = 0;
};

/// Calls work(share) on each of `threads`, or once on this thread if there are none or all slots are at most one part.
template <class Slices, class Work>
void divide(const host_threads* threads, const Slices& where, const Work& work) {
    const std::size_t sections = where.sections();
    const std::size_t of_slot = sections == 0 ? 0 : where.elements_end(sections - 1);
    const bool several = threads != nullptr && static_cast<std::size_t>(where.slots) * of_slot > share::most;
    std::atomic<std::size_t> next = 0;
    const auto go = [&] { work(several ? share(next) : share()); };
    if (several) {
        threads->on_each(go);
    } else {
        go();
    }
}

}  // namespace zeropp::detail
