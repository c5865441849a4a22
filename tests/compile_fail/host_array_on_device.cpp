// expect: array_in<|does not satisfy .array_in
#include <zeropp/core/view.hpp>

#include <vector>

// A kernel must never be handed the address of a std::vector.
std::vector<float> tensor(8);
auto view = zeropp::as_view<zeropp::device_space>(tensor);
