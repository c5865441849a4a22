#pragma once
/// \file
/// A benchmark's view of its ranks, and their transport's own collectives.

#include "support/any_transport.hpp"

#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace zeropp_bench {

template <class Place>
using comm_on = zeropp::communicator<zeropp::two_level, typename Place::transport>;

/// One hop of a collective's route: each rank sends to all others that the hop connects.
struct hop {
    /// In an all_gather, all of them get the same bytes.
    enum class pattern { all_gather, all_to_all };

    /// Level of the topology.
    int level;
    pattern what;
    /// The ranks that the hop connects, as in a transport's `split`: this rank and its peers along the level.
    std::vector<int> members;
    /// Sent to each other member, and the number of elements in it.
    std::size_t bytes;
    std::size_t elements;

    /// Total over `ranks` ranks of a hop in which each sends `to_each` to each other member.
    std::size_t from_all(int ranks, std::size_t to_each) const {
        return static_cast<std::size_t>(ranks) * (members.size() - 1) * to_each;
    }
};

/// A collective's hops by definition, independent of the library's collectives. Hops of one rank are left out.
using route = std::vector<hop>;

/// Element type of a tensor in the transport's own collectives.
enum class native_format { fp32, bf16 };

/// The transport's own collectives over some of the ranks.
class native_collectives {
public:
    virtual ~native_collectives() = default;
    /// recv [ranks * count] <- all ranks' send [count]
    virtual void all_gather(native_format format, const void* send, void* recv, std::size_t count) = 0;
    /// recv [count] <- this rank's shard of the sum of all ranks' send [ranks * count]
    virtual void reduce_scatter(native_format format, const void* send, void* recv, std::size_t count) = 0;
    /// recv [count] <- the sum of all ranks' send [count]
    virtual void all_reduce(native_format format, const void* send, void* recv, std::size_t count) = 0;
    /// recv [ranks * count] <- all ranks' part of send [ranks * count] for this rank, of `count` each
    virtual void all_to_all(native_format format, const void* send, void* recv, std::size_t count) = 0;
    /// Empty if unknown.
    virtual std::string algorithm_of_last_call() const { return {}; }
};

/// One rank of a run, in any place. Functions that are not const are collective.
class rank_context {
public:
    /// `control` connects all ranks' host memory; nothing else uses it.
    rank_context(zeropp::two_level nodes, any_host_transport control)
        : nodes_(std::move(nodes)), control_(std::move(control)) {}
    virtual ~rank_context() = default;
    rank_context(const rank_context&) = delete;
    rank_context& operator=(const rank_context&) = delete;

    const zeropp::two_level& nodes() const { return nodes_; }

    virtual std::string transport_name() const = 0;
    /// True if this rank reports its process's processor time. One rank of each process does.
    virtual bool speaks_for_process() const = 0;
    /// Names of the native collectives; empty if the transport has none.
    virtual std::string native_all_gather_name() const = 0;
    virtual std::string native_reduce_scatter_name() const = 0;
    virtual std::string native_all_reduce_name() const = 0;
    virtual std::string native_all_to_all_name() const = 0;
    /// The transport's own collectives over `members`, as in a transport's `split`; null if it has none.
    virtual std::shared_ptr<native_collectives> native(std::span<const int> members) = 0;
    /// Functions that move the bytes of `hops` between the collective's ranks, and nothing else. Each waits in another
    /// way, because the fastest way depends on the processor's load.
    virtual std::vector<std::function<void()>> bare_exchanges(const route& hops) = 0;

    int rank() const { return control_.rank(); }
    int size() const { return control_.size(); }

    /// All ranks' values, in rank order.
    template <class T>
    std::vector<T> gather(const T& value) {
        return gather(std::span<const T>(&value, 1));
    }
    /// All ranks' values, in rank order. The number must be equal on all ranks.
    template <class T>
    std::vector<T> gather(std::span<const T> values) {
        static_assert(std::is_trivially_copyable_v<T>);
        std::vector<T> all(values.size() * static_cast<std::size_t>(size()));
        control_.all_gather(zeropp::host{}, reinterpret_cast<const std::byte*>(values.data()),
                            reinterpret_cast<std::byte*>(all.data()), values.size_bytes());
        return all;
    }
    void barrier() { gather(char{}); }

    /// All ranks, in order.
    std::vector<int> everyone() const {
        std::vector<int> all(static_cast<std::size_t>(size()));
        std::iota(all.begin(), all.end(), 0);
        return all;
    }

private:
    zeropp::two_level nodes_;
    any_host_transport control_;
};

/// One rank with arrays in a place.
template <class Place>
class ranks_on : public rank_context {
public:
    using rank_context::rank_context;

    /// Makes a separate transport over all ranks.
    virtual typename Place::transport world() = 0;
};

}  // namespace zeropp_bench
