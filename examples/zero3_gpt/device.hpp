#pragma once

#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

/// A rank's place of computation: `host_device` or `cuda_device`. Model and engine are templates over a device:
///
///   `space`, `execution`             its memory, and the execution of collectives on it
///   `of(settings)`                   makes the device that the command line names
///   `queue`, `make_queue()`          owns an execution, `exec()`; its destructor waits for the work
///   `upload(to, from)`               copies a host array to device memory; `from` may be freed after the call
///   `download(to, from)`             copies device memory to a host array; blocks
///   `for_each(count, f)`             f(i) for every i, in any order
///   `for_each_row(rows, f)`          f(team, row) for every row; the team is `lanes` lanes that share it
///   `for_each_column(rows, cols, f)` f(row, column), for each column in order of its rows
///   `multiply(size, a, b, c)`        c = scale a b + keep c, for every matrix of a batch
///   `wait(event)`, `record()`        as an execution's: order computation and the work of queues
///
/// Computation runs in the order of the calls; f is a trivially copyable function object over device memory. A team is
/// one loop over all lanes on the host, and a thread for each lane in a kernel. Lane l holds the elements i with i %
/// lanes == l, so that a row's elements need no barrier:
///
///   `each(count, f)`                 f(i) on the lane that holds element i
///   `at(i, f)`                       f() on the lane that holds element i
///   `sum(count, term)`               the sum of term(i) on all lanes, in an equal order on all devices, which
///                                    vectorises: within each lane, then halves of the lanes
///   `largest(count, term)`           the largest std::int32_t term(i), on all lanes
namespace zero3_gpt {

inline constexpr int lanes = 16;

/// Start value of `largest`.
inline constexpr std::int32_t smallest_int = std::numeric_limits<std::int32_t>::min();

/// A row-major matrix to read. Rows are `stride` elements apart, matrices of a batch `step` elements. If `transposed`,
/// it stands for its transpose.
struct factor {
    const float* data;
    int stride;
    std::int64_t step = 0;
    bool transposed = false;
};

/// A row-major matrix to write, with the strides of a `factor`.
struct product {
    float* data;
    int stride;
    std::int64_t step = 0;
};

/// Sizes of c = scale a b + keep c: a is [rows, inner], b is [inner, columns], both after transposition.
struct product_size {
    int rows;
    int columns;
    int inner;
    int batch = 1;
    float scale = 1.0F;
    float keep = 0.0F;
};

/// Owns an array of `n` elements in `Space`. They start as zero on the host, uninitialised on a GPU.
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
