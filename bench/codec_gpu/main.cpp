/// \file
/// Speed of the codec's kernels, beside device-to-device copies of equally many bytes in one run.
///
///     codec_gpu [RESULTS.json] [--quick] [--quantizer NAME...] [--kernel NAME...] [--element NAME...] [--size-mb N...]

#include "measure.hpp"
#include "support/json_file.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

using zeropp_bench::device_facts;
using zeropp_bench::row;

nlohmann::json json_of(const device_facts& d) {
    return {{"name", d.name},
            {"compute_capability", d.compute_capability},
            {"multiprocessors", d.multiprocessors},
            {"l2_bytes", d.l2_bytes},
            {"memory_bytes", d.memory_bytes},
            {"cuda_driver_version", d.driver_version},
            {"cuda_runtime_version", d.runtime_version}};
}

nlohmann::json json_of(const row& r) {
    return {{"quantizer", r.quantizer},
            {"kernel", r.kernel},
            {"element", r.element},
            {"tensor_bytes", r.tensor_bytes},
            {"bytes_read", r.bytes_read},
            {"bytes_written", r.bytes_written},
            {"seconds_median", r.seconds_median},
            {"seconds_least", r.seconds_least},
            {"seconds_most", r.seconds_most},
            {"launches", r.launches},
            {"gigabytes_per_second", r.bytes_per_second() * 1e-9},
            {"copy_gigabytes_per_second", r.copy_bytes_per_second * 1e-9},
            {"fraction_of_copy", r.fraction_of_copy()}};
}

std::vector<std::string> joined(std::vector<std::string> names, const std::vector<std::string>& more) {
    names.insert(names.end(), more.begin(), more.end());
    return names;
}

void write(const std::string& path, const nlohmann::json& results) {
    if (!path.empty()) zeropp_bench::write_json(path, results);
}

}  // namespace

int main(int argc, char** argv) {
    std::string path;
    bool quick = false;
    zeropp_bench::settings wanted;
    std::vector<std::string> notes;
    CLI::App app("Measures the codec's kernels beside a device-to-device copy of as many bytes.");
    app.add_option("results", path, "JSON file to write");
    auto* const quick_flag = app.add_flag("--quick", quick, "bf16 at 256 MB only");
    app.add_option("--quantizer", wanted.quantizers, "int8:256:bf16, int4:128:signed:bf16, ...")
        ->check(CLI::IsMember(wanted.quantizers));
    app.add_option("--kernel", wanted.kernels, "encode, reduce_decode_8, ...")
        ->check(CLI::IsMember(joined(wanted.kernels, wanted.more_kernels)));
    app.add_option("--element", wanted.elements, "bf16, fp16, fp32")
        ->check(CLI::IsMember(wanted.elements))
        ->excludes(quick_flag);
    app.add_option("--size-mb", wanted.megabytes, "sizes of the tensor")
        ->check(CLI::Range(1, 65536))
        ->excludes(quick_flag);
    app.add_option("--repetitions", wanted.repetitions, "of which the median is taken")->check(CLI::Range(1, 1000));
    app.add_option("--note", notes, "KEY=VALUE to keep beside the results");
    CLI11_PARSE(app, argc, argv);
    if (quick) {
        wanted.elements = {"bf16"};
        wanted.megabytes = {256};
    }

    std::string why_not;
    if (!zeropp_bench::gpu_here(why_not)) {
        std::printf("skipped: no GPU here (%s)\n", why_not.c_str());
        return 77;
    }
    try {
        const device_facts device = zeropp_bench::facts_of_current_device();
        nlohmann::json results{{"device", json_of(device)},
                               {"repetitions", wanted.repetitions},
                               {"complete", false},
                               {"notes", nlohmann::json::object()},
                               {"rows", nlohmann::json::array()}};
        for (const std::string& note : notes) {
            const std::size_t equals = note.find('=');
            results["notes"][note.substr(0, equals)] = equals == std::string::npos ? "" : note.substr(equals + 1);
        }
        std::printf("%s, CUDA %d.%d\n", device.name.c_str(), device.runtime_version / 1000,
                    device.runtime_version % 1000 / 10);
        std::printf("%-24s %-16s %-5s %8s %9s %8s\n", "quantizer", "kernel", "type", "MB", "GB/s", "of copy");
        zeropp_bench::measure(wanted, [&](const row& r) {
            std::printf("%-24s %-16s %-5s %8zu %9.1f %7.1f%%\n", r.quantizer.c_str(), r.kernel.c_str(),
                        r.element.c_str(), r.tensor_bytes >> 20, r.bytes_per_second() * 1e-9,
                        100 * r.fraction_of_copy());
            std::fflush(stdout);
            results["rows"].push_back(json_of(r));
            // Results survive a run that is cut short.
            if (results["rows"].size() % 32 == 0) write(path, results);
        });
        results["complete"] = true;
        write(path, results);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "codec_gpu: %s\n", e.what());
        return 1;
    }
}
