/// \file
/// The program that the cluster's tests run: calls one collective a few times. Writes the bytes that each node has sent
/// to others and, of several sites, each site to others, as `counting` says. The test compares them with the bytes that
/// crossed the interfaces.
///
///   cluster_traffic COLLECTIVE SITES NODES RANKS_PER_NODE FILE

#include <zeropp/mpi.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using communicator =
    zeropp::communicator<zeropp::three_level, zeropp::counting<zeropp::mpi_transport, zeropp::three_level>>;

constexpr std::size_t elements = 1'000'007;  // nothing divides them
constexpr int calls = 4;

void call(const std::string& collective, communicator& comm) {
    const zeropp::partition part(elements, comm.size());
    std::vector<float> shard(part.size(comm.rank()), 1.0f), full(elements, 1.0f);
    if (collective == "quantized_all_gather") {
        const zeropp::block_integer<8, 256> int8;
        for (int i = 0; i != calls; ++i) zeropp::quantized_all_gather(zeropp::host{}, comm, int8, shard, full);
    } else if (collective == "hierarchical_quantized_reduce_scatter") {
        const zeropp::hops by_level{zeropp::block_integer<8, 256>(), zeropp::block_integer<4, 128>(),
                                    zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half>()};
        for (int i = 0; i != calls; ++i)
            zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, by_level, full, shard);
    } else if (collective == "secondary_partition_gather") {
        using secondary_type = zeropp::secondary_partition<zeropp::cast_to<zeropp::bfloat16>, zeropp::host_space>;
        const int group_size = comm.group_size();
        zeropp::workspace<zeropp::host_space> storage(secondary_type::storage_bytes({}, elements, group_size));
        secondary_type secondary({}, elements, group_size, comm.index(), storage.view());
        secondary.store(zeropp::host{}, full, 1);
        for (int i = 0; i != calls; ++i) zeropp::secondary_partition_gather(zeropp::host{}, comm, secondary, 1, full);
    } else {
        throw std::invalid_argument("no collective is called " + collective);
    }
}

void run(const std::string& collective, int sites, int nodes, int ranks_per_node, const std::string& file) {
    auto transport = zeropp::mpi_transport::duplicate(MPI_COMM_WORLD);
    const zeropp::two_level found = zeropp::shared_memory_nodes(transport);
    if (found.groups() != nodes || found.group_size(0) != ranks_per_node)
        throw std::runtime_error("MPI sees " + std::to_string(found.groups()) + " nodes of " +
                                 std::to_string(found.group_size(0)) + " ranks");
    const zeropp::three_level ranks(sites, nodes / sites, ranks_per_node);
    communicator comm(ranks, zeropp::counting(std::move(transport), ranks));
    call(collective, comm);

    const zeropp::traffic total = comm.world().total();
    const std::uint64_t sent[] = {total.inter_node_bytes + total.inter_site_bytes, total.inter_site_bytes};
    std::vector<std::uint64_t> by_rank(2 * static_cast<std::size_t>(comm.size()));
    MPI_Gather(sent, 2, MPI_UINT64_T, by_rank.data(), 2, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (comm.rank() != 0) return;
    // The sums of `count` equal numbers of ranks, as one line.
    std::ofstream out(file);
    const auto write_sums = [&](int count, std::size_t first) {
        for (std::size_t r = 0, each = by_rank.size() / static_cast<std::size_t>(count); r != by_rank.size();
             r += each) {
            std::uint64_t sum = 0;
            for (std::size_t i = first; i < each; i += 2) sum += by_rank[r + i];
            out << (r + first == 0 ? "[" : ", ") << sum;
        }
    };
    write_sums(nodes, 0);
    if (sites != 1) write_sums(sites, 1);
    out << "]\n";
    if (!out.flush()) throw std::runtime_error("cannot write " + file);
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    try {
        if (argc != 6) throw std::invalid_argument("expected COLLECTIVE SITES NODES RANKS_PER_NODE FILE");
        run(argv[1], std::stoi(argv[2]), std::stoi(argv[3]), std::stoi(argv[4]), argv[5]);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "cluster_traffic: %s\n", e.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
}
