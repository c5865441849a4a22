/// \file
/// The part of the CUDA runtime that nvcc's host code calls to register and launch kernels. Streams and memory are the
/// doubles of tests/simt. PTX_ARCH=90 chooses the PTX of a fat binary, 90 being the default.

#include "machine.hpp"
#include "simt/cuda_doubles.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>

namespace ptx = zeropp_test::ptx;
namespace simt = zeropp_test::simt;

namespace {

using namespace ptx;

/// A translation unit's PTX, which is read when a kernel of it is launched.
struct binary {
    std::string text;
    std::unique_ptr<ptx::module> read;
};

struct registered {
    binary* in = nullptr;
    std::string name;
};

struct registry {
    std::deque<binary> binaries;
    std::unordered_map<const void*, registered> kernels;

    static registry& the() {
        static registry r;
        return r;
    }

    kernel& find(const void* function) {
        const auto found = kernels.find(function);
        if (found == kernels.end()) throw fault("a launch of a function that is not registered");
        binary& b = *found->second.in;
        if (!b.read) b.read = parse(b.text, mutated_line(), mutant());
        const auto k = b.read->kernels.find(found->second.name);
        if (k == b.read->kernels.end()) throw fault("no PTX of kernel " + found->second.name);
        return *k->second;
    }

    /// PTX_MUTANT="LINE TEXT": a statement in the place of another one.
    static u32 mutated_line() {
        const char* const m = std::getenv("PTX_MUTANT");
        return m == nullptr ? 0 : static_cast<u32>(std::atoi(m));
    }
    static std::string mutant() {
        const char* const m = std::getenv("PTX_MUTANT");
        return m == nullptr ? "" : std::string(std::strchr(m, ' ') + 1);
    }

    /// PTX_REPORT=FILE: appends counts to it, and PTX_REACHED=FILE: writes `LINE TIMES TEXT` of what was executed.
    ~registry() {
        u64 launched = 0;
        u64 static_instructions = 0;
        u64 reached = 0;
        std::ofstream lines;
        if (const char* const path = std::getenv("PTX_REACHED"); path != nullptr) lines.open(path);
        for (const binary& b : binaries) {
            if (!b.read) continue;
            for (const auto& [name, k] : b.read->kernels) {
                if (k->launches == 0) continue;
                ++launched;
                static_instructions += k->code.size() - 1;
                for (const operation& o : k->code) {
                    reached += o.line != 0 && o.executed != 0 ? 1 : 0;
                    if (o.line != 0 && o.executed != 0) lines << o.line << ' ' << o.executed << ' ' << o.text << '\n';
                }
            }
        }
        if (const char* const path = std::getenv("PTX_REPORT"); path != nullptr) {
            std::ofstream(path, std::ios::app)
                << "sm_" << architecture() << ' ' << launched << " kernels, " << totals.launches << " launches, "
                << totals.lane_instructions << " lane_instructions, " << totals.mma << " mma, " << reached << " of "
                << static_instructions << " instructions\n";
        }
    }

    static int architecture() {
        const char* const a = std::getenv("PTX_ARCH");
        return a == nullptr ? 90 : std::atoi(a);
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
        b.text = ptx_of(w.binary, registry::architecture());
        return reinterpret_cast<void**>(&b);
    } catch (const fault& f) {
        std::fprintf(stderr, "%s\n", f.what());
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
    } catch (const fault& f) {
        std::fprintf(stderr, "%s\n", f.what());
        return cudaErrorInvalidKernelImage;
    }
    parameters.resize(k->parameter_bytes);
    for (std::size_t i = 0; i != k->parameters.size(); ++i)
        std::memcpy(parameters.data() + k->parameters[i].first, arguments[i], k->parameters[i].second);
    return simt::device_work::launch(grid, block, stream, [=]() -> std::string {
        try {
            ptx::launch(*k, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, parameters, allocation_of);
            return {};
        } catch (const fault& f) {
            std::fprintf(stderr, "%s: %s\n", k->name.c_str(), f.what());
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
