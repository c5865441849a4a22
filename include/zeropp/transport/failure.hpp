#pragma once
/// \file
/// A failure of transports that were split from one another, and the message that tells peers of it.

#include <zeropp/core/error.hpp>
#include <zeropp/transport/operation.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace zeropp::detail {

/// The first failure of a family: transports that were split from one another. Afterwards, all of them refuse to work.
/// Thread-safe.
class first_failure {
public:
    /// Keeps `cause` if it is the first failure.
    void set(std::exception_ptr cause) {
        const std::lock_guard lock(mutex_);
        if (!cause_) cause_ = std::move(cause);
    }

    bool any() const {
        const std::lock_guard lock(mutex_);
        return cause_ != nullptr;
    }

    void rethrow() const {
        const std::lock_guard lock(mutex_);
        if (cause_) std::rethrow_exception(cause_);
    }

private:
    mutable std::mutex mutex_;
    std::exception_ptr cause_;
};

/// The message from each rank to each other rank that ends an operation with a deadline. It says that the sender's wire
/// is done with the operation's messages to the receiver, or that the sender has given up.
struct acknowledgement {
    enum class verdict : std::uint8_t { done, timed_out, failed };

    operation_in_call operation;
    verdict outcome = verdict::done;
    char cause[512] = {};  // text of the failure, cut to fit

    /// Acknowledgement that rank `world_rank` has given up because of `failure`. Keeps the text of a timeout or of a
    /// peer's failure; puts the transport's `name` and the rank before other texts.
    static acknowledgement of_failure(const first_failure& failure, std::string_view name, int world_rank) {
        acknowledgement a;
        std::string text;
        a.outcome = verdict::failed;
        try {
            failure.rethrow();
        } catch (const timeout_error& e) {
            a.outcome = verdict::timed_out;
            text = e.what();
        } catch (const peer_error& e) {
            text = e.what();
        } catch (const std::exception& e) {
            text = std::string(name) + ": rank " + std::to_string(world_rank) + " failed: " + e.what();
        } catch (...) {
            text = std::string(name) + ": rank " + std::to_string(world_rank) + " failed";
        }
        text.copy(a.cause, sizeof(a.cause) - 1);
        return a;
    }

    /// Throws the sender's failure, as timeout_error or peer_error, unless the outcome is `done`.
    void require_done() const {
        if (outcome == verdict::done) return;
        const std::string text(cause, strnlen(cause, sizeof cause));
        if (outcome == verdict::timed_out) throw timeout_error(text);
        throw peer_error(text);
    }

    /// Number of bytes to send: without `cause`, the last member, if there is no failure.
    std::size_t bytes() const { return sizeof(*this) - (outcome == verdict::done ? sizeof cause : 0); }
};
static_assert(std::is_trivially_copyable_v<acknowledgement>);

/// Keeps `memory` alive until the program ends, because a network may still read or write it.
inline void keep_until_exit(std::shared_ptr<void> memory) {
    static std::mutex mutex;
    static auto& kept = *new std::vector<std::shared_ptr<void>>;
    const std::lock_guard lock(mutex);
    kept.push_back(std::move(memory));
}

}  // namespace zeropp::detail
