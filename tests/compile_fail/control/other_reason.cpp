// expect: version_codename
#include <zeropp/version.hpp>

static_assert(zeropp::version_major < 0, "never true");
