#include "machine.hpp"

#include <algorithm>
#include <cmath>

// Compiled without contraction: a product and a sum are rounded each.

namespace zeropp_test::ptx {

namespace {

template <class T>
std::string name() {
    const char kind = std::is_same_v<T, f16> || std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 's' : 'u';
    return kind + std::to_string(sizeof(T) * 8);
}

template <class... T, class F>
void each(F f) {
    (f(T()), ...);
}

__extension__ typedef __int128 s128;
__extension__ typedef unsigned __int128 u128;

template <class T>
using widened = std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, s32, u32>,
                                   std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, s64, u64>,
                                                      std::conditional_t<std::is_signed_v<T>, s128, u128>>>;

/// Shifts by the type's width or more leave nothing but the sign.
template <class T>
T shifted_right(T x, u32 by) {
    constexpr u32 width = sizeof(T) * 8;
    if (by < width) return static_cast<T>(x >> by);
    return x < 0 ? static_cast<T>(-1) : T(0);
}
template <class T>
T shifted_left(T x, u32 by) {
    return by < sizeof(T) * 8 ? static_cast<T>(static_cast<u64>(x) << by) : T(0);
}

/// Comparisons that NaN fails, moves and selections. B holds the bits of a T.
template <class T, class B = bits_t<T>>
void add_choices(dictionary& all, const std::string& type) {
    define(all, "setp.eq" + type, [](T a, T b) { return a == b; });
    define(all, "setp.ne" + type, [](T a, T b) { return a < b || a > b; });
    define(all, "setp.lt" + type, [](T a, T b) { return a < b; });
    define(all, "setp.le" + type, [](T a, T b) { return a <= b; });
    define(all, "setp.gt" + type, [](T a, T b) { return a > b; });
    define(all, "setp.ge" + type, [](T a, T b) { return a >= b; });
    define(all, "mov" + type, [](B a) { return a; });
    define(all, "selp" + type, [](B a, B b, bool p) { return p ? a : b; });
}

template <class T>
void add_integers(dictionary& all) {
    const std::string type = "." + name<T>();
    using U = std::make_unsigned_t<T>;
    using W = widened<T>;
    // Overflow wraps.
    define(all, "add" + type, [](T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); });
    define(all, "sub" + type, [](T a, T b) { return static_cast<T>(static_cast<U>(a) - static_cast<U>(b)); });
    define(all, "mul.lo" + type, [](T a, T b) { return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b)); });
    define(all, "mad.lo" + type, [](T a, T b, T c) {
        return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b) + static_cast<u64>(c));
    });
    define(all, "mul.hi" + type,
           [](T a, T b) { return static_cast<T>((static_cast<W>(a) * static_cast<W>(b)) >> (sizeof(T) * 8)); });
    if constexpr (sizeof(T) < 8) {
        define(all, "mul.wide" + type, [](T a, T b) { return static_cast<W>(static_cast<W>(a) * static_cast<W>(b)); });
        define(all, "mad.wide" + type, [](T a, T b, W c) {
            return static_cast<W>(static_cast<u64>(static_cast<W>(a) * static_cast<W>(b)) + static_cast<u64>(c));
        });
    }
    // Division by zero is all ones here, and unspecified in PTX.
    define(all, "div" + type, [](T a, T b) { return static_cast<T>(b == 0 ? W(-1) : W(a) / W(b)); });
    define(all, "rem" + type, [](T a, T b) { return static_cast<T>(b == 0 ? W(a) : W(a) % W(b)); });
    define(all, "min" + type, [](T a, T b) { return b < a ? b : a; });
    define(all, "max" + type, [](T a, T b) { return a < b ? b : a; });
    define(all, "shr" + type, [](T a, u32 by) { return shifted_right(a, by); });
    add_choices<T>(all, type);
    if constexpr (std::is_signed_v<T>) {
        define(all, "neg" + type, [](T a) { return static_cast<T>(U(0) - static_cast<U>(a)); });
        define(all, "abs" + type, [](T a) { return a < 0 ? static_cast<T>(U(0) - static_cast<U>(a)) : a; });
    }
}

template <class T>
void add_bits(dictionary& all) {
    const std::string type = ".b" + std::to_string(sizeof(T) * 8);
    define(all, "and" + type, [](T a, T b) { return static_cast<T>(a & b); });
    define(all, "or" + type, [](T a, T b) { return static_cast<T>(a | b); });
    define(all, "xor" + type, [](T a, T b) { return static_cast<T>(a ^ b); });
    define(all, "not" + type, [](T a) { return static_cast<T>(~a); });
    define(all, "shl" + type, [](T a, u32 by) { return shifted_left(a, by); });
    define(all, "shr" + type, [](T a, u32 by) { return shifted_right(a, by); });
    add_choices<T>(all, type);
    if constexpr (sizeof(T) >= 4) {
        define(all, "popc" + type, [](T a) { return static_cast<u32>(std::popcount(a)); });
        define(all, "clz" + type, [](T a) { return static_cast<u32>(std::countl_zero(a)); });
    }
}

/// max and min order zeros, -0 below +0, and prefer numbers to NaN.
template <class T>
T greater_of(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    return a == b ? (std::signbit(a) ? b : a) : a > b ? a : b;
}
template <class T>
T smaller_of(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    return a == b ? (std::signbit(a) ? a : b) : a < b ? a : b;
}

template <class T>
void add_floats(dictionary& all) {
    const std::string type = "." + name<T>();
    // Rounding to nearest is what no suffix means too. The parser refuses sums of products that ptxas may fuse.
    for (const std::string rounding : {"", ".rn"}) {
        define(all, "add" + rounding + type, [](T a, T b) { return a + b; });
        define(all, "sub" + rounding + type, [](T a, T b) { return a - b; });
        define(all, "mul" + rounding + type, [](T a, T b) { return a * b; });
    }
    define(all, "div.rn" + type, [](T a, T b) { return a / b; });
    define(all, "rcp.rn" + type, [](T a) { return T(1) / a; });
    define(all, "sqrt.rn" + type, [](T a) { return std::sqrt(a); });
    define(all, "fma.rn" + type, [](T a, T b, T c) { return std::fma(a, b, c); });
    define(all, "neg" + type, [](T a) { return -a; });
    define(all, "abs" + type, [](T a) { return std::fabs(a); });
    define(all, "max" + type, [](T a, T b) { return greater_of(a, b); });
    define(all, "min" + type, [](T a, T b) { return smaller_of(a, b); });
    define(all, "max.NaN" + type, [](T a, T b) { return a != a || b != b ? T(NAN) : greater_of(a, b); });
    define(all, "min.NaN" + type, [](T a, T b) { return a != a || b != b ? T(NAN) : smaller_of(a, b); });
    add_choices<T>(all, type);
    define(all, "setp.equ" + type, [](T a, T b) { return !(a < b || a > b); });
    define(all, "setp.neu" + type, [](T a, T b) { return a != b; });
    define(all, "setp.ltu" + type, [](T a, T b) { return !(a >= b); });
    define(all, "setp.leu" + type, [](T a, T b) { return !(a > b); });
    define(all, "setp.gtu" + type, [](T a, T b) { return !(a <= b); });
    define(all, "setp.geu" + type, [](T a, T b) { return !(a < b); });
    define(all, "setp.num" + type, [](T a, T b) { return a == a && b == b; });
    define(all, "setp.nan" + type, [](T a, T b) { return a != a || b != b; });
}

/// Two floats in 64 bits.
struct pair {
    f32 low, high;
};
pair halves(u64 x) { return {std::bit_cast<f32>(static_cast<u32>(x)), std::bit_cast<f32>(static_cast<u32>(x >> 32))}; }
u64 joined(f32 low, f32 high) { return to_bits(low) | u64{to_bits(high)} << 32; }

u32 to_bfloat16(f32 x) {
    if (x != x) return 0x7fff;
    const u32 bits = std::bit_cast<u32>(x);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/// Bytes of b:a, chosen by the nibbles of `selector`; a nibble's highest bit repeats the byte's sign.
u32 permuted(u32 a, u32 b, u32 selector) {
    const u64 bytes = a | u64{b} << 32;
    u32 result = 0;
    for (u32 i = 0; i != 4; ++i) {
        const u32 choice = selector >> (4 * i) & 15u;
        u32 byte = static_cast<u32>(bytes >> (8 * (choice & 7u))) & 0xffu;
        if ((choice & 8u) != 0) byte = (byte & 0x80u) != 0 ? 0xffu : 0u;
        result |= byte << (8 * i);
    }
    return result;
}

u32 any_function(u32 a, u32 b, u32 c, u32 table) {
    u32 result = 0;
    for (u32 i = 0; i != 8; ++i) {
        if ((table >> i & 1u) != 0)
            result |= ((i & 4u) != 0 ? a : ~a) & ((i & 2u) != 0 ? b : ~b) & ((i & 1u) != 0 ? c : ~c);
    }
    return result;
}

template <class T>
T inserted(T field, T into, u32 from, u32 length) {
    constexpr u32 width = sizeof(T) * 8;
    from &= 0xffu;
    length &= 0xffu;
    if (from >= width || length == 0) return into;
    const T ones = static_cast<T>(~T(0));
    const T mask = static_cast<T>((length >= width ? ones : static_cast<T>(~(ones << length))) << from);
    return static_cast<T>((field << from & mask) | (into & ~mask));
}

template <class T>
T extracted(T x, u32 from, u32 length) {
    from &= 0xffu;
    length = std::min(length & 0xffu, 32u);
    if (length == 0) return 0;
    const s64 wide = x;  // its sign, if it has one, fills
    const auto moved = static_cast<u64>(from >= 32 ? (wide < 0 ? -1 : 0) : wide >> from);
    if (length == 32) return static_cast<T>(moved);
    const u64 field = moved & ((u64{1} << length) - 1);
    if constexpr (std::is_signed_v<T>) return static_cast<T>(static_cast<s64>(field << (64 - length)) >> (64 - length));
    return static_cast<T>(field);
}

// Conversions. A register may be wider than the type that is read from it or written to it.

u64 read_register(warp& w, const operation& o, u32 operand, u32 lane) {
    switch (o.bytes[operand]) {
    case 2:
        return w.lanes<u16>(o.at[operand])[lane];
    case 4:
        return w.lanes<u32>(o.at[operand])[lane];
    default:
        return w.lanes<u64>(o.at[operand])[lane];
    }
}
void write_register(warp& w, const operation& o, u32 operand, u32 lane, u64 x) {
    switch (o.bytes[operand]) {
    case 2:
        w.lanes<u16>(o.at[operand])[lane] = static_cast<u16>(x);
        break;
    case 4:
        w.lanes<u32>(o.at[operand])[lane] = static_cast<u32>(x);
        break;
    default:
        w.lanes<u64>(o.at[operand])[lane] = x;
    }
}

/// Bits of a float, or an integer with its sign repeated.
template <class T>
u64 raw(T x) {
    if constexpr (std::is_integral_v<T>)
        return static_cast<u64>(static_cast<s64>(x));
    else
        return to_bits(x);
}

/// Adds F: from S to D, in registers of any width that holds them.
template <class D, class S, class F>
void convert(dictionary& all, const std::string& opcode, F) {
    all[opcode].push_back({[](const operation& o, warp& w, u32 lanes) {
                               if (o.bytes[0] < sizeof(D) || o.bytes[1] < sizeof(S)) stop(o, "a register is too small");
                               for_lanes(lanes, [&](u32 lane) {
                                   const auto x =
                                       std::bit_cast<S>(static_cast<bits_t<S>>(read_register(w, o, 1, lane)));
                                   write_register(w, o, 0, lane, raw<D>(F()(x)));
                               });
                           },
                           "xx"});
}

/// To an integer: NaN is zero, as the manual has it for 32 bits; numbers out of range are the nearest in range.
template <class D, class S>
D saturated(S x) {
    if (x != x) return sizeof(D) == 8 || std::is_same_v<S, f64> ? static_cast<D>(u64{1} << (sizeof(D) * 8 - 1)) : D(0);
    const f64 wide = static_cast<f64>(x);
    const f64 above = std::ldexp(1.0, static_cast<int>(sizeof(D) * 8) - (std::is_signed_v<D> ? 1 : 0));
    if (wide >= above) return std::numeric_limits<D>::max();
    if (wide < (std::is_signed_v<D> ? -above : 0.0)) return std::numeric_limits<D>::min();
    return static_cast<D>(wide);
}

void add_conversions(dictionary& all) {
    each<u8, u16, u32, u64, s8, s16, s32, s64>([&]<class D>(D) {
        const std::string to = "cvt." + name<D>() + ".";
        each<u8, u16, u32, u64, s8, s16, s32, s64>(
            [&]<class S>(S) { convert<D, S>(all, to + name<S>(), [](S x) { return static_cast<D>(x); }); });
    });
    each<f32, f64>([&]<class F>(F) {
        each<u8, u16, u32, u64, s8, s16, s32, s64>([&]<class I>(I) {
            convert<F, I>(all, "cvt.rn." + name<F>() + "." + name<I>(), [](I x) { return static_cast<F>(x); });
        });
        each<u16, u32, u64, s16, s32, s64>([&]<class I>(I) {
            const std::string types = "." + name<I>() + "." + name<F>();
            convert<I, F>(all, "cvt.rzi" + types, [](F x) { return saturated<I>(std::trunc(x)); });
            convert<I, F>(all, "cvt.rni" + types, [](F x) { return saturated<I>(std::nearbyint(x)); });
            convert<I, F>(all, "cvt.rmi" + types, [](F x) { return saturated<I>(std::floor(x)); });
            convert<I, F>(all, "cvt.rpi" + types, [](F x) { return saturated<I>(std::ceil(x)); });
        });
        const std::string same = "." + name<F>() + "." + name<F>();
        convert<F, F>(all, "cvt.rni" + same, [](F x) { return std::nearbyint(x); });
        convert<F, F>(all, "cvt.rzi" + same, [](F x) { return std::trunc(x); });
        convert<F, F>(all, "cvt.rmi" + same, [](F x) { return std::floor(x); });
        convert<F, F>(all, "cvt.rpi" + same, [](F x) { return std::ceil(x); });
    });
    convert<f64, f32>(all, "cvt.f64.f32", [](f32 x) { return static_cast<f64>(x); });
    convert<f32, f64>(all, "cvt.rn.f32.f64", [](f64 x) { return static_cast<f32>(x); });
    convert<f32, f16>(all, "cvt.f32.f16", [](f16 x) { return static_cast<f32>(x); });
    convert<f16, f32>(all, "cvt.rn.f16.f32", [](f32 x) { return static_cast<f16>(x); });
    convert<u16, f32>(all, "cvt.rn.bf16.f32", [](f32 x) { return static_cast<u16>(to_bfloat16(x)); });
    convert<f32, u16>(all, "cvt.f32.bf16", [](u16 x) { return std::bit_cast<f32>(u32{x} << 16); });
    define(all, "cvt.rn.bf16x2.f32", [](f32 high, f32 low) { return to_bfloat16(high) << 16 | to_bfloat16(low); });
    define(all, "cvt.rn.f16x2.f32", [](f32 high, f32 low) {
        return u32{to_bits(static_cast<f16>(high))} << 16 | to_bits(static_cast<f16>(low));
    });
}

/// mov of parts to a whole: one destination, two sources.
template <class Whole, class Part>
void pack(const operation& o, warp& w, u32 lanes) {
    for_lanes(lanes, [&](u32 lane) {
        const Whole low = w.lanes<Part>(o.at[1])[lane];
        const Whole high = w.lanes<Part>(o.at[2])[lane];
        w.lanes<Whole>(o.at[0])[lane] = static_cast<Whole>(high << (sizeof(Part) * 8) | low);
    });
}
/// mov of a whole to its parts.
template <class Whole, class Part>
void unpack(const operation& o, warp& w, u32 lanes) {
    for_lanes(lanes, [&](u32 lane) {
        const Whole x = w.lanes<Whole>(o.at[2])[lane];
        w.lanes<Part>(o.at[0])[lane] = static_cast<Part>(x);
        w.lanes<Part>(o.at[1])[lane] = static_cast<Part>(x >> (sizeof(Part) * 8));
    });
}

/// The greater of two 16-bit floats as max.NaN has it.
u32 greater_half(u32 a, u32 b) {
    const f16 x = std::bit_cast<f16>(static_cast<u16>(a));
    const f16 y = std::bit_cast<f16>(static_cast<u16>(b));
    if (x != x || y != y) return 0x7fff;
    return to_bits(static_cast<f16>(greater_of(static_cast<f32>(x), static_cast<f32>(y))));
}

/// setp.nan.f16x2: a predicate for each half.
void halves_are_nan(const operation& o, warp& w, u32 lanes) {
    for (u32 half = 0; half != 2; ++half) {
        const auto nan = [&](u32 operand, u32 lane) {
            return (w.lanes<u32>(o.at[operand])[lane] >> (16 * half) & 0x7fffu) > 0x7c00u;
        };
        w.set_predicate(o.at[half], lanes, lanes_where(lanes, [&](u32 lane) { return nan(2, lane) || nan(3, lane); }));
    }
}

}  // namespace

void add_arithmetic(dictionary& all) {
    each<u16, s16, u32, s32, u64, s64>([&]<class T>(T) { add_integers<T>(all); });
    each<u16, u32, u64>([&]<class T>(T) { add_bits<T>(all); });
    each<f32, f64>([&]<class T>(T) { add_floats<T>(all); });
    add_conversions(all);

    define(all, "and.pred", [](bool a, bool b) { return a && b; });
    define(all, "or.pred", [](bool a, bool b) { return a || b; });
    define(all, "xor.pred", [](bool a, bool b) { return a != b; });
    define(all, "not.pred", [](bool a) { return !a; });
    define(all, "mov.pred", [](bool a) { return a; });

    define(all, "add.rn.f32x2",
           [](u64 a, u64 b) { return joined(halves(a).low + halves(b).low, halves(a).high + halves(b).high); });
    define(all, "mul.rn.f32x2",
           [](u64 a, u64 b) { return joined(halves(a).low * halves(b).low, halves(a).high * halves(b).high); });
    define(all, "fma.rn.f32x2", [](u64 a, u64 b, u64 c) {
        return joined(std::fma(halves(a).low, halves(b).low, halves(c).low),
                      std::fma(halves(a).high, halves(b).high, halves(c).high));
    });

    define(all, "max.NaN.f16x2",
           [](u32 a, u32 b) { return greater_half(a >> 16, b >> 16) << 16 | greater_half(a, b); });
    define(all, "prmt.b32", [](u32 a, u32 b, u32 selector) { return permuted(a, b, selector); });
    define(all, "lop3.b32", [](u32 a, u32 b, u32 c, u32 table) { return any_function(a, b, c, table); });
    define(all, "bfi.b32", [](u32 a, u32 b, u32 from, u32 length) { return inserted(a, b, from, length); });
    define(all, "bfi.b64", [](u64 a, u64 b, u32 from, u32 length) { return inserted(a, b, from, length); });
    define(all, "bfe.u32", [](u32 a, u32 from, u32 length) { return extracted(a, from, length); });
    define(all, "bfe.s32", [](s32 a, u32 from, u32 length) { return extracted(a, from, length); });
    define(all, "shf.l.wrap.b32",
           [](u32 low, u32 high, u32 by) { return static_cast<u32>((u64{high} << 32 | low) >> (32 - (by & 31u))); });
    define(all, "shf.r.wrap.b32",
           [](u32 low, u32 high, u32 by) { return static_cast<u32>((u64{high} << 32 | low) >> (by & 31u)); });
    all["mov.b32"].push_back({pack<u32, u16>, "whh"});
    all["mov.b32"].push_back({unpack<u32, u16>, "hhw"});
    all["mov.b64"].push_back({pack<u64, u32>, "dww"});
    all["mov.b64"].push_back({unpack<u64, u32>, "wwd"});
    all["setp.nan.f16x2"].push_back({halves_are_nan, "ppww"});

    // Addresses of global memory are generic addresses.
    define(all, "cvta.global.u64", [](u64 a) { return a; });
    define(all, "cvta.to.global.u64", [](u64 a) { return a; });
    define(all, "cvta.shared.u64", [](u64 a) { return a + shared_window; });
    define(all, "cvta.to.shared.u64", [](u64 a) { return a - shared_window; });
    define(all, "cvta.local.u64", [](u64 a) { return a + local_window; });
    define(all, "cvta.to.local.u64", [](u64 a) { return a - local_window; });
    define(all, "cvta.param.u64", [](u64 a) { return a + parameter_window; });
    define(all, "cvta.to.param.u64", [](u64 a) { return a - parameter_window; });
}

}  // namespace zeropp_test::ptx
