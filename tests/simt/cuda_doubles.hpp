#pragma once
/// \file
/// The device behind the test doubles of the CUDA runtime (cuda_doubles.cpp): what tests set and ask of it.
///
/// Streams are asynchronous at their worst, and the same in every run: work runs only when somebody waits for it, or
/// for an event behind it, and no sooner. Whatever the library forgets to wait for has then not happened yet. Device
/// memory starts out poisoned; with AddressSanitizer, host code that touches it is a fault. Streams can be captured, by
/// the rules of cudaStreamCaptureModeGlobal and ThreadLocal. A launched graph runs in the order of its capture.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// Whether AddressSanitizer watches, in the words of either compiler.
#if defined(__SANITIZE_ADDRESS__)
#define ZEROPP_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ZEROPP_TEST_ASAN 1
#endif
#endif

namespace zeropp_test::simt {

/// What exists on the device now. After a test that gives everything back: nothing.
struct live_objects {
    std::size_t streams = 0;
    std::size_t events = 0;
    std::size_t device_blocks = 0;
    std::size_t pinned_blocks = 0;
    std::size_t graphs = 0;  // executable ones included
    std::size_t pools = 0;

    friend bool operator==(const live_objects&, const live_objects&) = default;
};
live_objects live();

/// How the device reads pageable host memory: not at all, or in the stream's turn, by the host's page tables as GH200
/// does or by its own.
enum class host_pages { staged, by_host_tables, by_own_tables };

/// What later questions for the device's attributes are answered with.
void set_device(int multiprocessors, host_pages reads = host_pages::staged);

/// How many devices there are from now on: one, until told otherwise. They are one device under several numbers, which
/// threads choose with cudaSetDevice.
void set_devices(int count);

/// The next call of this entry point ("cudaMalloc") does nothing and returns `code`. Kernel launches are
/// "cudaLaunchKernel".
void fail_next(const std::string& entry_point, cudaError_t code);

/// How often an entry point was called so far.
std::size_t calls(const std::string& entry_point);

/// Counts the calls of every entry point, NCCL's among them, since it was made.
class call_count {
public:
    call_count();
    /// Number of calls for each entry point that was called, by its name.
    std::map<std::string, std::size_t> made() const;
    /// The same in words, as "cudaEventRecord 1, cudaLaunchKernel 2".
    std::string text() const;

private:
    std::map<std::string, std::size_t> before_;
};

/// The grids of the kernels that were launched since it was made, in order. With `run` false they are not run.
class launch_log {
public:
    explicit launch_log(bool run = true);
    launch_log(const launch_log&) = delete;
    launch_log& operator=(const launch_log&) = delete;
    ~launch_log();

    std::vector<dim3> grids() const;
};

/// Bytes that memory pools hold, in use or not. One returns the unused bytes beyond its threshold whenever a stream is
/// waited for.
std::size_t bytes_of_pools();

/// What was wrong with the kernel or the copy that failed last; "" if none has. All later work on the device fails too.
std::string device_fault();
/// Makes a device that has failed usable again.
void recover();

/// Pieces of work enqueued on the stream that have not run.
std::size_t pending(cudaStream_t stream);

/// Bytes of device memory, read and written while no work runs. They ask the doubles and not the CUDA runtime, so that
/// they count as no call and synchronise nothing.
void write_device(void* to, const void* from, std::size_t bytes);
void read_device(void* to, const void* from, std::size_t bytes);

/// For the doubles of libraries that put work of their own on streams (nccl_doubles.cpp).
namespace device_work {

/// A piece of work on a stream.
struct place {
    std::shared_ptr<CUstream_st> stream;
    std::uint64_t ticket = 0;
};

/// Counts a call of a library's entry point. For bodies.
void count(const std::string& entry_point);

/// Runs body() while no other thread is inside an entry point of the device. What follows is for such bodies, and for
/// work.
void alone(const std::function<void()>& body);

/// Enqueues work, which may read and write device memory. Requires a stream of the device's.
place enqueue(cudaStream_t stream, std::function<void()> work);
/// If the stream is being captured: returns true, and each launch of its graph calls launch(stream).
bool capture(cudaStream_t stream, std::function<void(cudaStream_t)> launch);
/// Whether there is such a stream.
bool exists(cudaStream_t stream);

/// Runs all work before `where`, or up to and including it.
void run_before(const place& where);
void run_through(const place& where);
/// Whether it has run.
bool completed(const place& where);

/// Lets other threads into the device until ready(), which is asked again when they have changed something.
void wait_until(const std::function<bool()>& ready);
/// Says that something has changed that others may wait for.
void changed();

/// Fails the device for this reason, unless it has failed already.
void fault(const std::string& why);
bool failed();

/// Whether all of it lies in one allocation of device memory.
bool holds(const void* p, std::size_t bytes);

/// The allocation of device memory that holds this byte: begin and number of bytes. Null if there is none.
std::pair<const std::byte*, std::size_t> allocation(const void* p);

/// cudaLaunchKernel: enqueues `run`, which returns what was wrong with the kernel, or "". Takes the device by itself.
cudaError_t launch(dim3 grid, dim3 block, cudaStream_t stream, std::function<std::string()> run);

}  // namespace device_work

}  // namespace zeropp_test::simt
