#include "gpu/codec_against_host.cuh"

#include <algorithm>

namespace gpu = zeropp_test::gpu;
using namespace zeropp;

namespace {

/// Counts, encodes and decodes what differs where one element of so many was replaced.
template <class T>
void check_changes(const cuda_stream& exec, const slices& where, std::size_t shift, std::size_t one_in) {
    INFO("one in " << one_in << " has changed");
    auto before = gpu::tensor<T>(where.part.count(), 0);
    auto after = before;
    for (std::size_t i = shift; i < after.size(); i += one_in) after[i] = T(static_cast<float>(i % 99));
    const std::size_t groups = change_groups(where);
    const std::size_t numbers = changes_runs(groups).numbers();
    const auto slots = static_cast<std::size_t>(where.slots);
    const gpu::device_array<T> base(before, shift), tensor(after, shift / 2);
    const gpu::device_array<std::uint64_t> of_slots(slots * numbers);
    const difference on_device{tensor.data(), base.data()};
    const difference on_host{after.data(), before.data()};
    std::vector<std::uint64_t> counts(slots);
    for (std::size_t s = 0; s != slots; ++s) {
        const slices slot = where.only_slot(static_cast<int>(s));
        gpu::on_host::count_changes(host{}, on_host, slot, &counts[s]);
        gpu::on_device::count_changes(exec, on_device, slot, of_slots.data() + s * numbers);
    }
    exec.wait();
    const auto given = of_slots.read();
    for (std::size_t s = 0; s != slots; ++s) CHECK(given[s * numbers] == counts[s]);

    const changes_layout layout(groups, *std::max_element(counts.begin(), counts.end()), sizeof(T));
    std::vector<std::byte> messages(slots * layout.bytes);
    const gpu::device_array<std::byte> out(messages.size());
    for (std::size_t s = 0; s != slots; ++s) {
        const slices slot = where.only_slot(static_cast<int>(s));
        gpu::on_host::encode_changes(host{}, on_host, slot, layout, nullptr, messages.data() + s * layout.bytes);
        gpu::on_device::encode_changes(exec, on_device, slot, layout, of_slots.data() + s * numbers,
                                       out.data() + s * layout.bytes);
    }
    exec.wait();
    CHECK(gpu::difference(out.read(), messages) == "");
    gpu::on_host::decode_changes(host{}, messages.data(), layout, where, before.data(), nullptr);
    gpu::on_device::decode_changes(exec, out.data(), layout, where, base.data(), of_slots.data());
    exec.wait();
    CHECK(gpu::difference(base.read(), before) == "");
    CHECK((out.intact() && base.intact() && of_slots.intact()));
}

}  // namespace

TEST_CASE("kernels: changed elements", "[gpu][kernels]") {
    const auto check = [](const cuda_stream& exec, const slices& where, std::size_t v) {
        constexpr std::size_t one_in[] = {1, 1'000'000, 100, 3};
        check_changes<bfloat16>(exec, where, v % 3, one_in[v % 4]);
        check_changes<float>(exec, where, v % 3, one_in[(v + 1) % 4]);
    };
    gpu::for_each_case(gpu::sizes(256), 256, check);
}

TEST_CASE("kernels: changed elements of many groups", "[gpu][kernels]") {
    const gpu::owned_stream stream;
    // Runs of two groups, and of more than a warp takes at once.
    for (const std::size_t groups : {changes_runs::most + 1, 32 * changes_runs::most + 1}) {
        const std::size_t n = groups * 256 - 5;
        check_changes<half>(stream.exec(), slices::single(n, 0, n), 1, 1'001);
    }
}
