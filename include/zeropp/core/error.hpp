#pragma once
/// \file
/// The exceptions of the library.

#include <stdexcept>
#include <string>
#include <string_view>

namespace zeropp {

/// Base of everything that the library throws.
class error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// A call whose arguments break its contract. Thrown before any message has been sent.
class precondition_error : public error {
public:
    using error::error;

    /// "WHERE: expected EXPECTED, given GIVEN"
    [[gnu::cold]] precondition_error(std::string_view where, std::string_view expected, std::string_view given)
        : error(std::string(where) + ": expected " + std::string(expected) + ", given " + std::string(given)) {}
};

/// Another rank of the same group has failed, so this rank's collective cannot complete.
class peer_error : public error {
public:
    using error::error;
};

/// A transport has waited as long as its timeout allows. The text names the collective and its number, the operation
/// and its size, the timeout, and, but on NCCL, which does not tell, the ranks that were not heard from, as the world
/// numbers them: the transport that was not split from another.
class timeout_error : public error {
public:
    using error::error;
};

/// A message did not arrive as it was sent. Ranks are numbered as in the transport that was given the messages first.
class integrity_error : public error {
public:
    integrity_error(const std::string& text, int source, int destination)
        : error(text), source_(source), destination_(destination) {}

    /// The rank that sent it.
    int source() const { return source_; }
    /// The rank that received it.
    int destination() const { return destination_; }

private:
    int source_;
    int destination_;
};

}  // namespace zeropp
