#include "simt/cuda_emulation.hpp"

#include "simt/cuda_doubles.hpp"

#include <zeropp/codec/cuda/launch.cuh>

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#if defined(ZEROPP_TEST_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif

namespace zeropp_test::simt {

namespace {

namespace context = boost::context;

constexpr std::size_t warp_size = 32;
constexpr std::size_t stack_bytes = 256 * 1024;  // of address space: sanitizers make frames several times larger

/// Leaves a CUDA thread whose grid has failed.
struct abandoned {};

/// What is wrong with the kernel that runs.
struct fault {
    std::string text;
};

/// One stack, given to one fiber. boost frees it with the fiber.
struct stack_of_one {
    context::stack_context stack;

    context::stack_context allocate() { return stack; }
    void deallocate(context::stack_context& s) { context::protected_fixedsize_stack().deallocate(s); }
};

/// A way from one stack to another that AddressSanitizer can follow.
class crossing {
public:
    /// Where the other stack lies.
    const void* bottom = nullptr;
    std::size_t size = 0;

    void depart([[maybe_unused]] bool for_good = false) {
#if defined(ZEROPP_TEST_ASAN)
        __sanitizer_start_switch_fiber(for_good ? nullptr : &left_, bottom, size);
#endif
    }
    void arrive() {
#if defined(ZEROPP_TEST_ASAN)
        __sanitizer_finish_switch_fiber(left_, &bottom, &size);
#endif
    }

private:
    [[maybe_unused]] void* left_ = nullptr;
};

/// A CUDA thread: a fiber that runs one kernel after the other.
class cuda_thread {
public:
    enum class state { ready, at_shuffle, at_warp_barrier, at_block_barrier, finished };

    struct arrival {
        unsigned mask = 0;
        std::uint64_t value = 0;
        int distance = 0;
        direction to = direction::exclusive_or;
        unsigned line = 0;
        unsigned column = 0;

        bool same_place(const arrival& other) const {
            return mask == other.mask && distance == other.distance && to == other.to && line == other.line &&
                   column == other.column;
        }
        /// The lane that `lane` reads from.
        std::size_t source(std::size_t lane) const {
            const auto away = static_cast<std::size_t>(distance);
            if (to == direction::exclusive_or) return lane ^ away;
            return lane + away < warp_size ? lane + away : lane;
        }
        std::string text() const { return "line " + std::to_string(line) + ", column " + std::to_string(column); }
    };

    cuda_thread() {
        stack_of_one stack{context::protected_fixedsize_stack(stack_bytes).allocate()};
        to_fiber_.bottom = static_cast<char*>(stack.stack.sp) - stack.stack.size;
        to_fiber_.size = stack.stack.size;
        // The constructor already goes into the fiber and back. Unannounced, the fiber's first frame would lie where
        // AddressSanitizer keeps the frames of this thread, which may end before the fiber does.
        crossing there_and_back = to_fiber_;
        there_and_back.depart();
        fiber_ = context::fiber(std::allocator_arg, stack,
                                [this](context::fiber&& scheduler) { return live(std::move(scheduler)); });
        there_and_back.arrive();
        there_and_back.depart();
        there_and_back.arrive();
    }
    cuda_thread(const cuda_thread&) = delete;
    cuda_thread& operator=(const cuda_thread&) = delete;

    ~cuda_thread() {
        kernel_ = nullptr;
        go_on();
    }

    void start(const std::function<void()>& kernel, uint3 index) {
        kernel_ = &kernel;
        index_ = index;
        thrown_ = nullptr;
        leaving_ = false;
        now = state::ready;
    }

    /// Runs until the kernel ends or waits for other threads.
    void go_on() {
        threadIdx = index_;
        to_fiber_.depart();
        fiber_ = std::move(fiber_).resume();
        to_fiber_.arrive();
        if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    }

    /// Leaves the kernel.
    void abandon() {
        leaving_ = true;
        while (now != state::finished) go_on();
    }

    /// In the kernel: lets others run until the scheduler comes back to this one.
    void wait(state as, const arrival& here) {
        now = as;
        at = here;
        pause();
        if (leaving_) throw abandoned();
    }

    state now = state::finished;
    arrival at;
    std::uint64_t result = 0;

private:
    void pause() {
        to_scheduler_.depart();
        scheduler_ = std::move(scheduler_).resume();
        to_scheduler_.arrive();
    }

    context::fiber live(context::fiber&& scheduler) {
        scheduler_ = std::move(scheduler);
        to_scheduler_.arrive();
        while (kernel_) {
            try {
                if (!leaving_) (*kernel_)();
            } catch (const abandoned&) {
            } catch (...) {
                thrown_ = std::current_exception();
            }
            now = state::finished;
            pause();
        }
        to_scheduler_.depart(true);
        return std::move(scheduler_);
    }

    context::fiber fiber_;
    context::fiber scheduler_;
    crossing to_fiber_;
    crossing to_scheduler_;
    const std::function<void()>* kernel_ = nullptr;
    uint3 index_{};
    std::exception_ptr thrown_;
    bool leaving_ = false;
};

/// Runs the blocks of a grid, one after the other, on threads that it keeps for the next grid.
class multiprocessor {
public:
    void run(dim3 grid, dim3 block, const std::function<void()>& kernel) {
        backwards_ = !backwards_;
        gridDim = grid;
        blockDim = block;
        const std::size_t blocks = std::size_t{grid.x} * grid.y * grid.z;
        const std::size_t threads = std::size_t{block.x} * block.y * block.z;
        while (threads_.size() < threads) threads_.push_back(std::make_unique<cuda_thread>());
        active_ = threads;
        try {
            for (std::size_t i = 0; i != blocks; ++i) {
                blockIdx = coordinates(backwards_ ? blocks - 1 - i : i, grid);
                for (std::size_t t = 0; t != threads; ++t) threads_[t]->start(kernel, coordinates(t, block));
                run_block();
            }
        } catch (...) {
            for (std::size_t t = 0; t != threads; ++t) threads_[t]->abandon();
            throw;
        }
    }

    cuda_thread& current() { return *threads_[running_]; }

private:
    using state = cuda_thread::state;

    static uint3 coordinates(std::size_t i, dim3 extent) {
        const std::size_t row = i / extent.x;
        return {static_cast<unsigned>(i % extent.x), static_cast<unsigned>(row % extent.y),
                static_cast<unsigned>(row / extent.y)};
    }

    void run_block() {
        for (;;) {
            for (std::size_t first = 0; first < active_; first += warp_size) run_warp(first);
            if (all(state::finished)) return;
            if (!all(state::at_block_barrier))
                throw fault{"__syncthreads in " + somewhere(state::at_block_barrier) +
                            " is not reached by all threads of the block"};
            for (std::size_t t = 0; t != active_; ++t) {
                if (!threads_[t]->at.same_place(threads_[0]->at)) {
                    throw fault{"threads of a block wait at different __syncthreads: " + threads_[0]->at.text() +
                                " and " + threads_[t]->at.text()};
                }
                threads_[t]->now = state::ready;
            }
        }
    }

    bool all(state s) const {
        for (std::size_t t = 0; t != active_; ++t) {
            if (threads_[t]->now != s) return false;
        }
        return true;
    }

    std::string somewhere(state s) const {
        for (std::size_t t = 0; t != active_; ++t) {
            if (threads_[t]->now == s) return threads_[t]->at.text();
        }
        return "no thread";
    }

    void run_warp(std::size_t first) {
        const std::size_t lanes = active_ - first < warp_size ? active_ - first : warp_size;
        do {
            for (std::size_t i = 0; i != lanes; ++i) {
                running_ = first + (backwards_ ? lanes - 1 - i : i);
                if (threads_[running_]->now == state::ready) threads_[running_]->go_on();
            }
        } while (release(first, lanes));
    }

    /// Lets the lanes of a warp go on that wait for one another. None can run any more: who is not there never comes.
    bool release(std::size_t first, std::size_t lanes) {
        for (std::size_t i = 0; i != lanes; ++i) {
            const cuda_thread& waiting = *threads_[first + i];
            if (waiting.now != state::at_shuffle && waiting.now != state::at_warp_barrier) continue;
            const char* const what = waiting.now == state::at_shuffle ? "a shuffle in " : "__syncwarp in ";
            const cuda_thread::arrival here = waiting.at;
            const state as = waiting.now;
            const auto named = [&](std::size_t lane) { return (here.mask >> lane & 1u) != 0; };
            if (!named(i)) throw fault{what + here.text() + ": lane " + std::to_string(i) + " is not in its own mask"};
            for (std::size_t lane = 0; lane != warp_size; ++lane) {
                if (!named(lane)) continue;
                if (lane >= lanes || threads_[first + lane]->now != as ||
                    !threads_[first + lane]->at.same_place(here)) {
                    throw fault{what + here.text() + ": lane " + std::to_string(lane) + " is named and never arrives" +
                                whereabouts(first + lane, lane < lanes)};
                }
                const std::size_t other = here.source(lane);
                if (as == state::at_shuffle && (other >= warp_size || !named(other))) {
                    throw fault{what + here.text() + ": lane " + std::to_string(lane) + " reads from lane " +
                                std::to_string(other) + ", which is not in the mask"};
                }
            }
            for (std::size_t lane = 0; lane != lanes; ++lane) {
                if (!named(lane)) continue;
                cuda_thread& thread = *threads_[first + lane];
                if (as == state::at_shuffle) {
                    thread.result = threads_[first + here.source(lane)]->at.value;
                }
                thread.now = state::ready;
            }
            return true;
        }
        return false;
    }

    std::string whereabouts(std::size_t thread, bool exists) const {
        if (!exists) return ": the warp has no such lane";
        const cuda_thread& t = *threads_[thread];
        if (t.now == state::finished) return ": it has ended";
        return ": it waits in " + t.at.text() + " with distance " + std::to_string(t.at.distance) + " and mask " +
               std::to_string(t.at.mask);
    }

    std::vector<std::unique_ptr<cuda_thread>> threads_;
    std::size_t active_ = 0;
    std::size_t running_ = 0;
    bool backwards_ = true;
};

multiprocessor& processor() {
    static multiprocessor p;
    return p;
}

cuda_thread::arrival at(const std::source_location& where, unsigned mask) {
    cuda_thread::arrival a;
    a.mask = mask;
    a.line = where.line();
    a.column = where.column();
    return a;
}

}  // namespace

std::string run_grid(dim3 grid, dim3 block, const std::function<void()>& kernel) {
    try {
        processor().run(grid, block, kernel);
        return {};
    } catch (const fault& f) {
        return f.text;
    } catch (const std::exception& e) {
        return std::string("a kernel threw: ") + e.what();
    }
}

std::uint64_t exchange(unsigned mask, std::uint64_t value, int distance, direction to,
                       const std::source_location& where) {
    cuda_thread& self = processor().current();
    cuda_thread::arrival here = at(where, mask);
    here.value = value;
    here.distance = distance;
    here.to = to;
    self.wait(cuda_thread::state::at_shuffle, here);
    return self.result;
}

void meet_block(const std::source_location& where) {
    processor().current().wait(cuda_thread::state::at_block_barrier, at(where, 0));
}

void meet_warp(unsigned mask, const std::source_location& where) {
    processor().current().wait(cuda_thread::state::at_warp_barrier, at(where, mask));
}

}  // namespace zeropp_test::simt

void zeropp::detail::emulate_launch(dim3 grid, dim3 block, cudaStream_t stream, std::function<void()> kernel) {
    const cudaError_t code =
        zeropp_test::simt::device_work::launch(grid, block, stream, [grid, block, run = std::move(kernel)] {
            return zeropp_test::simt::run_grid(grid, block, run);
        });
    require_cuda(code, "cudaLaunchKernel");
}
