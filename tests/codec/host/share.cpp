#include <zeropp/codec/host/share.hpp>

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/error_feedback.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/quantizer/block_float.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/residual_storage.hpp>
#include <zeropp/quantizer/stochastic.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/threads.hpp>

#include "support/catch.hpp"
#include "support/samples.hpp"

#include <atomic>
#include <cfenv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

using zeropp::detail::share;
using zeropp_test::mixed_floats;

/// Who takes each of the parts, of so many elements, where `threads` go through them at the same time.
std::vector<int> takers(const std::vector<std::size_t>& parts, int threads) {
    std::atomic<std::size_t> next = 0;
    std::vector<std::atomic<int>> times(parts.size());
    std::vector<std::thread> all;
    for (int t = 0; t != threads; ++t) {
        all.emplace_back([&] {
            share mine(next);
            for (std::size_t p = 0; p != parts.size(); ++p) {
                if (mine.takes(parts[p])) ++times[p];
                if (p % 7 == 0) std::this_thread::yield();
            }
        });
    }
    for (std::thread& t : all) t.join();
    return {times.begin(), times.end()};
}

/// Everything that ranks have after an all-gather of a list, rounded at random, and reduce-scatters of a tensor with
/// feedback, on the executions that make() returns.
template <class Make>
std::vector<float> results_on(Make make) {
    using int8 = zeropp::block_integer<8, 256>;
    using int4 = zeropp::stochastic<
        zeropp::hadamard<zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16>, 32>>;
    using feedback =
        zeropp::error_feedback<zeropp::hops<int8, zeropp::mxfp4>, zeropp::residuals_in_int8, zeropp::host_space>;
    constexpr int ranks = 4;
    constexpr std::size_t n = 4 * 150'001;
    constexpr std::size_t of_rank = n + n / 4;
    std::vector<float> results(ranks * of_rank);
    zeropp::run_on_threads(ranks, [&](zeropp::thread_transport transport) {
        const zeropp::two_level topology(2, 2);
        zeropp::communicator comm(topology, transport);
        const auto exec = make();
        const auto r = static_cast<std::size_t>(comm.rank());
        float* const whole = &results[r * of_rank];
        float* const fed = whole + n;

        // A long tensor, one of a part less than nothing, and many short ones.
        std::vector<zeropp::list_tensor<float, zeropp::host_space>> wholes;
        std::vector<zeropp::list_tensor<const float, zeropp::host_space>> owns;
        const std::vector<float> own = mixed_floats(n / 4, 100 + r);
        std::size_t begin = 0;
        for (const std::size_t shard : {std::size_t{70'000}, std::size_t{0}, std::size_t{65'536}}) {
            wholes.push_back(std::span(whole + 4 * begin, 4 * shard));
            owns.push_back(std::span(own.data() + begin, shard));
            begin += shard;
        }
        while (begin + 101 < n / 4) {
            wholes.push_back(std::span(whole + 4 * begin, 404));
            owns.push_back(std::span(own.data() + begin, 101));
            begin += 101;
        }
        const zeropp::tensor_list<float> list(topology, std::span(std::as_const(wholes)));
        const zeropp::tensor_list<const float> own_list(std::span(std::as_const(owns)));
        zeropp::quantized_all_gather(*exec, comm, int4(), own_list, list);

        const std::vector<float> gradient = mixed_floats(n, 7 + r);
        zeropp::workspace<zeropp::host_space> storage(feedback::storage_bytes(topology, n));
        feedback memory(topology, n, storage.view());
        zeropp::workspace<zeropp::host_space> scratch(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
            topology, zeropp::hops{int8(), zeropp::mxfp4()}, n, {}));
        for (int step = 0; step != 2; ++step) {
            zeropp::hierarchical_quantized_reduce_scatter(
                *exec, comm, zeropp::with_error_feedback(zeropp::hops{int8(), zeropp::mxfp4()}, memory), gradient,
                std::span(fed, n / 4), {.operation = zeropp::reduction::mean}, scratch.view());
        }
        exec->wait();
    });
    return results;
}

/// Sets a mode of this thread that results must not depend on: rounding towards zero or, where `flushes`, denormals as
/// zeros.
void set_mode(bool flushes) {
#if defined(__x86_64__)
    if (flushes) return _mm_setcsr(0x9fc0);
#endif
    std::fesetround(flushes ? FE_UPWARD : FE_TOWARDZERO);
}

/// Messages of denormals and other numbers, sums, their messages, elements and an elementwise product.
template <class Q, class Execution>
std::vector<std::byte> bits_on(const Execution& exec, std::size_t n) {
    using codec = zeropp::codec<Execution>;
    std::vector<float> tensor(n);
    for (std::size_t i = 0; i != n; ++i) {
        const auto random = static_cast<std::uint32_t>(i) * 2654435761u;
        tensor[i] = zeropp::bits_float(i / 1024 % 2 == 0 ? random >> 9 : 0x3f000000u | random >> 8);
    }
    const Q q;
    const auto where = zeropp::slices::single(n, 0, n);
    const std::size_t bytes = zeropp::wire_bytes(q, n);
    std::vector<std::byte> bits(4 * bytes + 3 * n * sizeof(float));
    auto* const sum = reinterpret_cast<float*>(bits.data() + 4 * bytes);
    auto* const mean = reinterpret_cast<zeropp::half*>(sum + n);
    for (std::size_t c = 0; c != 3; ++c) codec::write(exec, q, tensor.data(), where, bits.data() + c * bytes);
    codec::write(exec, q, zeropp::message_sum{q, bits.data(), 3}, where, bits.data() + 3 * bytes);
    codec::read(exec, zeropp::message_sum{q, bits.data(), 3}, where, sum);
    codec::read(exec, zeropp::message_sum{q, bits.data(), 3, 3.0f}, where, mean);
    codec::each(exec, n, [from = tensor.data(), to = sum + 2 * n](std::size_t i) { to[i] = from[i] * 0.3f; });
    exec.wait();
    return bits;
}

/// A number that depends on this thread's rounding, and on its denormals.
float probe() {
    const volatile float one = 1.0f;
    const volatile float least = 0x1p-126f;
    const volatile float denormal = least * 0.5f;
    return one / 3.0f + denormal * 0x1p120f;
}

template <class Q>
void check_modes(std::size_t n) {
    const std::vector<std::byte> expected = bits_on<Q>(zeropp::host(), n);
    for (const bool flushes : {false, true}) {
        CAPTURE(flushes, zeropp::short_text(Q().name()).str());
        const auto own = [&](const std::function<void()>& work) {
            set_mode(flushes);
            const std::uint32_t before = zeropp::float_bits(probe());
            work();
            const std::uint32_t after = zeropp::float_bits(probe());
            std::fesetenv(FE_DFL_ENV);
            CHECK(before == after);
        };
        std::vector<std::byte> on_host, on_threads, on_queue;
        own([&] { on_host = bits_on<Q>(zeropp::host(), n); });
        on_threads = bits_on<Q>(zeropp::host_threads([&](const std::function<void()>& work) {
                                    std::thread other([&] { own(work); });
                                    other.join();
                                }),
                                n);
        const zeropp::host_queue queue;
        queue.enqueue([=] { set_mode(flushes); });
        on_queue = bits_on<Q>(queue, n);
        CHECK((on_host == expected));
        CHECK((on_threads == expected));
        CHECK((on_queue == expected));
        bool arithmetic = false;
        own([&] { arithmetic = zeropp::ieee_arithmetic(); });
        CHECK(arithmetic);
    }
}

}  // namespace

TEST_CASE("a thread that flushes denormals or rounds otherwise makes the same bits", "[codec][host][share]") {
    check_modes<zeropp::cast_to<float>>(share::most + 1000);  // enough for several threads
    check_modes<zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16>>(5000);
    check_modes<zeropp::mxfp4>(5000);
}

TEST_CASE("every part is taken by one thread", "[codec][host][share]") {
    constexpr std::size_t most = share::most;
    std::vector<std::size_t> parts{0, most, most, 0, 1, most - 1, most, 0, 0};
    for (std::size_t i = 0; i != 3000; ++i) parts.push_back(i * 7919 % (i % 3 == 0 ? most + 1 : 500));
    for (const int threads : {1, 2, 5}) {
        const std::vector<int> times = takers(parts, threads);
        CHECK(times == std::vector<int>(parts.size(), 1));
    }
    share alone;
    CHECK((alone.takes(most) && alone.takes(0) && alone.takes(most)));
}

TEST_CASE("any number of threads gives the same bits", "[codec][host][share]") {
    const auto expected = results_on([] { return std::make_unique<zeropp::host>(); });
    const auto check = [&](const char* what, auto make) {
        const auto got = results_on(make);
        INFO(what);
        CHECK(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)) == 0);
    };
    check("one thread", [] { return std::make_unique<zeropp::host_threads>(1); });
    check("three threads", [] { return std::make_unique<zeropp::host_threads>(3); });
    const zeropp::host_threads shared(4);
    check("four threads for all ranks", [&] { return std::make_unique<zeropp::host_threads>(shared); });
    check("a queue with two", [] { return std::make_unique<zeropp::host_queue>(zeropp::host_threads(2)); });
    check("another's threads", [] {
        return std::make_unique<zeropp::host_threads>([](const std::function<void()>& work) {
            std::thread other(work);
            work();
            other.join();
        });
    });
}

TEST_CASE("messages of several parts are of the tensor's elements, in order", "[codec][host][share]") {
    // Blocks that all reach 127, so that codes are the elements, and three times that.
    constexpr std::size_t n = 3 * share::most - 100;
    std::vector<float> tensor(n);
    for (std::size_t i = 0; i != n; ++i) {
        tensor[i] = i % 256 == 3 ? 127.0f : static_cast<float>(i * 7919 % 65'521 % 255) - 127.0f;
    }
    using codec = zeropp::codec<zeropp::host>;
    const zeropp::host exec;
    const zeropp::block_integer<8, 256> q;
    const auto where = zeropp::slices::single(n, 0, n);
    const std::size_t bytes = zeropp::wire_bytes(q, n);
    std::vector<std::byte> messages(3 * bytes);
    std::vector<std::byte> sum(bytes);
    for (std::size_t c = 0; c != 3; ++c) codec::write(exec, q, tensor.data(), where, messages.data() + c * bytes);
    codec::write(exec, q, zeropp::message_sum{q, messages.data(), 3}, where, sum.data());
    std::vector<float> decoded(n);
    std::vector<float> of_sum(n);
    std::vector<float> mean(n);
    codec::read(exec, zeropp::message_sum{q, messages.data()}, where, decoded.data());
    codec::read(exec, zeropp::message_sum{q, sum.data()}, where, of_sum.data());
    codec::read(exec, zeropp::message_sum{q, messages.data(), 3, 3.0f}, where, mean.data());
    CHECK((decoded == tensor));
    CHECK((mean == tensor));
    for (float& x : tensor) x *= 3;
    CHECK((of_sum == tensor));
}
