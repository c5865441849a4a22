/// \file
/// A transport of your own around another one: it forwards everything and adds up the time that its bytes would take on
/// a given link. A transport that stands alone has the five members of the transport concept, which may call your own
/// network.

#include <zeropp/zeropp.hpp>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

template <class Transport>
class timed_link : public zeropp::adaptor<Transport> {
public:
    timed_link(Transport inner, double bytes_per_second, std::shared_ptr<double> clock)
        : zeropp::adaptor<Transport>(std::move(inner)), bytes_per_second_(bytes_per_second), clock_(std::move(clock)) {}

    template <zeropp::execution Execution>
    void all_gather(const Execution& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        this->inner().all_gather(exec, send, recv, bytes);
        *clock_ += (this->size() - 1) * static_cast<double>(bytes) / bytes_per_second_;
    }
    template <zeropp::execution Execution>
    void all_to_all(const Execution& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        this->inner().all_to_all(exec, send, recv, bytes);
        *clock_ += (this->size() - 1) * static_cast<double>(bytes) / bytes_per_second_;
    }
    template <zeropp::execution Execution>
    void broadcast(const Execution& exec, const std::byte* send, std::byte* recv, std::size_t bytes, int roots)
        requires zeropp::broadcasting_transport_on<Transport, Execution>
    {
        this->inner().broadcast(exec, send, recv, bytes, roots);
        if (this->rank() < roots) *clock_ += (this->size() - 1) * static_cast<double>(bytes) / bytes_per_second_;
    }
    timed_link split(std::span<const int> members) { return {this->inner().split(members), bytes_per_second_, clock_}; }

private:
    double bytes_per_second_;
    std::shared_ptr<double> clock_;  // shared with the splits
};
static_assert(zeropp::transport_on<timed_link<zeropp::thread_transport>, zeropp::host>);

int main() try {
    zeropp::run_on_threads(4, [](zeropp::thread_transport transport) {
        const auto clock = std::make_shared<double>(0);
        zeropp::communicator comm(zeropp::flat(4), timed_link(transport, 125e6, clock));  // 1 Gbit/s
        const std::vector<float> shard(1'000'000, 1.0f);
        std::vector<float> full(4'000'000);

        zeropp::quantized_all_gather(zeropp::host{}, comm, zeropp::cast_to<float>{}, shard, full);
        const double exact = std::exchange(*clock, 0);
        zeropp::quantized_all_gather(zeropp::host{}, comm, zeropp::block_integer<4, 128>{}, shard, full);
        std::printf("rank %d: %.4f s with fp32, %.4f s with int4:128\n", comm.rank(), exact, *clock);
        if (full.back() != 1.0f || exact < 7 * *clock) throw zeropp::error("wrong result");
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
