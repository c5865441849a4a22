#include "support/catch_session.hpp"

// This makes Catch2 2 compile here; Catch2 3 is a library and ignores it.
#define CATCH_CONFIG_RUNNER
#include "support/catch.hpp"

int zeropp_test::run_catch(int argc, char** argv) {
    Catch::Session session;
    // Scripts read the output, and mpirun looks like a terminal. A name that selects no test is an error. MPI ranks
    // need equal orders, which newer versions promise only if asked.
#if CATCH_VERSION_MAJOR >= 3
    session.configData().defaultColourMode = Catch::ColourMode::None;
    session.configData().runOrder = Catch::TestRunOrder::Declared;
#else
    session.configData().useColour = Catch::UseColour::No;
    session.configData().warnings = Catch::WarnAbout::NoTests;
#endif
    return session.run(argc, argv);
}
