#pragma once
/// \file
/// Messages between ranks, and the laws of all_gather and all_to_all, which every transport has. Each law is collective
/// over `world`.

#include "support/expectations.hpp"
#include "support/guarded.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace zeropp_test {

/// Bytes that depend on sender, receiver and position. Their period is a prime, so that a misplaced piece shows.
class message {
public:
    message(int from, int to) {
        for (std::size_t i = 0; i != period; ++i) {
            bytes_[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(from * 31 + to * 101 + 1));
        }
    }

    void write(std::byte* at, std::size_t bytes) const {
        for (std::size_t done = 0; done < bytes; done += period) {
            std::memcpy(at + done, bytes_.data(), std::min(period, bytes - done));
        }
    }

    bool is_at(const std::byte* at, std::size_t bytes) const {
        for (std::size_t done = 0; done < bytes; done += period) {
            if (std::memcmp(at + done, bytes_.data(), std::min(period, bytes - done)) != 0) return false;
        }
        return true;
    }

private:
    static constexpr std::size_t period = 251;
    std::array<std::byte, period> bytes_;
};

inline std::size_t place(int rank, std::size_t bytes) { return static_cast<std::size_t>(rank) * bytes; }

constexpr int to_all = -1;

/// all_gather delivers every rank's bytes to every rank.
template <class Execution, class Transport>
void gathers(Transport& world, expectations& expect, std::size_t bytes) {
    const Execution exec;
    std::vector<std::byte> send(bytes);
    guarded<std::byte> received(place(world.size(), bytes));
    message(world.rank(), to_all).write(send.data(), bytes);
    world.all_gather(exec, send.data(), received.data(), bytes);
    exec.wait();
    for (int r = 0; r != world.size(); ++r) {
        expect(message(r, to_all).is_at(received.data() + place(r, bytes), bytes),
               "rank " + std::to_string(r) + "'s bytes");
    }
    expect(received.intact(), "no byte beside the buffer");
    expect(message(world.rank(), to_all).is_at(send.data(), bytes), "what is sent to stay as it is");
}

/// all_gather works if `send` is this rank's place in `recv`.
template <class Execution, class Transport>
void gathers_in_place(Transport& world, expectations& expect, std::size_t bytes) {
    const Execution exec;
    guarded<std::byte> all(place(world.size(), bytes));
    std::byte* const own = all.data() + place(world.rank(), bytes);
    message(world.rank(), to_all).write(own, bytes);
    world.all_gather(exec, own, all.data(), bytes);
    exec.wait();
    for (int r = 0; r != world.size(); ++r) {
        expect(message(r, to_all).is_at(all.data() + place(r, bytes), bytes), "rank " + std::to_string(r) + "'s bytes");
    }
    expect(all.intact(), "no byte beside the buffer");
}

/// all_to_all delivers to every rank the bytes that each rank has for it.
template <class Execution, class Transport>
void exchanges(Transport& world, expectations& expect, std::size_t bytes) {
    const Execution exec;
    std::vector<std::byte> send(place(world.size(), bytes));
    guarded<std::byte> received(place(world.size(), bytes));
    for (int r = 0; r != world.size(); ++r) message(world.rank(), r).write(send.data() + place(r, bytes), bytes);
    world.all_to_all(exec, send.data(), received.data(), bytes);
    exec.wait();
    for (int r = 0; r != world.size(); ++r) {
        expect(message(r, world.rank()).is_at(received.data() + place(r, bytes), bytes),
               "what rank " + std::to_string(r) + " has for rank " + std::to_string(world.rank()));
    }
    expect(received.intact(), "no byte beside the buffer");
}

}  // namespace zeropp_test
