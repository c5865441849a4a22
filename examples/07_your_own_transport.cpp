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
class timed_link : public zeropp::adaptor<timed_link<Transport>, Transport> {
    using base = zeropp::adaptor<timed_link, Transport>;

public:
    timed_link(Transport inner, double bytes_per_second, std::shared_ptr<double> clock)
        : base(std::move(inner)), bytes_per_second_(bytes_per_second), clock_(std::move(clock)) {}

    template <zeropp::execution Execution>
    void move(const Execution& exec, const zeropp::operation& what, const std::byte* send, std::byte* recv) {
        base::move(exec, what, send, recv);
        if (!what.sends(this->rank())) return;
        *clock_ += (this->size() - 1) * static_cast<double>(what.bytes) / bytes_per_second_;
    }
    /// Transport around `next`, a split of the inner one or its survivors.
    timed_link around(Transport next, std::span<const int>) const {
        return {std::move(next), bytes_per_second_, clock_};
    }

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
