/// \file
/// Every fault in every collective: each rank ends with exact results or with the right error, in time.

#include "collective/differences.hpp"
#include "collective/ranks.hpp"
#include "support/catch.hpp"
#include "support/fault_injecting.hpp"
#include "support/watchdog.hpp"

#include <zeropp/codec/exact.hpp>
#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/threads.hpp>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace collective_test;
using namespace std::chrono_literals;
using zeropp_test::fault;
using zeropp_test::fault_injecting;

namespace {

using transport = fault_injecting<zeropp::thread_transport>;
using comm_type = zeropp::communicator<zeropp::two_level, transport>;
using clock_type = std::chrono::steady_clock;

constexpr std::size_t elements = 3001;
constexpr zeropp::block_integer<8, 256> int8;
constexpr zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half> int4;
constexpr int faulty_rank = 1;
// Of ranks that must give up, and of ranks that must not, however busy the machine.
constexpr std::chrono::milliseconds impatient = 300ms, patient = 10s;

const node_map nodes{"2 x 2", {0, 0, 1, 1}};

/// A collective with inputs that every rank knows: calls it, and returns how its result differs from the reference's.
struct subject {
    std::string name;
    std::function<std::string(comm_type&)> call;
    /// For each operation of the faulty rank, the ranks that cannot have their results without it.
    std::vector<std::set<int>> concerned;
};

std::vector<float> input(int rank) {
    return tensor_of(elements, reference::fp32, static_cast<std::uint64_t>(rank) + 1);
}

/// Calls update(replica) with a replica of zeros at version 1. If that throws, the replica should have no version.
template <class T, class Update>
void to_version_2(const comm_type& comm, Update update) {
    using replica_type = zeropp::secondary_replica<zeropp::cast_to<T>, zeropp::host_space>;
    std::vector<std::byte> storage(replica_type::storage_bytes(comm.topology(), elements));
    replica_type replica(comm.topology(), comm.rank(), elements, storage);
    replica.stamp(1);
    try {
        update(replica);
    } catch (...) {
        if (replica.version()) throw std::logic_error("a replica that is between two versions has one");
        throw;
    }
}

const std::vector<subject>& subjects() {
    static const std::vector<subject> all{
        {"quantized_all_gather",
         [](comm_type& comm) {
             std::vector<float> full(elements);
             zeropp::quantized_all_gather(zeropp::host{}, comm, int8, reference::slice_of(input(0), 4, at(comm.rank())),
                                          full);
             return difference(full, reference::gathered(input(0), 4, described(int8), reference::fp32));
         },
         {{0, 1, 2, 3}, {0, 1}}},
        {"hierarchical_quantized_reduce_scatter",
         [](comm_type& comm) {
             std::vector<std::vector<float>> fulls;
             for (int r = 0; r != comm.size(); ++r) fulls.push_back(input(r));
             const std::vector<float> expected =
                 reference::reduce_scattered(nodes.node_of_rank, fulls, at(comm.rank()), described(int8),
                                             described(int4), false, {}, reference::fp32);
             std::vector<float> shard(expected.size());
             zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{int8, int4},
                                                           fulls[at(comm.rank())], shard);
             return difference(shard, expected);
         },
         {{0, 1, 2, 3}, {1, 3}}},
        {"secondary_partition_gather",
         [](comm_type& comm) {
             using secondary_type = zeropp::secondary_partition<zeropp::block_integer<8, 256>, zeropp::host_space>;
             std::vector<std::byte> storage(secondary_type::storage_bytes(int8, elements, 2));
             secondary_type secondary(int8, elements, 2, comm.index(), storage);
             secondary.store(zeropp::host{}, input(0), 1);
             std::vector<float> full(elements);
             zeropp::secondary_partition_gather(zeropp::host{}, comm, secondary, 1, full);
             return difference(full, reference::gathered(input(0), 2, described(int8), reference::fp32));
         },
         {{0, 1}}},
        {"quantized_update",
         [](comm_type& comm) {
             std::vector<float> full(elements);
             to_version_2<float>(comm, [&](auto& replica) {
                 zeropp::quantized_update(zeropp::host{}, comm, int8, reference::slice_of(input(0), 4, at(comm.rank())),
                                          replica.to(2, full));
             });
             return difference(full, updated<float>(input(0), std::vector<float>(elements), 4, int8));
         },
         {{0, 1, 2, 3}, {0, 1}}},
        {"quantized_update by exact differences",
         [](comm_type& comm) {
             using T = zeropp::bfloat16;
             const std::vector<T> expected = narrowed<T>(input(0));
             std::vector<T> full(elements);
             to_version_2<T>(comm, [&](auto& replica) {
                 zeropp::quantized_update(zeropp::host{}, comm, zeropp::exact_differences{},
                                          reference::slice_of(input(0), 4, at(comm.rank())), replica.to(2, full));
             });
             const bool same = std::memcmp(full.data(), expected.data(), elements * sizeof(T)) == 0;
             return std::string(same ? "" : "other bits");
         },
         {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1}}},
    };
    return all;
}

/// What became of each rank, and how long the last of them took.
struct outcome {
    std::vector<std::string> became;  // "exact", how the result differs, or the type of what was thrown
    std::vector<std::string> then;    // likewise of the next use of a transport that has failed
    std::chrono::milliseconds longest{0};
};

std::string kind_of_error(const std::function<std::string()>& act) {
    try {
        const std::string differs = act();
        return differs.empty() ? "exact" : differs;
    } catch (const zeropp::timeout_error&) {
        return "timeout_error";
    } catch (const zeropp::peer_error&) {
        return "peer_error";
    } catch (const zeropp::precondition_error&) {
        return "precondition_error";
    } catch (const zeropp::integrity_error&) {
        return "integrity_error";
    } catch (const zeropp_test::injected_fault&) {
        return "injected_fault";
    } catch (const std::logic_error& e) {
        return e.what();
    }
}

/// Ranks that nobody releases: what each learns of a fault, it learns from its own transport.
outcome live_through(const subject& what, const zeropp_test::planned_fault& plan, std::chrono::milliseconds timeout) {
    const zeropp_test::watchdog guard(30s, what.name);
    std::vector<zeropp::thread_transport> handles = zeropp::thread_transport::create(4, {.timeout = timeout});
    outcome o{std::vector<std::string>(4), std::vector<std::string>(4)};
    std::vector<clock_type::duration> took(4);
    std::barrier all_here(4);
    {
        std::vector<std::jthread> ranks;
        for (std::size_t r = 0; r != handles.size(); ++r) {
            ranks.emplace_back([&, r] {
                std::optional<comm_type> comm;
                clock_type::time_point begun;
                all_here.arrive_and_wait();
                o.became[r] = kind_of_error([&] {
                    comm.emplace(nodes.topology(), transport(handles[r], plan));
                    begun = clock_type::now();
                    return what.call(*comm);
                });
                took[r] = clock_type::now() - begun;
                // Where a transport could go on, a second call would be the first again.
                if (o.became[r] != "timeout_error" && o.became[r] != "peer_error") return;
                o.then[r] = kind_of_error([&] { return what.call(*comm); });
            });
        }
    }
    o.longest = std::chrono::duration_cast<std::chrono::milliseconds>(*std::max_element(took.begin(), took.end()));
    return o;
}

using outcomes = std::set<std::string>;
const outcomes lost{"timeout_error", "peer_error"};

/// Runs the fault in every operation of every collective on the faulty rank.
void meet(zeropp_test::planned_fault plan, std::chrono::milliseconds timeout, const outcomes& others,
          const outcomes& own) {
    plan.rank = faulty_rank;
    for (const subject& s : subjects()) {
        plan.operation = 0;
        for (const std::set<int>& concerned : s.concerned) {
            const outcome o = live_through(s, plan, timeout);
            for (int r = 0; r != 4; ++r) {
                INFO(s.name << ", operation " << plan.operation << ", rank " << r << ": " << o.became[at(r)]
                            << ", then " << o.then[at(r)]);
                const outcomes& expected = r == faulty_rank ? own : others;
                CHECK((expected.contains(o.became[at(r)]) || (!concerned.contains(r) && o.became[at(r)] == "exact")));
                if (lost.contains(o.became[at(r)])) CHECK(lost.contains(o.then[at(r)]));
            }
            CHECK(o.longest <= timeout + plan.delay + 1s);
            ++plan.operation;
        }
    }
}

}  // namespace

TEST_CASE("faults: none") { meet({.what = fault::none}, patient, {"exact"}, {"exact"}); }

TEST_CASE("faults: an operation is dropped") { meet({.what = fault::drop}, impatient, lost, {"injected_fault"}); }

TEST_CASE("faults: an operation is late, but not too late") {
    meet({.what = fault::delay, .delay = 50ms}, patient, {"exact"}, {"exact"});
}

TEST_CASE("faults: an operation is too late") {
    meet({.what = fault::delay, .delay = 2 * impatient}, impatient, lost, lost);
}

TEST_CASE("faults: an operation is cut to half its bytes") {
    outcomes expected = lost;
    expected.insert("precondition_error");
    meet({.what = fault::truncate}, impatient, expected, expected);
}

TEST_CASE("faults: a rank lies about exact differences") {
    const subject& exact = subjects().back();
    // The size of the message, and then the end of its first tile.
    const std::string heard[] = {"precondition_error", "integrity_error"};
    for (int operation = 0; operation != 2; ++operation) {
        const outcome o =
            live_through(exact, {.what = fault::lie, .rank = faulty_rank, .operation = operation}, impatient);
        INFO(operation << ": " << o.became[0] << ", " << o.became[1] << ", " << o.became[2] << ", " << o.became[3]);
        // Ranks that have the message say so, and others wait for these.
        for (const int r : {1, 3}) CHECK(o.became[at(r)] == heard[operation]);
        for (const int r : {0, 2}) CHECK(lost.contains(o.became[at(r)]));
        CHECK(o.longest <= impatient + 1s);
    }
}

TEST_CASE("faults: an operation is carried twice") {
    // Others may have what they need by then.
    outcomes expected = lost;
    expected.insert({"precondition_error", "exact"});
    meet({.what = fault::duplicate}, impatient, expected, expected);
}
