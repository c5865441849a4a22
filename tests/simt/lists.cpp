/// \file
/// The kernels on lists of tensors, against the host: the same bytes and bits, one launch for each pass whatever the
/// number of tensors.

#include "kernels/abilities_against_host.hpp"
#include "support/samples.hpp"

#include <zeropp/codec/cuda/message_section.cuh>
#include <zeropp/codec/cuda/sources.cuh>
#include <zeropp/layout/divided.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/quantizer/block_float.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/lloyd_max.hpp>
#include <zeropp/quantizer/stochastic.hpp>
#include <zeropp/topology/two_level.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace simt = zeropp_test::simt;
using zeropp::block_integer;
using zeropp::hadamard;

namespace {

/// The same list on the host and on the device, of `ranks` slices: n elements, in rows, with gaps, anywhere in memory.
template <class T>
class both_lists {
public:
    both_lists(zeropp_test::random_source& random, const zeropp::two_level& ranks, std::size_t tensors,
               std::size_t most) {
        std::vector<zeropp::list_tensor<T, zeropp::host_space>> of_host;
        std::vector<zeropp::list_tensor<T, zeropp::device_space>> of_device;
        for (std::size_t t = 0; t != tensors; ++t) {
            const std::size_t n = random.below(3) == 0 ? random.below(10) : random.below(most);
            const std::size_t row = random.below(2) == 0 ? 1 : 1 + random.below(20);
            const std::size_t slice = zeropp::partition(n, ranks.size(), row).slice_size();
            const bool gaps = random.below(4) == 0 && n != 0;
            const std::size_t stride = slice + random.below(40);
            const zeropp::division how{.row = row, .stride = gaps ? stride : 0, .elements = gaps ? n : 0};
            const auto memory = gaps ? static_cast<std::size_t>(ranks.size()) * stride : n;
            host_arrays.push_back(simt::tensor<T>(memory, t, n));
            device_arrays.emplace_back(host_arrays.back(), random.below(4));
            of_host.emplace_back(host_arrays.back(), how);
            of_device.emplace_back(device_arrays.back().view(), how);
        }
        host.emplace(ranks, std::span<const zeropp::list_tensor<T, zeropp::host_space>>(of_host));
        device.emplace(ranks, std::span<const zeropp::list_tensor<T, zeropp::device_space>>(of_device));
    }

    /// Whether the device's arrays are the host's, and nothing beside them has been written.
    bool same() const {
        for (std::size_t t = 0; t != host_arrays.size(); ++t) {
            if (!device_arrays[t].intact()) return false;
            if (zeropp_test::difference(device_arrays[t].read(), host_arrays[t]) != "") return false;
        }
        return true;
    }

    std::deque<std::vector<T>> host_arrays;
    std::deque<simt::device_array<T>> device_arrays;
    std::optional<zeropp::tensor_list<T, zeropp::host_space>> host;
    std::optional<zeropp::tensor_list<T, zeropp::device_space>> device;
};

zeropp::detail::list_chunks chunks_of(const auto& list, int wanted, int block) {
    const zeropp::detail::list_division whole(list.over_ranks(), list.resident(list.over_ranks()), list.elements(), 0);
    return {whole, wanted, static_cast<std::size_t>(block)};
}

template <class T, class From, class To, class Storage>
void check(const From& from, const To& to, int seed, std::size_t tensors, std::size_t most,
           const zeropp::two_level& ranks) {
    zeropp_test::random_source random(static_cast<std::uint64_t>(seed));
    const int slots = zeropp::slot_count(ranks);
    const auto of_slots = [&](std::size_t bytes) { return static_cast<std::size_t>(slots) * bytes; };
    both_lists<T> lists(random, ranks, tensors, most);
    const int wanted = 1 + static_cast<int>(random.below(3));
    INFO("seed " << seed << ", " << tensors << " tensors in " << wanted << " chunks");
    const int block = std::max(From::block_size, To::block_size);
    const auto on_host = chunks_of(*lists.host, wanted, block);
    const auto on_device = chunks_of(*lists.device, wanted, block);
    REQUIRE(on_host.size() == on_device.size());
    // A small device has several tiles in a row for each thread block.
    const simt::owned_stream stream(seed % 2 == 0 ? 1 : 4);
    const zeropp::cuda_stream& exec = stream.exec();
    const int contributors = 2 + seed % 3;
    using host_codec = zeropp::codec<zeropp::host>;
    using device_codec = zeropp::codec<zeropp::cuda_stream>;

    const zeropp::detail::list_division whole(lists.host->over_ranks(), nullptr, lists.host->elements(), 0);
    const std::size_t kept = of_slots(zeropp::format_of<Storage>.bytes_of(whole));
    std::vector<std::byte> host_kept(kept);
    const simt::device_array<std::byte> device_kept(host_kept);
    for (std::size_t c = 0; c != on_host.size(); ++c) {
        const auto host_where = on_host[c].in_slots(ranks.order(), 0, slots);
        const auto device_where = on_device[c].in_slots(ranks.order(), 0, slots);
        const std::size_t in = zeropp::format_of<From>.bytes_of(host_where);
        const std::size_t out = zeropp::format_of<To>.bytes_of(host_where);
        // Contributors send the same without residuals.
        std::vector<std::byte> messages(of_slots(in)), all(static_cast<std::size_t>(contributors) * of_slots(in)),
            sums(of_slots(out));
        const simt::device_array<std::byte> device_messages(messages.size()), device_all(all.size()),
            device_sums(sums.size());
        const zeropp::tensor_table<const T> of_host{lists.host->resident_tensors()};
        const zeropp::tensor_table<const T> of_device{lists.device->resident_tensors()};
        const zeropp::feedback<Storage> host_memory{
            {}, host_kept.data(), host_kept.data(), whole.last_count(), whole.last()};
        const zeropp::feedback<Storage> device_memory{
            {}, device_kept.data(), device_kept.data(), whole.last_count(), whole.last()};
        for (int contributor = 0; contributor != contributors; ++contributor) {
            if constexpr (zeropp::detail::kernel_residuals<zeropp::feedback<Storage>>::template fit_blocks_of<From>) {
                host_codec::write(zeropp::host{}, from, of_host, host_where, messages.data(), host_memory);
                device_codec::write(exec, from, of_device, device_where, device_messages.data(), device_memory);
            } else {
                host_codec::write(zeropp::host{}, from, of_host, host_where, messages.data());
                device_codec::write(exec, from, of_device, device_where, device_messages.data());
            }
            exec.wait();
            REQUIRE((device_messages.read() == messages));
            REQUIRE(device_messages.intact());
            std::copy(messages.begin(), messages.end(),
                      all.begin() +
                          static_cast<std::ptrdiff_t>(contributor) * static_cast<std::ptrdiff_t>(messages.size()));
        }
        const simt::device_array<std::byte> sent(all);
        host_codec::write(zeropp::host{}, to, zeropp::message_sum{from, all.data(), contributors, 3.0f}, host_where,
                          sums.data());
        device_codec::write(exec, to, zeropp::message_sum{from, sent.data(), contributors, 3.0f}, device_where,
                            device_sums.data());
        exec.wait();
        REQUIRE((device_sums.read() == sums));
        REQUIRE(device_sums.intact());
        const zeropp::tensor_table<T> to_host{lists.host->resident_tensors()};
        const zeropp::tensor_table<T> to_device{lists.device->resident_tensors()};
        const zeropp::epilogue last{.accumulate = true};
        host_codec::read(zeropp::host{}, zeropp::message_sum{from, all.data(), contributors, 2.0f}, host_where, to_host,
                         last);
        device_codec::read(exec, zeropp::message_sum{from, sent.data(), contributors, 2.0f}, device_where, to_device,
                           last);
        exec.wait();
        REQUIRE(lists.same());
        host_codec::read(zeropp::host{}, zeropp::message_sum{to, sums.data()}, host_where, to_host);
        device_codec::read(exec, zeropp::message_sum{to, device_sums.data()}, device_where, to_device);
        exec.wait();
        REQUIRE(lists.same());
    }
    REQUIRE((device_kept.read() == host_kept));
    REQUIRE(device_kept.intact());
}

template <class T, class From, class To, class Storage>
void check(const From& from, const To& to, int seed, std::size_t tensors, std::size_t most) {
    static constexpr int irregular[] = {5, 2, 5, 2};
    check<T, From, To, Storage>(from, to, seed, tensors, most,
                                seed % 3 == 0 ? zeropp::two_level(irregular) : zeropp::two_level(2, 2));
}
}  // namespace

TEST_CASE("kernels on lists: from one tensor to many, empty and small ones among them", "[simt][kernels][lists]") {
    for (int seed = 0; seed != 12; ++seed) {
        const std::size_t tensors = seed < 3 ? 1 : static_cast<std::size_t>(seed) * 3;
        check<zeropp::bfloat16, block_integer<8, 256>, block_integer<4, 128>, block_integer<8, 256>>({}, {}, seed,
                                                                                                     tensors, 6000);
        check<float, hadamard<block_integer<4, 64>, 32>, block_integer<8, 16>, zeropp::cast_to<float>>({}, {}, seed,
                                                                                                       tensors, 900);
    }
}

TEST_CASE("kernels on lists: tiles in a row, which begin anywhere in a tensor", "[simt][kernels][lists]") {
    for (int seed = 60; seed != 63; ++seed) {
        check<zeropp::bfloat16, block_integer<8, 256>, block_integer<4, 128>, block_integer<8, 256>>({}, {}, seed, 6,
                                                                                                     200000);
        check<float, block_integer<4, 128>, block_integer<8, 256>, zeropp::cast_to<float>>({}, {}, seed, 6, 200000);
    }
    // Rows that begin in one block of the sums and end in another.
    check<float, block_integer<8, 65536>, hadamard<block_integer<4, 2048>, 256>, zeropp::cast_to<float>>({}, {}, 3, 2,
                                                                                                         900000);
}

TEST_CASE("kernels on lists: a table of many slots, some without a rank", "[simt][kernels][lists]") {
    // 16 and 7 ranks.
    std::vector<int> nodes(23);
    for (std::size_t r = 0; r != nodes.size(); ++r) nodes[r] = r % 5 == 0 || r % 7 == 3 ? 1 : 0;
    check<zeropp::bfloat16, block_integer<8, 256>, block_integer<4, 128>, block_integer<8, 256>>(
        {}, {}, 50, 4, 9000, zeropp::two_level(std::span<const int>(nodes)));
}

TEST_CASE("kernels on lists: five codes in a byte", "[simt][kernels][lists]") {
    for (int seed = 40; seed != 46; ++seed) {
        check<float, hadamard<zeropp::lloyd_max<3, 128>, 128>, zeropp::lloyd_max<3, 64>, zeropp::cast_to<float>>(
            {}, {}, seed, 8, 2000);
    }
}

TEST_CASE("kernels on lists: scales of a byte, noise, blocks of more than a team holds", "[simt][kernels][lists]") {
    using dithered = zeropp::stochastic<block_integer<4, 128>>;
    for (int seed = 20; seed != 24; ++seed) {
        check<zeropp::half, zeropp::mxfp4, dithered, zeropp::cast_to<zeropp::bfloat16>>({}, {{}, 7}, seed, 9, 2000);
        check<float, block_integer<8, 65536>, hadamard<block_integer<4, 2048>, 256>, zeropp::cast_to<float>>(
            {}, {}, seed, 5, 30000);
    }
}

TEST_CASE("kernels on lists: windows that span blocks of the sums", "[simt][kernels][lists]") {
    // Most tensors begin in the middle of a window, were windows counted from the first.
    for (int seed = 30; seed != 36; ++seed) {
        check<float, hadamard<block_integer<8, 256>, 256>, block_integer<4, 128>, zeropp::cast_to<float>>({}, {}, seed,
                                                                                                          7, 9000);
    }
}

TEST_CASE("kernels on lists: one launch for each pass of 4096 tensors", "[simt][kernels][lists]") {
    zeropp_test::random_source random(1);
    const zeropp::two_level ranks(1, 2);
    both_lists<float> lists(random, ranks, 4096, 70);
    const block_integer<8, 64> q;
    const auto where = chunks_of(*lists.device, 1, 64)[0].in_slots({}, 0, 2);
    const simt::device_array<std::byte> messages(2 * zeropp::format_of<block_integer<8, 64>>.bytes_of(where));
    const simt::owned_stream stream;
    const std::size_t before = simt::calls("cudaLaunchKernel");
    const zeropp::tensor_table<float> tensors{lists.device->resident_tensors()};
    zeropp::codec<zeropp::cuda_stream>::write(stream.exec(), q, tensors, where, messages.data());
    zeropp::codec<zeropp::cuda_stream>::read(stream.exec(), zeropp::message_sum{q, messages.data()}, where, tensors);
    stream.exec().wait();
    CHECK(simt::calls("cudaLaunchKernel") - before == 2);
}
