/// \file
/// Tensors of more elements than 32 bits count. They repeat a pattern whose length divides no power of two, so that an
/// index that lost its upper bits finds other numbers; what is right is known from tensors of one pattern each.

#include "support/catch.hpp"
#include "support/samples.hpp"

#include <zeropp/zeropp.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace {

/// An element of one byte, so that many of them fit: sixteenths.
struct sixteenth {
    std::int8_t count;
};

}  // namespace

template <>
struct zeropp::element_traits<sixteenth> {
    static constexpr std::string_view name = "sixteenth";
    static float to_float(sixteenth x) noexcept { return static_cast<float>(x.count) / 16.0f; }
    static sixteenth from_float(float x) noexcept {
        const float count = x * 16.0f;
        const float bounded = count < -127.0f ? -127.0f : count > 127.0f ? 127.0f : count;
        return {static_cast<std::int8_t>(bounded < 0 ? bounded - 0.5f : bounded + 0.5f)};
    }
};

namespace {

using int4 = zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half>;

/// Elements after which the numbers repeat: whole blocks, and three times a power of two.
constexpr std::size_t period = 3 * 65536;
constexpr std::size_t two_to_31 = std::size_t{1} << 31;
constexpr std::size_t two_to_32 = std::size_t{1} << 32;

/// The least multiple of `period` above n.
constexpr std::size_t whole_periods_above(std::size_t n) { return (n / period + 1) * period; }

std::size_t available_memory() {
    std::ifstream information("/proc/meminfo");
    for (std::string name, unit; information >> name;) {
        std::size_t kilobytes = 0;
        if (!(information >> kilobytes)) break;
        std::getline(information, unit);
        if (name == "MemAvailable:") return kilobytes * 1024;
    }
    return 0;
}

/// Whether there is room for so many bytes, and some for everybody else. Says so where there is not.
bool has_room(std::size_t bytes) {
    const std::size_t needed = bytes + (std::size_t{3} << 29);
    const std::size_t available = available_memory();
    if (available >= needed) return true;
    WARN("skipped: needs " << needed / 1000000 << " MB of memory, of which " << available / 1000000
                           << " are available");
    return false;
}

/// n elements in memory that nothing has touched yet.
template <class T>
class untouched {
public:
    explicit untouched(std::size_t n) : elements_(std::make_unique_for_overwrite<T[]>(n)), size_(n) {}
    zeropp::host_view<T> view() { return {elements_.get(), size_}; }
    T* data() { return elements_.get(); }
    std::size_t size() const { return size_; }

private:
    std::unique_ptr<T[]> elements_;
    std::size_t size_;
};

template <class T>
std::vector<T> pattern(std::uint64_t seed) {
    std::vector<T> elements;
    for (const float x : zeropp_test::normal_floats(period, seed, 1.5)) {
        elements.push_back(zeropp::element_traits<T>::from_float(x));
    }
    return elements;
}

/// data[i] <- pattern[i % pattern.size()].
template <class T>
void repeat(const std::vector<T>& pattern, T* data, std::size_t n) {
    for (std::size_t done = 0; done < n; done += pattern.size()) {
        std::memcpy(data + done, pattern.data(), std::min(pattern.size(), n - done) * sizeof(T));
    }
}

/// The first piece of `expected.size()` elements at which data does not repeat `expected`, or -1.
template <class T>
long long first_other(const T* data, std::size_t n, const std::vector<T>& expected) {
    for (std::size_t done = 0; done < n; done += expected.size()) {
        const std::size_t bytes = std::min(expected.size(), n - done) * sizeof(T);
        if (std::memcmp(data + done, expected.data(), bytes) != 0) return static_cast<long long>(done);
    }
    return -1;
}

}  // namespace

TEST_CASE("codec: more than 2^32 elements of bfloat16", "[large]") {
    using T = zeropp::bfloat16;
    // The last block is not whole.
    constexpr std::size_t n = whole_periods_above(two_to_32) + 1003;
    const int4 q;
    const zeropp::wire_layout<int4> layout(n);
    if (!has_room(n * sizeof(T) + layout.bytes)) return;
    using codec = zeropp::codec<zeropp::host>;
    const zeropp::host exec;

    const std::vector<T> numbers = pattern<T>(1);
    untouched<T> tensor(n);
    untouched<std::byte> message(layout.bytes);
    repeat(numbers, tensor.data(), n);
    codec::write(exec, q, tensor.data(), zeropp::slices::single(n, 0, n), message.data());

    const auto encoded = [&](std::size_t count) {
        std::vector<std::byte> bytes(zeropp::wire_bytes(q, count));
        codec::write(exec, q, numbers.data(), zeropp::slices::single(count, 0, count), bytes.data());
        return bytes;
    };
    const auto part = [](const std::vector<std::byte>& bytes, std::size_t begin, std::size_t size) {
        const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
        return std::vector<std::byte>(first, first + static_cast<std::ptrdiff_t>(size));
    };
    constexpr std::size_t whole = n - 1003;
    const auto of_period = encoded(period);
    const auto of_tail = encoded(1003);
    const zeropp::wire_layout<int4> in_period(period), in_tail(1003);
    const std::size_t codes = zeropp::code_bytes<int4>(period);
    const std::size_t params = period / 128 * zeropp::params_bytes<int4>;
    CHECK(first_other(message.data(), zeropp::code_bytes<int4>(whole), part(of_period, 0, codes)) == -1);
    CHECK(first_other(message.data() + layout.params_offset, whole / 128 * zeropp::params_bytes<int4>,
                      part(of_period, in_period.params_offset, params)) == -1);
    const std::size_t tail_codes = zeropp::code_bytes<int4>(1003);
    const std::size_t tail_params = 8 * zeropp::params_bytes<int4>;
    CHECK(first_other(message.data() + zeropp::code_bytes<int4>(whole), tail_codes, part(of_tail, 0, tail_codes)) ==
          -1);
    CHECK(first_other(message.data() + layout.params_offset + whole / 128 * zeropp::params_bytes<int4>, tail_params,
                      part(of_tail, in_tail.params_offset, tail_params)) == -1);

    const auto decoded = [&](const std::vector<std::byte>& bytes, std::size_t count) {
        std::vector<T> elements(count);
        codec::read(exec, zeropp::message_sum{q, bytes.data()}, zeropp::slices::single(count, 0, count),
                    elements.data());
        return elements;
    };
    std::memset(static_cast<void*>(tensor.data()), 0, n * sizeof(T));
    codec::read(exec, zeropp::message_sum{q, message.data()}, zeropp::slices::single(n, 0, n), tensor.data());
    CHECK(first_other(tensor.data(), whole, decoded(of_period, period)) == -1);
    CHECK(first_other(tensor.data() + whole, 1003, decoded(of_tail, 1003)) == -1);
}

namespace {

using work_on_rank = void (*)(zeropp::communicator<zeropp::flat, zeropp::thread_transport>&,
                              zeropp::host_view<sixteenth>);

/// Runs a collective in place on every rank's tensor of n elements, which repeat the rank's pattern from the start of
/// each slice; the same on one period for each slice; and compares the slices that `comparable` says hold results.
template <class Compared>
void check_in_place(int ranks, std::size_t slice, work_on_rank work, Compared compared) {
    // One element less than whole slices: the last rank's last block is not whole.
    const auto all = static_cast<std::size_t>(ranks);
    std::vector<std::vector<std::vector<sixteenth>>> expected(all, std::vector<std::vector<sixteenth>>(all));
    zeropp::run_on_threads(ranks, [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::flat(ranks), transport);
        const auto r = static_cast<std::size_t>(comm.rank());
        const auto numbers = pattern<sixteenth>(r + 1);
        std::vector<sixteenth> small(all * period - 1);
        repeat(numbers, small.data(), small.size());
        work(comm, {small.data(), small.size()});
        for (std::size_t s = 0; s != all; ++s) {
            const auto first = small.begin() + static_cast<std::ptrdiff_t>(s * period);
            expected[r][s].assign(first, s + 1 == all ? small.end() : first + period);
        }
    });
    std::vector<long long> wrong(all, 0);
    zeropp::run_on_threads(ranks, [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::flat(ranks), transport);
        const auto r = static_cast<std::size_t>(comm.rank());
        untouched<sixteenth> tensor(all * slice - 1);
        repeat(pattern<sixteenth>(r + 1), tensor.data(), tensor.size());
        work(comm, tensor.view());
        long long other = -1;
        for (std::size_t s = 0; s != all && other == -1; ++s) {
            if (!compared(r, s)) continue;
            const sixteenth* const data = tensor.data() + s * slice;
            // The last slice lacks its last element: all its whole periods, and then the rest as the small one's.
            std::vector<sixteenth> of_slice = expected[r][s];
            const std::size_t rest = of_slice.size();
            if (rest != period) {
                const std::size_t before_last_block = period - 128;
                for (std::size_t p = 0; p + period < slice && other == -1; p += period) {
                    if (std::memcmp(data + p, of_slice.data(), before_last_block) != 0) {
                        other = static_cast<long long>(s * slice + p);
                    }
                }
                if (std::memcmp(data + slice - period, of_slice.data(), rest) != 0) {
                    other = static_cast<long long>(s * slice + slice - period);
                }
            } else if (const long long at = first_other(data, slice, of_slice); at != -1) {
                other = static_cast<long long>(s * slice) + at;
            }
        }
        wrong[r] = other;
    });
    for (std::size_t r = 0; r != all; ++r) {
        INFO("rank " << r);
        CHECK(wrong[r] == -1);
    }
}

constexpr zeropp::reduce_options in_chunks{.chunks = 16};

void gather_in_place(zeropp::communicator<zeropp::flat, zeropp::thread_transport>& comm,
                     zeropp::host_view<sixteenth> full) {
    const zeropp::partition part(full.size(), comm.size());
    const auto own = full.subview(part.offset(comm.rank()), part.size(comm.rank()));
    untouched<std::byte> scratch(zeropp::quantized_all_gather_workspace_bytes(comm.topology(), int4{}, full.size()));
    zeropp::quantized_all_gather(zeropp::host{}, comm, int4{}, own, full, {}, scratch.view());
}

void reduce_in_place(zeropp::communicator<zeropp::flat, zeropp::thread_transport>& comm,
                     zeropp::host_view<sixteenth> full) {
    const zeropp::partition part(full.size(), comm.size());
    const auto own = full.subview(part.offset(comm.rank()), part.size(comm.rank()));
    untouched<std::byte> scratch(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
        comm.topology(), zeropp::hops{int4{}, int4{}}, full.size(), in_chunks));
    zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{int4{}, int4{}}, full, own,
                                                  in_chunks, scratch.view());
}

}  // namespace

TEST_CASE("all-gather: more than 2^31 elements on two ranks", "[large]") {
    constexpr std::size_t slice = whole_periods_above(two_to_31 / 2);
    if (!has_room(2 * (2 * slice + 2 * zeropp::wire_bytes(int4{}, slice)))) return;
    check_in_place(2, slice, gather_in_place, [](std::size_t, std::size_t) { return true; });
}

TEST_CASE("all-gather: more than 2^32 elements on one rank", "[large]") {
    constexpr std::size_t slice = whole_periods_above(two_to_32);
    if (!has_room(slice + zeropp::wire_bytes(int4{}, slice))) return;
    check_in_place(1, slice, gather_in_place, [](std::size_t, std::size_t) { return true; });
}

TEST_CASE("reduce-scatter: more than 2^32 elements on two ranks", "[large]") {
    constexpr std::size_t slice = whole_periods_above(two_to_32 / 2);
    if (!has_room(2 * (2 * slice + 8 * zeropp::wire_bytes(int4{}, slice / 16 + 128)))) return;
    check_in_place(2, slice, reduce_in_place, [](std::size_t rank, std::size_t s) { return s == rank; });
}
