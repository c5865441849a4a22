#include "support/catch_session.hpp"

int main(int argc, char** argv) { return zeropp_test::run_catch(argc, argv); }
