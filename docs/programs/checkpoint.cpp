/// \file
/// A checkpoint and a restart to the bit: what has to be saved is the shards, and of error feedback the residuals and
/// the number of uses. What nodes keep of the weights is made again.

#include <zeropp/zeropp.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

namespace {

constexpr std::size_t n = 20'000;
using bf16 = zeropp::cast_to<zeropp::bfloat16>;
using int8 = zeropp::block_integer<8, 256>;
using int4 = zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16>;
using secondary_type = zeropp::secondary_partition<bf16, zeropp::host_space>;
using feedback_type = zeropp::error_feedback<zeropp::hops<int8, int4>, zeropp::residuals_in_int8, zeropp::host_space>;

/// What one rank writes to its file.
struct checkpoint {
    std::uint64_t step = 0;
    std::vector<float> shard;
    std::vector<std::byte> residuals;
    std::uint64_t uses = 0;
};

struct engine {
    zeropp::communicator<zeropp::two_level, zeropp::thread_transport> comm;
    std::uint64_t step = 0;
    std::vector<float> shard, shard_gradient, weights, gradient;
    zeropp::workspace<zeropp::host_space> kept, residuals;
    secondary_type secondary;
    feedback_type feedback;

    explicit engine(const zeropp::thread_transport& world)
        : comm(zeropp::two_level(2, 2), world), shard(n / 4, 1.0f), shard_gradient(n / 4), weights(n), gradient(n),
          kept(secondary_type::storage_bytes({}, n, 2)), residuals(feedback_type::storage_bytes(comm.topology(), n)),
          secondary({}, n, 2, comm.index(), kept.view()), feedback(comm.topology(), n, residuals.view()) {}

    void train_until(std::uint64_t last) {
        while (step != last) {
            ++step;
            zeropp::quantized_all_gather(zeropp::host{}, comm, int8{}, shard, weights);
            secondary.store(zeropp::host{}, weights, step);
            zeropp::secondary_partition_gather(zeropp::host{}, comm, secondary, step, weights);
            for (std::size_t i = 0; i != n; ++i) gradient[i] = weights[i] * std::sin(static_cast<float>(i + step));
            zeropp::hierarchical_quantized_reduce_scatter(
                zeropp::host{}, comm, zeropp::with_error_feedback(zeropp::hops{int8{}, int4{}}, feedback), gradient,
                shard_gradient, {.operation = zeropp::reduction::mean});
            for (std::size_t i = 0; i != shard.size(); ++i) shard[i] -= 0.05f * shard_gradient[i];
        }
    }

    // [checkpoint]
    checkpoint save() const {
        const auto bytes = feedback.residuals();
        return {step, shard, {bytes.data(), bytes.data() + bytes.size()}, feedback.uses()};
    }
    void restore(const checkpoint& from) {
        step = from.step;
        shard = from.shard;
        std::copy(from.residuals.begin(), from.residuals.end(), feedback.residuals().data());
        feedback.restore(from.uses);
        secondary.invalidate();  // what it holds is of other weights; the next forward pass stores it anew
    }
    // [checkpoint]
};

}  // namespace

int main() try {
    zeropp::run_on_threads(4, [](zeropp::thread_transport world) {
        engine first(world);
        first.train_until(5);
        const checkpoint saved = first.save();
        first.train_until(10);

        engine second(world);  // as after a restart
        second.restore(saved);
        bool refused = false;
        try {
            zeropp::secondary_partition_gather(zeropp::host{}, second.comm, second.secondary, 5, second.weights);
        } catch (const zeropp::precondition_error&) {
            refused = true;  // on every rank alike, before any message
        }
        second.train_until(10);
        std::printf("rank %d: the same bits after the restart: %s; weights of before refused: %s\n", world.rank(),
                    first.shard == second.shard ? "yes" : "no", refused ? "yes" : "no");
        if (first.shard != second.shard || !refused) throw zeropp::error("wrong result");
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
