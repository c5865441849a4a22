#include "timing.cuh"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>

namespace zeropp_bench {

template <zeropp::quantizer Q>
void measure_quantizer(bed& b, const settings& wanted, const std::function<void(const row&)>& report);

bool gpu_here(std::string& why_not) {
    int devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&devices);
    why_not = cudaGetErrorString(code);
    return code == cudaSuccess && devices > 0;
}

device_facts facts_of_current_device() {
    device_facts facts;
    int device = 0;
    cudaDeviceProp properties;
    require_cuda(cudaGetDevice(&device), "cudaGetDevice");
    require_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    require_cuda(cudaDriverGetVersion(&facts.driver_version), "cudaDriverGetVersion");
    require_cuda(cudaRuntimeGetVersion(&facts.runtime_version), "cudaRuntimeGetVersion");
    facts.name = properties.name;
    facts.compute_capability = 10 * properties.major + properties.minor;
    facts.multiprocessors = properties.multiProcessorCount;
    facts.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
    facts.memory_bytes = properties.totalGlobalMem;
    return facts;
}

void measure(const settings& wanted, const std::function<void(const row&)>& report) {
    const std::size_t l2 = facts_of_current_device().l2_bytes;
    const std::size_t largest = *std::max_element(wanted.megabytes.begin(), wanted.megabytes.end()) << 20;
    cudaStream_t stream = nullptr;
    require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    {
        // Buffer sets take up to four L2 caches and one tensor.
        bed b(zeropp::round_up(largest + largest / 4 + 5 * l2, 4096), l2, stream);
        const auto quantizer = [&]<class Q>(Q q) {
            const auto& names = wanted.quantizers;
            if (std::find(names.begin(), names.end(), zeropp::short_text(q.name()).str()) == names.end()) return;
            measure_quantizer<Q>(b, wanted, report);
        };
        quantizer(zeropp::quantizer_named<"int8:256:bf16">{});
        quantizer(zeropp::quantizer_named<"int4:128:signed:bf16">{});
        quantizer(zeropp::quantizer_named<"int4:128:signed:bf16:h32">{});
        quantizer(zeropp::quantizer_named<"int6:128">{});
        quantizer(zeropp::quantizer_named<"int8:256">{});
        quantizer(zeropp::quantizer_named<"int4:128">{});
        quantizer(zeropp::quantizer_named<"int8:2048">{});
        quantizer(zeropp::quantizer_named<"int4:2048">{});
    }
    require_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

}  // namespace zeropp_bench
