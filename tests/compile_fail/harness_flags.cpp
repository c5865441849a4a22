// expect: the flag has arrived
// flags: -DZEROPP_TEST_FLAG -DZEROPP_TEST_OTHER
#include <zeropp/version.hpp>

#if defined(ZEROPP_TEST_FLAG) && defined(ZEROPP_TEST_OTHER)
static_assert(zeropp::version_major < 0, "the flag has arrived");
#endif
