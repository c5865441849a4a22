#include "support/processor.hpp"

#include <zeropp/codec/host/target.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <sstream>
#include <stdexcept>

namespace zeropp_bench {

std::string processor(const std::string& key) {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        if (line.starts_with(key + "\t") || line.starts_with(key + ":")) {
            const std::size_t colon = line.find(": ");
            return colon == std::string::npos ? "" : line.substr(colon + 2);
        }
    }
    return "";
}

std::string features() {
    std::istringstream words(processor("flags").append(" ").append(processor("Features")));
    const std::set<std::string> all{std::istream_iterator<std::string>(words), {}};
    std::string found;
    for (const char* feature : {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vbmi",
                                "avx512_fp16", "asimd", "asimdhp", "sve"}) {
        if (all.contains(feature)) found.append(found.empty() ? "" : " ").append(feature);
    }
    return found;
}

std::string take_target(const std::string& wanted) {
    static constexpr std::array names{"baseline", "avx2", "avx512"};
    using zeropp::detail::active_host_target;
    for (const auto target : zeropp::detail::host_targets()) {
        if (names.at(static_cast<std::size_t>(target)) == wanted) active_host_target() = target;
    }
    const std::string used = names.at(static_cast<std::size_t>(active_host_target()));
    if (!wanted.empty() && used != wanted) {
        throw std::runtime_error("--target: expected what this processor has, " + used + " or less, given " + wanted);
    }
    return used;
}

double clock_ghz() {
#if defined(__x86_64__)
    constexpr int links = 1 << 20;
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i != 10; ++i) {
        std::uint64_t x = 3;
        const auto start = std::chrono::steady_clock::now();
        for (int link = 0; link != links; ++link) __asm__ volatile("imul %0, %0" : "+r"(x));
        least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return 3 * links / (least * 1e9);
#else
    return std::numeric_limits<double>::quiet_NaN();
#endif
}

}  // namespace zeropp_bench
