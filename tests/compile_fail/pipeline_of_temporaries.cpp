// expect: deleted
#include <zeropp/zeropp.hpp>

const zeropp::pipeline<zeropp::host> both{zeropp::host{}, zeropp::host{}};
