#pragma once
/// \file
/// A wire between threads that loses, delays, repeats or refuses messages as a test asks, and a transport over it.

#include <zeropp/core/error.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/transport/transport.hpp>
#include <zeropp/transport/wire.hpp>
#include <zeropp/transport/wire_transport.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

namespace zeropp_test {

/// Faults of one message.
struct wire_fault {
    bool lost = false;
    bool repeated = false;
    bool refused = false;  ///< post_send throws an exception that is not the library's
    std::chrono::milliseconds delay{0};
};

/// A message, as the function that decides its faults gets it.
struct wire_message {
    int source;
    int destination;
    int tag;
    std::size_t bytes;
};

/// The network between a test's threads. Copies messages up to `eager` bytes when they are sent; reads longer ones from
/// the sender's memory when their receive is posted. Rank numbers are the first wire's, also on splits.
class fake_network {
public:
    using decide = std::function<wire_fault(const wire_message&)>;

    explicit fake_network(std::size_t eager = 64, decide faults = {}) : eager_(eager), faults_(std::move(faults)) {}

    /// The network notices that `rank` has died.
    void kill(int rank) {
        const std::lock_guard lock(mutex_);
        dead_.insert(rank);
    }

private:
    friend class fake_wire;
    using clock = std::chrono::steady_clock;

    struct transfer {
        const std::byte* from = nullptr;
        std::byte* to = nullptr;
        std::size_t bytes = 0;
        std::vector<std::byte> taken;  // contents of an eager message
        bool eager = false;
        bool complete = false;
        bool cancelled = false;
        std::size_t arrived = 0;
        bool truncated = false;
        clock::time_point due{};
    };
    using handle = std::shared_ptr<transfer>;

    /// Messages and receives of one (split, source, destination, tag), in order.
    struct channel {
        std::deque<handle> sends;
        std::deque<handle> receives;
    };
    using key = std::tuple<std::vector<int>, int, int, int>;

    /// Moves each message that has a receive and is due. Requires the lock.
    static void match(channel& c) {
        std::erase_if(c.receives, [](const handle& r) { return r->cancelled; });
        while (!c.sends.empty() && !c.receives.empty() && c.sends.front()->due <= clock::now()) {
            const handle s = c.sends.front();
            const handle r = c.receives.front();
            c.sends.pop_front();
            c.receives.pop_front();
            r->truncated = s->bytes > r->bytes;
            r->arrived = r->truncated ? 0 : s->bytes;
            const std::byte* const from = s->eager ? s->taken.data() : s->from;
            if (r->arrived != 0) std::memcpy(r->to, from, r->arrived);
            s->complete = r->complete = true;
        }
    }

    std::mutex mutex_;
    std::size_t eager_;
    decide faults_;
    std::map<key, channel> channels_;
    std::set<int> dead_;
    int revoked_ = 0;                         // generations of wires, of which each shrink makes one
    std::map<int, std::set<int>> survivors_;  // that have called shrink, by generation
    std::map<int, std::set<int>> excluded_;
};

/// One rank of a fake_network.
class fake_wire {
public:
    using space = zeropp::host_space;
    static constexpr const char* name = "fake_transport";

    struct request {
        std::shared_ptr<fake_network::transfer> of;
        fake_network::key where;
    };

    /// Rank `rank` among `members`, which are ranks of the network.
    fake_wire(fake_network& network, std::vector<int> members, int rank, std::size_t piece, int generation = 0)
        : network_(&network), members_(std::move(members)), rank_(rank), piece_(piece), generation_(generation) {}

    int rank() const { return rank_; }
    int size() const { return static_cast<int>(members_.size()); }
    std::size_t piece() const { return piece_; }
    std::optional<fake_wire> split(std::span<const int> members) const {
        if (members.empty()) return std::nullopt;
        std::vector<int> ranks;
        for (const int m : members) ranks.push_back(world(m));
        const auto self = std::find(members.begin(), members.end(), rank_) - members.begin();
        return fake_wire(*network_, std::move(ranks), static_cast<int>(self), piece_, generation_);
    }
    void revoke() {
        const std::lock_guard lock(network_->mutex_);
        network_->revoked_ = std::max(network_->revoked_, generation_ + 1);
    }
    /// Waits for all ranks that have not died, as MPIX_Comm_shrink does.
    zeropp::shrunk<fake_wire> shrink(std::span<const int> excluded, std::chrono::milliseconds timeout) {
        const auto enter = [&] {
            const std::lock_guard lock(network_->mutex_);
            network_->survivors_[generation_].insert(world(rank_));
            for (const int e : excluded) network_->excluded_[generation_].insert(world(e));
        };
        std::vector<int> ranks;
        const auto agreed = [&] {
            const std::lock_guard lock(network_->mutex_);
            ranks.clear();
            for (int r = 0; r != size(); ++r) {
                const bool out = network_->excluded_[generation_].contains(world(r));
                if (network_->survivors_[generation_].contains(world(r))) {
                    if (!out) ranks.push_back(r);
                } else if (!out && !network_->dead_.contains(world(r))) {
                    return false;
                }
            }
            return true;
        };
        enter();
        if (!zeropp::detail::poll_until(agreed, zeropp::detail::deadline_after(timeout))) {
            throw zeropp::timeout_error("fake_wire: not every living rank has called shrink");
        }
        std::vector<int> members;
        for (const int r : ranks) members.push_back(world(r));
        const auto self = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
        return {fake_wire(*network_, std::move(members), static_cast<int>(self), piece_, generation_ + 1), ranks};
    }
    static void require_other_threads() {}
    static void keep() {}

    void post_receive(request& r, std::byte* to, std::size_t bytes, int source, int tag) {
        const std::lock_guard lock(network_->mutex_);
        require_not_revoked();
        r.where = {members_, source, rank_, tag};
        r.of = std::make_shared<fake_network::transfer>();
        r.of->to = to;
        r.of->bytes = bytes;
        network_->channels_[r.where].receives.push_back(r.of);
        fake_network::match(network_->channels_[r.where]);
    }

    void post_send(request& r, const std::byte* from, std::size_t bytes, int destination, int tag) {
        const std::lock_guard lock(network_->mutex_);
        const wire_fault fault =
            network_->faults_ ? network_->faults_({world(rank_), world(destination), tag, bytes}) : wire_fault();
        require_not_revoked();
        if (fault.refused) throw std::runtime_error("fake_wire: no room");
        r.where = {members_, rank_, destination, tag};
        for (int i = 0; i != (fault.repeated ? 2 : 1); ++i) {
            const auto sent = std::make_shared<fake_network::transfer>();
            sent->from = from;
            sent->bytes = bytes;
            sent->eager = bytes <= network_->eager_ || i == 1;
            if (sent->eager) sent->taken.assign(from, from + bytes);
            sent->complete = sent->eager;
            sent->due = fake_network::clock::now() + fault.delay;
            if (i == 0) r.of = sent;
            if (!fault.lost) network_->channels_[r.where].sends.push_back(sent);
        }
        fake_network::match(network_->channels_[r.where]);
    }

    zeropp::wire_completion test(request& r) {
        if (!active(r)) return {.complete = true};
        const std::lock_guard lock(network_->mutex_);
        fake_network::match(network_->channels_[r.where]);
        if (!r.of->complete && !r.of->cancelled) {
            require_not_revoked();
            return {};
        }
        zeropp::wire_completion c{.complete = true, .bytes = r.of->arrived};
        if (r.of->truncated) c.truncated = std::make_exception_ptr(zeropp::error("fake_wire: message too long"));
        r.of = nullptr;
        return c;
    }

    static bool active(const request& r) { return r.of != nullptr; }

    void cancel(request& r) {
        const std::lock_guard lock(network_->mutex_);
        if (active(r) && !r.of->complete && r.of->to != nullptr) r.of->cancelled = true;
    }

    /// Tests keep the memory in place until all ranks are done.
    static void abandon(request& r) { r.of = nullptr; }

private:
    int world(int r) const { return members_[static_cast<std::size_t>(r)]; }
    /// Requires the lock.
    void require_not_revoked() const {
        if (generation_ < network_->revoked_) throw zeropp::peer_error("fake_wire: revoked");
    }

    fake_network* network_;
    std::vector<int> members_;
    int rank_;
    std::size_t piece_;
    int generation_;
};
static_assert(zeropp::shrinkable_wire<fake_wire>);

/// A transport over a fake_wire, in pieces of `piece` bytes.
class fake_transport : public zeropp::wire_transport<fake_wire> {
    using base = zeropp::wire_transport<fake_wire>;

public:
    fake_transport(fake_network& network, int ranks, int rank, zeropp::transport_options options,
                   std::size_t piece = 16)
        : base(fake_wire(network, zeropp::detail::world_ranks(ranks), rank, piece), options) {}

    fake_transport split(std::span<const int> members) { return fake_transport(base::split(members)); }

    zeropp::shrunk<fake_transport> shrink(std::span<const int> excluded = {}) {
        auto [next, survivors] = base::shrink(excluded);
        return {fake_transport(std::move(next)), std::move(survivors)};
    }

private:
    explicit fake_transport(base transport) : base(std::move(transport)) {}
};
static_assert(zeropp::broadcasting_transport_on<fake_transport, zeropp::host>);

}  // namespace zeropp_test
