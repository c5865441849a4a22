#include "library.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

using namespace zeropp_c;

namespace {

/// Most bytes of a message of n elements.
std::size_t most_bytes(const char* function, std::size_t n) {
    require_at_most(function, zeropp::exact_differences::most_bytes / sizeof(std::uint32_t), n);
    return zeropp::exact_layout(n).bytes;
}

/// Runs call(T{}) for the type of old elements.
template <class Call>
void with_old(const char* function, zeropp_element type, Call call) {
    with_element(type, [&]<class T>(T) {
        if constexpr (zeropp::difference_codec<execution, zeropp::exact_differences, T>) {
            call(T{});
        } else {
            throw zeropp::precondition_error(function, "old elements of 16 bits",
                                             std::string(zeropp::element_traits<T>::name));
        }
    });
}

}  // namespace

zeropp_status zeropp_exact_bytes(size_t elements, size_t* bytes) {
    return status_of([&] { *bytes = most_bytes("zeropp_exact_bytes", elements); });
}

zeropp_status zeropp_encode_exact(zeropp_element element, const void* tensor, zeropp_element old_element, void* old,
                                  size_t elements, void* message, size_t* bytes, void* stream) {
    return status_of([&] {
        constexpr const char* function = "zeropp_encode_exact";
        const auto room = std::make_unique_for_overwrite<std::byte[]>(most_bytes(function, elements));
        with_old(function, old_element, [&]<class T>(T) {
            with_element(element, [&]<class S>(S) {
                if constexpr (std::same_as<S, T> || std::same_as<S, float>) {
                    using codec = zeropp::codec<execution>;
                    const auto where = zeropp::slices::single(elements, 0, elements);
                    const execution exec = on(stream);
                    const auto* const from = static_cast<const S*>(tensor);
                    auto* const to = static_cast<T*>(old);
                    std::uint64_t size = 0;
                    codec::write_exact(exec, zeropp::difference{from, to}, where, room.get(), &size);
                    codec::place_exact(exec, where, room.get(), static_cast<std::byte*>(message), size);
                    // Blocks without changes are not touched.
                    codec::read_exact(exec, static_cast<const std::byte*>(message), size, where, to);
                    *bytes = size;
                } else {
                    throw zeropp::precondition_error(function,
                                                     "elements of the old elements' type or of " +
                                                         std::string(zeropp::element_traits<float>::name),
                                                     std::string(zeropp::element_traits<S>::name));
                }
            });
        });
    });
}

zeropp_status zeropp_decode_exact(zeropp_element old_element, const void* message, size_t bytes, void* old,
                                  size_t elements, void* stream) {
    return status_of([&] {
        constexpr const char* function = "zeropp_decode_exact";
        most_bytes(function, elements);
        with_old(function, old_element, [&]<class T>(T) {
            try {
                zeropp::codec<execution>::read_exact(on(stream), static_cast<const std::byte*>(message), bytes,
                                                     zeropp::slices::single(elements, 0, elements),
                                                     static_cast<T*>(old));
            } catch (const zeropp::integrity_error&) {
                throw zeropp::precondition_error(
                    function, "exact differences of " + std::to_string(elements) + " elements", "other bytes");
            }
        });
    });
}
