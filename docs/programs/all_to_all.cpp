/// \file
/// Tokens reach their experts, and their results come back: two all-to-alls in 8 bits over two nodes of two ranks.

#include <zeropp/zeropp.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

int main() try {
    zeropp::run_on_threads(4, [](zeropp::thread_transport transport) {
        const zeropp::two_level nodes(2, 2);
        zeropp::communicator comm(nodes, zeropp::counting(transport, nodes));
        // Each rank has one expert, and 64 tokens of 128 elements for each expert.
        constexpr std::size_t of_expert = std::size_t{64} * 128;
        std::vector<float> tokens(4 * of_expert), at_expert(tokens.size());
        for (std::size_t i = 0; i != tokens.size(); ++i) tokens[i] = std::sin(static_cast<float>(i));

        const zeropp::block_integer<8, 128> q;
        zeropp::quantized_all_to_all(zeropp::host{}, comm, q, tokens, at_expert);
        for (float& x : at_expert) x *= 2;  // the expert
        std::vector<float> results(tokens.size());
        zeropp::quantized_all_to_all(zeropp::host{}, comm, q, at_expert, results);

        float worst = 0;
        for (std::size_t i = 0; i != tokens.size(); ++i)
            worst = std::fmax(worst, std::fabs(results[i] - 2 * tokens[i]));
        if (worst > 0.02F) throw zeropp::error("wrong results");
        const zeropp::traffic sent = comm.world().total();
        std::printf("rank %d: results off by %.4f at most, %llu bytes to other nodes\n", comm.rank(), worst,
                    static_cast<unsigned long long>(sent.inter_node_bytes));
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
