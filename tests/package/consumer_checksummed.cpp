#include <zeropp/transport/checksummed.hpp>
#include <zeropp/transport/threads.hpp>

#include <array>
#include <atomic>
#include <cstddef>

int main() {
    std::atomic<int> right = 0;
    zeropp::run_on_threads(2, [&](zeropp::thread_transport transport) {
        zeropp::checksummed world(transport);
        const std::byte mine{static_cast<unsigned char>(world.rank() + 5)};
        std::array<std::byte, 2> all{};
        world.all_gather(zeropp::host(), &mine, all.data(), 1);
        right += all == std::array{std::byte{5}, std::byte{6}} ? 1 : 0;
    });
    return right == 2 ? 0 : 1;
}
