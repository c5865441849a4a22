/// \file
/// A function runs once for every element, on one thread and on several, with every target.

#include <zeropp/codec/host.hpp>

#include "support/catch.hpp"
#include "support/host_targets.hpp"

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace {

template <class Execution>
void check(const Execution& exec, std::size_t n) {
    std::vector<unsigned> times(n + 1);
    zeropp::codec<Execution>::each(exec, n, [to = times.data()](std::size_t i) { to[i] += 1; });
    exec.wait();
    INFO(n << " elements");
    REQUIRE(std::count(times.begin(), times.end(), 1u) == static_cast<std::ptrdiff_t>(n));
    REQUIRE(times[n] == 0);
}

}  // namespace

TEST_CASE("host codec: each element is visited once, whatever the threads and the target") {
    zeropp_test::on_every_target([] {
        for (const std::size_t n : {0u, 1u, 7u, 8u, 9u, 255u, 256u, 257u, 65'535u, 65'536u, 65'537u, 200'003u}) {
            check(zeropp::host(), n);
            check(zeropp::host_threads(3), n);
        }
    });
    check(zeropp::host_queue(zeropp::host_threads(2)), 200'003);
}
