#include "kernels/codec_against_host.hpp"

#include <zeropp/codec/cuda/tuning.hpp>

#include <array>

namespace simt = zeropp_test::simt;
using zeropp::block_integer;

namespace {

using four_bits = block_integer<4, 128>;
using eight_bits = block_integer<8, 256>;

// Fewer blocks than there is work for, more than there is, and fewer than slots.
constexpr std::array<std::array<unsigned, 2>, 5> grids{{{1, 1}, {3, 2}, {7, 1}, {2, 11}, {40, 5}}};

/// 11 slots, reordered, the last of them short or empty, and enough elements that every loop goes round.
zeropp::slices work() {
    return {zeropp::partition(200001, 11), {}, 0, zeropp::partition(200001, 11).slice_size(), 0, 11};
}

template <class Kernel>
void run_on(const simt::owned_stream& stream, std::array<unsigned, 2> grid, const Kernel& kernel) {
    const dim3 blocks(grid[0], grid[1]);
    const dim3 threads(zeropp::detail::kernel_threads);
#if defined(__CUDACC__)
    zeropp::detail::run<<<blocks, threads, 0, stream.native()>>>(kernel);
#else
    zeropp::detail::emulate_launch(blocks, threads, stream.native(), kernel);
#endif
    stream.exec().wait();
}

}  // namespace

TEST_CASE("kernels: the same bits from every grid", "[simt][kernels]") {
    const simt::owned_stream stream;
    const zeropp::slices where = work();
    const std::size_t bytes = 11 * zeropp::wire_bytes(four_bits(), where.count);
    const auto elements = simt::tensor<float>(where.part.count(), 0);
    const auto encoded = simt::host_messages<float>(four_bits(), where, 1);
    const auto messages = simt::host_messages<float>(eight_bits(), where, 3);
    std::vector<std::byte> sums(bytes);
    simt::on_host::write(zeropp::host{}, four_bits(), zeropp::message_sum{eight_bits(), messages.data(), 3}, where,
                         sums.data());
    std::vector<zeropp::half> sum(where.part.count());
    simt::on_host::read(zeropp::host{}, zeropp::message_sum{eight_bits(), messages.data(), 3}, where, sum.data());

    const simt::device_array<float> tensor(elements);
    const simt::device_array<std::byte> in(messages);
    for (const auto grid : grids) {
        INFO("grid of " << grid[0] << " x " << grid[1]);
        const simt::device_array<std::byte> out(bytes);
        run_on(stream, grid,
               zeropp::detail::encode_kernel<four_bits, zeropp::detail::tensor_source<float>>{
                   {}, {tensor.data()}, where, out.data()});
        REQUIRE(simt::message_difference(four_bits(), where, out.read(), encoded) == "");

        using source = zeropp::detail::sum_source<eight_bits, 0>;
        const zeropp::wire_layout<eight_bits> layout(where.last_count(), where.last());
        const source messages_in{{{}, in.data(), 3, layout, 11 * layout.bytes, 1.0f}};
        run_on(stream, grid, zeropp::detail::encode_kernel<four_bits, source>{{}, messages_in, where, out.data()});
        REQUIRE(simt::message_difference(four_bits(), where, out.read(), sums) == "");

        const simt::device_array<zeropp::half> decoded(where.part.count(), 1);
        run_on(stream, grid,
               zeropp::detail::decode_kernel<source, zeropp::half>{messages_in, where, decoded.data(), {}});
        REQUIRE(zeropp_test::difference(decoded.read(), sum) == "");
        REQUIRE((out.intact() && decoded.intact()));
    }
    REQUIRE(simt::device_fault() == "");
}

TEST_CASE("kernels: grids fit the device and CUDA's limits", "[simt][kernels]") {
    const simt::owned_stream small(1);
    const simt::owned_stream large(132);
    const std::size_t n = 1u << 28;
    const simt::device_array<std::byte> somewhere(16);  // never touched: nothing is run
    std::byte* const memory = somewhere.data();
    const auto grids_of = [&](const simt::owned_stream& stream, const zeropp::slices& where) {
        const simt::launch_log log(false);
        simt::on_device::read(stream.exec(), zeropp::message_sum{eight_bits(), memory}, where,
                              reinterpret_cast<zeropp::half*>(memory));
        return log.grids();
    };
    const auto blocks = [](const dim3& grid) { return std::size_t{grid.x} * grid.y; };

    const auto whole = zeropp::slices::single(n, 0, n);
    REQUIRE(grids_of(small, whole).size() == 1);
    using decoder = zeropp::detail::decode_kernel<zeropp::detail::sum_source<eight_bits, 1>, zeropp::half>;
    STATIC_REQUIRE(decoder::resident_blocks == 3);
    CHECK(blocks(grids_of(small, whole)[0]) == 3);
    CHECK(blocks(grids_of(large, whole)[0]) == 132 * 3);
    const zeropp::slices eight{zeropp::partition(n, 8), {}, 0, n / 8, 0, 8};
    CHECK(grids_of(large, eight)[0].y == 8);
    CHECK(blocks(grids_of(large, eight)[0]) == 8 * (132 * 3 / 8));
    // 396 blocks cannot be shared equally: 256 slots share eleven times as many, 1024 sixteen times as many.
    const auto of_slots = [&](int slots) {
        return grids_of(large, {zeropp::partition(n, slots), {}, 0, n / static_cast<std::size_t>(slots), 0, slots})[0];
    };
    CHECK(of_slots(256).x == 11 * 396 / 256);
    CHECK(of_slots(1024).x == 16 * 396 / 1024);
    CHECK(of_slots(132).x == 3);
    const auto tiny = zeropp::slices::single(9, 0, 9);
    CHECK(blocks(grids_of(large, tiny)[0]) == 1);

    // More slots than a grid has room for in one direction, and no work at all.
    const zeropp::slices many{zeropp::partition(70000 * 8, 70000), {}, 0, 8, 0, 70000};
    REQUIRE(grids_of(large, many).size() == 1);
    CHECK(grids_of(large, many)[0].y == 65535);
    CHECK(grids_of(large, zeropp::slices::single(0, 0, 0)).empty());
    CHECK(grids_of(large, {zeropp::partition(5, 8), {}, 0, 1, 8, 0}).empty());

    // A table in host memory cannot be read by a kernel: one launch for each range of slots with equal distances.
    constexpr int in_sites[] = {0, 2, 4, 1, 3, 5}, order[] = {2, 0, 1};
    CHECK(grids_of(large, {zeropp::partition(999, 6), {6, 0, 0, in_sites}, 0, 167, 0, 6}).size() == 2);
    CHECK(grids_of(large, {zeropp::partition(999, 3), {3, 0, 0, order}, 0, 333, 0, 3}).size() == 2);
}

TEST_CASE("kernels: more slots than a grid has blocks in one direction", "[simt][kernels]") {
    const simt::owned_stream stream(1);
    constexpr int slots = zeropp::detail::most_blocks_y + 3;
    const zeropp::slices where{zeropp::partition(slots, slots), {}, 0, 1, 0, slots};
    const std::vector<std::byte> messages = simt::host_messages<float>(block_integer<8, 8>(), where, 1);
    std::vector<float> expected(where.part.count());
    simt::on_host::read(zeropp::host{}, zeropp::message_sum{block_integer<8, 8>(), messages.data()}, where,
                        expected.data());
    const simt::device_array<std::byte> in(messages);
    const simt::device_array<float> out(expected.size());
    simt::on_device::read(stream.exec(), zeropp::message_sum{block_integer<8, 8>(), in.data()}, where, out.data());
    stream.exec().wait();
    CHECK(zeropp_test::difference(out.read(), expected) == "");
}
