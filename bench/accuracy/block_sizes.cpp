#include "accuracy/formats.hpp"

namespace zeropp_bench {

namespace {

template <int Bits, class Scheme = zeropp::symmetric>
using integers =
    zeropp::named_quantizers<zeropp::block_integer<Bits, 32, Scheme>, zeropp::block_integer<Bits, 128, Scheme>,
                             zeropp::block_integer<Bits, 512, Scheme>, zeropp::block_integer<Bits, 2048, Scheme>>;
using rotated = zeropp::named_quantizers<
    zeropp::hadamard<zeropp::block_integer<4, 32>>, zeropp::hadamard<zeropp::block_integer<4, 128>>,
    zeropp::hadamard<zeropp::block_integer<4, 512>>, zeropp::hadamard<zeropp::block_integer<4, 2048>>>;
/// The widest rotations of the library: a block, at most 256 elements.
using rotated_widely = zeropp::named_quantizers<zeropp::hadamard<zeropp::block_integer<4, 128>, 128>,
                                                zeropp::hadamard<zeropp::block_integer<4, 512>, 256>,
                                                zeropp::hadamard<zeropp::block_integer<4, 2048>, 256>>;
using rotated_signed = zeropp::named_quantizers<zeropp::hadamard<zeropp::block_integer<4, 128, zeropp::signed_absmax>>>;

/// Formats of bench/convergence that have no names in the library.
using trained =
    zeropp::named_quantizers<zeropp::hadamard<zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::bfloat16>>,
                             zeropp::hadamard<zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16>>,
                             zeropp::block_float<zeropp::e4m3, 128, zeropp::bfloat16>>;

template <class... Names>
std::vector<format_accuracy> measure_all(const sample& s) {
    std::vector<format_accuracy> all;
    const auto add = [&](const std::vector<format_accuracy>& some) { all.insert(all.end(), some.begin(), some.end()); };
    (add(every_format<Names>::measure(s)), ...);
    return all;
}

}  // namespace

std::vector<format_accuracy> measure_block_sizes(const sample& s) {
    return measure_all<integers<8>, integers<8, zeropp::asymmetric>, integers<6>, integers<4>,
                       integers<4, zeropp::asymmetric>, rotated, rotated_widely, rotated_signed, trained>(s);
}

}  // namespace zeropp_bench
