#include "support/catch_session.hpp"

// Catch2 2 is compiled where this is defined; Catch2 3 is a library and ignores it.
#define CATCH_CONFIG_RUNNER
#include "support/catch.hpp"

int zeropp_test::run_catch(int argc, char** argv) {
    Catch::Session session;
    // Scripts read what is printed, and mpirun looks like a terminal. A name that selects no test is an error. MPI
    // ranks need one and the same order, which newer versions no longer promise unless asked.
#if CATCH_VERSION_MAJOR >= 3
    session.configData().defaultColourMode = Catch::ColourMode::None;
    session.configData().runOrder = Catch::TestRunOrder::Declared;
#else
    session.configData().useColour = Catch::UseColour::No;
    session.configData().warnings = Catch::WarnAbout::NoTests;
#endif
    return session.run(argc, argv);
}
