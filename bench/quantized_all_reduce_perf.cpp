#include "quantized_all_reduce_perf.hpp"
#include "support/launch.hpp"

namespace perf = zeropp_bench::quantized_all_reduce_perf;

int main(int argc, char** argv) {
    return zeropp_bench::launch(argc, argv, perf::facts(),
                                {perf::run<zeropp_bench::host_place>, zeropp_bench::work_on_gpus()});
}
