#include <zeropp/codec/host.hpp>

#include <zeropp/execution/host.hpp>

#include "support/catch.hpp"
#include "support/samples.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

TEST_CASE("the energies of a tensor and of what decoding lost of it", "[codec][host]") {
    using codec = zeropp::codec<zeropp::host>;
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{10'001}}) {
        const std::vector<float> tensor = zeropp_test::normal_floats(n, 1, 1e25);
        const std::vector<float> decoded = zeropp_test::normal_floats(n, 2, 1e25);
        std::vector<zeropp::bfloat16> narrow;
        for (const float x : tensor) narrow.emplace_back(x);
        for (const bool of_narrow : {false, true}) {
            long double signal = 0;
            long double error = 0;
            for (std::size_t i = 0; i != n; ++i) {
                const long double x = of_narrow ? static_cast<float>(narrow[i]) : tensor[i];
                signal += x * x;
                error += (x - decoded[i]) * (x - decoded[i]);
            }
            double energies[2] = {-1.0, -1.0};
            if (of_narrow) {
                codec::squared_error(zeropp::host{}, narrow.data(), decoded.data(), n, energies);
            } else {
                codec::squared_error(zeropp::host{}, tensor.data(), decoded.data(), n, energies);
            }
            CAPTURE(n, of_narrow);
            CHECK(std::fabs(energies[0] - static_cast<double>(signal)) <= 1e-12 * static_cast<double>(signal));
            CHECK(std::fabs(energies[1] - static_cast<double>(error)) <= 1e-12 * static_cast<double>(error));
        }
    }
}
