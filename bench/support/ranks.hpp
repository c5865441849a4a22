#pragma once
/// \file
/// What a benchmark sees of the ranks it runs on, and what their transport can do without the library.

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

/// One hop of a collective's route: what each rank sends to every other rank of its node, or to every counterpart.
struct hop {
    enum class link { inside, across };
    /// Whether the others get the same bytes.
    enum class pattern { all_gather, all_to_all };

    link where;
    pattern what;
    /// To each of the others, and the elements that they stand for.
    std::size_t bytes;
    std::size_t elements;

    /// How many ranks this hop connects.
    int ranks(const zeropp::two_level& nodes) const {
        return where == link::inside ? nodes.group_size() : nodes.groups();
    }
};

/// Where the bytes of a collective go by its definition, whatever the library does. Hops that connect nobody are left
/// out.
using route = std::vector<hop>;

/// A tensor of floats or of bfloat16, as the transport's own collectives move it.
enum class native_format { fp32, bf16 };

/// The transport's own collectives over some of the ranks.
class native_collectives {
public:
    virtual ~native_collectives() = default;
    /// recv [ranks * count] <- everybody's send [count]
    virtual void all_gather(native_format format, const void* send, void* recv, std::size_t count) = 0;
    /// recv [count] <- this rank's slice of the sum of everybody's send [ranks * count]
    virtual void reduce_scatter(native_format format, const void* send, void* recv, std::size_t count) = 0;
    /// recv [count] <- the sum of everybody's send [count]
    virtual void all_reduce(native_format format, const void* send, void* recv, std::size_t count) = 0;
    /// Empty where the transport's library chooses it and does not say.
    virtual std::string algorithm_of_last_call() const { return {}; }
};

/// One rank of a run, wherever its arrays are. All functions that are not const are collective.
class rank_context {
public:
    /// `control` connects the processors of all ranks, and nothing else uses it.
    rank_context(zeropp::two_level nodes, any_host_transport control)
        : nodes_(std::move(nodes)), control_(std::move(control)) {}
    virtual ~rank_context() = default;
    rank_context(const rank_context&) = delete;
    rank_context& operator=(const rank_context&) = delete;

    const zeropp::two_level& nodes() const { return nodes_; }

    virtual std::string transport_name() const = 0;
    /// Whether this rank's processor time is counted with that of its process on this rank: on every rank where ranks
    /// are processes, on one of those that share a process.
    virtual bool speaks_for_process() const = 0;
    /// What the native collectives are called; empty where the transport has none.
    virtual std::string native_all_gather_name() const = 0;
    virtual std::string native_reduce_scatter_name() const = 0;
    virtual std::string native_all_reduce_name() const = 0;
    /// The transport's own collectives over `members`, which are as in a transport's `split`; null where it has none.
    virtual std::shared_ptr<native_collectives> native(std::span<const int> members) = 0;
    /// What moves the bytes of `hops` between the same ranks as the collective does, and does nothing else: one
    /// function for each way to wait, since which one is the fastest depends on who else needs the processor.
    virtual std::vector<std::function<void()>> bare_exchanges(const route& hops) = 0;

    int rank() const { return control_.rank(); }
    int size() const { return control_.size(); }

    /// Everybody's value, in rank order.
    template <class T>
    std::vector<T> gather(const T& value) {
        return gather(std::span<const T>(&value, 1));
    }
    /// Everybody's values, as many on each rank, one rank after the other.
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

/// One rank whose arrays are in a place.
template <class Place>
class ranks_on : public rank_context {
public:
    using rank_context::rank_context;

    /// A transport over all ranks that nothing else uses.
    virtual typename Place::transport world() = 0;
};

}  // namespace zeropp_bench
