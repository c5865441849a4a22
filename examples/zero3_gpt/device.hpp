#pragma once

#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

/// Where a rank computes: `host_device` or `cuda_device`. Model and engine are written once, over a device that has
///
///   `space`, `execution`             the memory it computes in, and what collectives on that memory are enqueued on
///   `of(settings)`                   such a device, as the command line says
///   `queue`, `make_queue()`          owns such an execution, `exec()`; destroyed when its work is complete
///   `upload(to, from)`               copies a host array to device memory; `from` may go at once
///   `download(to, from)`             the other way; blocks until it is there
///   `for_each(count, f)`             f(i) for every i, in any order
///   `for_each_row(rows, f)`          f(team, row) for every row; the team is `lanes` lanes that share the row
///   `for_each_column(rows, cols, f)` f(row, column), for each column in order of its rows
///   `multiply(size, a, b, c)`        c = scale a b + keep c, for every matrix of a batch
///   `wait(event)`, `record()`        like an execution's: they order computation and the work of queues
///
/// Computation runs in the order of the calls; f is a trivially copyable function object over device memory. A team is
/// one loop over all lanes on the host and a thread for each lane in a kernel. Lane l has the elements i with i % lanes
/// == l, so that a row's elements need no barrier:
///
///   `each(count, f)`                 f(i) on the lane that has element i
///   `at(i, f)`                       f() on the lane that has element i
///   `sum(count, term)`               the sum of term(i) on all lanes, in an order of additions that is the same on
///                                    every device and that vectorises: lane by lane, then lanes in halves
///   `largest(count, term)`           the largest std::int32_t term(i), on all lanes
namespace zero3_gpt {

inline constexpr int lanes = 16;

/// What `largest` starts from.
inline constexpr std::int32_t smallest_int = std::numeric_limits<std::int32_t>::min();

/// A matrix to read, row-major: rows are `stride` elements apart, the matrices of a batch `step`. Where it is
/// `transposed`, it stands for its transpose.
struct factor {
    const float* data;
    int stride;
    std::int64_t step = 0;
    bool transposed = false;
};

/// A matrix to write, likewise.
struct product {
    float* data;
    int stride;
    std::int64_t step = 0;
};

/// a is [rows, inner], b is [inner, columns], both after transposition.
struct product_size {
    int rows;
    int columns;
    int inner;
    int batch = 1;
    float scale = 1.0F;
    float keep = 0.0F;
};

/// Owns an array of `n` elements in `Space`. On the host they start as zero, on a GPU as anything.
template <class T, class Space>
class array {
public:
    explicit array(std::size_t n = 0) : memory_(n * sizeof(T)), view_(reinterpret_cast<T*>(memory_.view().data()), n) {}

    [[nodiscard]] T* data() const noexcept { return view_.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return view_.size(); }
    [[nodiscard]] zeropp::view<T, Space> view() const noexcept { return view_; }

private:
    zeropp::workspace<Space> memory_;
    zeropp::view<T, Space> view_;
};

}  // namespace zero3_gpt
