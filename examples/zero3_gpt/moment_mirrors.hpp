#pragma once

#include "adamw.hpp"
#include "deepspeed_config.hpp"
#include "device.hpp"
#include "formats.hpp"

#include <zeropp/elastic.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <variant>
#include <vector>

namespace zero3_gpt {

/// Copies of the optimizer's moments on partner nodes, sent on a queue of their own every few steps.
template <class Device, class Transport, class Formats>
class moment_mirrors {
public:
    using space = typename Device::space;
    using list = zeropp::tensor_list<float, space>;

    /// Collective over `world`, the ranks of `nodes`. Throws zeropp::precondition_error if there is one node.
    moment_mirrors(const Device& device, const mirror_settings& how, Transport world, const zeropp::three_level& nodes)
        : device_(device), every_(how.every), format_(Formats::replicas::parse(how.quantizer)), nodes_(nodes),
          rank_(world.rank()), ranks_(zeropp::partner_ranks(nodes, rank_)),
          partners_(nodes.shrink(ranks_), world.split(ranks_)), queue_(device.make_queue()) {}

    /// Adds the next unit: lists of the whole tensors, of which the sizes are used, and of both moments' shards.
    void add(const list& whole, std::array<list, 2> moments) {
        for (list& moment : moments) {
            std::visit(
                [&]<class Q>(const Q& q) {
                    const std::size_t storage = zeropp::shard_mirror<Q, space>::storage_bytes(q, nodes_, whole, rank_);
                    const std::size_t scratch =
                        zeropp::mirror_shards_workspace_bytes(nodes_, partners_.topology(), q, whole);
                    mirrors_.emplace_back(q, nodes_, rank_, whole, std::move(moment), storage);
                    if (scratch > scratch_.view().size()) scratch_ = zeropp::workspace<space>(scratch);
                },
                format_);
        }
    }

    /// Before an optimizer step changes moments: waits until their copies have been sent.
    void before_step() const { device_.wait(last_); }

    /// After optimizer step `step`, counted from 1: sends the moments if the step is due.
    void after_step(std::int64_t step) {
        if (step % every_ != 0) return;
        queue_.exec().wait(device_.record());
        for (mirror& m : mirrors_) {
            std::visit(
                [&](auto& copies) {
                    zeropp::mirror_shards(queue_.exec(), partners_, copies, m.moment, static_cast<std::uint64_t>(step),
                                          scratch_.view());
                },
                m.copies);
        }
        last_ = queue_.exec().record();
    }

    /// Collective over the survivors `comm` of a failure. Recovers lost shards of moment `moment`, 0 or 1, of a unit
    /// into `shards`, and returns true; or returns false if no survivor has a copy.
    template <class Exec, class Communicator>
    bool recover(std::size_t unit, std::size_t moment, const Exec& exec, Communicator& comm,
                 const std::vector<int>& survivors, const list& whole, const list& shards) const {
        try {
            std::visit(
                [&](const auto& copies) {
                    zeropp::recover_weights(exec, comm, zeropp::survivors_of{nodes_, survivors}, copies, whole, shards,
                                            {.lost_shards_only = true});
                },
                mirrors_[2 * unit + moment].copies);
            return true;
        } catch (const zeropp::no_copy_error&) {
            return false;
        }
    }

    /// Queue of the copies. If its work fails, `invalidate` them.
    const typename Device::queue& queue() const { return queue_; }
    void invalidate() {
        last_ = {};  // a survivor may still take a step that it has missed
        for (mirror& m : mirrors_) std::visit([](auto& copies) { copies.invalidate(); }, m.copies);
    }

    /// Bytes of memory for mirrors on this rank.
    std::size_t memory_bytes() const {
        std::size_t bytes = scratch_.view().size();
        for (const mirror& m : mirrors_) bytes += m.storage.view().size();
        return bytes;
    }

private:
    template <class Q>
    using mirror_of = zeropp::shard_mirror<Q, space>;

    struct mirror {
        list moment;  // this rank's shards
        zeropp::workspace<space> storage;
        typename variant_over<typename Formats::replicas::variant, mirror_of>::type copies;

        template <class Q>
        mirror(const Q& q, const zeropp::three_level& nodes, int rank, const list& whole, list of, std::size_t bytes)
            : moment(std::move(of)), storage(bytes),
              copies(std::in_place_type<mirror_of<Q>>, q, nodes, rank, whole, storage.view()) {}
    };

    const Device& device_;
    int every_;
    typename Formats::replicas::variant format_;
    zeropp::three_level nodes_;
    int rank_;
    std::vector<int> ranks_;
    zeropp::communicator<zeropp::three_level, Transport> partners_;
    std::deque<mirror> mirrors_;  // two for each unit
    zeropp::workspace<space> scratch_{0};
    typename Device::execution::event last_;  // moments have been sent
    // Last, so that its destructor waits for the work before its memory is freed.
    typename Device::queue queue_;
};

}  // namespace zero3_gpt
