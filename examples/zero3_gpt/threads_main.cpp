/// zero3_gpt with ranks that are threads of one process: needs no installation beyond the model's libraries.

#include "cuda.hpp"
#include "host_device.hpp"
#include "host_trainer.hpp"
#include "sites.hpp"

int main(int argc, char** argv) {
    using namespace zero3_gpt;
    try {
        int exit_code = 0;
        const auto s = read_settings(argc, argv, true, exit_code);
        if (!s) return exit_code;
        const bool on_cuda = s->device == device_kind::cuda;
        if (on_cuda) require_cuda();
        pin_blas_to_one_thread();
        const workload work(*s);
        const int ranks_per_node = s->ranks_per_node == 0 ? s->ranks : s->ranks_per_node;
        const zeropp::three_level nodes = in_sites(s->sites, zeropp::two_level::of_size(s->ranks, ranks_per_node));
        report(*s, work, nodes,
               on_cuda ? train_on_cuda_threads(*s, work, nodes) : train_on_host_threads(*s, work, nodes));
        return 0;
    } catch (const std::exception& e) {
        std::cerr << "zero3_gpt: " << e.what() << '\n';
        return 1;
    }
}
