#include "library.hpp"

#include <zeropp/local_steps.hpp>

#include <cstddef>
#include <string>

using namespace zeropp_c;

zeropp_status zeropp_outer_step(zeropp_element element, void* weights, float* anchors, float* momenta,
                                const float* means, size_t elements, float learning_rate, float momentum, float alpha,
                                void* stream) {
    return status_of([&] {
        const zeropp::outer_options options{.learning_rate = learning_rate, .momentum = momentum, .alpha = alpha};
        const std::string problem = options.problem();
        if (!problem.empty()) throw zeropp::precondition_error("zeropp_outer_step: " + problem);
        with_element(element, [&]<class T>(T) {
            if (elements == 0) return;
            zeropp::codec<execution>::each(
                on(stream), elements,
                zeropp::detail::outer_update<T, zeropp::nesterov>{
                    {}, options, means, momenta, elements, anchors, static_cast<T*>(weights)});
        });
    });
}
