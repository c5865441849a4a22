#include <zeropp/version.hpp>
#include <zeropp/zeropp.hpp>

const int* version_major_of_second_file();

// An inline variable is one object, whoever includes it.
int main() { return version_major_of_second_file() == &zeropp::version_major ? 0 : 1; }
