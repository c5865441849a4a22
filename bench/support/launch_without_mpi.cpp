#include "support/launch.hpp"

namespace zeropp_bench {

int launch(int argc, char** argv, const program_facts& program, const rank_work& work) {
    return launch_in_this_process(parse_options(argc, argv, program), program, work, false);
}

}  // namespace zeropp_bench
