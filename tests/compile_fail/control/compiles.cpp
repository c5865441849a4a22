// expect: error
#include <zeropp/version.hpp>

static_assert(zeropp::version_major >= 0);
