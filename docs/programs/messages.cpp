/// \file
/// Records every message of one call of each collective on 2 nodes of 3 ranks, which are threads here, and writes them
/// as JSON. docs/figures.py draws the pictures of the documentation from it.
///
/// Every slice of the tensor is two floats that name themselves. Of slice s, rank r has (2^r, s 2^r): sums of such
/// pairs still say of which slice they are, and which ranks have been added up. So a message is read, and not assumed.

#include <zeropp/zeropp.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int nodes = 2, ranks_per_node = 3, ranks = nodes * ranks_per_node;
constexpr std::size_t elements = 2 * ranks;
using exact = zeropp::cast_to<float>;

/// What pairs of floats say, in units of `unit`, as a JSON list of [slice, ranks that have been added up, as bits].
std::string pairs(const float* values, std::size_t count, float unit) {
    std::string text;
    for (std::size_t i = 0; i + 1 < count; i += 2) {
        if (values[i] == 0) continue;  // padding
        const int of_ranks = static_cast<int>(values[i] / unit);
        const int slice = static_cast<int>(values[i + 1] / values[i]);
        text += (text.empty() ? "" : ", ") + ("[" + std::to_string(slice) + ", " + std::to_string(of_ranks) + "]");
    }
    return "[" + text + "]";
}

/// What one rank has recorded: lines of JSON, and what it needs to know for that.
struct journal {
    std::vector<std::string> lines;
    float unit = 1;
    int operation = 0;
};

/// Carries bytes as `Transport` does, and notes what it sends to whom.
template <class Transport>
class recording : public zeropp::adaptor<recording<Transport>, Transport> {
    using base = zeropp::adaptor<recording, Transport>;

public:
    recording(Transport inner, std::vector<int> world, std::shared_ptr<journal> notes)
        : base(std::move(inner)), world_(std::move(world)), notes_(std::move(notes)) {}

    template <zeropp::execution E>
    void move(const E& exec, const zeropp::operation& what, const std::byte* send, std::byte* recv) {
        if (what.sends(this->rank())) note(what, send);
        ++notes_->operation;
        base::move(exec, what, send, recv);
    }
    recording around(Transport next, std::span<const int> members) const {
        std::vector<int> world;
        for (const int m : members) world.push_back(world_[static_cast<std::size_t>(m)]);
        return {std::move(next), std::move(world), notes_};
    }

private:
    void note(const zeropp::operation& what, const std::byte* send) {
        static constexpr const char* kinds[] = {"all_gather", "all_to_all", "broadcast"};
        const int self = world_[static_cast<std::size_t>(this->rank())];
        for (std::size_t p = 0; p != world_.size(); ++p) {
            std::vector<float> values(what.bytes / sizeof(float));
            std::memcpy(values.data(), what.sent_to(static_cast<int>(p), send), values.size() * sizeof(float));
            notes_->lines.push_back("{\"operation\": " + std::to_string(notes_->operation) + ", \"kind\": \"" +
                                    kinds[what.kind] + "\", \"from\": " + std::to_string(self) + ", \"to\": " +
                                    std::to_string(world_[p]) + ", \"bytes\": " + std::to_string(what.bytes) +
                                    ", \"carries\": " + pairs(values.data(), values.size(), notes_->unit) + "}");
        }
    }

    std::vector<int> world_;
    std::shared_ptr<journal> notes_;
};

/// The pictures, in order: of each its name, and what each rank has noted.
struct album {
    std::mutex mutex;
    std::vector<std::pair<std::string, std::vector<std::string>>> pages;

    void add(const std::string& name, const std::vector<std::string>& lines) {
        const std::lock_guard lock(mutex);
        auto page = std::find_if(pages.begin(), pages.end(), [&](const auto& p) { return p.first == name; });
        if (page == pages.end()) page = pages.insert(pages.end(), {name, {}});
        page->second.insert(page->second.end(), lines.begin(), lines.end());
    }
    void print() {
        std::sort(pages.begin(), pages.end());
        std::puts("{");
        for (auto& [name, lines] : pages) {
            std::sort(lines.begin(), lines.end());
            std::printf("\"%s\": [\n", name.c_str());
            for (const std::string& line : lines) {
                std::printf("%s%s\n", line.c_str(), &line == &lines.back() ? "" : ",");
            }
            std::printf("]%s\n", &name == &pages.back().first ? "" : ",");
        }
        std::puts("}");
    }
};

/// `values` of this rank before or after the call, as a line.
std::string state(const char* when, const char* what, int rank, const std::string& holds) {
    return std::string("{\"state\": \"") + when + "\", \"what\": \"" + what + "\", \"rank\": " + std::to_string(rank) +
           ", \"holds\": " + holds + "}";
}
std::string state(const char* when, const char* what, int rank, std::span<const float> values, float unit = 1) {
    return state(when, what, rank, pairs(values.data(), values.size(), unit));
}
/// The same of messages of `exact`, as storage holds them.
std::string stored(const char* when, const char* what, int rank, std::span<const std::byte> messages, float unit = 1) {
    std::vector<float> values(messages.size() / sizeof(float));
    std::memcpy(values.data(), messages.data(), values.size() * sizeof(float));
    return state(when, what, rank, values, unit);
}

void record(const zeropp::thread_transport& world, album& pictures) {
    const int rank = world.rank();
    const auto notes = std::make_shared<journal>();
    std::vector<int> all(ranks);
    std::iota(all.begin(), all.end(), 0);
    const zeropp::two_level topology(nodes, ranks_per_node);
    zeropp::communicator comm(topology, recording(world, all, notes));

    const auto own_slice = [&](float unit) {
        const float mask = unit * static_cast<float>(1 << rank);
        return std::vector<float>{mask, static_cast<float>(rank) * mask};
    };
    const auto own_tensor = [&] {
        std::vector<float> full;
        for (int s = 0; s != ranks; ++s) {
            full.push_back(static_cast<float>(1 << rank));
            full.push_back(static_cast<float>(s) * static_cast<float>(1 << rank));
        }
        return full;
    };
    const auto page = [&](const std::string& name, const std::vector<std::string>& states) {
        pictures.add(name, notes->lines);
        pictures.add(name, states);
        *notes = {};
    };
    const std::vector<float> slice = own_slice(1), gradient = own_tensor();
    std::vector<float> full(elements), shard(2);

    zeropp::quantized_all_gather(zeropp::host{}, comm, exact{}, slice, full);
    page("quantized_all_gather", {state("before", "shard", rank, slice), state("after", "whole tensor", rank, full)});

    zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{exact{}, exact{}}, gradient,
                                                  shard);
    page("hierarchical_quantized_reduce_scatter",
         {state("before", "gradient", rank, gradient), state("after", "shard of the sum", rank, shard)});

    zeropp::quantized_all_reduce(zeropp::host{}, comm, zeropp::hops{exact{}, exact{}, exact{}}, gradient, full,
                                 {.algorithm = zeropp::all_reduce_algorithm::two_shot});
    page("quantized_all_reduce", {state("before", "gradient", rank, gradient), state("after", "sum", rank, full)});

    zeropp::quantized_all_reduce(zeropp::host{}, comm, zeropp::hops{exact{}, exact{}, exact{}}, gradient, full,
                                 {.algorithm = zeropp::all_reduce_algorithm::one_shot});
    page("quantized_all_reduce_gather",
         {state("before", "gradient", rank, gradient), state("after", "sum", rank, full)});

    // hpZ: what the node keeps, and the gather of it.
    using secondary_type = zeropp::secondary_partition<exact, zeropp::host_space>;
    zeropp::quantized_all_gather(zeropp::host{}, comm, exact{}, slice, full);
    *notes = {};
    std::vector<std::byte> memory(secondary_type::storage_bytes({}, elements, ranks_per_node));
    secondary_type secondary({}, elements, ranks_per_node, comm.index(), memory);
    secondary.store(zeropp::host{}, full, 1);
    std::fill(full.begin(), full.end(), 0.0f);
    zeropp::secondary_partition_gather(zeropp::host{}, comm, secondary, 1, full);
    page("secondary_partition_gather",
         {stored("before", "secondary partition", rank, memory), state("after", "whole tensor", rank, full)});

    // Differences to what the node keeps: from weights of 1 to weights of 2, and the gather inside the node.
    using replica_type = zeropp::secondary_replica<exact, zeropp::host_space>;
    std::vector<std::byte> kept(replica_type::storage_bytes(topology, elements));
    replica_type node(topology, rank, elements, kept);
    zeropp::quantized_update(zeropp::host{}, comm, exact{}, slice, node.to(1));
    *notes = {};
    const std::string before = stored("before", "replica, version 1", rank, kept);
    const std::vector<float> next = own_slice(2);
    zeropp::quantized_update(zeropp::host{}, comm, exact{}, next, node.to(2));
    const std::string between = stored("between", "replica, version 2", rank, kept, 2);
    notes->unit = 2;
    zeropp::secondary_partition_gather(zeropp::host{}, comm, node, 2, full);
    page("quantized_update", {before, between, state("after", "whole tensor", rank, full, 2)});

    // Error feedback: the slots whose residuals each hop keeps, by what storage they take.
    using feedback = zeropp::error_feedback<zeropp::hops<exact, exact>, zeropp::residuals_in_fp32, zeropp::host_space>;
    const std::size_t of_slot = zeropp::wire_bytes(feedback::storage_at<0>{}, 2);
    const std::size_t intra_node = feedback::storage_bytes(zeropp::flat(ranks), elements) / of_slot;
    const std::size_t both = feedback::storage_bytes(topology, elements) / of_slot;
    std::vector<std::byte> residuals(both * of_slot);
    feedback held(topology, elements, residuals);
    zeropp::hierarchical_quantized_reduce_scatter(
        zeropp::host{}, comm, zeropp::with_error_feedback(zeropp::hops{exact{}, exact{}}, held), gradient, shard);
    page("error_feedback", {state("before", "gradient", rank, gradient),
                            state("residuals", "intra_node", rank, std::to_string(intra_node)),
                            state("residuals", "inter_node", rank, std::to_string(both - intra_node)),
                            state("after", "shard of the sum", rank, shard)});
}

}  // namespace

int main() try {
    album pictures;
    zeropp::run_on_threads(ranks, [&](const zeropp::thread_transport& world) { record(world, pictures); });
    pictures.print();
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
