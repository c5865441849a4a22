#pragma once
/// \file
/// A transport that compares the ranks' calls before they run.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/transport/adaptor.hpp>
#include <zeropp/transport/transport.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace zeropp {

/// A transport that compares the ranks' calls before each collective: its name, element count and type, quantizer,
/// options and topology. Also collects the errors in the ranks' arguments. If calls differ or any rank's arguments are
/// wrong, every rank throws the same precondition_error before data moves. So a wrong call is an error and not a hang.
///
/// Costs one small all-gather for each collective, on the calling thread. The all-gather synchronises the ranks: use
/// this class in development and tests. `Control` is a host transport of the same ranks, only for the comparisons. If
/// `Control` watches collectives, as `counting` does, it sees each comparison as the collective "checked".
template <class Transport, class Control = Transport>
class checked : public adaptor<checked<Transport, Control>, Transport> {
    using base = adaptor<checked, Transport>;

public:
    /// Wraps `inner`. Compares calls through a transport of all ranks that is split from `inner`. All ranks must call
    /// this.
    explicit checked(Transport inner)
        requires std::same_as<Transport, Control>
        : base(std::move(inner)), control_(this->inner().split(detail::world_ranks(this->size()))) {}

    /// Wraps `inner`. Compares calls through `control`, which must have the ranks of `inner` in the same order.
    checked(Transport inner, Control control) : base(std::move(inner)), control_(std::move(control)) {}

    checked split(std::span<const int> members) {
        std::optional<Transport> data;
        try {
            data.emplace(this->inner().split(members));
        } catch (const precondition_error&) {
            // Perhaps on this rank alone, for which the others would wait in the second split.
            control_.split(members);
            throw;
        }
        return checked(std::move(*data), control_.split(members));
    }

    /// Transport of the survivors of a failure, see shrinkable_transport. If `Control` is another type than
    /// `Transport`, `Control` finds the dead ranks for both. So NCCL, which finds none, can have a control over MPI. If
    /// `Transport` cannot shrink to the survivors and `Control` finds no further dead rank, the error of `Transport` is
    /// thrown. Then `shrink` must not be called again.
    shrunk<checked> shrink(std::span<const int> excluded = {})
        requires shrinkable_transport<Transport> && shrinkable_transport<Control>
    {
        if constexpr (std::same_as<Transport, Control>) {
            return detail::connect<checked>(this->inner().shrink(excluded), [](shrunk<Transport>& left) {
                Transport control = left.next.split(detail::world_ranks(left.next.size()));
                return checked(std::move(left.next), std::move(control));
            });
        } else {
            shrunk<Control> control = control_.shrink(excluded);
            std::optional<shrunk<Transport>> data;
            while (!data) {
                const std::vector<int> out = detail::other_ranks(this->size(), control.survivors);
                try {
                    data.emplace(this->inner().shrink(out));
                } catch (const excluded_error&) {
                    throw;
                } catch (...) {
                    // If `out` is empty, no newly dead rank can be the cause. Otherwise another rank may have died.
                    if (out.empty()) throw;
                    const std::vector<int> before = control.survivors;
                    detail::shrink_to(control, before);
                    if (control.survivors == before) throw;
                }
            }
            // A rank may die between the shrinks of `control` and `data`. So each shrinks to the other's survivors.
            while (data->survivors != control.survivors) {
                detail::shrink_to(control, data->survivors);
                detail::shrink_to(*data, control.survivors);
            }
            return {checked(std::move(data->next), std::move(control.next)), std::move(data->survivors)};
        }
    }

    /// Gathers each rank's `call` and `problem`, an error in that rank's arguments. Throws precondition_error on all
    /// ranks if calls differ or a rank has a problem.
    void begin(const collective_call& call, const std::string& problem) {
        const statement mine(call, problem);
        std::vector<statement> all(static_cast<std::size_t>(this->size()), mine);
        begin_collective(control_, {"checked", 0, {}, {}, {}}, {});
        control_.all_gather(host{}, reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(all.data()),
                            sizeof(statement));
        require_agreement(all);
        base::begin(call, problem);
    }

private:
    /// One rank's call and problem, in the form in which the rank sends them to the others.
    struct statement {
        collective_call call;
        char problem[256] = {};

        statement(const collective_call& c, const std::string& p) : call(c) {
            std::memcpy(problem, p.data(), std::min(p.size(), sizeof(problem) - 1));
        }

        /// Text of `problem` before its terminating zero, at most the whole array: a peer's bytes may lack that zero.
        std::string_view given_problem() const { return {problem, strnlen(problem, sizeof problem)}; }

        std::string text(bool with_topology) const {
            std::string t =
                call.primitive.str() + " of " + std::to_string(call.elements) + " elements of " + call.element.str();
            if (call.quantizer != agreed_text()) t += " with " + call.quantizer.str();
            if (call.options != agreed_text()) t += ", " + call.options.str();
            if (with_topology) t += ", over a topology with digest " + std::to_string(call.topology);
            return t;
        }
    };
    static_assert(std::is_trivially_copyable_v<statement>);

    static void require_agreement(const std::vector<statement>& all) {
        for (std::size_t r = 0; r != all.size(); ++r) {
            if (const std::string_view problem = all[r].given_problem(); !problem.empty()) {
                throw precondition_error(all[r].call.primitive.str() + ": on rank " + std::to_string(r) + ", " +
                                         std::string(problem));
            }
        }
        const auto same = [&](const statement& s) { return s.call == all.front().call; };
        if (std::all_of(all.begin(), all.end(), same)) return;
        const bool other_places = std::any_of(
            all.begin(), all.end(), [&](const statement& s) { return s.call.topology != all.front().call.topology; });
        std::string given;
        for (std::size_t r = 0; r != all.size(); ++r) {
            given += (r == 0 ? "" : "; ") + all[r].text(other_places) + " on rank " + std::to_string(r);
        }
        throw precondition_error("checked", "the same call on every rank", given);
    }

    Control control_;
};

}  // namespace zeropp
