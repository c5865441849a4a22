#pragma once
/// \file
/// The work of one call of the codec, in parts that threads take.

#include <zeropp/execution/host_threads.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace zeropp::detail {

/// One thread's way through the parts of a loop. Every thread goes through all of them in the same order, and does
/// those that it takes: each part is taken by one.
class share {
public:
    /// The most elements of a part: whole blocks of every quantizer, and long enough to be worth a turn.
    static constexpr std::size_t most = 65536;

    /// The only thread takes all.
    share() = default;
    /// With those that have the same counter, which begins at 0.
    explicit share(std::atomic<std::size_t>& next) : next_(&next) {}

    /// Whether to do the next part, of n elements, which are `most` or fewer.
    bool takes(std::size_t n) {
        if (next_ == nullptr) return true;
        // Parts that begin in the same run of `most` elements are taken together: tensors may be small and many.
        const std::size_t run = passed_ / most;
        passed_ += n;
        for (; taken_ <= run; taken_ = next_->fetch_add(1, std::memory_order_relaxed) + 1) {
        }
        return taken_ == run + 1;
    }

    /// Calls f(first, n) for those parts of `size` elements that it takes.
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
    /// One more than the run taken last.
    std::size_t taken_ = 0;
};

/// Calls work(share) on each of the threads, if there are any and what the slots of `where` carry is more than one
/// part.
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
