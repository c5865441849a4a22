/// \file
/// The part of the CUDA runtime that nvcc's host code calls to register and launch kernels. Streams and memory are the
/// doubles of tests/simt. tests/ptx/README.md has the variables of the environment.

#include "machine.hpp"
#include "simt/cuda_doubles.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <mutex>
#include <optional>

namespace ptx = zeropp_test::ptx;
namespace simt = zeropp_test::simt;

namespace {

using namespace ptx;

/// A translation unit's PTX, which is read when a kernel of it is launched.
struct binary {
    std::string text;
    std::optional<ptx::module> read;
};

struct registered {
    binary* in = nullptr;
    std::string name;
};

/// The value of a variable of the environment, "" if it is not set.
std::string environment(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

int architecture() { return environment("PTX_ARCH").empty() ? 90 : std::stoi(environment("PTX_ARCH")); }

struct registry {
    std::deque<binary> binaries;
    std::unordered_map<const void*, registered> kernels;
    std::mutex mutex;  // of what is read when it is launched

    static registry& the() {
        static registry r;
        return r;
    }

    kernel& find(const void* function) {
        const std::lock_guard lock(mutex);
        const auto found = kernels.find(function);
        if (found == kernels.end()) throw fault("a launch of a function that is not registered");
        binary& b = *found->second.in;
        if (!b.read) b.read = parse(b.text, environment("PTX_MUTANT"));
        const auto k = b.read->find(found->second.name);
        if (k == b.read->end()) throw fault("no PTX of kernel " + found->second.name);
        return *k->second;
    }

    /// Writes the reports that are asked for.
    ~registry() {
        u64 launched = 0;
        u64 static_instructions = 0;
        u64 reached = 0;
        std::ofstream lines(environment("PTX_REACHED"));
        for (const binary& b : binaries) {
            if (!b.read) continue;
            for (const auto& [name, k] : *b.read) {
                if (k->launches == 0) continue;
                ++launched;
                static_instructions += k->code.size() - 1;
                for (const operation& o : k->code) {
                    if (o.line == 0 || o.executed == 0) continue;
                    ++reached;
                    lines << o.line << ' ' << o.executed << ' ' << o.text << '\n';
                }
            }
        }
        std::ofstream(environment("PTX_REPORT"))
            << launched << ' ' << totals.launches << ' ' << totals.lane_instructions << ' ' << totals.mma << ' '
            << reached << ' ' << static_instructions << '\n';
    }
};

template <class T>
T at(const unsigned char* p, std::size_t offset) {
    T x;
    std::memcpy(&x, p + offset, sizeof x);
    return x;
}

/// The uncompressed PTX of this architecture in a fat binary: entries behind a header, each with a header of its own.
std::string ptx_of(const unsigned char* fat_binary, int architecture) {
    if (at<u32>(fat_binary, 0) != 0xba55ed50u) throw fault("not a fat binary");
    const unsigned char* entry = fat_binary + at<u16>(fat_binary, 6);
    const unsigned char* const end = entry + at<u64>(fat_binary, 8);
    while (entry < end) {
        const auto kind = at<u16>(entry, 0);
        const auto header = at<u32>(entry, 4);
        const auto bytes = at<u64>(entry, 8);
        if (kind == 1 && at<u32>(entry, 28) == static_cast<u32>(architecture)) {
            if (at<u32>(entry, 16) != 0) throw fault("compressed PTX: compile with --no-compress");
            const auto* const text = reinterpret_cast<const char*>(entry + header);
            return {text, strnlen(text, bytes)};
        }
        entry += header + bytes;
    }
    throw fault("no PTX of architecture " + std::to_string(architecture) + " in a fat binary");
}

range allocation_of(u64 address) {
    const auto [begin, bytes] = simt::device_work::allocation(reinterpret_cast<const void*>(address));
    return {reinterpret_cast<u64>(begin), reinterpret_cast<u64>(begin) + bytes};
}

void report(const fault& f, const std::string& where) {
    std::fprintf(stderr, "fault in %s: %s\n", where.c_str(), f.what());
}

cudaError_t occupancy(int* blocks, const void* function) {
    *blocks = static_cast<int>(registry::the().find(function).resident_blocks);
    return cudaSuccess;
}

struct {
    dim3 grid, block;
    std::size_t shared = 0;
    void* stream = nullptr;
} thread_local configuration;  // of kernel<<<>>>

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
    struct {
        int magic, version;
        const unsigned char* binary;
    } w;
    std::memcpy(&w, wrapper, sizeof w);
    try {
        binary& b = registry::the().binaries.emplace_back();
        b.text = ptx_of(w.binary, architecture());
        return reinterpret_cast<void**>(&b);
    } catch (const fault& f) {
        report(f, "a fat binary");
        std::abort();  // before main
    }
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** in, const char* host, char*, const char* name, int, void*, void*, void*, void*,
                            int*) {
    registry::the().kernels[host] = {reinterpret_cast<binary*>(in), name};
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
char __cudaInitModule(void**) { return 0; }

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                             cudaStream_t stream) {
    kernel* k = nullptr;
    std::vector<u8> parameters;
    try {
        k = &registry::the().find(function);
        if (shared != 0) throw fault("dynamic shared memory is not supported");
        if (grid.z != 1 || block.z != 1) throw fault("a third dimension is not supported");
    } catch (const fault& f) {
        report(f, "the PTX");
        return cudaErrorInvalidKernelImage;
    }
    parameters.resize(k->parameter_bytes);
    for (std::size_t i = 0; i != k->parameters.size(); ++i)
        std::memcpy(parameters.data() + k->parameters[i].first, arguments[i], k->parameters[i].second);
    return simt::device_work::launch(grid, block, stream, [=]() -> std::string {
        try {
            ptx::launch(*k, {grid.x, grid.y}, {block.x, block.y}, parameters, allocation_of);
            return {};
        } catch (const fault& f) {
            report(f, k->name);
            return f.what();
        }
    });
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, void* stream) {
    configuration.grid = grid;
    configuration.block = block;
    configuration.shared = shared;
    configuration.stream = stream;
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    std::memcpy(stream, &configuration.stream, sizeof configuration.stream);
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* k, const void* function) {
    *k = static_cast<cudaKernel_t>(const_cast<void*>(function));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                               cudaStream_t stream) {
    return cudaLaunchKernel(k, grid, block, arguments, shared, stream);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int, std::size_t) {
    return occupancy(blocks, function);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int, std::size_t,
                                                                   unsigned) {
    return occupancy(blocks, function);
}
}
