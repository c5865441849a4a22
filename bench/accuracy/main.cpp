/// \file
/// Accuracy of formats: of encoded tensors, of sums over ranks, and of sums over many steps.

#include "accuracy/formats.hpp"
#include "accuracy/samples.hpp"
#include "accuracy/sums.hpp"
#include "support/json_file.hpp"
#include "support/report.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace zeropp_bench;
using json = nlohmann::ordered_json;

json formats_json(const sample& s, const std::vector<format_accuracy>& formats) {
    json rows = json::array();
    for (const format_accuracy& f : formats) {
        std::printf("%-10s %-36s %7.3f bits %8s dB\n", s.name.c_str(), f.format.c_str(), f.bits_per_element,
                    cell(f.sqnr_db, 2).c_str());
        rows.push_back({{"sample", s.name},
                        {"format", f.format},
                        {"block_size", f.block_size},
                        {"bits_per_element", f.bits_per_element},
                        {"sqnr_db", json_number(f.sqnr_db)},
                        {"relative_l2", f.relative_l2},
                        {"worst_over_step", json_number(f.worst_over_step)},
                        {"worst_over_absmax", f.worst_over_absmax}});
    }
    return rows;
}

void append(json& to, const json& rows) { to.insert(to.end(), rows.begin(), rows.end()); }

}  // namespace

int main(int argc, char** argv) {
    std::size_t elements = 1'000'000;
    std::size_t slice = 4096;
    int steps = 256;
    std::vector<std::string> gradients;
    std::vector<std::string> weights;
    std::string output_file;
    CLI::App app("Measures what quantization loses: of tensors, of sums over ranks, and of sums over many steps.");
    app.add_option("-n,--elements", elements, "of each generated tensor")
        ->check(CLI::Range(1, 1 << 28))
        ->capture_default_str();
    app.add_option("--slice", slice, "elements that each rank keeps of a sum")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    app.add_option("--steps", steps, "of error feedback")->check(CLI::Range(1, 1 << 20))->capture_default_str();
    app.add_option("--gradients", gradients, "files of floats, as zero3_gpt --dump writes them")
        ->check(CLI::ExistingFile);
    app.add_option("--weights", weights, "likewise")->check(CLI::ExistingFile);
    app.add_option("-J,--json", output_file, "write the results to this file");
    CLI11_PARSE(app, argc, argv);
    try {
        const std::vector<distribution> all{distribution::gauss, distribution::student_t3, distribution::uniform,
                                            distribution::sparse};
        const std::vector<distribution> noisy{distribution::gauss, distribution::student_t3};
        json results{{"program", "accuracy"},
                     {"elements", elements},
                     {"slice", slice},
                     {"steps", steps},
                     {"fresh_noise", fresh_noise}};
        for (const char* part : {"formats", "block_sizes", "sums", "sixteen_bits", "feedback"})
            results[part] = json::array();

        std::vector<sample> samples;
        for (const distribution d : all) samples.push_back({name_of(d), {values_of(d, 1, elements)}});
        if (!gradients.empty()) samples.push_back(read_sample("gradients", gradients));
        if (!weights.empty()) samples.push_back(read_sample("weights", weights));
        for (const sample& s : samples) {
            append(results["formats"], formats_json(s, measure_standard_formats(s)));
            append(results["block_sizes"], formats_json(s, measure_block_sizes(s)));
        }

        for (const distribution d : noisy) {
            for (const int side : {2, 8}) {
                for (const sum_accuracy& s : measure_sums(d, side, side, slice)) {
                    std::printf("%-10s %dx%d ranks, %s + %s: one hop %.4f, two %.4f\n", name_of(d).c_str(), side, side,
                                s.intra_node.c_str(), s.inter_node.c_str(), s.one_hop, s.two_hops);
                    results["sums"].push_back({{"sample", name_of(d)},
                                               {"nodes", side},
                                               {"ranks_per_node", side},
                                               {"intra_node", s.intra_node},
                                               {"inter_node", s.inter_node},
                                               {"relative_l2_one_hop", s.one_hop},
                                               {"relative_l2_two_hops", s.two_hops}});
                }
            }
            for (const auto& [nodes, per_node] : {std::pair(2, 4), std::pair(8, 8), std::pair(48, 8)}) {
                const sixteen_bits_accuracy s = measure_sixteen_bits(d, nodes, per_node, 4 * slice);
                std::printf("%-10s %dx%d ranks, bf16 on the wire: a bf16 sum %.5f, float sums %.5f\n",
                            name_of(d).c_str(), nodes, per_node, s.bfloat16_sum, s.float_sums);
                results["sixteen_bits"].push_back({{"sample", name_of(d)},
                                                   {"nodes", nodes},
                                                   {"ranks_per_node", per_node},
                                                   {"relative_l2_bfloat16_sum", s.bfloat16_sum},
                                                   {"relative_l2_float_sums", s.float_sums}});
            }
            for (const feedback_accuracy& f : measure_feedback(d, steps, 16 * slice)) {
                std::printf("%-10s %d steps, %s, %s: %.5f, at first %.5f\n", name_of(d).c_str(), steps,
                            f.format.c_str(), f.method.c_str(), f.all_steps, f.first_step);
                results["feedback"].push_back({{"sample", name_of(d)},
                                               {"format", f.format},
                                               {"method", f.method},
                                               {"relative_l2_first_step", f.first_step},
                                               {"relative_l2_all_steps", f.all_steps},
                                               {"residual_bytes_per_element", f.bytes_per_element}});
            }
        }
        if (!output_file.empty()) write_json(output_file, results);
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "accuracy: %s\n", e.what());
        return 1;
    }
}
