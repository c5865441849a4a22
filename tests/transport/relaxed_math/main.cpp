/// Compiled by clang with flags that change results, for which it has no macro: there is no communicator then.

#include <zeropp/topology/flat.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/threads.hpp>

#include <cstdio>
#include <exception>

int main() try {
    zeropp::run_on_threads(
        1, [](zeropp::thread_transport transport) { const zeropp::communicator comm(zeropp::flat(1), transport); });
} catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
