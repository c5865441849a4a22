#include "simt/cuda_emulation.hpp"

#include "simt/device.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/cuda/launch.cuh>

#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace simt = zeropp_test::simt;

namespace {

/// What is wrong with a kernel on `blocks` blocks of `threads` threads.
template <class Kernel>
std::string fault_of(unsigned threads, Kernel kernel, unsigned blocks = 1) {
    return simt::run_grid(dim3(blocks), dim3(threads), kernel);
}

bool mentions(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

constexpr unsigned everyone = 0xffffffffu;

}  // namespace

TEST_CASE("emulation: every thread of a grid runs once, with its own indices", "[simt][emulation]") {
    std::vector<int> runs(3 * 2 * 96);
    REQUIRE(simt::run_grid(dim3(3, 2), dim3(48, 2), [&] {
                const unsigned block = blockIdx.x + gridDim.x * blockIdx.y;
                ++runs[block * 96 + threadIdx.x + blockDim.x * threadIdx.y];
            }) == "");
    CHECK(runs == std::vector<int>(3 * 2 * 96, 1));
}

TEST_CASE("emulation: shuffles exchange the values of lanes", "[simt][emulation]") {
    std::vector<unsigned> given(64);
    REQUIRE(fault_of(64, [&] {
                const unsigned t = threadIdx.x;
                unsigned x = t;
                for (int distance = 1; distance < 32; distance *= 2) x += __shfl_xor_sync(everyone, x, distance);
                const auto far = __shfl_xor_sync(everyone, 1000.5 * t, 31);
                given[t] = x + (far == 1000.5 * (t ^ 31u) ? 0 : 1);
            }) == "");
    for (std::size_t t = 0; t != 64; ++t) CHECK(given[t] == (t < 32 ? 31u * 16u : 31u * 16u + 32u * 32u));
    REQUIRE(fault_of(64, [&] { given[threadIdx.x] = __shfl_down_sync(everyone, threadIdx.x, 3); }) == "");
    for (std::size_t t = 0; t != 64; ++t) CHECK(given[t] == (t % 32 < 29 ? t + 3 : t));
}

TEST_CASE("emulation: a lane that does not come to a shuffle is a fault", "[simt][emulation]") {
    CHECK(mentions(fault_of(32,
                            [] {
                                if (threadIdx.x != 7) __shfl_xor_sync(everyone, 1, 1);
                            }),
                   "lane 7 is named and never arrives: it has ended"));
    // Apart from the CHECK, which would put both on one line.
    const auto diverge = [] {
        if (threadIdx.x < 16) {
            __shfl_xor_sync(everyone, 1, 1);
        } else {
            __shfl_xor_sync(everyone, 1, 1);
        }
    };
    CHECK(mentions(fault_of(32, diverge), "is named and never arrives: it waits in line"));
    CHECK(mentions(fault_of(32, [] { __shfl_xor_sync(everyone, 1, threadIdx.x == 3 ? 2 : 1); }), "with distance"));
    CHECK(mentions(fault_of(32, [] { __shfl_xor_sync(threadIdx.x == 3 ? 0xfffffffeu : everyone, 1, 2); }), "and mask"));
    CHECK(mentions(fault_of(40, [] { __shfl_xor_sync(everyone, 1, 1); }),
                   "lane 8 is named and never arrives: the warp has"));
    CHECK(mentions(fault_of(32,
                            [] {
                                if (threadIdx.x % 2 == 0) {
                                    __shfl_xor_sync(everyone, 1, 1);
                                } else {
                                    __syncthreads();
                                }
                            }),
                   "is named and never arrives"));
}

TEST_CASE("emulation: masks name who takes part in a shuffle", "[simt][emulation]") {
    int sum = 0;
    CHECK(fault_of(32, [&] {
              if (threadIdx.x < 8) sum += __shfl_xor_sync(0xffu, 1, 4);
          }) == "");
    CHECK(sum == 8);
    CHECK(mentions(fault_of(32, [] { __shfl_xor_sync(0xffu, 1, 4); }), "lane 8 is not in its own mask"));
    CHECK(mentions(fault_of(32,
                            [] {
                                if (threadIdx.x < 8) __shfl_xor_sync(0xffu, 1, 8);
                            }),
                   "reads from lane 8, which is not in the mask"));
}

TEST_CASE("emulation: barriers order the threads of a block", "[simt][emulation]") {
    std::vector<int> reversed(256);
    const auto reverse = [&](bool with_barrier) {
        return fault_of(
            128,
            [&, with_barrier] {
                __shared__ int shared[128];
                shared[threadIdx.x] = static_cast<int>(blockIdx.x * 128 + threadIdx.x);
                if (with_barrier) __syncthreads();
                reversed[blockIdx.x * 128 + 127 - threadIdx.x] = shared[127 - threadIdx.x];
            },
            2);
    };
    std::vector<int> expected(256);
    std::iota(expected.begin(), expected.end(), 0);
    for (int round = 0; round != 2; ++round) {
        REQUIRE(reverse(true) == "");
        CHECK(reversed == expected);
        REQUIRE(reverse(false) == "");
        CHECK(reversed != expected);
    }
}

TEST_CASE("emulation: a barrier that is not for all is a fault", "[simt][emulation]") {
    CHECK(mentions(fault_of(64,
                            [] {
                                if (threadIdx.x != 63) __syncthreads();
                            }),
                   "is not reached by all threads of the block"));
    const auto diverge = [] {
        if (threadIdx.x < 32) {
            __syncthreads();
        } else {
            __syncthreads();
        }
    };
    CHECK(mentions(fault_of(64, diverge), "different __syncthreads"));
    CHECK(mentions(fault_of(32,
                            [] {
                                if (threadIdx.x != 5) __syncwarp();
                            }),
                   "lane 5 is named and never arrives"));
}

TEST_CASE("emulation: a fault ends the grid, and the next one runs", "[simt][emulation]") {
    int ran = 0;
    CHECK(mentions(fault_of(
                       64,
                       [&] {
                           if (threadIdx.x == 40) throw std::runtime_error("on purpose");
                           ++ran;
                           __syncthreads();
                           ++ran;
                       },
                       3),
                   "a kernel threw: on purpose"));
    CHECK(ran < 64);
    ran = 0;
    CHECK(fault_of(64, [&] { ++ran; }, 3) == "");
    CHECK(ran == 192);
}

TEST_CASE("emulation: the thread that ran a grid first may end before the next one", "[simt][emulation]") {
    const auto fail = [] { throw std::runtime_error("on purpose"); };
    std::string first;
    std::thread([&] { first = fault_of(1024, fail); }).join();
    CHECK(mentions(first, "on purpose"));
    CHECK(mentions(fault_of(1024, fail), "on purpose"));
}

TEST_CASE("emulation: a kernel's fault is the device's, until it recovers", "[simt][emulation]") {
    const simt::owned_stream stream;
    zeropp::detail::launch(stream.exec(), 1, 1, [] {
        if (threadIdx.x == 0) __syncthreads();
    });
    CHECK_THROWS_AS(stream.exec().wait(), zeropp::cuda_error);
    CHECK(mentions(simt::device_fault(), "is not reached by all threads"));
    CHECK_THROWS_AS(zeropp::detail::launch(stream.exec(), 1, 1, [] {}), zeropp::cuda_error);
    CHECK_THROWS_AS(stream.exec().wait(), zeropp::cuda_error);
    simt::recover();
    stream.exec().wait();
    CHECK(simt::device_fault() == "");
}
