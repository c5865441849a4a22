/// \file
/// A topology of your own: ranks dealt out to nodes in turn, as `mpirun --map-by node` places them. It says who is who
/// by arithmetic, and the collectives find their way by it.

#include <zeropp/zeropp.hpp>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

// [topology]
/// Rank r is on node r % nodes.
class cyclic {
public:
    static constexpr int levels = 2;
    cyclic() : cyclic(1, 1) {}
    cyclic(int nodes, int ranks_per_node) : nodes_(nodes), ranks_per_node_(ranks_per_node) {}

    int size() const { return nodes_ * ranks_per_node_; }
    int groups() const { return nodes_; }
    int group_size(int) const { return ranks_per_node_; }
    int group_of(int rank) const { return rank % nodes_; }
    int index_of(int rank) const { return rank / nodes_; }
    int rank_of(int group, int index) const { return index * nodes_ + group; }
    zeropp::slice_order order() const { return {.groups = nodes_, .group_stride = 1, .index_stride = nodes_}; }
    friend bool operator==(const cyclic&, const cyclic&) = default;

private:
    int nodes_;
    int ranks_per_node_;
};
static_assert(zeropp::topology<cyclic>);
// [topology]

int main() try {
    const cyclic nodes(2, 3);
    // The laws, on every rank and every slot.
    for (int rank = 0; rank != nodes.size(); ++rank) {
        const int slot = nodes.index_of(rank) * nodes.groups() + nodes.group_of(rank);
        if (nodes.rank_of(nodes.group_of(rank), nodes.index_of(rank)) != rank || nodes.order().rank(slot) != rank) {
            return 1;
        }
    }
    zeropp::run_on_threads(nodes.size(), [&](zeropp::thread_transport transport) {
        zeropp::communicator comm(nodes, zeropp::counting(transport, nodes));
        const std::vector<float> shard(1000, static_cast<float>(comm.rank()));
        std::vector<float> full(6000);
        zeropp::quantized_all_gather(zeropp::host{}, comm, zeropp::block_integer<8, 256>{}, shard, full);
        for (std::size_t i = 0; i != full.size(); ++i) {
            if (full[i] != static_cast<float>(i / 1000)) throw zeropp::error("wrong weights");
        }
        std::printf("rank %d is rank %d of node %d; it sent %llu bytes across nodes\n", comm.rank(), comm.index(),
                    comm.group_id(), static_cast<unsigned long long>(comm.world().total().inter_node_bytes));
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
