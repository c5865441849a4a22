/// \file
/// cuda_aware_mpi_transport without a GPU: host memory stands in for a device's, which any MPI can work on, and the
/// test answers for MPI whether it supports CUDA.

#include "conformance/delivery_laws.hpp"
#include "conformance/split_laws.hpp"
#include "conformance/transport_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/transport/mpi.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

int cuda_support = 0;
int times_asked = 0;

// Which MPIs must be asked; not left to the transport to say.
#if defined(OPEN_MPI) || (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000300)
constexpr bool can_be_asked = true;
#else
constexpr bool can_be_asked = false;
#endif

}  // namespace

// The program's own, in place of the MPI library's.
extern "C" int MPIX_Query_cuda_support(void) {
    ++times_asked;
    return cuda_support;
}

namespace {

using namespace zeropp_test;
using zeropp::cuda_aware_mpi_transport;
using zeropp::precondition_error;

/// A stream at its worst: its work runs only when somebody waits for it.
class late_stream {
public:
    using space = zeropp::device_space;
    struct event {};

    late_stream() : work_(std::make_shared<std::deque<std::function<void()>>>()) {}

    void enqueue_on_device(std::function<void()> work) const { work_->push_back(std::move(work)); }
    void copy(void* to, const void* from, std::size_t bytes) const {
        enqueue_on_device([=] { std::memcpy(to, from, bytes); });
    }
    event record() const { return {}; }
    void wait(const event&) const {}
    void wait() const {
        for (; !work_->empty(); work_->pop_front()) work_->front()();
    }

private:
    std::shared_ptr<std::deque<std::function<void()>>> work_;
};

static_assert(zeropp::transport_on<cuda_aware_mpi_transport, late_stream>);
static_assert(!zeropp::transport_on<cuda_aware_mpi_transport, zeropp::host>);
static_assert(!zeropp::transport_on<zeropp::mpi_transport, late_stream>);

/// While it lives, MPI says that it supports CUDA.
class with_cuda_support {
public:
    with_cuda_support() { cuda_support = 1; }
    with_cuda_support(const with_cuda_support&) = delete;
    with_cuda_support& operator=(const with_cuda_support&) = delete;
    ~with_cuda_support() { cuda_support = 0; }
};

}  // namespace

TEST_CASE("cuda_aware_mpi_transport moves a device's bytes", "[mpi][cuda_aware]") {
    const with_cuda_support supported;
    expectations expect;
    auto world = cuda_aware_mpi_transport::duplicate(MPI_COMM_WORLD);
    moves_bytes<late_stream>(world, expect);
    const grid ranks(world.size());
    auto row = world.split(ranks.row_of(world.rank()));
    auto column = row.split(std::vector<int>{row.rank()});
    gathers<late_stream>(column, expect, 10);
    exchanges<late_stream>(row, expect, 1000);
    auto borrowed = cuda_aware_mpi_transport::borrow(row.native());
    gathers_in_place<late_stream>(borrowed, expect, 77);
    CHECK(expect.unmet() == "");
    CHECK(zeropp::shared_memory_nodes(world) == zeropp::two_level(1, world.size()));
}

TEST_CASE("cuda_aware_mpi_transport waits for what the stream holds before MPI sees it", "[mpi][cuda_aware]") {
    const with_cuda_support supported;
    const late_stream exec;
    auto world = cuda_aware_mpi_transport::duplicate(MPI_COMM_WORLD);
    const auto size = static_cast<std::size_t>(world.size());
    std::vector<std::byte> send(size, std::byte{0xff});
    std::vector<std::byte> received(size, std::byte{0xff});
    std::vector<std::byte> gathered(size, std::byte{0xff});
    std::byte first{};
    exec.enqueue_on_device([&] {
        for (std::size_t r = 0; r != size; ++r)
            send[r] = static_cast<std::byte>(10 * world.rank() + static_cast<int>(r));
    });
    world.all_to_all(exec, send.data(), received.data(), 1);
    exec.enqueue_on_device([&] { first = received[0]; });
    world.all_gather(exec, &first, gathered.data(), 1);
    exec.wait();
    for (std::size_t r = 0; r != size; ++r) {
        CHECK(received[r] == static_cast<std::byte>(10 * static_cast<int>(r) + world.rank()));
        CHECK(gathered[r] == static_cast<std::byte>(r));
    }
}

TEST_CASE("cuda_aware_mpi_transport refuses an MPI without support for CUDA", "[mpi][cuda_aware]") {
    if (!can_be_asked) {
        WARN("skipped: this MPI cannot be asked");
        return;
    }
    times_asked = 0;
    const std::string text = thrown<precondition_error>([] { cuda_aware_mpi_transport::duplicate(MPI_COMM_WORLD); });
    CHECK(text == "cuda_aware_mpi_transport: expected an MPI with support for CUDA (staged<mpi_transport> works with "
                  "any), given one that says it has none");
    CHECK(thrown<precondition_error>([] { cuda_aware_mpi_transport::borrow(MPI_COMM_WORLD); }) == text);
    CHECK(times_asked == 2);
    // Host memory asks for nothing.
    auto world = zeropp::mpi_transport::duplicate(MPI_COMM_WORLD);
    expectations expect;
    gathers<zeropp::host>(world, expect, 10);
    CHECK(expect.unmet() == "");
    CHECK(times_asked == 2);
}
