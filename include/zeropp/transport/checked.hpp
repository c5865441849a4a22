#pragma once
/// \file
/// A transport that compares calls before it carries them.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/transport/transport.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace zeropp {

/// Before each collective, the ranks compare what they are about to do (collective, element count and type, quantizer,
/// options) and whether their own arguments are in order. Where they differ, or where any rank has a problem, every rank
/// throws the same precondition_error and no data has moved: a wrong call is an error and not a hang.
///
/// Costs one small all-gather on the calling thread, which synchronises the ranks: for development and tests.
/// `Control` carries the comparison: a host transport of the same ranks, apart from the data's. Where it watches too, it
/// sees a collective of its own, "checked".
template <class Transport, class Control = Transport>
class checked {
public:
    /// Checks through a split of the transport itself. Collective.
    explicit checked(Transport inner) requires std::same_as<Transport, Control>
        : inner_(std::move(inner)), control_(inner_.split(everyone(inner_.size()))) {}

    /// Checks through `control`. Requires the same ranks in the same order.
    checked(Transport inner, Control control) : inner_(std::move(inner)), control_(std::move(control)) {}

    int rank() const { return inner_.rank(); }
    int size() const { return inner_.size(); }

    template <execution E>
    void all_gather(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        inner_.all_gather(exec, send, recv, bytes);
    }

    template <execution E>
    void all_to_all(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        inner_.all_to_all(exec, send, recv, bytes);
    }

    checked split(std::span<const int> members) { return checked(inner_.split(members), control_.split(members)); }

    /// See wait_for.
    template <execution E>
    void wait(const E& exec) {
        wait_for(inner_, exec);
    }

    void begin(const collective_call& call, const std::string& problem) {
        const statement mine(call, problem);
        std::vector<statement> all(static_cast<std::size_t>(size()), mine);
        begin_collective(control_, {"checked", 0, {}, {}, {}}, {});
        control_.all_gather(host{}, reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(all.data()),
                            sizeof(statement));
        require_agreement(all);
        begin_collective(inner_, call, problem);
    }

private:
    /// One rank's call, as bytes.
    struct statement {
        collective_call call;
        char problem[256] = {};

        statement(const collective_call& c, const std::string& p) : call(c) {
            std::memcpy(problem, p.data(), std::min(p.size(), sizeof(problem) - 1));
        }

        std::string text() const {
            std::string t = call.primitive.str() + " of " + std::to_string(call.elements) + " elements of " +
                            call.element.str() + " with " + call.quantizer.str();
            if (call.options != short_text()) t += ", " + call.options.str();
            return t;
        }
    };
    static_assert(std::is_trivially_copyable_v<statement>);

    static void require_agreement(const std::vector<statement>& all) {
        for (std::size_t r = 0; r != all.size(); ++r) {
            if (all[r].problem[0] != '\0') {
                throw precondition_error(all[r].call.primitive.str() + ": on rank " + std::to_string(r) + ", " +
                                         all[r].problem);
            }
        }
        const auto same = [&](const statement& s) { return s.text() == all.front().text(); };
        if (std::all_of(all.begin(), all.end(), same)) return;
        std::string given;
        for (std::size_t r = 0; r != all.size(); ++r) {
            given += (r == 0 ? "" : "; ") + all[r].text() + " on rank " + std::to_string(r);
        }
        throw precondition_error("checked", "the same call on every rank", given);
    }

    static std::vector<int> everyone(int size) {
        std::vector<int> ranks(static_cast<std::size_t>(size));
        std::iota(ranks.begin(), ranks.end(), 0);
        return ranks;
    }

    Transport inner_;
    Control control_;
};

}  // namespace zeropp
