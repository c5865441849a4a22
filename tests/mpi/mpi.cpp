#include <zeropp/transport/mpi.hpp>

#include "conformance/delivery_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>

#include <mpi.h>

#include <array>
#include <cstddef>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using zeropp::host;
using zeropp::host_queue;
using zeropp::mpi_error;
using zeropp::mpi_transport;
using zeropp::precondition_error;
using zeropp_test::exchanges;
using zeropp_test::expectations;
using zeropp_test::gathers;
using zeropp_test::thrown;

/// A duplicate of the world that is freed in the end.
class communicator_of_the_test {
public:
    communicator_of_the_test() { MPI_Comm_dup(MPI_COMM_WORLD, &comm_); }
    ~communicator_of_the_test() { MPI_Comm_free(&comm_); }
    communicator_of_the_test(const communicator_of_the_test&) = delete;
    communicator_of_the_test& operator=(const communicator_of_the_test&) = delete;

    MPI_Comm get() const { return comm_; }

private:
    MPI_Comm comm_ = MPI_COMM_NULL;
};

MPI_Errhandler error_handler_of(MPI_Comm comm) {
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_get_errhandler(comm, &handler);
    const MPI_Errhandler named = handler;
    MPI_Errhandler_free(&handler);
    return named;
}

int compare(MPI_Comm a, MPI_Comm b) {
    int result = MPI_UNEQUAL;
    MPI_Comm_compare(a, b, &result);
    return result;
}

int class_of(int code) {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    return error_class;
}

/// Tells when a communicator is freed: MPI calls the attribute's delete function then.
class freeing {
public:
    freeing() { MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, count, &key_, nullptr); }
    ~freeing() { MPI_Comm_free_keyval(&key_); }
    freeing(const freeing&) = delete;
    freeing& operator=(const freeing&) = delete;

    void watch(MPI_Comm comm) { MPI_Comm_set_attr(comm, key_, &freed_); }
    int freed() const { return freed_; }

private:
    static int count(MPI_Comm, int, void* freed, void*) {
        ++*static_cast<int*>(freed);
        return MPI_SUCCESS;
    }

    int key_ = MPI_KEYVAL_INVALID;
    int freed_ = 0;
};

void check(const expectations& expect) {
    CHECK(expect.unmet() == "");
    CHECK(expect.met() > 0);
}

}  // namespace

TEST_CASE("mpi_transport::borrow uses the communicator itself and leaves it as it was", "[mpi]") {
    const communicator_of_the_test comm;
    freeing watched;
    watched.watch(comm.get());
    const MPI_Errhandler before = error_handler_of(comm.get());
    {
        mpi_transport transport = mpi_transport::borrow(comm.get());
        CHECK(compare(transport.native(), comm.get()) == MPI_IDENT);
        CHECK(error_handler_of(comm.get()) == before);
        expectations expect;
        gathers<host>(transport, expect, 10);
        check(expect);
    }
    CHECK(watched.freed() == 0);
    CHECK(MPI_Barrier(comm.get()) == MPI_SUCCESS);
}

TEST_CASE("mpi_transport::duplicate has a communicator of its own, returns its errors, and frees it", "[mpi]") {
    const communicator_of_the_test comm;
    const MPI_Errhandler before = error_handler_of(comm.get());
    freeing watched;
    std::optional<mpi_transport> transport(mpi_transport::duplicate(comm.get()));
    watched.watch(transport->native());
    CHECK(compare(transport->native(), comm.get()) == MPI_CONGRUENT);
    CHECK(error_handler_of(transport->native()) == MPI_ERRORS_RETURN);
    CHECK(error_handler_of(comm.get()) == before);
    mpi_transport moved = std::move(*transport);
    transport.reset();
    CHECK(watched.freed() == 0);
    {
        const mpi_transport taken = std::move(moved);
        CHECK(watched.freed() == 0);
    }
    CHECK(watched.freed() == 1);
}

TEST_CASE("mpi_transport's splits return their errors and are freed with them", "[mpi]") {
    const communicator_of_the_test comm;
    freeing watched;
    {
        mpi_transport borrowed = mpi_transport::borrow(comm.get());
        const mpi_transport alone = borrowed.split(std::vector<int>{borrowed.rank()});
        watched.watch(alone.native());
        CHECK(error_handler_of(alone.native()) == MPI_ERRORS_RETURN);
        CHECK(compare(alone.native(), MPI_COMM_SELF) == MPI_CONGRUENT);
    }
    CHECK(watched.freed() == 1);
}

TEST_CASE("mpi_transport's duplicate leaves the traffic of others alone", "[mpi]") {
    const communicator_of_the_test comm;
    mpi_transport transport = mpi_transport::duplicate(comm.get());
    const int next = (transport.rank() + 1) % transport.size();
    int received = -1;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(&received, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm.get(), &request);
    expectations expect;
    gathers<host>(transport, expect, sizeof(int));
    check(expect);
    CHECK(received == -1);
    MPI_Barrier(MPI_COMM_WORLD);  // no rank sends before all have looked
    const int mine = transport.rank();
    MPI_Send(&mine, 1, MPI_INT, next, 5, comm.get());
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(received == (transport.rank() + transport.size() - 1) % transport.size());
}

TEST_CASE("mpi_error names the call and holds MPI's code and text", "[mpi]") {
    // Errors about communicators that are none go to the world's handler.
    const MPI_Errhandler before = error_handler_of(MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = MPI_SUCCESS;
    std::string text;
    try {
        mpi_transport::duplicate(MPI_COMM_NULL);
    } catch (const mpi_error& e) {
        code = e.code();
        text = e.what();
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
    CHECK(class_of(code) == MPI_ERR_COMM);
    std::array<char, MPI_MAX_ERROR_STRING> expected{};
    int length = 0;
    REQUIRE(MPI_Error_string(code, expected.data(), &length) == MPI_SUCCESS);
    CHECK(text == "MPI_Comm_dup: " + std::string(expected.data(), static_cast<std::size_t>(length)));
}

TEST_CASE("mpi_transport turns messages of different sizes into errors", "[mpi]") {
    mpi_transport transport = mpi_transport::duplicate(MPI_COMM_WORLD);
    if (transport.size() == 1) {
        SUCCEED("one rank cannot differ");
        return;
    }
    // Rank 0 sends more than the others expect, and so gets less than it expects itself.
    const std::size_t bytes = transport.rank() == 0 ? 16 : 8;
    std::vector<std::byte> memory(static_cast<std::size_t>(transport.size()) * 16);
    const auto gather = [&] {
        transport.all_gather(host(), memory.data() + static_cast<std::size_t>(transport.rank()) * bytes, memory.data(),
                             bytes);
    };
    if (transport.rank() == 0) {
        const std::size_t peers = static_cast<std::size_t>(transport.size()) - 1;
        CHECK(thrown<precondition_error>(gather) == "mpi_transport: expected " + std::to_string(peers * 16) +
                                                        " bytes from the other ranks, given " +
                                                        std::to_string(peers * 8));
    } else {
        int code = MPI_SUCCESS;
        try {
            gather();
        } catch (const mpi_error& e) {
            code = e.code();
        }
        CHECK(class_of(code) == MPI_ERR_TRUNCATE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    expectations expect;
    gathers<host>(transport, expect, 100);
    check(expect);
}

TEST_CASE("mpi_transport carries messages of few pieces and of many", "[mpi]") {
    mpi_transport transport = mpi_transport::duplicate(MPI_COMM_WORLD);
    constexpr std::size_t piece = std::size_t{1} << 18;
    expectations expect;
    for (const std::size_t bytes : {piece - 1, piece, piece + 1, 8 * piece, 8 * piece + 1, 19 * piece - 5}) {
        gathers<host>(transport, expect, bytes);
        exchanges<host>(transport, expect, bytes);
    }
    check(expect);
}

TEST_CASE("mpi_transport throws from its queue, and the queue works again", "[mpi]") {
    mpi_transport transport = mpi_transport::duplicate(MPI_COMM_WORLD);
    if (transport.size() == 1) {
        SUCCEED("one rank cannot differ");
        return;
    }
    const host_queue queue;
    const std::size_t bytes = transport.rank() == 0 ? 16 : 8;
    std::vector<std::byte> send(16);
    std::vector<std::byte> received(static_cast<std::size_t>(transport.size()) * 16);
    transport.all_gather(queue, send.data(), received.data(), bytes);
    CHECK_THROWS_AS(queue.wait(), zeropp::error);
    MPI_Barrier(MPI_COMM_WORLD);
    transport.all_gather(queue, send.data(), received.data(), 16);
    CHECK_NOTHROW(queue.wait());
}

TEST_CASE("mpi_transport: one rank's split list without itself is no hang for the others", "[mpi]") {
    mpi_transport transport = mpi_transport::duplicate(MPI_COMM_WORLD);
    if (transport.size() == 1) {
        SUCCEED("one rank has no others");
        return;
    }
    std::vector<int> everyone(static_cast<std::size_t>(transport.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    const std::vector<int> list = transport.rank() == 1 ? std::vector<int>{0} : everyone;
    const std::string size = std::to_string(transport.size());
    CHECK(thrown<precondition_error>([&] { transport.split(list); }) ==
          (transport.rank() == 1
               ? "mpi_transport: expected a split list with rank 1, given one without"
               : "mpi_transport: expected the same split list on each of its " + size + " ranks, given lists of " +
                     std::to_string(transport.size() - 1) + " ranks that begin alike"));
    expectations expect;
    gathers<host>(transport, expect, 100);
    check(expect);
}

TEST_CASE("mpi_transport refuses to split off ranks that there are not", "[mpi]") {
    mpi_transport transport = mpi_transport::duplicate(MPI_COMM_WORLD);
    const int size = transport.size();
    for (const int other : {-1, size}) {
        CHECK(thrown<precondition_error>([&] { transport.split(std::vector<int>{transport.rank(), other}); }) ==
              "mpi_transport: expected a split list of ranks below " + std::to_string(size) + ", given one with " +
                  std::to_string(other));
    }
    expectations expect;
    gathers<host>(transport, expect, 100);
    check(expect);
}

TEST_CASE("shared_memory_nodes finds one node on one machine", "[mpi]") {
    mpi_transport transport = mpi_transport::duplicate(MPI_COMM_WORLD);
    const zeropp::two_level nodes = zeropp::shared_memory_nodes(transport);
    CHECK(nodes == zeropp::two_level(1, transport.size()));
    mpi_transport alone = transport.split(std::vector<int>{transport.rank()});
    CHECK(zeropp::shared_memory_nodes(alone) == zeropp::two_level(1, 1));
}
