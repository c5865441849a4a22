#include "accuracy/formats.hpp"

namespace zeropp_bench {

std::vector<format_accuracy> measure_standard_formats(const sample& s) {
    return every_format<zeropp::standard_quantizers>::measure(s);
}

}  // namespace zeropp_bench
