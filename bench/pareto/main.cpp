/// \file
/// zero3_gpt with the formats of bench/pareto, ranks as threads.

#include "pareto/formats.hpp"

#include <host_pass.hpp>
#include <trainer.hpp>

#include <exception>
#include <iostream>

int main(int argc, char** argv) {
    using namespace zero3_gpt;
    try {
        int exit_code = 0;
        const auto s = read_settings(argc, argv, true, exit_code);
        if (!s) return exit_code;
        pin_blas_to_one_thread();
        const workload work(model(s->network), text(read_text(s->text_file), s->network.context));
        const auto nodes = zeropp::two_level::of_size(s->ranks, s->ranks_per_node);
        report(*s, work, nodes, train_on_threads<host_device, pareto::formats>(*s, work, nodes));
        return 0;
    } catch (const std::exception& e) {
        std::cerr << "pareto: " << e.what() << '\n';
        return 1;
    }
}
