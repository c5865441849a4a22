#include "host_trainer.hpp"

#include "host_pass.hpp"

namespace zero3_gpt {

std::vector<run_result> train_on_host(const settings& s, const workload& work,
                                      zeropp::any_transport<zeropp::host_queue> world,
                                      const zeropp::three_level& nodes) {
    return train_all(host_device::of(s), s, work, std::move(world), nodes);
}

std::vector<run_result> train_on_host_threads(const settings& s, const workload& work,
                                              const zeropp::three_level& nodes) {
    return results_on_threads(s, nodes, [&](zeropp::thread_transport ranks) {
        return train_on_host(s, work, zeropp::any_transport<zeropp::host_queue>(ranks), nodes);
    });
}

}  // namespace zero3_gpt
