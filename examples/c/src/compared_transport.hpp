#pragma once

#include "execution.hpp"

#include <zeropp/transport/callback.hpp>
#include <zeropp/zeropp.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace zeropp_c {

/// The call that runs on a communicator, for its transports.
struct current_call {
    zeropp::agreed_text name;
    /// Of a reduction, as its caller gives them.
    std::string formats;
    bool compared = false;
    /// True once this rank has sent its statement to the others.
    bool stated = false;
    /// True if the call's stream is captured into a CUDA graph.
    bool captured = false;

    /// The call with `name` added to its options, for comparison.
    zeropp::collective_call named(zeropp::collective_call call) const {
        if (name == zeropp::agreed_text()) return call;
        if (call.options != zeropp::agreed_text()) call.options.append(", ");
        call.options.append("for ").append(name);
        return call;
    }
};

/// Gathers statements and versions of all ranks, through memory of the tensors' space. `traffic` omits these bytes.
class side_channel {
public:
    side_channel(zeropp::callback_transport ranks, std::shared_ptr<const current_call> call,
                 std::shared_ptr<aside> beside)
        : ranks_(std::move(ranks)), call_(std::move(call)), beside_(std::move(beside)) {}

    int rank() const { return ranks_.rank(); }
    int size() const { return ranks_.size(); }

    /// Gathers `bytes` bytes from each rank, in order of ranks. Waits for the other ranks, not for the call's stream.
    void all_gather(const zeropp::host&, const std::byte* own, std::byte* all, std::size_t bytes) {
        if (call_->captured) {
            throw zeropp::precondition_error(
                "zeropp_c", "a stream that no CUDA graph captures, for compared calls and for zeropp_update_gather",
                "a captured one");
        }
        const std::size_t of_all = static_cast<std::size_t>(size()) * bytes;
        beside_->run([&](const execution& exec, auto&... memory) {
            // Not a pool's: NCCL may have one device of a process read another's memory in place.
            if (memory_->view().size() < bytes + of_all) *memory_ = zeropp::workspace<space>(bytes + of_all);
            std::byte* const sent = memory_->view().data();
            const auto stated = zeropp::detail::resident<space>(std::span(own, bytes), memory...);
            exec.copy(sent, stated.view().data(), bytes);
            ranks_.all_gather(exec, sent, sent + bytes, bytes);
            exec.copy_to_host(all, sent + bytes, of_all);
        });
    }

private:
    zeropp::callback_transport ranks_;
    std::shared_ptr<const current_call> call_;
    std::shared_ptr<aside> beside_;
    std::shared_ptr<zeropp::workspace<space>> memory_ = std::make_shared<zeropp::workspace<space>>(0);
};

/// Counts bytes, and compares the ranks' calls if the current one is marked `compared`.
class compared_transport
    : public zeropp::checked<zeropp::counting<zeropp::callback_transport, zeropp::three_level>, side_channel> {
public:
    using counted = zeropp::counting<zeropp::callback_transport, zeropp::three_level>;

    compared_transport(counted ranks, side_channel channel, std::shared_ptr<current_call> call)
        : checked(std::move(ranks), channel), channel_(std::move(channel)), call_(std::move(call)) {}

    /// Does not compare collectives of `members`, because the channel joins all ranks.
    compared_transport split(std::span<const int> members) {
        return {inner().split(members), channel_, std::make_shared<current_call>()};
    }

    void begin(zeropp::collective_call call, const std::string& problem) {
        if (!call_->compared) return zeropp::begin_collective(inner(), call, problem);
        call_->stated = true;
        if (!call_->formats.empty()) call.quantizer = zeropp::agreed_text(std::string_view(call_->formats));
        checked::begin(call_->named(call), problem);
    }

private:
    side_channel channel_;
    std::shared_ptr<current_call> call_;
};

}  // namespace zeropp_c
