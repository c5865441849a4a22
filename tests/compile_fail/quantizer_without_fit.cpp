// expect: q\.fit\(other\). (is|would be) invalid
#include <zeropp/core/text.hpp>
#include <zeropp/layout/wire_layout.hpp>

#include <cstdint>

struct unfitting {
    static constexpr int block_size = 8;
    static constexpr int code_bits = 8;
    struct params {};
    struct stats {
        void add(float) noexcept {}
        void merge(const stats&) noexcept {}
    };
    std::uint32_t encode(float, const params&) const noexcept { return 0; }
    float decode(std::uint32_t, const params&) const noexcept { return 0; }
    static zeropp::short_text name() { return "unfitting"; }
};

constexpr auto bytes = zeropp::wire_layout<unfitting>(8).bytes;
