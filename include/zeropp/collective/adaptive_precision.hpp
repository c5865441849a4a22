#pragma once
/// \file
/// Bits chosen for each tensor by what quantization would cost it.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/scratch.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/slices.hpp>
#include <zeropp/transport/communicator.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace zeropp {

/// Chooses, for a tensor, the first of its candidates that holds a signal-to-quantization-noise ratio (SQNR), and the
/// same one on every rank. Candidates come in order of preference, that is from the fewest wire bytes on, and the one
/// of most precision last: it is taken where no other holds the ratio, as for data with NaN or Inf.
///
/// Measuring costs an encoding and a decoding by each candidate: make a choice now and then, and keep it meanwhile.
/// Source     ZeRO++ (arXiv 2306.10209), future work
template <quantizer... Candidates>
class adaptive_precision {
public:
    static_assert(sizeof...(Candidates) >= 2, "adaptive_precision: there is nothing to choose");
    /// One of the candidates.
    using variant = std::variant<Candidates...>;

    struct choice {
        /// For std::visit around the collective.
        variant quantizer;
        /// What it measured over the data of all ranks, in dB; infinite where nothing is lost.
        double sqnr_db;
        /// Whether that is what was asked for.
        bool holds;
    };

    /// Throws precondition_error if `sqnr_db` is not a number.
    explicit adaptive_precision(double sqnr_db, const Candidates&... candidates)
        : target_(sqnr_db), candidates_{variant(candidates)...} {
        if (std::isnan(sqnr_db)) throw precondition_error("adaptive_precision", "a ratio in dB", "NaN");
    }

    /// The same with candidates as they are by default.
    explicit adaptive_precision(double sqnr_db) : adaptive_precision(sqnr_db, Candidates{}...) {}

    /// Bytes of workspace that `choose` needs for `elements` of this rank's data among `ranks`.
    static std::size_t workspace_bytes(std::size_t elements, int ranks) {
        std::size_t message = 0;
        ((message = std::max(message, round_up(wire_layout<Candidates>(elements).bytes, workspace_alignment))), ...);
        return message + round_up(elements * sizeof(float), workspace_alignment) +
               (static_cast<std::size_t>(ranks) + 1) * sizeof(energies);
    }

    /// Measures this rank's data, what it is about to send: its shard for an all-gather, its gradient for a
    /// reduce-scatter; any number of elements, none too. Sums are taken over all ranks, in rank order: every rank makes
    /// the same choice. Moves 16 bytes for each candidate from each rank to each. Allocates as much on the host. Blocks
    /// until it is known.
    ///
    /// Requires  an execution with copy_to_host(to, from, bytes): all of the library's
    /// Throws    precondition_error before any message: a workspace too small or not aligned to 16 bytes
    template <execution Execution, class Communicator, array_in<typename Execution::space> Data,
              mutable_array_in<typename Execution::space> Scratch>
    choice choose(const Execution& exec, Communicator& comm, Data&& data, Scratch&& scratch) const {
        using space = typename Execution::space;
        using T = element_of<Data, space>;
        static_assert((codec_execution<Execution, Candidates, T> && ...),
                      "no codec for this execution: include its entry header");
        const auto in = as_view<space>(data);
        const view<std::byte, space> work = as_view<space>(scratch);
        const int ranks = comm.topology().size();
        const std::string problem = workspace_problem(work, workspace_bytes(in.size(), ranks));
        // Ranks may bring different numbers of elements, so theirs are not compared.
        begin_collective(comm.world(), {"adaptive_precision", 0, element_traits<T>::name, names(), target_text()},
                         problem);

        auto* const own = reinterpret_cast<energies*>(work.data());
        auto* const all = own + 1;
        auto* const decoded = reinterpret_cast<float*>(all + ranks);
        std::byte* const message =
            reinterpret_cast<std::byte*>(decoded) + round_up(in.size() * sizeof(float), workspace_alignment);
        const slices whole = slices::single(in.size(), 0, in.size());
        // Until the work is complete, also where some of it could not be enqueued, it uses this and the workspace.
        std::vector<energies> of_rank(static_cast<std::size_t>(ranks));
        detail::run_to_completion(pipeline<Execution>{exec, exec}, comm.world(), [&] {
            for (std::size_t c = 0; c != candidates_.size(); ++c) {
                std::visit(
                    [&](const auto& q) {
                        codec<Execution>::encode(exec, q, in.data(), whole, message);
                        codec<Execution>::decode(exec, q, message, whole, decoded);
                        codec<Execution>::squared_error(exec, in.data(), decoded, in.size(), (*own)[c].data());
                    },
                    candidates_[c]);
            }
            comm.world().all_gather(exec, reinterpret_cast<const std::byte*>(own), reinterpret_cast<std::byte*>(all),
                                    sizeof(energies));
            exec.copy_to_host(of_rank.data(), all, of_rank.size() * sizeof(energies));
        });
        return best(of_rank);
    }

private:
    /// For each candidate, of the signal and of the error.
    using energies = std::array<std::array<double, 2>, sizeof...(Candidates)>;
    static_assert(sizeof(energies) % workspace_alignment == 0);

    choice best(const std::vector<energies>& of_rank) const {
        for (std::size_t c = 0;; ++c) {
            double signal = 0;
            double error = 0;
            for (const energies& e : of_rank) {
                signal += e[c][0];
                error += e[c][1];
            }
            const double sqnr = error == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / error);
            if (sqnr >= target_ || c + 1 == candidates_.size()) return {candidates_[c], sqnr, sqnr >= target_};
        }
    }

    short_text names() const {
        short_text text;
        for (const variant& candidate : candidates_) {
            std::visit([&](const auto& q) { text.append(" ").append(short_text(q.name())); }, candidate);
        }
        return text;
    }
    short_text target_text() const { return short_text(std::to_string(target_)).append(" dB"); }

    double target_;
    std::array<variant, sizeof...(Candidates)> candidates_;
};

}  // namespace zeropp
