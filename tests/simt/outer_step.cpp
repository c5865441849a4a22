#include "kernels/codec_against_host.hpp"
#include "simt/collectives.hpp"
#include "simt/device.hpp"
#include "support/catch.hpp"
#include "support/host_array.hpp"

#include <zeropp/codec/cuda/each_kernel.cuh>
#include <zeropp/local_steps/outer_step.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/residual_storage.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace simt = zeropp_test::simt;

namespace {

constexpr zeropp::block_integer<2, 64> int2;
constexpr zeropp::hops by_hop{int2, int2, int2};
const std::vector<std::size_t> sizes{1003, 0, 5, 4096};
constexpr zeropp::outer_options options{.every = 2, .delay = 1, .alpha = 0.5f};

/// Weights of tensor t of `island` after inner step `step`: those before, plus numbers that differ between islands.
template <class T>
void inner_step(std::vector<T>& weights, std::size_t t, int island, int step) {
    const auto moved = simt::tensor<float>(weights.size(), 7 * static_cast<std::size_t>(step) + t,
                                           1 + static_cast<std::size_t>(island));
    for (std::size_t i = 0; i != weights.size(); ++i) {
        using traits = zeropp::element_traits<T>;
        const float x = moved[i] == moved[i] && moved[i] < 1e3f && moved[i] > -1e3f ? moved[i] : 0.0f;
        weights[i] = traits::from_float(traits::to_float(weights[i]) + x / 64);
    }
}

/// Five inner steps and two exchanges, both applied late. `make(values)` owns an array in Space, with `view()`,
/// `read()` and `write(values)`. Returns all weights and the state.
template <class Space, class T, class Exec, class Transport, class Make, class MakeBytes>
std::vector<float> train(const Exec& exec, Transport transport, Make make, MakeBytes make_bytes) {
    zeropp::communicator comm(zeropp::flat(transport.size()), std::move(transport));
    std::vector<decltype(make(std::vector<T>()))> tensors;
    std::vector<zeropp::list_tensor<T, Space>> listed;
    for (std::size_t t = 0; t != sizes.size(); ++t) {
        std::vector<T> initial(sizes[t], zeropp::element_traits<T>::from_float(1.0f));
        inner_step(initial, t, 9, 0);
        tensors.push_back(make(initial));
        listed.emplace_back(tensors.back()->view());
    }
    const zeropp::tensor_list<T, Space> weights(listed);
    using outer_type = zeropp::outer_optimizer<Space>;
    const auto storage = make_bytes(outer_type::storage_bytes(weights));
    outer_type outer(comm.topology(), weights, storage->view());
    using memory_type = zeropp::error_feedback<std::remove_const_t<decltype(by_hop)>, zeropp::residuals_in_bf16, Space>;
    const auto kept = make_bytes(memory_type::storage_bytes(comm.topology(), outer.differences()));
    memory_type memory(comm.topology(), outer.differences(), kept->view());
    const auto scratch = make_bytes(zeropp::outer_step_workspace_bytes(comm.topology(), by_hop, outer, options));
    outer.start(exec, weights);
    for (int step = 1; step <= 5; ++step) {
        exec.wait();
        for (std::size_t t = 0; t != sizes.size(); ++t) {
            auto values = tensors[t]->read();
            inner_step(values, t, comm.rank(), step);
            tensors[t]->write(values);
        }
        if (options.applies(0, step)) outer.apply(exec, weights, options);
        if (options.begins(0, step)) {
            zeropp::outer_begin(exec, comm, zeropp::with_error_feedback(by_hop, memory), weights, outer, options,
                                scratch->view());
        }
    }
    exec.wait();
    std::vector<float> result;
    for (const auto& tensor : tensors) {
        for (const T x : tensor->read()) result.push_back(zeropp::element_traits<T>::to_float(x));
    }
    std::vector<float> held(outer.state().size() / sizeof(float));
    exec.copy_to_host(held.data(), outer.state().data(), outer.state().size());
    exec.wait();
    // Between tensors, storage is not used.
    std::size_t begin = 0;
    for (int part = 0; part != 3; ++part) {
        for (const std::size_t n : sizes) {
            result.insert(result.end(), held.data() + begin, held.data() + begin + n);
            begin += (n + 3) / 4 * 4;
        }
    }
    return result;
}

template <class T>
void check() {
    const simt::live_objects before = simt::live();
    for (const int islands : {1, 3}) {
        INFO(islands << " islands of " << zeropp::element_traits<T>::name);
        const simt::ranks_and_nodes ranks{"islands", zeropp::two_level(islands, 1)};
        std::vector<std::vector<float>> expected(3), given(3);
        simt::on_ranks(ranks, "an outer step on the host", [&](zeropp::thread_transport& world) {
            expected[static_cast<std::size_t>(world.rank())] = train<zeropp::host_space, T>(
                zeropp::host{}, world,
                [](const std::vector<T>& v) { return std::make_unique<zeropp_test::host_array<T>>(v); },
                [](std::size_t n) { return std::make_unique<zeropp_test::host_array<std::byte>>(n); });
        });
        simt::on_ranks(ranks, "an outer step on the device", [&](zeropp::thread_transport& world) {
            const auto r = static_cast<std::size_t>(world.rank());
            const simt::owned_stream stream;
            given[r] = train<zeropp::device_space, T>(
                stream.exec(), world,
                [&](const std::vector<T>& v) { return std::make_unique<simt::device_array<T>>(v, 1); },
                [](std::size_t n) { return std::make_unique<simt::device_array<std::byte>>(n); });
        });
        for (std::size_t r = 0; r != static_cast<std::size_t>(islands); ++r) {
            INFO("island " << r);
            REQUIRE(expected[r].size() == 4 * 5104);
            REQUIRE(zeropp_test::difference(given[r], expected[r]) == "");
        }
    }
    REQUIRE(simt::device_fault() == "");
    REQUIRE(simt::live() == before);
}

struct increment {
    unsigned* to;
    ZEROPP_HOST_DEVICE void operator()(std::size_t i) const { to[i] += 1; }
};

}  // namespace

TEST_CASE("outer step on the device: lists of islands have the host's bits", "[simt][collectives]") {
    check<float>();
    check<zeropp::bfloat16>();
}

TEST_CASE("codec on the device: each element is visited once, in grids smaller than the array", "[simt]") {
    for (const std::size_t n : {0u, 1u, 255u, 256u, 257u, 40'000u}) {
        const simt::owned_stream stream(1);
        const simt::device_array<unsigned> times(std::vector<unsigned>(n), 1);
        zeropp::codec<zeropp::cuda_stream>::each(stream.exec(), n, increment{times.data()});
        stream.exec().wait();
        INFO(n << " elements");
        REQUIRE(times.read() == std::vector<unsigned>(n, 1));
        REQUIRE(times.intact());
    }
}
