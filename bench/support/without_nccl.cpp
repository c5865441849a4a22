#include "support/launch.hpp"

namespace zeropp_bench {

std::optional<gpu_work> work_on_gpus() { return std::nullopt; }

}  // namespace zeropp_bench
