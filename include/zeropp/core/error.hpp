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

/// The arguments of a call break its contract. Thrown before any message is sent.
class precondition_error : public error {
public:
    using error::error;

    /// "WHERE: expected EXPECTED, given GIVEN"
    [[gnu::cold]] precondition_error(std::string_view where, std::string_view expected, std::string_view given)
        : error(std::string(where) + ": expected " + std::string(expected) + ", given " + std::string(given)) {}
};

/// No survivor of a failure holds a copy of some elements. Thrown by recover_weights, on all ranks alike.
class no_copy_error : public precondition_error {
public:
    /// The constructors of precondition_error.
    using precondition_error::precondition_error;
};

/// A collective cannot complete because of another rank. The ranks that are left may `shrink` and go on.
class lost_rank_error : public error {
public:
    using error::error;
};

/// Another rank has failed, so this rank's collective cannot complete.
class peer_error : public lost_rank_error {
public:
    using lost_rank_error::lost_rank_error;
};

/// A transport has waited for its whole timeout. In an operation, the text names the collective and its number, the
/// operation, its size, the timeout and, except on NCCL, the silent ranks. Ranks are numbered in the world: the
/// transport that was not split from another.
class timeout_error : public lost_rank_error {
public:
    using lost_rank_error::lost_rank_error;
};

/// The other ranks have agreed to go on without this one. Thrown by `shrink`; see shrinkable_transport.
class excluded_error : public error {
public:
    using error::error;
};

/// Bytes of a message, or of two replicas, differ between ranks, which are numbered as before any split.
class integrity_error : public error {
public:
    integrity_error(const std::string& text, int source, int destination)
        : error(text), source_(source), destination_(destination) {}

    /// Rank that sent the message, or keeps the expected replica.
    int source() const { return source_; }
    /// Rank that received the message, or keeps another replica.
    int destination() const { return destination_; }

private:
    int source_;
    int destination_;
};

}  // namespace zeropp
