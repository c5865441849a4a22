/// zero3_gpt with its ranks as threads of one process: needs nothing installed but the model's own libraries.

#include "layers.hpp"
#include "trainer.hpp"

int main(int argc, char** argv) {
    try {
        int exit_code = 0;
        const auto s = zero3_gpt::read_settings(argc, argv, true, exit_code);
        if (!s) return exit_code;
        zero3_gpt::pin_blas_to_one_thread();
        const zero3_gpt::workload work(*s);
        const auto nodes = zeropp::two_level::of_size(s->ranks, s->ranks_per_node == 0 ? s->ranks : s->ranks_per_node);
        zeropp::run_on_threads(s->ranks,
                               [&](zeropp::thread_transport ranks) { zero3_gpt::train_all(*s, work, ranks, nodes); });
        return 0;
    } catch (const std::exception& e) {
        std::cerr << "zero3_gpt: " << e.what() << '\n';
        return 1;
    }
}
