#pragma once
/// \file
/// Laws of `checked` transports: ranks share errors. Each law is collective over `world`.

#include "conformance/delivery_laws.hpp"
#include "conformance/split_laws.hpp"
#include "support/expectations.hpp"

#include <zeropp/core/error.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace zeropp_test {

/// Expects `text` to be equal on every rank.
template <class Transport>
void same_on_every_rank(Transport& world, const std::string& text, expectations& expect) {
    constexpr std::size_t capacity = 4096;
    std::array<char, capacity> mine{};
    std::copy_n(text.begin(), std::min(text.size(), capacity - 1), mine.begin());
    std::vector<char> all(place(world.size(), capacity));
    world.all_gather(zeropp::host{}, reinterpret_cast<const std::byte*>(mine.data()),
                     reinterpret_cast<std::byte*>(all.data()), capacity);
    for (int r = 0; r != world.size(); ++r)
        expect.equal(std::string(all.data() + place(r, capacity)), std::string(mine.data()));
}

inline zeropp::collective_call a_call() { return {"gather", 10, "fp32", "int8", "in 2 chunks"}; }

inline std::string text_of(const zeropp::collective_call& call) {
    return call.primitive.str() + " of " + std::to_string(call.elements) + " elements of " + call.element.str() +
           " with " + call.quantizer.str() + ", " + call.options.str();
}

/// Equal calls go on. If one rank's call differs in any part, or one rank has a problem, every rank throws the same
/// text and the transport goes on.
template <class Transport>
void compares_calls(Transport& world, expectations& expect) {
    using zeropp::collective_call;
    using zeropp::precondition_error;
    const auto begin = [&](const collective_call& call, const std::string& problem) {
        return thrown<precondition_error>([&] { zeropp::begin_collective(world, call, problem); });
    };
    expect.equal(begin(a_call(), ""), "<nothing thrown>");

    std::vector<collective_call> others(5, a_call());
    others[0].primitive = "scatter";
    others[1].elements = (std::uint64_t{1} << 40) + 10;
    others[2].element = "bf16";
    others[3].quantizer = "int4";
    others[4].options = "in 3 chunks";
    for (const collective_call& other : others) {
        for (int odd = 0; odd != world.size(); ++odd) {
            const std::string error = begin(world.rank() == odd ? other : a_call(), "");
            std::string expected = "checked: expected the same call on every rank, given ";
            for (int r = 0; r != world.size(); ++r) {
                expected +=
                    (r == 0 ? "" : "; ") + text_of(r == odd ? other : a_call()) + " on rank " + std::to_string(r);
            }
            expect.equal(error, world.size() == 1 ? "<nothing thrown>" : expected);
            same_on_every_rank(world, error, expect);
        }
    }
    for (int odd = 0; odd != world.size(); ++odd) {
        const std::string error = begin(a_call(), world.rank() == odd ? "expected a shard of 5, given 4" : "");
        expect.equal(error, "gather: on rank " + std::to_string(odd) + ", expected a shard of 5, given 4");
        same_on_every_rank(world, error, expect);
    }
    // A problem comes before a difference, and the lowest rank's first. A long one is cut to 255 characters.
    collective_call mine = a_call();
    mine.elements = static_cast<std::uint64_t>(world.rank());
    expect.equal(begin(mine, "every rank has one"), "gather: on rank 0, every rank has one");
    expect.equal(begin(a_call(), std::string(1000, 'x')), "gather: on rank 0, " + std::string(255, 'x'));

    expect.equal(begin(a_call(), ""), "<nothing thrown>");
    exchanges<zeropp::host>(world, expect, 77);
}

/// In a split, only its ranks compare their calls.
template <class Transport>
void compares_calls_in_splits(Transport& world, expectations& expect) {
    const grid ranks(world.size());
    Transport row = world.split(ranks.row_of(world.rank()));
    compares_calls(row, expect);
    // Calls may differ between rows.
    zeropp::collective_call call = a_call();
    call.elements = static_cast<std::uint64_t>(world.rank() / ranks.columns);
    zeropp::begin_collective(row, call, "");
    exchanges<zeropp::host>(row, expect, 8);
}

}  // namespace zeropp_test
