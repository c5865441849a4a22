#include <zeropp/version.hpp>
#include <zeropp/zeropp.hpp>

const int* version_major_of_second_file();

const int* version_major_of_second_file() { return &zeropp::version_major; }
