#include "support/watchdog.hpp"

#include <chrono>
#include <thread>

int main() {
    const zeropp_test::watchdog guard(std::chrono::milliseconds(200), "a rank that waits forever");
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return 0;
}
