#include "gathers_right.hpp"

#include <zeropp/version.hpp>
#include <zeropp/zeropp.hpp>

#include <atomic>
#include <cstdio>

int main() {
    std::printf("zeropp %d.%d.%d\n", zeropp::version_major, zeropp::version_minor, zeropp::version_patch);
    std::atomic<int> right = 0;
    zeropp::run_on_threads(3, [&](zeropp::thread_transport transport) { right += gathers_right(transport) ? 1 : 0; });
    return right == 3 ? 0 : 1;
}
