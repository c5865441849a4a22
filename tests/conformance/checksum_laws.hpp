#pragma once
/// \file
/// Laws of `checksummed`, over any transport.

#include "conformance/delivery_laws.hpp"
#include "conformance/error_laws.hpp"
#include "support/expectations.hpp"

#include <zeropp/transport/adaptor.hpp>
#include <zeropp/transport/checksummed.hpp>

#include <cstddef>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp_test {

struct checksumming {
    template <class T>
    static auto wrap(T inner) {
        return zeropp::checksummed<T>(std::move(inner));
    }
};

/// Received bytes of an operation on one rank: recv[r * bytes ...] is from rank r.
struct arrival {
    int rank;
    int ranks;
    /// Number of operations that this transport carried before.
    int operation;
    std::byte* recv;
    std::size_t bytes;

    std::byte* from(int source) const { return recv + place(source, bytes); }
};

// Operations that `checksummed` makes of one.
inline constexpr int of_data = 0;
inline constexpr int of_checksums = 1;
inline constexpr int of_verdicts = 2;
inline constexpr int all_of_them = 3;

using meddler = std::function<void(const arrival&)>;

/// A transport that changes bytes as they arrive.
template <class Transport>
class meddling : public zeropp::adaptor<meddling<Transport>, Transport> {
    using base = zeropp::adaptor<meddling, Transport>;

public:
    meddling(Transport inner, meddler meddle) : base(std::move(inner)), meddle_(std::move(meddle)) {}

    template <zeropp::host_execution E>
    void move(const E& exec, const zeropp::operation& what, const std::byte* send, std::byte* recv) {
        base::move(exec, what, send, recv);
        const arrival arrived{this->rank(), this->size(), operations_++, recv, what.bytes};
        exec.enqueue([this, arrived] { meddle_(arrived); });
    }
    meddling around(Transport next, std::span<const int>) const { return {std::move(next), meddle_}; }

private:
    meddler meddle_;
    int operations_ = 0;
};

/// Flips a bit of the message from `source` to `destination` in one operation.
inline meddler flip(int operation, int source, int destination, std::size_t bit = 0) {
    return [=](const arrival& a) {
        if (a.operation == operation && a.rank == destination) a.from(source)[bit / 8] ^= std::byte{1} << bit % 8;
    };
}

/// Text of a rank's integrity_error in one operation. Checks that the next operations work.
template <class E, class Transport, class Operation>
std::string seen(zeropp::checksummed<meddling<Transport>>& world, expectations& expect, Operation operation) {
    const E exec;
    const std::string text = thrown<zeropp::integrity_error>([&] {
        operation(exec, world);
        exec.wait();
    });
    exchanges<E>(world, expect, 40);
    gathers<E>(world, expect, 40);
    return text;
}

inline constexpr auto gather_24_bytes = [](const auto& exec, auto& world) {
    std::vector<std::byte> all(place(world.size(), 24), static_cast<std::byte>(world.rank()));
    world.all_gather(exec, all.data() + place(world.rank(), 24), all.data(), 24);
    exec.wait();
};

inline constexpr auto exchange_24_bytes = [](const auto& exec, auto& world) {
    const std::vector<std::byte> send(place(world.size(), 24), static_cast<std::byte>(world.rank()));
    std::vector<std::byte> recv(send.size());
    world.all_to_all(exec, send.data(), recv.data(), 24);
    exec.wait();
};

/// Broadcast from the first `roots` ranks.
inline auto broadcast_24_bytes(int roots) {
    return [roots](const auto& exec, auto& world) {
        const std::vector<std::byte> send(24, static_cast<std::byte>(world.rank()));
        std::vector<std::byte> recv(place(roots, 24));
        world.broadcast(exec, world.rank() < roots ? send.data() : nullptr, recv.data(), 24, roots);
        exec.wait();
    };
}

/// `text` without its checksums.
inline std::string without_checksums(std::string text) {
    for (std::string::size_type at = 0; (at = text.find("checksum ", at)) != std::string::npos;) text.erase(at + 8, 17);
    for (std::string::size_type at = 0; (at = text.find("one of ", at)) != std::string::npos;) text.erase(at + 6, 17);
    return text;
}

inline std::string changed(int source, int destination) {
    return "expected the message of rank " + std::to_string(source) + " to rank " + std::to_string(destination) +
           " to have checksum, given one of";
}

/// Over `base`: one bit at a time flips in the message from every rank to every other.
template <class E, class Transport>
void names_source_and_destination(Transport& base, expectations& expect) {
    std::vector<int> everyone(static_cast<std::size_t>(base.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    const auto sees = [&](const meddler& meddle, const auto& operation, const std::string& expected) {
        zeropp::checksummed world(meddling(base.split(everyone), meddle));
        const std::string text = seen<E>(world, expect, operation);
        expect.equal(without_checksums(text), expected);
        same_on_every_rank(base, text, expect);
    };
    for (int source = 0; source != base.size(); ++source) {
        for (int destination = 0; destination != base.size(); ++destination) {
            if (source == destination) continue;
            const std::string gather = "all_gather of 24 bytes: " + changed(source, destination);
            sees(flip(of_data, source, destination, 0), gather_24_bytes, gather);
            sees(flip(of_data, source, destination, 191), gather_24_bytes, gather);
            sees(flip(of_data, source, destination, 77), exchange_24_bytes,
                 "all_to_all of 24 bytes: " + changed(source, destination));
            for (int roots = source + 1; roots <= base.size(); ++roots) {
                sees(flip(of_data, source, destination, 130), broadcast_24_bytes(roots),
                     "broadcast of 24 bytes from " + std::to_string(roots) + (roots == 1 ? " rank: " : " ranks: ") +
                         changed(source, destination));
            }
            // A changed checksum is an error like changed data.
            sees(flip(of_checksums, source, destination, 63), gather_24_bytes, gather);
        }
    }
}

}  // namespace zeropp_test
