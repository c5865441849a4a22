#include "machine.hpp"

#include <cmath>
#include <utility>

// Deliberate mistakes, each of which some program must notice: PTX_MISTAKE=name. tests/ptx/faults.py tries all of them.

namespace zeropp_test::ptx {

namespace {

template <class F>
void replace(dictionary& all, const std::string& opcode, F f) {
    all.at(opcode).clear();
    define(all, opcode, f);
}

f32 toward_zero(f64 exact) {
    const auto nearest = static_cast<f32>(exact);
    return std::fabs(static_cast<f64>(nearest)) > std::fabs(exact) ? std::nextafter(nearest, 0.0f) : nearest;
}

/// The product and sum of floats in the lower or upper halves of the registers.
u64 fused_halves(u64 a, u64 b, u64 c, int shift) {
    const auto half = [&](u64 x) { return std::bit_cast<f32>(static_cast<u32>(x >> shift)); };
    return to_bits(std::fma(half(a), half(b), half(c)));
}

f32 flushed(f32 x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

// The instructions as they should be.
executor real_shuffle, real_mma, real_copy;

/// Values come from the lane beside the right one.
void shuffle_beside(const operation& o, warp& w, u32 lanes) {
    real_shuffle(o, w, lanes);
    u32* const d = w.lanes<u32>(o.at[0]);
    for (u32 lane = 0; lane != warp_size; lane += 2) std::swap(d[lane], d[lane + 1]);
}

/// Columns of the result change places within a lane.
void swapped_columns(const operation& o, warp& w, u32 lanes) {
    real_mma(o, w, lanes);
    for (u32 lane = 0; lane != warp_size; ++lane) std::swap(w.lanes<u32>(o.at[0])[lane], w.lanes<u32>(o.at[1])[lane]);
}

/// Half of the lanes copy nothing.
void copy_in_even_lanes(const operation& o, warp& w, u32 lanes) { real_copy(o, w, lanes & 0x55555555u); }

}  // namespace

void break_on_purpose(dictionary& all, const std::string& name) {
    const auto sum = [](f32 a, f32 b) { return toward_zero(static_cast<f64>(a) + static_cast<f64>(b)); };
    if (name == "rounding") {
        replace(all, "add.f32", sum);
        replace(all, "add.rn.f32", sum);
    } else if (name == "denormals") {
        const auto flushed_sum = [](f32 a, f32 b) { return flushed(flushed(a) + flushed(b)); };
        const auto flushed_product = [](f32 a, f32 b) { return flushed(flushed(a) * flushed(b)); };
        for (const std::string rounding : {"", ".rn"}) {
            replace(all, "add" + rounding + ".f32", flushed_sum);
            replace(all, "mul" + rounding + ".f32", flushed_product);
        }
    } else if (name == "division") {
        replace(all, "div.rn.f32", [](f32 a, f32 b) { return a * (1.0f / b); });
    } else if (name == "bfloat16") {
        replace(all, "cvt.rn.bf16x2.f32", [](f32 high, f32 low) {
            return (std::bit_cast<u32>(high) & 0xffff0000u) | std::bit_cast<u32>(low) >> 16;
        });
    } else if (name == "nan") {
        replace(all, "max.NaN.f32", [](f32 a, f32 b) { return std::fmax(a, b); });
    } else if (name == "lop3") {
        replace(all, "lop3.b32", [](u32 a, u32 b, u32 c, u32) { return (a | b) ^ c; });
    } else if (name == "prmt") {
        replace(all, "prmt.b32", [](u32 a, u32, u32) { return a; });
    } else if (name == "shuffle") {
        form& f = all.at("shfl.sync.bfly.b32")[0];
        real_shuffle = f.run;
        f.run = shuffle_beside;
    } else if (name == "mma") {
        form& f = all.at("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")[0];
        real_mma = f.run;
        f.run = swapped_columns;
    } else if (name == "copy") {
        form& f = all.at("cp.async.cg.shared.global")[0];
        real_copy = f.run;
        f.run = copy_in_even_lanes;
    } else if (name == "pair") {
        replace(all, "fma.rn.f32x2",
                [](u64 a, u64 b, u64 c) { return fused_halves(a, b, c, 0) << 32 | fused_halves(a, b, c, 32); });
    } else if (name == "barrier") {
        form& f = all.at("bar.sync")[0];
        f.run = [](const operation&, warp&, u32) {};
        f.flow = control::next;
    } else {
        throw fault("no mistake is called " + name);
    }
}

}  // namespace zeropp_test::ptx
