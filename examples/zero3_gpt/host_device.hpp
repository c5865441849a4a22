#pragma once

#include "device.hpp"
#include "settings.hpp"

#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/config.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>

#include <cblas.h>

#include <algorithm>
#include <cstdint>
#include <span>

namespace zero3_gpt {

/// A row's team on the host: one loop over its lanes.
struct row_loop {
    template <class F>
    ZEROPP_HOST_DEVICE void each(int count, F f) const {
        for (int i = 0; i < count; ++i) f(i);
    }

    template <class F>
    ZEROPP_HOST_DEVICE void at(int, F f) const {
        f();
    }

    template <class Term>
    ZEROPP_HOST_DEVICE float sum(int count, Term term) const {
        float partial[lanes] = {};
        int i = 0;
        for (; i + lanes <= count; i += lanes) {
            for (int lane = 0; lane < lanes; ++lane) partial[lane] += term(i + lane);
        }
        for (int lane = 0; i + lane < count; ++lane) partial[lane] += term(i + lane);
        for (int half = lanes / 2; half > 0; half /= 2) {
            for (int lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
        }
        return partial[0];
    }

    template <class Term>
    ZEROPP_HOST_DEVICE std::int32_t largest(int count, Term term) const {
        std::int32_t largest = smallest_int;
        for (int i = 0; i < count; ++i) {
            const std::int32_t value = term(i);
            largest = largest < value ? value : largest;
        }
        return largest;
    }
};

/// Computes on the calling thread, with OpenBLAS. Collectives run beside it on the queues' threads, and their codecs
/// use `codec_threads` threads.
class host_device {
public:
    using space = zeropp::host_space;
    using execution = zeropp::host_queue;

    explicit host_device(int codec_threads = 1) : threads_(codec_threads) {}
    static host_device of(const settings& s) { return host_device(s.codec_threads); }

    class queue {
    public:
        explicit queue(const zeropp::host_threads& threads) : exec_(threads) {}

        [[nodiscard]] const execution& exec() const noexcept { return exec_; }

    private:
        execution exec_;
    };

    [[nodiscard]] queue make_queue() const { return queue(threads_); }

    template <class T>
    void upload(T* to, std::span<const T> from) const {
        std::copy(from.begin(), from.end(), to);
    }

    template <class T>
    void download(std::span<T> to, const T* from) const {
        std::copy_n(from, to.size(), to.begin());
    }

    template <class F>
    void for_each(std::int64_t count, F f) const {
        in_wide_vectors(f, [=](F each) {
            for (std::int64_t i = 0; i < count; ++i) each(i);
        });
    }

    template <class F>
    void for_each_row(int rows, F f) const {
        in_wide_vectors(f, [=](F each) {
            for (int row = 0; row < rows; ++row) each(row_loop{}, row);
        });
    }

    template <class F>
    void for_each_column(int rows, int columns, F f) const {
        in_wide_vectors(f, [=](F each) {
            for (int row = 0; row < rows; ++row) {
                for (int column = 0; column < columns; ++column) each(row, column);
            }
        });
    }

    void multiply(const product_size& size, const factor& a, const factor& b, const product& c) const {
        const auto transposition = [](const factor& f) { return f.transposed ? CblasTrans : CblasNoTrans; };
        for (int i = 0; i < size.batch; ++i) {
            cblas_sgemm(CblasRowMajor, transposition(a), transposition(b), size.rows, size.columns, size.inner,
                        size.scale, a.data + i * a.step, a.stride, b.data + i * b.step, b.stride, size.keep,
                        c.data + i * c.step, c.stride);
        }
    }

    /// Blocks the caller, which runs the computation.
    void wait(const execution::event& event) const { event.wait(); }
    /// An event that is complete: computation ends before its call returns.
    [[nodiscard]] execution::event record() const { return {}; }

private:
    /// Calls loop(f), compiled for the widest vectors of the processor. The loop has a copy of f, because the compiler
    /// would take stores for changes of the members of f.
    template <class F, class Loop>
    static void in_wide_vectors(F f, Loop loop) {
        const zeropp::detail::host_target target = zeropp::detail::active_host_target();
        if (zeropp::detail::has_wide_targets && target == zeropp::detail::host_target::baseline) return loop(f);
        zeropp::detail::run_on_target(target, [=](auto) { loop(f); });
    }

    zeropp::host_threads threads_;
};

/// One BLAS thread for each rank: ranks fill the cores, and the order of sums does not depend on the load.
inline void pin_blas_to_one_thread() noexcept { openblas_set_num_threads(1); }

}  // namespace zero3_gpt
