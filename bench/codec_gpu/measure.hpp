#pragma once
/// \file
/// Settings and results of bench/codec_gpu. Plain C++, so that the program's main file needs no nvcc.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace zeropp_bench {

struct device_facts {
    std::string name;
    int compute_capability = 0;
    int multiprocessors = 0;
    std::size_t l2_bytes = 0;
    std::size_t memory_bytes = 0;
    /// As CUDA counts: 13000 is 13.0.
    int driver_version = 0;
    int runtime_version = 0;
};

/// Values to measure, in all combinations. The formats of C, PyTorch and zero3_gpt come first.
struct settings {
    std::vector<std::string> quantizers{"int8:256:bf16",
                                        "int4:128:signed:bf16",
                                        "int4:128:signed:bf16:h32",
                                        "int6:128",
                                        "int8:256",
                                        "int4:128",
                                        "int8:2048",
                                        "int4:2048"};
    std::vector<std::string> kernels{"encode",          "decode",          "reorder_encode",
                                     "reduce_encode_2", "reduce_encode_4", "reduce_encode_8",
                                     "reduce_decode_2", "reduce_decode_4", "reduce_decode_8"};
    std::vector<std::string> more_kernels{"reduce_encode_3", "reduce_encode_6", "reduce_decode_3", "reduce_decode_6"};
    std::vector<std::string> elements{"bf16", "fp16", "fp32"};
    /// Size of the tensor; for reductions, of all contributors' tensors together.
    std::vector<std::size_t> megabytes{16, 64, 256, 1024, 4096};
    int repetitions = 21;
};

struct row {
    std::string quantizer;
    std::string kernel;
    std::string element;
    std::size_t tensor_bytes = 0;
    std::size_t bytes_read = 0;
    std::size_t bytes_written = 0;
    /// Seconds of one launch. A repetition times `launches` launches, back to back.
    double seconds_median = 0;
    double seconds_least = 0;
    double seconds_most = 0;
    int launches = 0;
    /// Bytes read and written per second by copies of equally many bytes, alternating with the kernel.
    double copy_bytes_per_second = 0;

    double bytes_per_second() const { return static_cast<double>(bytes_read + bytes_written) / seconds_median; }
    double fraction_of_copy() const { return bytes_per_second() / copy_bytes_per_second; }
};

/// True if there is a GPU; otherwise `why_not` gets the reason.
bool gpu_here(std::string& why_not);

device_facts facts_of_current_device();

/// Measures, and passes each complete row to `report`.
void measure(const settings& wanted, const std::function<void(const row&)>& report);

}  // namespace zeropp_bench
