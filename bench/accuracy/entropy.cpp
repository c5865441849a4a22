/// \file
/// Entropy of the codes of formats on tensors of a training: the bits that an ideal coder of these codes would send.

#include "accuracy/samples.hpp"
#include "support/json_file.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/named.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace zeropp_bench;
using json = nlohmann::ordered_json;

/// Bits of an element: of codes and parameters as they are sent, and of codes if each took minus the binary logarithm
/// of its share of all codes.
template <zeropp::quantizer Q>
json measure(const Q& q, const sample& s) {
    std::map<unsigned, double> counts;
    double elements = 0;
    double code_bits = 0;
    double params_bits = 0;
    for (const std::vector<float>& tensor : s.tensors) {
        const std::size_t n = tensor.size();
        const zeropp::wire_layout<Q> layout(n);
        std::vector<std::byte> message(layout.bytes);
        zeropp::codec<zeropp::host>::write(zeropp::host{}, q, tensor.data(), zeropp::slices::single(n, 0, n),
                                           message.data());
        std::vector<zeropp::detail::code_word<Q::code_bits>> codes(n);
        zeropp::detail::unpack_codes<Q>(message.data(), n, codes.data());
        for (const unsigned code : codes) counts[code] += 1;
        elements += static_cast<double>(n);
        code_bits += 8 * static_cast<double>(zeropp::code_bytes<Q>(n));
        params_bits += 8 * static_cast<double>(layout.blocks * zeropp::params_bytes<Q>);
    }
    double entropy = 0;
    for (const auto& [code, count] : counts) entropy -= count / elements * std::log2(count / elements);
    const double sent = (code_bits + params_bits) / elements;
    const double ideal = entropy + params_bits / elements;
    std::printf("%-12s %-28s sent %.3f bits, ideal %.3f: %.3fx\n", s.name.c_str(),
                zeropp::short_text(q.name()).str().c_str(), sent, ideal, sent / ideal);
    return {{"sample", s.name},
            {"format", zeropp::short_text(q.name()).str()},
            {"code_bits", code_bits / elements},
            {"entropy_bits", entropy},
            {"parameter_bits", params_bits / elements}};
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> gradients;
    std::vector<std::string> weights;
    std::vector<std::string> before;
    std::string output_file;
    CLI::App app("Measures what an ideal coder would save of the codes of formats.");
    app.add_option("--gradients", gradients, "files of floats, as zero3_gpt --dump writes them")
        ->check(CLI::ExistingFile)
        ->required();
    app.add_option("--weights", weights, "files of weights")->check(CLI::ExistingFile)->required();
    app.add_option("--before", before, "the weights one step earlier, in the same order")
        ->check(CLI::ExistingFile)
        ->required();
    app.add_option("-J,--json", output_file, "write the results to this file");
    CLI11_PARSE(app, argc, argv);
    try {
        if (before.size() != weights.size()) throw std::runtime_error("--before: expected as many files as --weights");
        const sample of_weights = read_sample("weights", weights);
        sample differences = of_weights;
        differences.name = "differences";
        for (std::size_t t = 0; t != before.size(); ++t) {
            const std::vector<float> old = read_floats(before[t]);
            if (old.size() != differences.tensors[t].size()) throw std::runtime_error("another size: " + before[t]);
            for (std::size_t i = 0; i != old.size(); ++i) differences.tensors[t][i] -= old[i];
        }
        json rows = json::array();
        for (const sample& s : {read_sample("gradients", gradients), of_weights, differences}) {
            rows.push_back(measure(zeropp::quantizer_named<"int8:256:bf16">(), s));
            rows.push_back(measure(zeropp::quantizer_named<"int4:128:signed:bf16:h32">(), s));
            rows.push_back(measure(zeropp::quantizer_named<"int3:128:signed:bf16:h32">(), s));
            rows.push_back(measure(zeropp::quantizer_named<"int2:64:signed:bf16:h32">(), s));
            rows.push_back(measure(zeropp::quantizer_named<"lloyd3:128:h128">(), s));
            rows.push_back(measure(zeropp::quantizer_named<"lloyd2:128:unbiased:h128">(), s));
        }
        if (!output_file.empty()) write_json(output_file, json{{"program", "entropy"}, {"entropy", rows}});
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "entropy: %s\n", e.what());
        return 1;
    }
}
