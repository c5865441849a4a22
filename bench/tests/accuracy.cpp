#include "accuracy/formats.hpp"
#include "accuracy/samples.hpp"
#include "support/catch.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstddef>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

// Formats are as accurate as simulations predicted, and the results page has their current figures.

namespace {

using namespace zeropp_bench;

constexpr std::size_t elements = 1'000'000;  // as on the results page

/// Accuracies by format, measured once. Formats in both lists have equal results.
const std::map<std::string, format_accuracy>& measured(distribution d) {
    static std::map<distribution, std::map<std::string, format_accuracy>> all;
    auto& formats = all[d];
    if (formats.empty()) {
        const sample s{name_of(d), {values_of(d, 1, elements)}};
        for (const format_accuracy& f : measure_standard_formats(s)) formats[f.format] = f;
        for (const format_accuracy& f : measure_block_sizes(s)) formats[f.format] = f;
    }
    return formats;
}

double sqnr(distribution d, const std::string& format) { return measured(d).at(format).sqnr_db; }

}  // namespace

TEST_CASE("accuracy: formats hold what was simulated beforehand", "[bench][accuracy]") {
    struct figures {
        std::string format;
        double gauss;
        double t3;
    };
    const std::vector<figures> simulated{{"int8:32", 45.5, 41.5},
                                         {"int8:128", 43.8, 37.3},
                                         {"int8:512", 42.6, 33.3},
                                         {"int8:2048", 41.7, 29.5},
                                         {"int8:32:asymmetric", 46.8, 44.6},
                                         {"int8:128:asymmetric", 44.7, 40.1},
                                         {"int8:512:asymmetric", 43.2, 36.0},
                                         {"int8:2048:asymmetric", 42.1, 32.1},
                                         {"int6:32", 33.2, 29.3},
                                         {"int6:128", 31.6, 25.2},
                                         {"int6:512", 30.3, 21.3},
                                         {"int6:2048", 29.4, 17.6},
                                         {"int4:32", 20.3, 16.8},
                                         {"int4:128", 18.6, 13.0},
                                         {"int4:512", 17.4, 9.6},
                                         {"int4:2048", 16.5, 6.8},
                                         {"int4:32:asymmetric", 22.2, 19.9},
                                         {"int4:128:asymmetric", 20.0, 15.4},
                                         {"int4:512:asymmetric", 18.6, 11.4},
                                         {"int4:2048:asymmetric", 17.5, 7.6},
                                         {"int4:32:h32", 20.3, 21.1},
                                         {"int4:128:h32", 18.6, 18.7},
                                         {"int4:512:h32", 17.4, 16.6},
                                         {"int4:2048:h32", 16.5, 14.5},
                                         {"int4:128:h128", 18.6, 19.2},
                                         {"int4:128:signed:h32", 19.7, 19.8},
                                         {"int4:128:fp16", 18.6, 13.0},
                                         {"int4:128:signed:fp16", 19.7, 14.1},
                                         {"int4:128:signed:bf16", 19.7, 14.1},
                                         {"int4:128:asymmetric:fp16", 20.0, 15.4},
                                         {"int4:128:signed:fp16:h128", 19.7, 20.1},
                                         {"mxfp8_e4m3", 30.7, 29.6},
                                         {"mxfp6_e2m3", 31.0, 29.3},
                                         {"mxfp4", 18.8, 17.0}};
    for (const figures& f : simulated) {
        CAPTURE(f.format);
        CHECK(sqnr(distribution::gauss, f.format) >= f.gauss - 0.1);
        // Samples of heavy tails vary more.
        CHECK(sqnr(distribution::student_t3, f.format) >= f.t3 - 0.3);
    }
}

TEST_CASE("accuracy: bits per element, scales included", "[bench][accuracy]") {
    // Bits of a code, and of block parameters divided by the block's elements.
    const std::map<std::string, double> bits{{"fp32", 32},
                                             {"fp16", 16},
                                             {"bf16", 16},
                                             {"int8:256", 8 + 32 / 256.0},
                                             {"int8:256:fp16", 8 + 16 / 256.0},
                                             {"int8:256:bf16", 8 + 16 / 256.0},
                                             {"int8:2048", 8 + 32 / 2048.0},
                                             {"int6:128", 6 + 32 / 128.0},
                                             {"int6:128:fp16", 6 + 16 / 128.0},
                                             {"int4:128", 4 + 32 / 128.0},
                                             {"int4:128:fp16", 4 + 16 / 128.0},
                                             {"int4:128:signed:fp16", 4 + 16 / 128.0},
                                             {"int4:128:signed:bf16", 4 + 16 / 128.0},
                                             {"int4:128:asymmetric:fp16", 4 + 32 / 128.0},
                                             {"int4:2048", 4 + 32 / 2048.0},
                                             {"int8:256:fp16:h32", 8 + 16 / 256.0},
                                             {"int4:128:fp16:h32", 4 + 16 / 128.0},
                                             {"int4:128:signed:fp16:h128", 4 + 16 / 128.0},
                                             {"int4:128:fp16:stochastic", 4 + 16 / 128.0},
                                             {"fp8_e4m3:128", 8 + 32 / 128.0},
                                             {"fp8_e5m2:128", 8 + 32 / 128.0},
                                             {"mxfp8_e4m3", 8 + 8 / 32.0},
                                             {"mxfp8_e5m2", 8 + 8 / 32.0},
                                             {"mxfp6_e2m3", 6 + 8 / 32.0},
                                             {"mxfp6_e3m2", 6 + 8 / 32.0},
                                             {"mxfp4", 4 + 8 / 32.0}};
    const std::vector<format_accuracy> formats =
        measure_standard_formats({"uniform", {values_of(distribution::uniform, 1, elements)}});
    CHECK(formats.size() == bits.size());
    for (const format_accuracy& found : formats) {
        CAPTURE(found.format);
        REQUIRE(bits.count(found.format) == 1);
        // At most a partial block and padding.
        const double excess = found.bits_per_element - bits.at(found.format);
        CHECK(excess >= 0);
        CHECK(excess * static_cast<double>(elements) <= 8 * (16 + 10));
    }
}

TEST_CASE("accuracy: the page says what the formats do", "[bench][accuracy]") {
    std::ifstream file(ZEROPP_BENCH_RESULTS "/accuracy.json");
    REQUIRE(file);
    const nlohmann::json page = nlohmann::json::parse(file);
    REQUIRE(page["elements"] == elements);
    for (const distribution d :
         {distribution::gauss, distribution::student_t3, distribution::uniform, distribution::sparse}) {
        std::set<std::string> said;
        for (const char* part : {"formats", "block_sizes"}) {
            for (const auto& row : page[part]) {
                if (row["sample"] != name_of(d)) continue;
                const auto name = row["format"].get<std::string>();
                CAPTURE(name);
                REQUIRE(measured(d).count(name) == 1);
                const format_accuracy& found = measured(d).at(name);
                said.insert(name);
                CHECK(row["bits_per_element"] == found.bits_per_element);
                if (std::isfinite(found.sqnr_db)) {
                    // Rounding of logarithms may differ on other machines.
                    CHECK(std::fabs(row["sqnr_db"].get<double>() - found.sqnr_db) <= 0.01);
                } else {
                    CHECK(row["sqnr_db"].is_null());
                }
            }
        }
        CHECK(said.size() == measured(d).size());
    }
}
