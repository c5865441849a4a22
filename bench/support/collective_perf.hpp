#pragma once
/// \file
/// Measures a collective for every datatype, size and quantizer, beside the unquantized collective.
///
/// A benchmark is a struct `Perf` with
///
///   `facts()`                        the program's program_facts
///   `quantizes`                      wire::one_hop or wire::two_hops: the number of quantizers of its calls, Q below
///   `has_in_place`                   whether the collective has an in-place form
///   `shards`                         which collectives require shards of equal size
///   `passes`                         times the tensor crosses the bus: NCCL's factor without (n - 1) / n
///   `native_name(ranks)`             name of the transport's own collective; empty if there is none
///   `members(ranks)`                 the ranks that one call connects, as in a transport's `split`
///   `tensors<T, Place>`              arrays of a rank, made of (elements, number of members, place among them)
///   `reset(tensors)`                 sets the arrays' contents before a call
///   `call_native(native, format, tensors)`, `check_native(tensors)`
///   `calls<T, Place, Q...>`          calls with quantizers, made of (collective_run, tensors, q...):
///       `hops()`                     the route
///       `workspace_bytes()`
///       `call(exec, comm, in_place, scratch)`
///       `check(in_place)`            compares the result of the last call

#include "support/collective_rows.hpp"
#include "support/data.hpp"
#include "support/quantizers.hpp"

#include <zeropp/zeropp.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace zeropp_bench {

/// Collectives that require shards of equal size: none, the transport's own one, or both. The elements are rounded up
/// for the transport's own, and down for both.
enum class shard_sizes { any, equal_in_native, equal };

/// One rank of a run. All its tensors share it, and it outlives them.
template <class Place>
struct collective_run {
    const options& wanted;
    ranks_on<Place>& ranks;
    comm_on<Place>& comm;
    const typename Place::executions& executions;
};

template <class Perf, class T, class Place>
using shared_tensors = std::shared_ptr<typename Perf::template tensors<T, Place>>;

template <class Perf, class T, class Place>
shared_tensors<Perf, T, Place> make_tensors(const collective_run<Place>& run, std::size_t elements) {
    const std::vector<int> members = Perf::members(run.ranks);
    const auto own = std::find(members.begin(), members.end(), run.ranks.rank()) - members.begin();
    const auto a = std::make_shared<typename Perf::template tensors<T, Place>>(
        elements, static_cast<int>(members.size()), static_cast<int>(own));
    Perf::reset(*a);
    return a;
}

/// Calls with quantizers `q`, without a name.
template <class Perf, class T, class Place, zeropp::quantizer... Q>
quantized_case case_of(const collective_run<Place>& run, shared_tensors<Perf, T, Place> a,
                       std::shared_ptr<typename Place::template array<std::byte>> scratch, const Q&... q) {
    const auto calls = std::make_shared<typename Perf::template calls<T, Place, Q...>>(run, a, q...);
    scratch->reserve(calls->workspace_bytes());
    quantized_case c;
    c.hops = calls->hops();
    c.has_in_place = Perf::has_in_place;
    set_calls(c, run.ranks, run.comm,
              [calls, scratch, &executions = run.executions](comm_on<Place>& comm, bool in_place) {
                  executions.run([&](const auto& exec) { calls->call(exec, comm, in_place, scratch->view()); });
              });
    c.reset = [a] { Perf::reset(*a); };
    c.check = [calls](bool in_place) { return calls->check(in_place); };
    return c;
}

/// Cases of -q's quantizers or pairs.
template <class Perf, class T, class Place>
std::vector<quantized_case> cases_of(const collective_run<Place>& run, shared_tensors<Perf, T, Place> a) {
    const auto scratch = std::make_shared<typename Place::template array<std::byte>>();
    std::vector<quantized_case> cases;
    const auto add = [&](const auto&... q) { cases.push_back(case_of<Perf, T>(run, a, scratch, q...)); };
    for (const std::string& name : run.wanted.quantizers) {
        if constexpr (Perf::quantizes == wire::two_hops) {
            const hop_quantizers q = hop_quantizers::parse(name);
            q.visit(add);
            cases.back().quantizer = q.name();
        } else {
            const auto q = bench_quantizers::parse(name);
            std::visit(add, q);
            cases.back().quantizer = bench_quantizers::name(q);
        }
    }
    return cases;
}

/// Unquantized: the transport's own collective (the library's if it has none), and the library's.
template <class Perf, class Place>
unquantized_cases unquantized_of(const collective_run<Place>& run, std::size_t elements) {
    const std::vector<int> members = Perf::members(run.ranks);
    if constexpr (Perf::shards == shard_sizes::equal_in_native) {
        elements = zeropp::partition(elements, static_cast<int>(members.size())).slice_size() * members.size();
    }
    const std::shared_ptr<native_collectives> native = run.ranks.native(members);
    const auto form = [&]<class T>(T, bool ours) -> unquantized_cases::form {
        const auto a = make_tensors<Perf, T>(run, elements);
        if (native && !ours) {
            constexpr auto format = std::is_same_v<T, float> ? native_format::fp32 : native_format::bf16;
            return {[native, a] { Perf::call_native(*native, format, *a); }, [a] { return Perf::check_native(*a); },
                    [native] { return native->algorithm_of_last_call(); }};
        }
        const auto scratch = std::make_shared<typename Place::template array<std::byte>>();
        const zeropp::cast_to<T> q;
        quantized_case lossless;
        if constexpr (Perf::quantizes == wire::two_hops) {
            lossless = case_of<Perf, T>(run, a, scratch, q, q);
        } else {
            lossless = case_of<Perf, T>(run, a, scratch, q);
        }
        // A call that does nothing must fail its check.
        lossless.reset();
        return {[call = lossless.call] { call(false); }, [check = lossless.check] { return check(false); }};
    };
    return {form(float{}, false), form(zeropp::bfloat16{}, false), form(zeropp::bfloat16{}, true)};
}

/// Runs the benchmark on one rank; all ranks call it. Returns the program's exit status.
template <class Perf, class Place>
int run_collective(const options& o, ranks_on<Place>& ranks) {
    const program_facts facts = Perf::facts();
    std::string native = Perf::native_name(ranks);
    if (native.empty()) native = facts.name.substr(0, facts.name.rfind("_perf")) + " with lossless";
    collective_rows rows(facts, o, ranks, native);
    comm_on<Place> comm(ranks.nodes(), ranks.world());
    const typename Place::executions executions(o.chunks);
    const collective_run<Place> run{o, ranks, comm, executions};
    const auto members = static_cast<int>(Perf::members(ranks).size());
    const double bus_factor = Perf::passes * static_cast<double>(members - 1) / members;
    for (const std::string& type : o.datatypes) {
        for (const std::size_t bytes : o.sizes()) {
            with_datatype(type, [&]<class T>(T) {
                std::size_t elements = bytes / sizeof(T);
                if (Perf::shards == shard_sizes::equal) elements -= elements % static_cast<std::size_t>(members);
                const std::vector<quantized_case> cases = cases_of<Perf, T>(run, make_tensors<Perf, T>(run, elements));
                const std::size_t shard = zeropp::partition(elements, members).slice_size();
                rows.measure({elements * sizeof(T), elements, shard, datatype<T>, sizeof(T), bus_factor},
                             unquantized_of<Perf>(run, elements), cases);
            });
        }
    }
    return rows.finish();
}

}  // namespace zeropp_bench
