#include "simt/cuda_doubles.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#if defined(ZEROPP_TEST_ASAN)
#include <sanitizer/asan_interface.h>
#endif

// The runtime's handles point to types that only it defines; here, these.

struct CUgraph_st {
    std::vector<std::function<void(cudaStream_t)>> launches;  // each enqueues a piece of work
    const CUstream_st* origin = nullptr;
    bool invalid = false;
    bool global = false;  // nobody may allocate meanwhile; otherwise the capturing thread may not
    std::thread::id thread;
    struct branch {
        std::size_t steps = 0;   // enqueued on a stream
        std::size_t joined = 0;  // of them, before what other streams have waited for
    };
    std::map<CUstream_st*, branch> branches;
};

struct CUgraphExec_st {
    std::vector<std::function<void(cudaStream_t)>> launches;
};

struct CUstream_st {
    std::shared_ptr<CUgraph_st> capture;  // that its work goes into
    std::deque<std::function<void()>> pending;
    std::uint64_t enqueued = 0;
    std::uint64_t completed = 0;
    std::thread::id runner;  // the thread that runs its work; none does between pieces
    int device = 0;          // that was current when it was made
};

struct CUmemPoolHandle_st {
    std::size_t threshold = 0;
    std::size_t used = 0;
    std::size_t held = 0;
};

struct CUevent_st {
    std::shared_ptr<CUstream_st> stream;  // that it was recorded on last
    std::uint64_t ticket = 0;             // complete when the stream has completed as much
    std::shared_ptr<CUgraph_st> capture;  // in a capture: after so many steps of its stream
    std::size_t step = 0;
};

namespace zeropp_test::simt {

namespace {

thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

constexpr unsigned char poison = 0xff;  // NaN, whatever the element type
constexpr std::size_t allocation_alignment = 256;

class device {
public:
    std::mutex mutex;

    // Memory

    std::map<std::byte*, std::size_t> device_blocks;
    std::map<std::byte*, std::size_t> pinned_blocks;

    std::map<cudaMemPool_t, std::shared_ptr<CUmemPoolHandle_st>> pools;
    std::map<std::byte*, std::shared_ptr<CUmemPoolHandle_st>> pool_of;  // of blocks, also after the pool's end

    static bool holds(const std::map<std::byte*, std::size_t>& blocks, const void* p, std::size_t bytes) {
        auto* const at = static_cast<std::byte*>(const_cast<void*>(p));
        auto block = blocks.upper_bound(at);
        if (block == blocks.begin()) return false;
        --block;
        return at + bytes <= block->first + block->second;
    }
    bool on_device(const void* p, std::size_t bytes) const { return holds(device_blocks, p, bytes); }

    cudaError_t allocate(std::map<std::byte*, std::size_t>& blocks, void** p, std::size_t bytes) {
        *p = nullptr;
        if (bytes == 0) return cudaSuccess;
        if (posix_memalign(p, allocation_alignment, bytes) != 0) return cudaErrorMemoryAllocation;
        std::memset(*p, poison, bytes);
        blocks.emplace(static_cast<std::byte*>(*p), bytes);
        if (&blocks == &device_blocks) hide(*p, bytes);
        return cudaSuccess;
    }
    cudaError_t release(std::map<std::byte*, std::size_t>& blocks, void* p) {
        if (p == nullptr) return cudaSuccess;
        const auto block = blocks.find(static_cast<std::byte*>(p));
        if (block == blocks.end()) return cudaErrorInvalidValue;
        if (const auto pool = pool_of.extract(block->first)) pool.mapped()->used -= block->second;
        show(p, block->second);
        // Work still to come that uses it will not find what it has left there.
        std::memset(p, poison, block->second);
        blocks.erase(block);
        std::free(p);
        return cudaSuccess;
    }

    /// Host code may not touch device memory: AddressSanitizer sees to it while no work runs.
    static void hide([[maybe_unused]] const void* p, [[maybe_unused]] std::size_t bytes) {
#if defined(ZEROPP_TEST_ASAN)
        ASAN_POISON_MEMORY_REGION(p, bytes);
#endif
    }
    static void show([[maybe_unused]] const void* p, [[maybe_unused]] std::size_t bytes) {
#if defined(ZEROPP_TEST_ASAN)
        ASAN_UNPOISON_MEMORY_REGION(p, bytes);
#endif
    }

    /// While it lives, device memory can be read and written.
    class access {
    public:
        explicit access(device& d) : device_(d) {
            if (device_.accesses_++ == 0) device_.show_blocks();
        }
        access(const access&) = delete;
        access& operator=(const access&) = delete;
        ~access() {
            if (--device_.accesses_ == 0) device_.hide_blocks();
        }

    private:
        device& device_;
    };

    /// Runs work that touches nothing but the block that p is in: the others, of which there may be many, stay as they
    /// are.
    template <class Work>
    void touch(const void* p, const Work& work) {
        const auto block = std::prev(device_blocks.upper_bound(static_cast<std::byte*>(const_cast<void*>(p))));
        if (accesses_ == 0) show(block->first, block->second);
        work();
        if (accesses_ == 0) hide(block->first, block->second);
    }

    // Streams

    std::map<cudaStream_t, std::shared_ptr<CUstream_st>> streams{{nullptr, std::make_shared<CUstream_st>()}};
    std::map<cudaEvent_t, std::unique_ptr<CUevent_st>> events;

    std::shared_ptr<CUstream_st> find(cudaStream_t stream) const {
        const auto s = streams.find(stream);
        return s == streams.end() ? nullptr : s->second;
    }
    CUevent_st* find(cudaEvent_t event) const {
        const auto e = events.find(event);
        return e == events.end() ? nullptr : e->second.get();
    }

    std::condition_variable_any changed;  // with `mutex`

    /// Whether a call that could synchronise comes into a capture, which it then ends: a global one, or the thread's
    /// own.
    bool invalidates_captures() const {
        bool any = false;
        for (const auto& [handle, stream] : streams) {
            CUgraph_st* const capture = stream->capture.get();
            if (capture == nullptr || capture_mode == cudaStreamCaptureModeRelaxed) continue;
            if (!capture->global && capture->thread != std::this_thread::get_id()) continue;
            capture->invalid = any = true;
        }
        return any;
    }
    std::map<cudaGraph_t, std::shared_ptr<CUgraph_st>> graphs;
    std::map<cudaGraphExec_t, std::unique_ptr<CUgraphExec_st>> executable_graphs;

    /// Makes launch(stream) a step of each replay, if the stream is being captured.
    static bool capture(CUstream_st& stream, std::function<void(cudaStream_t)> launch) {
        if (!stream.capture) return false;
        stream.capture->launches.push_back(std::move(launch));
        ++stream.capture->branches[&stream].steps;
        return true;
    }

    void enqueue(CUstream_st& stream, std::function<void()> work) {
        if (capture(stream, [this, work](cudaStream_t on) { enqueue(*find(on), work); })) return;
        stream.pending.push_back(std::move(work));
        ++stream.enqueued;
        changed.notify_all();
    }

    /// Lets other threads in until ready(). To be called by work, or by the body of an entry point.
    template <class Ready>
    void wait_until(Ready ready) {
        while (!ready()) {
            const int mine = std::exchange(accesses_, 0);
            if (mine != 0) hide_blocks();
            changed.wait(mutex);
            accesses_ = mine;
            if (mine != 0) show_blocks();
        }
    }

    /// Runs the stream's work up to `ticket`, and before it what that work waits for on other streams: up to an event,
    /// which was recorded before the wait, or up to the other ranks' parts of a collective.
    cudaError_t complete(CUstream_st& stream, std::uint64_t ticket) {
        const access open(*this);
        while (stream.completed < ticket) {
            if (stream.runner == std::this_thread::get_id()) {
                fail(cudaErrorLaunchFailure, "work on a stream waits for work behind it");
                break;
            }
            if (stream.runner != std::thread::id()) {
                wait_until([&, seen = stream.completed] { return stream.completed != seen; });
                continue;
            }
            const std::function<void()> work = std::move(stream.pending.front());
            stream.pending.pop_front();
            stream.runner = std::this_thread::get_id();
            work();
            stream.runner = std::thread::id();
            ++stream.completed;
            changed.notify_all();
        }
        return status;
    }
    cudaError_t complete(CUstream_st& stream) {
        if (stream.capture) {
            stream.capture->invalid = true;
            return cudaErrorStreamCaptureUnsupported;
        }
        const cudaError_t code = complete(stream, stream.enqueued);
        for (const auto& [handle, pool] : pools) {
            if (pool->held > pool->threshold) pool->held = std::max(pool->used, pool->threshold);
        }
        return code;
    }

    // Failures

    cudaError_t status = cudaSuccess;  // of the device: stays until recover()
    std::string fault;
    std::map<std::string, cudaError_t> injected;
    std::map<std::string, std::size_t> calls;

    void fail(cudaError_t code, const std::string& why) {
        status = code;
        fault = why;
        changed.notify_all();
    }

    // What it says it is, and what was launched

    int devices = 1;
    int multiprocessors = 4;
    host_pages reads = host_pages::staged;
    bool logging = false;
    bool running_kernels = true;
    std::vector<dim3> grids;

private:
    void show_blocks() const {
        for (const auto& [p, bytes] : device_blocks) show(p, bytes);
    }
    void hide_blocks() const {
        for (const auto& [p, bytes] : device_blocks) hide(p, bytes);
    }

    int accesses_ = 0;  // of the thread inside
};

device& the_device() {
    static device d;
    return d;
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

/// The body of an entry point: one at a time, unless it was told to fail. Once a kernel has failed, every call returns
/// what it failed with.
template <class Body>
cudaError_t entry_point(const char* name, Body body) {
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    ++d.calls[name];
    cudaError_t code = cudaSuccess;
    if (const auto injected = d.injected.find(name); injected != d.injected.end()) {
        code = injected->second;
        d.injected.erase(injected);
    } else {
        code = body(d);
        if (code == cudaSuccess) code = d.status;
    }
    if (code != cudaSuccess) last_error = code;
    return code;
}

/// The body of an entry point that enqueues on a stream: f(device, stream).
template <class F>
cudaError_t on_stream(const char* name, cudaStream_t stream, F f) {
    return entry_point(name, [&](device& d) {
        const auto s = d.find(stream);
        if (!s) return cudaErrorInvalidResourceHandle;
        return d.status != cudaSuccess ? d.status : f(d, s);
    });
}

cudaError_t create_stream(const char* name, cudaStream_t* stream) {
    return entry_point(name, [&](device& d) {
        auto s = std::make_shared<CUstream_st>();
        s->device = current_device;
        *stream = s.get();
        d.streams.emplace(*stream, std::move(s));
        return cudaSuccess;
    });
}

cudaError_t create_event(const char* name, cudaEvent_t* event) {
    return entry_point(name, [&](device& d) {
        auto e = std::make_unique<CUevent_st>();
        *event = e.get();
        d.events.emplace(*event, std::move(e));
        return cudaSuccess;
    });
}

/// One place of work on a stream that moves or sets bytes. Ranges on the device must lie in one allocation.
cudaError_t check_range(device& d, const void* p, std::size_t bytes, bool on_device) {
    if (d.on_device(p, bytes) == on_device || bytes == 0) return cudaSuccess;
    return cudaErrorInvalidValue;
}

struct error_text {
    cudaError_t code;
    const char* name;
    const char* text;
};

constexpr error_text error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
};

const error_text* find_text(cudaError_t code) {
    const auto* const found = std::find_if(std::begin(error_texts), std::end(error_texts),
                                           [&](const error_text& e) { return e.code == code; });
    return found == std::end(error_texts) ? nullptr : found;
}

}  // namespace

live_objects live() {
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    return {d.streams.size() - 1,
            d.events.size(),
            d.device_blocks.size(),
            d.pinned_blocks.size(),
            d.graphs.size() + d.executable_graphs.size(),
            d.pools.size()};
}

std::size_t bytes_of_pools() {
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    std::size_t bytes = 0;
    for (const auto& [handle, pool] : d.pools) bytes += pool->held;
    return bytes;
}

void set_device(int multiprocessors, host_pages reads) {
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    d.multiprocessors = multiprocessors;
    d.reads = reads;
}

void set_devices(int count) {
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    d.devices = count;
}

void fail_next(const std::string& entry_point, cudaError_t code) {
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    d.injected[entry_point] = code;
}

std::size_t calls(const std::string& entry_point) {
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    const auto c = d.calls.find(entry_point);
    return c == d.calls.end() ? 0 : c->second;
}

call_count::call_count() {
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    before_ = d.calls;
}

std::map<std::string, std::size_t> call_count::made() const {
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    std::map<std::string, std::size_t> made;
    for (const auto& [name, count] : d.calls) {
        const auto earlier = before_.find(name);
        const std::size_t since = count - (earlier == before_.end() ? 0 : earlier->second);
        if (since != 0) made[name] = since;
    }
    return made;
}

std::string call_count::text() const {
    std::string text;
    for (const auto& [name, count] : made()) text += (text.empty() ? "" : ", ") + name + " " + std::to_string(count);
    return text;
}

launch_log::launch_log(bool run) {
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    d.grids.clear();
    d.logging = true;
    d.running_kernels = run;
}

launch_log::~launch_log() {
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    d.logging = false;
    d.running_kernels = true;
}

std::vector<dim3> launch_log::grids() const {
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    return d.grids;
}

std::string device_fault() {
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    return d.fault;
}

void recover() {
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    d.fail(cudaSuccess, "");
    d.injected.clear();
    last_error = cudaSuccess;
}

std::size_t pending(cudaStream_t stream) {
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    return d.find(stream)->pending.size();
}

void write_device(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    if (!d.on_device(to, bytes)) throw std::logic_error("write_device: not in device memory");
    d.touch(to, [&] { std::memcpy(to, from, bytes); });
}

void read_device(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    device& d = the_device();
    const std::lock_guard lock(d.mutex);
    if (!d.on_device(from, bytes)) throw std::logic_error("read_device: not in device memory");
    d.touch(from, [&] { std::memcpy(to, from, bytes); });
}

namespace device_work {

void count(const std::string& entry_point) { ++the_device().calls[entry_point]; }

void alone(const std::function<void()>& body) {
    const std::lock_guard lock(the_device().mutex);
    body();
}

place enqueue(cudaStream_t stream, std::function<void()> work) {
    device& d = the_device();
    const auto s = d.find(stream);
    d.enqueue(*s, std::move(work));
    return {s, s->enqueued};
}
bool capture(cudaStream_t stream, std::function<void(cudaStream_t)> launch) {
    return device::capture(*the_device().find(stream), std::move(launch));
}
bool exists(cudaStream_t stream) { return the_device().find(stream) != nullptr; }

void run_before(const place& where) { the_device().complete(*where.stream, where.ticket - 1); }
void run_through(const place& where) { the_device().complete(*where.stream, where.ticket); }
bool completed(const place& where) { return where.stream->completed >= where.ticket; }

void wait_until(const std::function<bool()>& ready) { the_device().wait_until(ready); }
void changed() { the_device().changed.notify_all(); }

void fault(const std::string& why) {
    device& d = the_device();
    if (d.status == cudaSuccess) d.fail(cudaErrorLaunchFailure, why);
}
bool failed() { return the_device().status != cudaSuccess; }

bool holds(const void* p, std::size_t bytes) { return the_device().on_device(p, bytes); }

std::pair<const std::byte*, std::size_t> allocation(const void* p) {
    const auto& blocks = the_device().device_blocks;
    auto* const at = static_cast<std::byte*>(const_cast<void*>(p));
    const auto behind = blocks.upper_bound(at);
    if (behind == blocks.begin()) return {};
    const auto& [begin, bytes] = *std::prev(behind);
    if (at >= begin + bytes) return {};
    return {begin, bytes};
}

cudaError_t launch(dim3 grid, dim3 block, cudaStream_t stream, std::function<std::string()> run) {
    return on_stream("cudaLaunchKernel", stream, [&](device& d, const auto& s) {
        const bool grid_fits =
            grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535;
        const std::size_t threads = std::size_t{block.x} * block.y * block.z;
        if (!grid_fits || threads < 1 || threads > 1024) return cudaErrorInvalidConfiguration;
        if (d.logging) d.grids.push_back(grid);
        if (!d.running_kernels) return cudaSuccess;
        d.enqueue(*s, [&d, run = std::move(run)] {
            if (d.status != cudaSuccess) return;
            const std::string wrong = run();
            if (!wrong.empty()) d.fail(cudaErrorLaunchFailure, wrong);
        });
        return cudaSuccess;
    });
}

}  // namespace device_work

}  // namespace zeropp_test::simt

namespace simt = zeropp_test::simt;
using simt::device;

// The entry points.

cudaError_t cudaGetDevice(int* number) {
    return simt::entry_point("cudaGetDevice", [&](device&) {
        *number = simt::current_device;
        return cudaSuccess;
    });
}

cudaError_t cudaSetDevice(int number) {
    return simt::entry_point("cudaSetDevice", [&](device& d) {
        if (number < 0 || number >= d.devices) return cudaErrorInvalidDevice;
        simt::current_device = number;
        return cudaSuccess;
    });
}

cudaError_t cudaGetDeviceCount(int* count) {
    return simt::entry_point("cudaGetDeviceCount", [&](device& d) {
        *count = d.devices;
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
    return simt::entry_point("cudaDeviceGetAttribute", [&](device& d) {
        if (number < 0 || number >= d.devices) return cudaErrorInvalidDevice;
        switch (attribute) {
        case cudaDevAttrMultiProcessorCount:
            *value = d.multiprocessors;
            return cudaSuccess;
        case cudaDevAttrPageableMemoryAccess:
            *value = d.reads != simt::host_pages::staged ? 1 : 0;
            return cudaSuccess;
        case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
            *value = d.reads == simt::host_pages::by_host_tables ? 1 : 0;
            return cudaSuccess;
        default:
            return cudaErrorInvalidValue;
        }
    });
}

cudaError_t cudaGetLastError() {
    const cudaError_t last = cudaPeekAtLastError();
    simt::last_error = cudaSuccess;
    return last;
}

cudaError_t cudaPeekAtLastError() {
    device& d = simt::the_device();
    const std::lock_guard lock(d.mutex);
    return d.status != cudaSuccess ? d.status : simt::last_error;
}

const char* cudaGetErrorName(cudaError_t code) {
    const auto* const e = simt::find_text(code);
    return e ? e->name : "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t code) {
    const auto* const e = simt::find_text(code);
    return e ? e->text : "unrecognized error code";
}

cudaError_t cudaMalloc(void** p, std::size_t bytes) {
    return simt::entry_point("cudaMalloc", [&](device& d) {
        return d.invalidates_captures() ? cudaErrorStreamCaptureUnsupported : d.allocate(d.device_blocks, p, bytes);
    });
}
cudaError_t cudaFree(void* p) {
    return simt::entry_point("cudaFree", [&](device& d) {
        return d.invalidates_captures() ? cudaErrorStreamCaptureUnsupported : d.release(d.device_blocks, p);
    });
}
// In the order of a stream: whoever had the memory before may use it until the stream comes to the allocation, and
// nobody may once it has come to the end.
cudaError_t cudaMallocFromPoolAsync(void** p, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
    return simt::on_stream("cudaMallocFromPoolAsync", stream, [&](device& d, const auto& s) {
        const auto of = d.pools.find(pool);
        if (of == d.pools.end()) return cudaErrorInvalidValue;
        if (s->capture) return cudaErrorNotSupported;
        const cudaError_t code = d.allocate(d.device_blocks, p, bytes);
        if (*p == nullptr) return code;
        of->second->used += bytes;
        of->second->held = std::max(of->second->held, of->second->used);
        d.pool_of[static_cast<std::byte*>(*p)] = of->second;
        d.enqueue(*s, [memory = *p, bytes] { std::memset(memory, simt::poison, bytes); });
        return code;
    });
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* how) {
    return simt::entry_point("cudaMemPoolCreate", [&](device& d) {
        if (how->allocType != cudaMemAllocationTypePinned || how->location.type != cudaMemLocationTypeDevice ||
            how->location.id < 0 || how->location.id >= d.devices) {
            return cudaErrorInvalidValue;
        }
        auto made = std::make_shared<CUmemPoolHandle_st>();
        *pool = made.get();
        d.pools.emplace(*pool, std::move(made));
        return cudaSuccess;
    });
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
    return simt::entry_point("cudaMemPoolSetAttribute", [&](device& d) {
        if (!d.pools.contains(pool) || attribute != cudaMemPoolAttrReleaseThreshold) return cudaErrorInvalidValue;
        pool->threshold = *static_cast<const std::uint64_t*>(value);
        return cudaSuccess;
    });
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    return simt::entry_point("cudaMemPoolDestroy",
                             [&](device& d) { return d.pools.erase(pool) == 1 ? cudaSuccess : cudaErrorInvalidValue; });
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
    return simt::on_stream("cudaFreeAsync", stream, [&](device& d, const auto& s) {
        if (p == nullptr) return cudaSuccess;
        if (!d.device_blocks.contains(static_cast<std::byte*>(p))) return cudaErrorInvalidValue;
        d.enqueue(*s, [&d, p] { d.release(d.device_blocks, p); });
        return cudaSuccess;
    });
}
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned) {
    return simt::entry_point("cudaHostAlloc", [&](device& d) { return d.allocate(d.pinned_blocks, p, bytes); });
}
cudaError_t cudaMallocHost(void** p, std::size_t bytes) {
    return simt::entry_point("cudaMallocHost", [&](device& d) { return d.allocate(d.pinned_blocks, p, bytes); });
}
cudaError_t cudaFreeHost(void* p) {
    return simt::entry_point("cudaFreeHost", [&](device& d) { return d.release(d.pinned_blocks, p); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    return simt::on_stream("cudaMemcpyAsync", stream, [&](device& d, const auto& s) {
        const bool from_device = kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDeviceToHost;
        const bool to_device = kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyHostToDevice;
        const cudaError_t source = simt::check_range(d, from, bytes, from_device);
        const cudaError_t target = simt::check_range(d, to, bytes, to_device);
        if (kind == cudaMemcpyDefault || source != cudaSuccess || target != cudaSuccess) return cudaErrorInvalidValue;
        const auto* const first = static_cast<const std::byte*>(from);
        auto* const out = static_cast<std::byte*>(to);
        if (first != out && first < out + bytes && out < first + bytes) return cudaErrorInvalidValue;
        if (!from_device && d.reads == simt::host_pages::staged && !device::holds(d.pinned_blocks, from, bytes)) {
            // Pageable memory is read before the call returns.
            d.enqueue(*s, [&d, to, bytes, staged = std::vector<std::byte>(first, first + bytes)] {
                if (d.status == cudaSuccess && bytes != 0) std::memcpy(to, staged.data(), bytes);
            });
            return cudaSuccess;
        }
        d.enqueue(*s, [&d, to, from, bytes] {
            if (d.status == cudaSuccess && bytes != 0) std::memmove(to, from, bytes);
        });
        // Pageable memory is written before the call returns.
        return !to_device && !device::holds(d.pinned_blocks, to, bytes) ? d.complete(*s) : cudaSuccess;
    });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return simt::entry_point("cudaMemcpy", [&](device& d) {
        // To new memory from the host is all that the library does: no stream can have work on it.
        if (kind != cudaMemcpyHostToDevice || simt::check_range(d, from, bytes, false) != cudaSuccess ||
            simt::check_range(d, to, bytes, true) != cudaSuccess) {
            return cudaErrorInvalidValue;
        }
        // Pageable memory: read before the call returns, written in the null stream's turn.
        const auto null_stream = d.find(cudaStream_t(nullptr));
        d.complete(*null_stream);
        const auto* const first = static_cast<const std::byte*>(from);
        d.enqueue(*null_stream, [&d, to, bytes, staged = std::vector<std::byte>(first, first + bytes)] {
            if (d.status == cudaSuccess && bytes != 0) std::memcpy(to, staged.data(), bytes);
        });
        return d.status;
    });
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    return simt::on_stream("cudaMemsetAsync", stream, [&](device& d, const auto& s) {
        if (simt::check_range(d, to, bytes, true) != cudaSuccess) return cudaErrorInvalidValue;
        d.enqueue(*s, [&d, to, value, bytes] {
            if (d.status == cudaSuccess && bytes != 0) std::memset(to, value, bytes);
        });
        return cudaSuccess;
    });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
    return simt::on_stream("cudaLaunchHostFunc", stream, [&](device& d, const auto& s) {
        d.enqueue(*s, [&d, function, argument] {
            if (d.status == cudaSuccess) function(argument);
        });
        return cudaSuccess;
    });
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return simt::create_stream("cudaStreamCreate", stream); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    return simt::create_stream("cudaStreamCreateWithFlags", stream);
}

#if CUDART_VERSION >= 12080
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* number) {
    return simt::on_stream("cudaStreamGetDevice", stream, [&](device&, const auto& s) {
        *number = stream == nullptr ? simt::current_device : s->device;
        return cudaSuccess;
    });
}
#endif

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return simt::entry_point("cudaStreamDestroy", [&](device& d) {
        const auto s = d.find(stream);
        if (!s || stream == nullptr) return cudaErrorInvalidResourceHandle;
        d.complete(*s);
        d.streams.erase(stream);
        return cudaSuccess;
    });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return simt::on_stream("cudaStreamSynchronize", stream, [](device& d, const auto& s) { return d.complete(*s); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return simt::on_stream("cudaStreamQuery", stream, [](device& d, const auto& s) {
        if (s->capture) return d.complete(*s);
        return s->completed == s->enqueued ? cudaSuccess : cudaErrorNotReady;
    });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    return simt::on_stream("cudaStreamWaitEvent", stream, [&](device& d, const auto& s) {
        const CUevent_st* const e = d.find(event);
        if (!e) return cudaErrorInvalidResourceHandle;
        if (e->capture) {
            if (s->capture && s->capture != e->capture) return cudaErrorStreamCaptureIsolation;
            s->capture = e->capture;
            auto& joined = e->capture->branches[e->stream.get()].joined;
            joined = std::max(joined, e->step);
            ++s->capture->branches[s.get()].steps;
            return cudaSuccess;
        }
        if (s->capture) {
            s->capture->invalid = true;
            return cudaErrorStreamCaptureIsolation;
        }
        // What counts is the last record until now: the event may be recorded again, or destroyed, before the wait
        // runs.
        if (e->stream) d.enqueue(*s, [&d, on = e->stream, ticket = e->ticket] { d.complete(*on, ticket); });
        return cudaSuccess;
    });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return simt::create_event("cudaEventCreate", event); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    return simt::create_event("cudaEventCreateWithFlags", event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return simt::entry_point("cudaEventDestroy", [&](device& d) {
        return d.events.erase(event) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle;
    });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return simt::on_stream("cudaEventRecord", stream, [&](device& d, const auto& s) {
        CUevent_st* const e = d.find(event);
        if (!e) return cudaErrorInvalidResourceHandle;
        e->stream = s;
        e->ticket = s->enqueued;
        e->capture = s->capture;
        if (e->capture) e->step = e->capture->branches[s.get()].steps;
        return cudaSuccess;
    });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return simt::entry_point("cudaEventSynchronize", [&](device& d) {
        const CUevent_st* const e = d.find(event);
        if (!e) return cudaErrorInvalidResourceHandle;
        if (e->capture) return cudaErrorCapturedEvent;
        return e->stream ? d.complete(*e->stream, e->ticket) : d.status;
    });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    return simt::on_stream("cudaStreamBeginCapture", stream, [&](device&, const auto& s) {
        if (s->capture || stream == nullptr) return cudaErrorIllegalState;
        s->capture = std::make_shared<CUgraph_st>();
        s->capture->origin = s.get();
        s->capture->global = mode == cudaStreamCaptureModeGlobal;
        s->capture->thread = std::this_thread::get_id();
        return cudaSuccess;
    });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    *graph = nullptr;
    return simt::on_stream("cudaStreamEndCapture", stream, [&](device& d, const auto& s) {
        const auto capture = s->capture;
        if (!capture || capture->origin != s.get()) return cudaErrorIllegalState;
        bool unjoined = false;
        for (const auto& [handle, other] : d.streams) {
            if (other->capture != capture) continue;
            const auto& branch = capture->branches[other.get()];
            unjoined = unjoined || (other != s && branch.joined != branch.steps);
            other->capture = nullptr;
        }
        if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
        if (unjoined) return cudaErrorStreamCaptureUnjoined;
        *graph = capture.get();
        d.graphs[*graph] = capture;
        return cudaSuccess;
    });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    return simt::entry_point("cudaThreadExchangeStreamCaptureMode", [&](device&) {
        std::swap(*mode, simt::capture_mode);
        return cudaSuccess;
    });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    return simt::on_stream("cudaStreamIsCapturing", stream, [&](device&, const auto& s) {
        *status = s->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
        return cudaSuccess;
    });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return simt::entry_point("cudaGraphDestroy", [&](device& d) {
        const auto found = d.graphs.find(graph);
        if (found == d.graphs.end()) return cudaErrorInvalidValue;
        found->second->launches.clear();  // events may still refer to the capture
        d.graphs.erase(found);
        d.changed.notify_all();
        return cudaSuccess;
    });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
    return simt::entry_point("cudaGraphInstantiate", [&](device& d) {
        const auto found = d.graphs.find(graph);
        if (found == d.graphs.end()) return cudaErrorInvalidValue;
        auto made = std::make_unique<CUgraphExec_st>(CUgraphExec_st{found->second->launches});
        *executable = made.get();
        d.executable_graphs[*executable] = std::move(made);
        return cudaSuccess;
    });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    return simt::on_stream("cudaGraphLaunch", stream, [&](device& d, const auto&) {
        const auto found = d.executable_graphs.find(executable);
        if (found == d.executable_graphs.end()) return cudaErrorInvalidValue;
        for (const auto& launch : found->second->launches) launch(stream);
        return cudaSuccess;
    });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    return simt::entry_point("cudaGraphExecDestroy", [&](device& d) {
        if (d.executable_graphs.erase(executable) != 1) return cudaErrorInvalidValue;
        d.changed.notify_all();
        return cudaSuccess;
    });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    return simt::entry_point("cudaEventQuery", [&](device& d) {
        const CUevent_st* const e = d.find(event);
        if (!e) return cudaErrorInvalidResourceHandle;
        return !e->stream || e->stream->completed >= e->ticket ? d.status : cudaErrorNotReady;
    });
}
