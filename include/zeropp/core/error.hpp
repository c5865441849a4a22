#pragma once
/// \file
/// Exceptions of the library.

#include <stdexcept>
#include <string>
#include <string_view>

namespace zeropp {

/// Base class of the library's exceptions.
class error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Reports arguments that break the contract of a call. Thrown before the call sends a message.
class precondition_error : public error {
public:
    using error::error;

    /// Makes the text "`where`: expected `expected`, given `given`".
    [[gnu::cold]] precondition_error(std::string_view where, std::string_view expected, std::string_view given)
        : error(std::string(where) + ": expected " + std::string(expected) + ", given " + std::string(given)) {}
};

/// Reports that the ranks that have survived a failure hold no version of all elements to recover. Thrown by
/// recover_weights, on all ranks.
class no_copy_error : public precondition_error {
public:
    /// The constructors of precondition_error.
    using precondition_error::precondition_error;
};

/// Base class of errors of a collective that cannot complete because of another rank. The surviving ranks may call
/// `shrink` of their transport, and go on without that rank.
class lost_rank_error : public error {
public:
    using error::error;
};

/// Reports that another rank has failed, so that this rank's collective cannot complete.
class peer_error : public lost_rank_error {
public:
    using lost_rank_error::lost_rank_error;
};

/// Reports that a transport has waited for its whole timeout. If it waited for an operation, the text names the
/// collective with its number, the operation with its size, and the timeout. Except on NCCL, the text also names the
/// silent ranks. Ranks are numbered as before any split.
class timeout_error : public lost_rank_error {
public:
    using lost_rank_error::lost_rank_error;
};

/// Reports that the other ranks have agreed to go on without this rank. Thrown by a transport's `shrink`; see
/// shrinkable_transport.
class excluded_error : public error {
public:
    using error::error;
};

/// Reports that a message has arrived with other bytes than were sent. Ranks are numbered as before any split.
class integrity_error : public error {
public:
    integrity_error(const std::string& text, int source, int destination)
        : error(text), source_(source), destination_(destination) {}

    /// Rank that sent the message.
    int source() const { return source_; }
    /// Rank that received the message; -1 if the calling rank's codec threw.
    int destination() const { return destination_; }

private:
    int source_;
    int destination_;
};

}  // namespace zeropp
