/// nccl_transport with the installed NCCL's own entry points, those that only newer versions have among them.

#include "simt/nccl_graph.hpp"
#include "simt/nccl_ranks.hpp"

#include <zeropp/transport/nccl.hpp>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace simt = zeropp_test::simt;
using zeropp::nccl_transport;
using zeropp_test::expectations;
using zeropp_test::thrown;

static_assert(zeropp::transport_on<nccl_transport, zeropp::cuda_stream>);

namespace {

simt::any_transport nccl(zeropp::thread_transport& world) {
    return simt::any_transport(simt::connect<nccl_transport>(world));
}

/// One rank, its stream and what it sends and receives.
struct lone_rank {
    nccl_transport transport = nccl_transport::create(nccl_transport::unique_id(), 1, 0);
    simt::owned_stream stream;
    simt::device_array<int> send{std::vector<int>{7}};
    simt::device_array<int> received{1};

    void gather() { transport.all_gather(stream.exec(), simt::bytes_of(send), simt::bytes_of(received), sizeof(int)); }
};

}  // namespace

TEST_CASE("nccl: gathers of the collectives", "[simt][collectives][nccl]") {
    simt::check_all_gathers(nccl);
    CHECK(simt::live_communicators() == 0);
}

TEST_CASE("nccl: reduce-scatter of the collectives", "[simt][collectives][nccl]") {
    simt::check_reduce_scatters(nccl);
    CHECK(simt::live_communicators() == 0);
}

TEST_CASE("nccl: all-reduce of lists", "[simt][collectives][nccl]") {
    simt::check_all_reduces(nccl);
    CHECK(simt::live_communicators() == 0);
}

TEST_CASE("nccl: updates of lists, that all groups own or some", "[simt][collectives][nccl]") {
    simt::check_updates(nccl);
    CHECK(simt::live_communicators() == 0);
}

TEST_CASE("nccl: collectives on two and three levels", "[simt][collectives][nccl]") {
    simt::check_levels(nccl);
    CHECK(simt::live_communicators() == 0);
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
TEST_CASE("nccl: each collective makes the calls of CUDA and NCCL that the page says", "[simt][collectives][nccl]") {
    std::string table;
    for (auto& [collective, calls] : simt::calls_of_collectives(nccl)) {
        table += "| " + collective;
        const auto add = [&, &made = calls](std::initializer_list<std::string> names) {
            std::size_t all_ranks = 0;
            for (const std::string& name : names) {
                if (const auto call = made.extract(name)) all_ranks += call.mapped();
            }
            CHECK(all_ranks % 4 == 0);
            table += " | " + std::to_string(all_ranks / 4);
        };
        add({"cudaLaunchKernel"});
        add({"cudaMemcpyAsync"});
        add({"ncclAllGather", "ncclAlltoAll"});
        add({"cudaEventRecord"});
        add({"cudaStreamWaitEvent"});
        calls.erase("ncclCommGetAsyncError");
        CHECK(calls == std::map<std::string, std::size_t>());
        table += " |\n";
    }
    std::ifstream page(std::filesystem::path{__FILE__}.parent_path() / "../../docs/concepts/execution.md");
    const std::string text(std::istreambuf_iterator<char>(page), {});
    INFO(table);
    CHECK(text.find(table) != std::string::npos);
    CHECK(simt::live_communicators() == 0);
}
#endif

TEST_CASE("nccl: operations, splits and splits of splits", "[simt][nccl]") {
    const std::size_t sends = simt::calls("ncclSend");
    simt::check_splits<nccl_transport>();
    CHECK(simt::calls("ncclSend") == sends);
}

TEST_CASE("nccl: a failure on one rank ends all communicators and hangs nobody", "[simt][nccl][errors]") {
    simt::check_failure<nccl_transport>("ncclAlltoAll", [](auto& transport, const auto& exec, auto* send, auto* to) {
        transport.all_to_all(exec, send, to, 4);
    });
    simt::check_failure<nccl_transport>("ncclAllGather", [](auto& transport, const auto& exec, auto* send, auto* to) {
        transport.all_gather(exec, send, to, 4);
    });
    for (const std::string entry_point : {"ncclGroupStart", "ncclBroadcast", "ncclGroupEnd"}) {
        simt::check_failure<nccl_transport>(entry_point, [](auto& transport, const auto& exec, auto* send, auto* to) {
            transport.broadcast(exec, send, to, 4, 2);
        });
    }
}

TEST_CASE("nccl: an error that is noticed later is raised, and the communicator aborted", "[simt][nccl][errors]") {
    const simt::leaves_nothing after;
    lone_rank r;
    r.transport.check();
    r.gather();
    const std::size_t aborted = simt::calls("ncclCommAbort");
    const std::size_t destroyed = simt::calls("ncclCommDestroy");
    simt::notice(r.transport.native(), ncclRemoteError);
    ncclResult_t code = ncclSuccess;
    const std::string text = thrown<zeropp::nccl_error>([&] {
        try {
            r.gather();
        } catch (const zeropp::nccl_error& e) {
            code = e.code();
            throw;
        }
    });
    CHECK(code == ncclRemoteError);
    CHECK(text == "an earlier NCCL operation: remote process exited or there was a network error (the network was "
                  "told to fail)");
    CHECK(simt::calls("ncclCommAbort") == aborted + 1);
    CHECK(r.transport.native() == nullptr);
    const std::vector<int> alone{0};
    CHECK(thrown<zeropp::nccl_error>([&] { r.transport.split(alone); }) == text);
    CHECK(thrown<zeropp::nccl_error>([&] { r.transport.check(); }) == text);
    r.stream.exec().wait();
    CHECK(r.received.read() != r.send.read());
    const nccl_transport moved = std::move(r.transport);
    CHECK(simt::calls("ncclCommDestroy") == destroyed);
}

TEST_CASE("nccl: calls that take their time are waited for, and their errors raised", "[simt][nccl][errors]") {
    const simt::leaves_nothing after;
    {
        lone_rank r;
        simt::settle_later("ncclAllGather", ncclSuccess);
        r.gather();
        r.stream.exec().wait();
        CHECK(r.received.read() == r.send.read());
        simt::settle_later("ncclAllGather", ncclInternalError);
        CHECK(thrown<zeropp::nccl_error>([&] { r.gather(); }) ==
              "ncclAllGather: internal error - please report this issue to the NCCL developers (ncclAllGather was told "
              "to fail later)");
    }
    {
        lone_rank r;
        simt::fail_next("ncclCommGetAsyncError", ncclInvalidArgument);
        CHECK(
            thrown<zeropp::nccl_error>([&] { r.gather(); }).starts_with("an earlier NCCL operation: invalid argument"));
    }
}

TEST_CASE("nccl: failures while a transport is made leave no communicator behind", "[simt][nccl][errors]") {
    const simt::leaves_nothing after;
    const std::vector<int> alone{0};
    const auto make = [] { nccl_transport::create(nccl_transport::unique_id(), 1, 0); };
    for (const std::string entry_point :
         {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommUserRank", "ncclCommCount"}) {
        simt::fail_next(entry_point, ncclInternalError);
        CHECK(thrown<zeropp::nccl_error>(make) == entry_point +
                                                      ": internal error - please report this issue to the "
                                                      "NCCL developers (" +
                                                      entry_point + " was told to fail)");
        CHECK(simt::live_communicators() == 0);
    }
    CHECK(
        thrown<zeropp::nccl_error>([] { nccl_transport::create(nccl_transport::unique_id(), 1, 5); }) ==
        "ncclCommInitRankConfig: invalid argument (run with NCCL_DEBUG=WARN for details) (invalid rank 5 of 1 ranks)");
    for (const std::string entry_point : {"ncclCommSplit", "ncclCommUserRank"}) {
        lone_rank r;
        simt::fail_next(entry_point, ncclSystemError);
        CHECK(thrown<zeropp::nccl_error>([&] { r.transport.split(alone); }).starts_with(entry_point + ": unhandled"));
    }
}

TEST_CASE("nccl: a communicator of the caller's stays the caller's", "[simt][nccl]") {
    const simt::leaves_nothing after;
    ncclUniqueId id{};
    ncclComm_t comm = nullptr;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    REQUIRE(ncclCommInitRank(&comm, 1, id, 0) == ncclSuccess);
    {
        nccl_transport transport = nccl_transport::borrow(comm);
        simt::notice(comm, ncclRemoteError);
        CHECK_THROWS_AS(transport.check(), zeropp::nccl_error);
        CHECK(transport.native() == comm);
        CHECK_THROWS_AS(transport.check(), zeropp::nccl_error);
    }
    {
        const nccl_transport again = nccl_transport::borrow(comm);
    }
    CHECK(simt::live_communicators() == 1);
    CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("nccl: collectives on two streams are captured, and replayed on all ranks", "[simt][nccl][graph]") {
    const simt::leaves_nothing after;
    expectations expect;
    for (const auto& [nodes, of_node] : {std::pair{1, 2}, {2, 1}, {2, 2}}) {
        const simt::ranks_and_nodes ranks{"graphs", {nodes, of_node}};
        simt::on_ranks(ranks, "a graph", [&](zeropp::thread_transport& world) {
            simt::check_captured_collectives(ranks.topology, simt::connect<nccl_transport>(world), expect);
        });
    }
    CHECK(expect.unmet() == "");
}

TEST_CASE("nccl: an abort waits for the captured graphs", "[simt][nccl][graph]") {
    const simt::leaves_nothing after;
    const simt::hanging_calls hanging;
    lone_rank r;
    const auto [error, waited] =
        simt::failure_with_graph(r.transport, r.stream, r.received, std::chrono::milliseconds(300),
                                 [&] { simt::notice(r.transport.native(), ncclRemoteError); });
    CHECK(error.starts_with("an earlier NCCL operation: remote process exited"));
    CHECK(waited.count() >= 0.3);
}
