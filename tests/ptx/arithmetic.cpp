#include "machine.hpp"

#include <cmath>
#include <cstring>
#include <limits>

// Compiled without contraction: a product and a sum are rounded each.

namespace zeropp_test::ptx {

namespace {

template <class T>
std::string name() {
    const char kind = std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 's' : 'u';
    return kind + std::to_string(sizeof(T) * 8);
}

template <class... T, class F>
void each(F f) {
    (f(T()), ...);
}

/// An integer twice as wide, or of 64 bits.
template <class T>
using widened = std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, s32, u32>,
                                   std::conditional_t<std::is_signed_v<T>, s64, u64>>;

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
    define(all, "neg" + type, [](T a) { return static_cast<T>(U(0) - static_cast<U>(a)); });
    define(all, "mul.lo" + type, [](T a, T b) { return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b)); });
    define(all, "mad.lo" + type, [](T a, T b, T c) {
        return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b) + static_cast<u64>(c));
    });
    if constexpr (sizeof(T) < 8)
        define(all, "mul.wide" + type, [](T a, T b) { return static_cast<W>(static_cast<W>(a) * static_cast<W>(b)); });
    // Division by zero is all ones here, and unspecified in PTX.
    define(all, "div" + type, [](T a, T b) { return static_cast<T>(b == 0 ? W(-1) : W(a) / W(b)); });
    define(all, "rem" + type, [](T a, T b) { return static_cast<T>(b == 0 ? W(a) : W(a) % W(b)); });
    define(all, "min" + type, [](T a, T b) { return b < a ? b : a; });
    define(all, "max" + type, [](T a, T b) { return a < b ? b : a; });
    define(all, "shr" + type, [](T a, u32 by) { return shifted_right(a, by); });
    add_choices<T>(all, type);
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
}

/// The greater one, +0 above -0, or NaN if one of them is NaN.
f32 greater_or_nan(f32 a, f32 b) {
    if (a != a || b != b) return NAN;
    return a == b ? (std::signbit(a) ? b : a) : a > b ? a : b;
}

void add_floats(dictionary& all) {
    // Rounding to nearest is what no suffix means too. The parser refuses sums of products that ptxas may fuse.
    for (const std::string type : {".f32", ".rn.f32"}) {
        define(all, "add" + type, [](f32 a, f32 b) { return a + b; });
        define(all, "sub" + type, [](f32 a, f32 b) { return a - b; });
        define(all, "mul" + type, [](f32 a, f32 b) { return a * b; });
    }
    define(all, "div.rn.f32", [](f32 a, f32 b) { return a / b; });
    define(all, "rcp.rn.f32", [](f32 a) { return 1.0f / a; });
    define(all, "fma.rn.f32", [](f32 a, f32 b, f32 c) { return std::fma(a, b, c); });
    define(all, "neg.f32", [](f32 a) { return -a; });
    define(all, "abs.f32", [](f32 a) { return std::fabs(a); });
    define(all, "max.NaN.f32", [](f32 a, f32 b) { return greater_or_nan(a, b); });
    add_choices<f32>(all, ".f32");
    define(all, "mov.f64", [](u64 a) { return a; });
    define(all, "setp.equ.f32", [](f32 a, f32 b) { return !(a < b || a > b); });
    define(all, "setp.neu.f32", [](f32 a, f32 b) { return a != b; });
    define(all, "setp.ltu.f32", [](f32 a, f32 b) { return !(a >= b); });
    define(all, "setp.leu.f32", [](f32 a, f32 b) { return !(a > b); });
    define(all, "setp.gtu.f32", [](f32 a, f32 b) { return !(a <= b); });
    define(all, "setp.geu.f32", [](f32 a, f32 b) { return !(a < b); });
    define(all, "setp.num.f32", [](f32 a, f32 b) { return a == a && b == b; });
    define(all, "setp.nan.f32", [](f32 a, f32 b) { return a != a || b != b; });
}

/// The float in the lower or higher half of a register.
f32 half(u64 x, u32 which) { return std::bit_cast<f32>(static_cast<u32>(x >> (32 * which))); }

/// f of the lower and of the higher halves of registers.
template <class F, class... R>
u64 in_halves(F f, R... x) {
    return to_bits(f(half(x, 0)...)) | u64{to_bits(f(half(x, 1)...))} << 32;
}

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

/// The register's lowest bytes as a T.
template <class T>
T read_narrow(warp& w, const operation& o, u32 operand, u32 lane) {
    T x;
    std::memcpy(&x, w.registers + o.at[operand] + o.bytes[operand] * lane, sizeof x);
    return x;
}

/// Adds F: from S to D, in registers of any width that holds them. Integers repeat their sign.
template <class D, class S, class F>
void convert(dictionary& all, const std::string& opcode, F) {
    all[opcode].push_back({[](const operation& o, warp& w, u32 lanes) {
                               if (o.bytes[0] < sizeof(D) || o.bytes[1] < sizeof(S)) stop(o, "a register is too small");
                               for_lanes(lanes, [&](u32 lane) {
                                   const D d = F()(read_narrow<S>(w, o, 1, lane));
                                   u64 bits = 0;
                                   if constexpr (std::is_integral_v<D>)
                                       bits = static_cast<u64>(static_cast<s64>(d));
                                   else
                                       bits = to_bits(d);
                                   std::memcpy(w.registers + o.at[0] + o.bytes[0] * lane, &bits, o.bytes[0]);
                               });
                           },
                           "xx"});
}

/// The nearest s32 of a whole number; 0 for NaN.
s32 saturated(f32 x) {
    if (x != x) return 0;
    return x >= 0x1p31f ? std::numeric_limits<s32>::max() : x < -0x1p31f ? std::numeric_limits<s32>::min() : s32(x);
}

void add_conversions(dictionary& all) {
    each<u8, u16, u32, u64, s8, s16, s32, s64>([&]<class I>(I) {
        const std::string from = "." + name<I>();
        each<u8, u16, u32, u64, s8, s16, s32, s64>(
            [&]<class D>(D) { convert<D, I>(all, "cvt." + name<D>() + from, [](I x) { return static_cast<D>(x); }); });
        convert<f32, I>(all, "cvt.rn.f32" + from, [](I x) { return static_cast<f32>(x); });
    });
    convert<s32, f32>(all, "cvt.rzi.s32.f32", [](f32 x) { return saturated(std::trunc(x)); });
    convert<f64, f32>(all, "cvt.f64.f32", [](f32 x) { return static_cast<f64>(x); });
    convert<f32, f64>(all, "cvt.rn.f32.f64", [](f64 x) { return static_cast<f32>(x); });
    convert<f32, f16>(all, "cvt.f32.f16", [](f16 x) { return static_cast<f32>(x); });
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

f32 value_of_half(u32 x) { return static_cast<f32>(std::bit_cast<f16>(static_cast<u16>(x))); }
/// The greater of two 16-bit floats as max.NaN has it.
u32 greater_half(u32 a, u32 b) { return to_bits(static_cast<f16>(greater_or_nan(value_of_half(a), value_of_half(b)))); }
/// The lesser of two 16-bit floats; of a number and NaN, the number.
u32 lesser_half(u32 a, u32 b) { return to_bits(static_cast<f16>(std::fmin(value_of_half(a), value_of_half(b)))); }

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
    add_floats(all);
    add_conversions(all);

    define(all, "and.pred", [](bool a, bool b) { return a && b; });
    define(all, "or.pred", [](bool a, bool b) { return a || b; });
    define(all, "xor.pred", [](bool a, bool b) { return a != b; });
    define(all, "not.pred", [](bool a) { return !a; });
    define(all, "mov.pred", [](bool a) { return a; });

    define(all, "add.rn.f32x2", [](u64 a, u64 b) { return in_halves([](f32 x, f32 y) { return x + y; }, a, b); });
    define(all, "mul.rn.f32x2", [](u64 a, u64 b) { return in_halves([](f32 x, f32 y) { return x * y; }, a, b); });
    define(all, "fma.rn.f32x2", [](u64 a, u64 b, u64 c) {
        return in_halves([](f32 x, f32 y, f32 z) { return std::fma(x, y, z); }, a, b, c);
    });

    define(all, "popc.b32", [](u32 a) { return static_cast<u32>(std::popcount(a)); });
    define(all, "max.NaN.f16x2",
           [](u32 a, u32 b) { return greater_half(a >> 16, b >> 16) << 16 | greater_half(a, b); });
    define(all, "min.f16x2", [](u32 a, u32 b) { return lesser_half(a >> 16, b >> 16) << 16 | lesser_half(a, b); });
    define(all, "prmt.b32", [](u32 a, u32 b, u32 selector) { return permuted(a, b, selector); });
    define(all, "lop3.b32", [](u32 a, u32 b, u32 c, u32 table) { return any_function(a, b, c, table); });
    define(all, "bfi.b32", [](u32 a, u32 b, u32 from, u32 length) { return inserted(a, b, from, length); });
    define(all, "bfi.b64", [](u64 a, u64 b, u32 from, u32 length) { return inserted(a, b, from, length); });
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
    for (const char* conversion : {"cvta.to.global.u64", "cvta.global.u64"})
        define(all, conversion, [](u64 a) { return a; });
}

}  // namespace zeropp_test::ptx
