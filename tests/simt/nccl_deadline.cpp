/// nccl_transport with a timeout: calls that would wait for ever on the device, or in NCCL, end in an error.

#include "simt/nccl_ranks.hpp"
#include "support/watchdog.hpp"

#include <zeropp/collective/prologue.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/nccl.hpp>
#include <zeropp/transport/nccl_family.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace simt = zeropp_test::simt;
using zeropp::nccl_error;
using zeropp::nccl_transport;
using zeropp::precondition_error;
using zeropp::timeout_error;
using zeropp_test::expectations;
using zeropp_test::thrown;
using namespace std::chrono_literals;

namespace {

constexpr std::chrono::milliseconds timeout = 200ms;

/// A stream whose work runs by itself, as a GPU's does; the doubles run it when somebody waits.
class running_stream {
public:
    explicit running_stream(const simt::owned_stream& stream)
        : thread_([native = stream.native()] { cudaStreamSynchronize(native); }) {}

private:
    std::jthread thread_;
};

/// What a rank sends and receives: one number for each rank.
struct rank_with_stream {
    nccl_transport transport;
    simt::owned_stream stream;
    simt::device_array<int> send;
    simt::device_array<int> received;

    rank_with_stream(zeropp::thread_transport& world, std::chrono::milliseconds t)
        : transport(nccl_transport::create(simt::shared_id<nccl_transport>(world), world.size(), world.rank(),
                                           {.timeout = t})),
          send(std::vector<int>{7 + world.rank()}), received(static_cast<std::size_t>(world.size())) {}

    void gather(nccl_transport& t) {
        t.all_gather(stream.exec(), simt::bytes_of(send), simt::bytes_of(received), sizeof(int));
    }
    /// Waits while the device works.
    void wait(nccl_transport& t) {
        const running_stream running(stream);
        zeropp::wait_for(t, stream.exec());
    }
};

/// Runs work(rank, world, expect) on three ranks and checks that nothing is left over.
template <class Work>
void on_three_ranks(const std::string& what, Work work, std::chrono::milliseconds t = timeout) {
    const zeropp_test::watchdog guard(120s, what);
    const simt::hanging_calls hanging;
    const simt::leaves_nothing after;
    expectations expect;
    simt::on_ranks({"three ranks", {1, 3}}, what, [&](zeropp::thread_transport& world) {
        rank_with_stream rank(world, t);
        work(rank, world, expect);
    });
    CHECK(expect.unmet() == "");
}

std::vector<int> first_two(const simt::device_array<int>& numbers) {
    const std::vector<int> all = numbers.read();
    return {all[0], all[1]};
}

const std::string unknown = "; NCCL does not say which ranks were not heard from";

}  // namespace

TEST_CASE("nccl: timeouts below zero are refused", "[simt][nccl][deadline]") {
    const std::string error = "nccl_transport: expected a timeout of 0 ms, which is none, or more, given -1 ms";
    CHECK(thrown<precondition_error>([] { nccl_transport::create(nccl_transport::unique_id(), 1, 0, {-1ms}); }) ==
          error);
    CHECK(thrown<precondition_error>([] { nccl_transport::borrow(nullptr, {-1ms}); }) == error);
}

TEST_CASE("nccl: with a timeout, what all ranks do in time is as without one", "[simt][nccl][deadline]") {
    on_three_ranks(
        "in time",
        [](rank_with_stream& r, zeropp::thread_transport&, expectations& expect) {
            r.gather(r.transport);
            r.wait(r.transport);
            expect(r.received.read() == std::vector<int>{7, 8, 9}, "what every rank sends");
            nccl_transport backwards = r.transport.split(std::vector<int>{2, 1, 0});
            r.gather(backwards);
            r.wait(backwards);
            expect(r.received.read() == std::vector<int>{9, 8, 7}, "what every rank sends, backwards");
        },
        60s);
}

TEST_CASE("nccl: a call that a rank does not make ends in an error on all others", "[simt][nccl][deadline]") {
    on_three_ranks("a missing call", [](rank_with_stream& r, zeropp::thread_transport& world, expectations& expect) {
        nccl_transport part = r.transport.split(std::vector<int>{0, 1, 2});
        zeropp::begin_collective(r.transport, {"first", 1, "fp32", "int8", {}}, "");
        zeropp::begin_collective(r.transport, {"second", 1, "fp32", "int8", {}}, "");
        if (world.rank() != 2) {
            r.gather(part);
            const std::string error = thrown<zeropp::error>([&] { r.wait(part); });
            // Who aborts first breaks the others' connections.
            const bool own = error == "nccl_transport: timeout of 200 ms in call 2, all_gather of 4 bytes in second: "
                                      "waited for the stream" +
                                          unknown;
            const bool peers = error.starts_with("an earlier NCCL operation: remote process exited");
            expect(own || peers, "a timeout or its effect, given " + error);
            // The stream's work has ended, and nothing works any more on any split.
            r.stream.exec().wait();
            expect.equal(thrown<zeropp::error>([&] { r.gather(part); }), error);
            expect.equal(thrown<zeropp::error>([&] { r.gather(r.transport); }), error);
            expect.equal(thrown<zeropp::error>([&] { r.transport.check(); }), error);
            expect.equal(thrown<zeropp::error>([&] { r.transport.wait(r.stream.exec()); }), error);
        }
        simt::meet(world);
        // The late rank waits for the others until its own deadline.
        if (world.rank() == 2) {
            const std::string error = thrown<timeout_error>([&] {
                r.gather(part);
                r.wait(part);
            });
            expect(error.starts_with("nccl_transport: timeout of 200 ms in call 2"), "a timeout, given " + error);
        }
        simt::meet(world);
    });
}

TEST_CASE("nccl: splits of a communicator that blocks end together", "[simt][nccl][deadline]") {
    on_three_ranks("a borrowed one", [](rank_with_stream& r, zeropp::thread_transport& world, expectations& expect) {
        ncclComm_t comm = nullptr;
        ncclCommInitRank(&comm, 3, simt::shared_id<nccl_transport>(world), world.rank());
        {
            nccl_transport borrowed = nccl_transport::borrow(comm, {.timeout = timeout});
            nccl_transport first = borrowed.split(std::vector<int>{0, 1, 2});
            nccl_transport second = borrowed.split(std::vector<int>{0, 1, 2});
            if (world.rank() != 2) {
                // NCCL's revocation of `first` waits for work that is behind work of `second`.
                r.gather(second);
                r.gather(first);
                const std::string error = thrown<timeout_error>([&] { r.wait(first); });
                expect(error.starts_with("nccl_transport: timeout of 200 ms in call 1, all_gather of 4 bytes"), error);
                r.stream.exec().wait();
            }
            simt::meet(world);
        }
        ncclCommAbort(comm);
    });
}

TEST_CASE("nccl: survivors of a timeout go on without the dead rank", "[simt][nccl][deadline][shrink]") {
    on_three_ranks("a dead rank", [](rank_with_stream& r, zeropp::thread_transport& world, expectations& expect) {
        nccl_transport part = r.transport.split(std::vector<int>{2, 1, 0});
        const std::vector<int> dead{1, 1};  // a rank may be named twice
        if (world.rank() != 1) {
            r.gather(part);
            const std::string error = thrown<timeout_error>([&] { r.wait(part); });
            // NCCL does not find the dead rank.
            expect.equal(thrown<timeout_error>([&] { r.transport.shrink(); }), error);
            zeropp::communicator comm(zeropp::flat(3), std::move(r.transport));
            auto [next, survivors] = comm.shrink(dead);
            expect(survivors == std::vector<int>{0, 2}, "the ranks that are left");
            expect.equal(next.rank(), world.rank() / 2);
            r.gather(next.world());
            r.wait(next.world());
            expect(first_two(r.received) == std::vector<int>{7, 9}, "numbers of the survivors");
            expect.equal(thrown<timeout_error>([&] { r.gather(comm.world()); }), error);
            expect.equal(thrown<timeout_error>([&] { r.gather(part); }), error);
        }
        simt::meet(world);
    });
}

TEST_CASE("nccl: another rank dies before the survivors have shrunk", "[simt][nccl][deadline][shrink]") {
    on_three_ranks("two dead ranks", [](rank_with_stream& r, zeropp::thread_transport& world, expectations& expect) {
        if (world.rank() == 2) {
            r.gather(r.transport);
            expect(!thrown<timeout_error>([&] { r.wait(r.transport); }).starts_with('<'), "a timeout");
            expect.equal(thrown<timeout_error>([&] { r.transport.shrink(std::vector<int>{0}); }),
                         "nccl_transport: timeout of 200 ms in ncclCommShrink: not heard from all ranks that are not "
                         "excluded");
            auto [next, survivors] = r.transport.shrink(std::vector<int>{0, 1});
            expect(next.size() == 1 && survivors == std::vector<int>{2}, "one rank");
            r.gather(next);
            r.wait(next);
            expect.equal(r.received.read()[0], 9);
        }
        simt::meet(world);
    });
}

TEST_CASE("nccl: a control finds the dead ranks", "[simt][nccl][shrink]") {
    on_three_ranks("a control", [](rank_with_stream& r, zeropp::thread_transport& world, expectations& expect) {
        zeropp::checked both(std::move(r.transport), world.split(std::vector<int>{0, 1, 2}));
        if (world.rank() == 1) return;
        auto [next, survivors] = both.shrink();
        expect(survivors == std::vector<int>{0, 2}, "the ranks that are left");
        zeropp::begin_collective(next, {"of survivors", 1, "fp32", "int8", {}}, "");
        next.all_gather(r.stream.exec(), simt::bytes_of(r.send), simt::bytes_of(r.received), sizeof(int));
        r.stream.exec().wait();
        expect(first_two(r.received) == std::vector<int>{7, 9}, "numbers of the survivors");
    });
}

TEST_CASE("nccl: without a timeout, ranks can be left out until something fails", "[simt][nccl][shrink]") {
    on_three_ranks(
        "no timeout",
        [](rank_with_stream& r, zeropp::thread_transport& world, expectations& expect) {
            expect.equal(thrown<precondition_error>([&] { r.transport.shrink(); }),
                         "nccl_transport: expected the ranks to leave out, which NCCL does not find, given none");
            expect.equal(thrown<precondition_error>([&] { r.transport.shrink(std::vector<int>{3}); }),
                         "nccl_transport: expected excluded ranks below 3 other than " + std::to_string(world.rank()) +
                             ", given 3");
            simt::meet(world);
            if (world.rank() != 1) {
                auto [next, survivors] = r.transport.shrink(std::vector<int>{1});
                r.gather(next);
                next.wait(r.stream.exec());
                expect(first_two(r.received) == std::vector<int>{7, 9}, "numbers of the survivors");
                expect.equal(thrown<zeropp::peer_error>([&] { r.gather(r.transport); }),
                             "nccl_transport: this rank has called shrink");
                expect.equal(thrown<precondition_error>([&] { r.transport.shrink(std::vector<int>{1}); }),
                             "nccl_transport: expected a timeout and an NCCL with ncclCommRevoke, to shrink after a "
                             "failure, given communicators that the failure has aborted");
            }
            simt::meet(world);
        },
        0ms);
}

TEST_CASE("nccl: the overloads that block give up at the deadline", "[simt][nccl][deadline]") {
    on_three_ranks("run to completion", [](rank_with_stream& r, zeropp::thread_transport& world, expectations& expect) {
        if (world.rank() == 0) {
            std::optional<running_stream> running;
            const std::string error = thrown<timeout_error>([&] {
                const zeropp::pipeline<zeropp::cuda_stream> exec{r.stream.exec(), r.stream.exec()};
                zeropp::detail::run_to_completion(exec, r.transport, [&] {
                    r.gather(r.transport);
                    running.emplace(r.stream);
                });
            });
            expect(error.starts_with("nccl_transport: timeout of 200 ms in call 1, all_gather of 4 bytes"), error);
        }
        simt::meet(world);
    });
}

TEST_CASE("nccl: a destructor gives up at the deadline", "[simt][nccl][deadline]") {
    const std::size_t aborted = simt::calls("ncclCommAbort");
    on_three_ranks("a destructor", [](rank_with_stream& r, zeropp::thread_transport& world, expectations& expect) {
        {
            nccl_transport part = r.transport.split(std::vector<int>{0, 1, 2});
            const simt::owned_stream other;
            if (world.rank() != 2) {
                r.gather(r.transport);
                part.all_gather(other.exec(), simt::bytes_of(r.send), simt::bytes_of(r.received), sizeof(int));
            }
            simt::meet(world);
            // The late rank keeps its communicators until the others have given up.
            if (world.rank() != 2) {
                nccl_transport(std::move(part));
                expect(!thrown<zeropp::error>([&] { r.transport.check(); }).starts_with('<'),
                       "a family that has failed");
            }
            simt::meet(world);
        }
        r.stream.exec().wait();
    });
    CHECK(simt::calls("ncclCommAbort") >= aborted + 4);
}

TEST_CASE("nccl: a transport with a timeout is not captured", "[simt][nccl][deadline]") {
    on_three_ranks(
        "a capture",
        [](rank_with_stream& r, zeropp::thread_transport&, expectations& expect) {
            cudaStreamBeginCapture(r.stream.native(), cudaStreamCaptureModeThreadLocal);
            const std::string error = thrown<precondition_error>([&] { r.gather(r.transport); });
            cudaGraph_t graph = nullptr;
            expect(cudaStreamEndCapture(r.stream.native(), &graph) == cudaSuccess, "a capture without errors");
            cudaGraphDestroy(graph);
            expect.equal(error, std::string("nccl_transport: expected no timeout where a CUDA graph is captured, whose "
                                            "work cannot be aborted, given one of 60000 ms"));
            r.gather(r.transport);
            r.wait(r.transport);
        },
        60s);
}

TEST_CASE("nccl: an error of the device is one of all transports", "[simt][nccl][deadline]") {
    on_three_ranks("a device", [](rank_with_stream& r, zeropp::thread_transport& world, expectations& expect) {
        nccl_transport part = r.transport.split(std::vector<int>{0, 1, 2});
        simt::meet(world);
        if (world.rank() == 0) {
            simt::fail_next("cudaStreamQuery", cudaErrorIllegalAddress);
            const std::string error = thrown<zeropp::cuda_error>([&] { r.transport.wait(r.stream.exec()); });
            expect(error.starts_with("cudaStreamQuery: cudaErrorIllegalAddress"), error);
            expect.equal(thrown<zeropp::cuda_error>([&] { r.gather(part); }), error);
        }
        simt::meet(world);
    });
}

TEST_CASE("nccl: a split or a connection that a rank does not come to ends at the deadline", "[simt][nccl][deadline]") {
    on_three_ranks("a missing split", [](rank_with_stream& r, zeropp::thread_transport& world, expectations& expect) {
        if (world.rank() == 1) {
            expect.equal(thrown<timeout_error>([&] { r.transport.split(std::vector<int>{0, 1, 2}); }),
                         "nccl_transport: timeout of 200 ms in call 1, split: waited for ncclCommSplit" + unknown);
        }
        simt::meet(world);
    });
    CHECK(thrown<timeout_error>([] { nccl_transport::create(nccl_transport::unique_id(), 3, 0, {timeout}); }) ==
          "nccl_transport: timeout of 200 ms in ncclCommInitRankConfig: not heard from all of 3 ranks");
    CHECK(simt::live_communicators() == 0);
}

TEST_CASE("nccl: one rank's split list without itself is no hang for the others", "[simt][nccl][errors]") {
    on_three_ranks(
        "a wrong list",
        [](rank_with_stream& r, zeropp::thread_transport& world, expectations& expect) {
            const std::vector<int> list = world.rank() == 2 ? std::vector<int>{0} : std::vector<int>{0, 1};
            const std::string error = thrown<precondition_error>([&] {
                nccl_transport pair = r.transport.split(list);
                r.gather(pair);
                r.wait(pair);
            });
            expect.equal(error, world.rank() == 2
                                    ? "nccl_transport: expected a split list with rank 2, given one without"
                                    : "<nothing thrown>");
            // Of rank 0's list, rank 1 does not know.
            const std::vector<int> alone = world.rank() == 0 ? std::vector<int>{0, 1} : std::vector<int>{world.rank()};
            expect.equal(thrown<precondition_error>([&] { r.transport.split(alone); }),
                         world.rank() == 0
                             ? "nccl_transport: expected the same split list on each of its 2 ranks, given lists of 1 "
                               "ranks that begin alike"
                             : "<nothing thrown>");
            const std::vector<int> outside =
                world.rank() == 0 ? std::vector<int>{0, 9} : std::vector<int>{world.rank()};
            expect.equal(thrown<precondition_error>([&] { r.transport.split(outside); }),
                         world.rank() == 0 ? "nccl_transport: expected a split list of ranks below 3, given one with 9"
                                           : "<nothing thrown>");
        },
        60s);
}
