#include <zeropp/version.hpp>
#include <zeropp/zeropp.hpp>

#include <cstdio>

static_assert(__cplusplus >= 202002L, "zeropp::zeropp must ask for C++20");

int main() { std::printf("zeropp %d.%d.%d\n", zeropp::version_major, zeropp::version_minor, zeropp::version_patch); }
