#include "memory.hpp"

#include <algorithm>
#include <bitset>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace zeropp_test::ptx {

counts totals;

const options& chosen() {
    static const options all{std::getenv("PTX_RACES") != nullptr, std::getenv("PTX_GREATEST_FIRST") != nullptr};
    return all;
}

void stop(const operation& o, const std::string& why) {
    throw fault("line " + std::to_string(o.line) + ", `" + o.text + "`: " + why);
}

const dictionary& instructions() {
    static const dictionary all = [] {
        dictionary d;
        add_arithmetic(d);
        add_memory(d);
        add_warps(d);
        if (const char* const mistake = std::getenv("PTX_MISTAKE"); mistake != nullptr) break_on_purpose(d, mistake);
        return d;
    }();
    return all;
}

namespace {

// Instructions of whole warps: `lanes` have arrived, and all of them are executed at once. The last operand is their
// mask.

/// Values come from the lane `distance` above, or, as a butterfly, from the lane of number exclusive-or `distance`.
/// Beyond the segment they are the lane's own. Operands: value, predicate, source, distance, clamp and segment, mask.
template <bool Butterfly>
void shuffled(const operation& o, warp& w, u32 lanes) {
    ++w.shuffles;
    std::array<u32, warp_size> source;
    std::memcpy(source.data(), w.lanes<u32>(o.at[2]), sizeof source);
    const u32 in_range = lanes_where(lanes, [&](u32 lane) {
        const u32 distance = w.lanes<u32>(o.at[3])[lane] & 31u;
        const u32 c = w.lanes<u32>(o.at[4])[lane];
        const u32 segment = c >> 8 & 31u;
        const u32 last = (lane & segment) | (c & 31u & ~segment);
        const u32 from = Butterfly ? lane ^ distance : lane + distance;
        const bool inside = from <= last;
        const u32 read = inside ? from : lane;
        if ((lanes >> read & 1u) == 0) stop(o, "lane " + std::to_string(lane) + " reads a lane outside of the mask");
        w.lanes<u32>(o.at[0])[lane] = source[read];
        return inside;
    });
    w.set_predicate(o.at[1], lanes, in_range);
}

/// Operands: result, value, mask.
void summed(const operation& o, warp& w, u32 lanes) {
    u32 sum = 0;
    for_lanes(lanes, [&](u32 lane) { sum += w.lanes<u32>(o.at[1])[lane]; });
    for_lanes(lanes, [&](u32 lane) { w.lanes<u32>(o.at[0])[lane] = sum; });
}

void synchronized(const operation&, warp& w, u32) { ++w.syncs; }

/// m16n8k8: D = A * B + C of 16-bit floats, summed in f32. The manual leaves the order of a sum and the rounding
/// between its terms open, so sums must be exact whatever the order; others are faults. Lane 4 g + t holds of A rows g
/// and g + 8, columns 2 t and 2 t + 1; of B rows 2 t and 2 t + 1, column g; of C and D rows g and g + 8, columns 2 t
/// and 2 t + 1.
void multiply_matrices(const operation& o, warp& w, u32) {
    ++totals.mma;
    f64 a[16][8], b[8][8], c[16][8];
    const auto half = [&](u32 operand, u32 lane, u32 i) {
        return static_cast<f64>(std::bit_cast<f16>(static_cast<u16>(w.lanes<u32>(o.at[operand])[lane] >> (16 * i))));
    };
    for (u32 lane = 0; lane != warp_size; ++lane) {
        const u32 g = lane / 4;
        const u32 t = lane % 4;
        for (u32 i = 0; i != 2; ++i) {
            a[g][2 * t + i] = half(4, lane, i);
            a[g + 8][2 * t + i] = half(5, lane, i);
            b[2 * t + i][g] = half(6, lane, i);
            c[g][2 * t + i] = static_cast<f64>(read<f32>(w, o.at[7 + i], lane));
            c[g + 8][2 * t + i] = static_cast<f64>(read<f32>(w, o.at[9 + i], lane));
        }
    }
    f32 d[16][8];
    for (u32 row = 0; row != 16; ++row) {
        for (u32 column = 0; column != 8; ++column) {
            // Every partial sum is a multiple of the least unit of a term and at most the sum of magnitudes: if that is
            // below 2^24 units, no order rounds.
            f64 sum = c[row][column];
            f64 most = std::fabs(sum);
            int unit = 1000;
            const auto see = [&](f64 x) {
                if (x == 0) return;
                int exponent = 0;
                const auto mantissa = static_cast<u64>(std::ldexp(std::fabs(std::frexp(x, &exponent)), 53));
                unit = std::min(unit, exponent - 53 + std::countr_zero(mantissa));
            };
            see(sum);
            for (u32 k = 0; k != 8; ++k) {
                const f64 product = a[row][k] * b[k][column];
                see(product);
                most += std::fabs(product);
                sum += product;
            }
            if (!std::isfinite(most) || (unit != 1000 && most > std::ldexp(1.0, unit + 24)))
                stop(o, "a sum is not exact, so that its bits are open");
            d[row][column] = static_cast<f32>(sum);
        }
    }
    for (u32 lane = 0; lane != warp_size; ++lane) {
        for (u32 i = 0; i != 2; ++i) {
            w.lanes<u32>(o.at[i])[lane] = to_bits(d[lane / 4][2 * (lane % 4) + i]);
            w.lanes<u32>(o.at[2 + i])[lane] = to_bits(d[lane / 4 + 8][2 * (lane % 4) + i]);
        }
    }
}

/// Runs the warps of a block, one after the other, each until it ends or waits for the others.
class scheduler {
public:
    scheduler(kernel& k, block& b, std::vector<u8>& registers) : kernel_(k), block_(b) {
        const u32 threads = b.size.volume();
        warps_.resize((threads + warp_size - 1) / warp_size);
        for (u32 i = 0; i != warps_.size(); ++i) {
            warps_[i].registers = registers.data() + std::size_t{i} * k.register_bytes;
            warps_[i].in = &b;
            warps_[i].number = i;
            for (const kernel::constant& c : k.constants) fill(warps_[i], c.offset, c.bytes, c.value);
        }
    }

    void run_block() {
        const u32 threads = block_.size.volume();
        for (warp& w : warps_) {
            const u32 lanes = std::min(warp_size, threads - w.number * warp_size);
            w.live = lanes == warp_size ? all_lanes : (1u << lanes) - 1;
            w.blocked = w.at_barrier = 0;
            w.pc.fill(0);
            w.groups.fill(0);
            set_specials(w);
        }
        for (;;) {
            for (std::size_t i = 0; i != warps_.size(); ++i)
                run_warp(warps_[chosen().greatest_first ? warps_.size() - 1 - i : i]);
            if (!pass_barrier()) break;
        }
        for (const warp& w : warps_) {
            for (const std::vector<async_copy>& of_lane : w.copies) {
                if (!of_lane.empty()) stop(*of_lane.front().by, "nobody has waited for a copy");
            }
        }
    }

private:
    static void fill(warp& w, u32 offset, u8 bytes, u64 value) {
        for (u32 lane = 0; lane != warp_size; ++lane) {
            if (bytes == 1) w.predicate(offset) = value != 0 ? all_lanes : 0;
            if (bytes == 2) w.lanes<u16>(offset)[lane] = static_cast<u16>(value);
            if (bytes == 4) w.lanes<u32>(offset)[lane] = static_cast<u32>(value);
            if (bytes == 8) w.lanes<u64>(offset)[lane] = value;
        }
    }

    void set_specials(warp& w) const {
        for (const auto& [name, offset] : kernel_.specials) {
            for (u32 lane = 0; lane != warp_size; ++lane) {
                const u32 thread = w.number * warp_size + lane;
                const dimensions tid{thread % block_.size.x, thread / block_.size.x};
                const dimensions& all = name.starts_with("%tid")     ? tid
                                        : name.starts_with("%ntid")  ? block_.size
                                        : name.starts_with("%ctaid") ? block_.index
                                                                     : block_.grid;
                w.lanes<u32>(offset)[lane] = name.back() == 'x' ? all.x : all.y;
            }
        }
    }

    /// False where all threads have ended.
    bool pass_barrier() {
        u32 waiting = 0;
        u32 at = 0;
        for (const warp& w : warps_) {
            waiting += static_cast<u32>(std::popcount(w.at_barrier));
            if (w.at_barrier != 0) at = w.pc[static_cast<u32>(std::countr_zero(w.at_barrier))];
        }
        if (waiting == 0) return false;
        const operation& o = kernel_.code[at];
        if (waiting != block_.size.volume()) stop(o, "not all threads of the block arrive");
        for (warp& w : warps_) {
            for_lanes(w.at_barrier, [&](u32 lane) {
                if (w.pc[lane] != at) stop(o, "threads wait at different barriers");
                ++w.pc[lane];
            });
            w.at_barrier = 0;
        }
        ++block_.barriers;
        return true;
    }

    void run_warp(warp& w) {
        for (;;) {
            const u32 ready = w.live & ~w.blocked & ~w.at_barrier;
            if (ready == 0) break;
            u32 at = w.pc[static_cast<u32>(std::countr_zero(ready))];
            for_lanes(ready, [&](u32 lane) {
                if ((w.pc[lane] < at) != chosen().greatest_first) at = w.pc[lane];
            });
            const u32 lanes = lanes_where(ready, [&](u32 lane) { return w.pc[lane] == at; });
            u32 meeting = static_cast<u32>(kernel_.code.size());  // where the next others are
            for_lanes(ready, [&](u32 lane) {
                if (w.pc[lane] > at) meeting = std::min(meeting, w.pc[lane]);
            });
            run_lanes(w, at, lanes, meeting, lanes != ready);
        }
        if (w.blocked != 0) {
            stop(kernel_.code[w.pc[static_cast<u32>(std::countr_zero(w.blocked))]],
                 "waits for lanes that never arrive: " + std::bitset<32>(w.blocked).to_string() + " are here");
        }
    }

    static void move_to(warp& w, u32 lanes, u32 at) {
        for_lanes(lanes, [&](u32 lane) { w.pc[lane] = at; });
    }

    /// Runs lanes that are at one place until they part, wait, end, or meet others.
    void run_lanes(warp& w, u32 at, u32 lanes, u32 meeting, bool others) {
        const u64 width = static_cast<u64>(std::popcount(lanes));
        for (;;) {
            operation& o = kernel_.code[at];
            ++o.executed;
            totals.lane_instructions += width;
            if (++steps_ > most_steps) stop(o, "the block does not end");
            u32 doing = lanes;
            if (o.guard != 0) doing &= o.negated ? ~w.predicate(o.guard) : w.predicate(o.guard);
            switch (o.flow) {
            case control::next:
                if (doing != 0) o.run(o, w, doing);
                ++at;
                break;
            case control::branch:
                if (doing != lanes) {
                    move_to(w, doing, o.target);
                    if (doing != 0 || others) return move_to(w, lanes & ~doing, at + 1);
                    ++at;
                    break;
                }
                at = o.target;
                if (others) return move_to(w, lanes, at);
                break;
            case control::exit:
                w.live &= ~doing;
                return move_to(w, lanes & ~doing, at + 1);
            case control::barrier:
                if (doing != lanes || w.blocked != 0) stop(o, "a part of a warp waits at a barrier of all");
                move_to(w, lanes, at);
                w.at_barrier |= lanes;
                return;
            case control::whole_warp:
            case control::aligned:
                if (doing != lanes) stop(o, "a guard is not supported here");
                return meet(w, o, at, lanes);
            }
            if (at == meeting) return move_to(w, lanes, at);
        }
    }

    /// Executes an instruction of the whole warp for each mask all of whose lanes are here, and blocks the others.
    static void meet(warp& w, const operation& o, u32 at, u32 arriving) {
        move_to(w, arriving, at);
        w.blocked |= arriving;
        const u32 here = lanes_where(w.blocked, [&](u32 lane) { return w.pc[lane] == at; });
        const auto mask_of = [&](u32 lane) { return o.mask == 0 ? all_lanes : w.lanes<u32>(o.mask)[lane]; };
        for (u32 rest = arriving; rest != 0;) {
            const auto lane = static_cast<u32>(std::countr_zero(rest));
            const u32 mask = mask_of(lane);
            if ((mask >> lane & 1u) == 0) stop(o, "lane " + std::to_string(lane) + " is not in its own mask");
            if ((mask & ~w.live) != 0) stop(o, "lanes of the mask have ended: " + std::bitset<32>(mask).to_string());
            rest &= ~mask;
            if ((mask & ~here) != 0) continue;
            for_lanes(mask, [&](u32 lane_too) {
                if (mask_of(lane_too) != mask) stop(o, "lanes name different masks");
            });
            o.run(o, w, mask);
            w.blocked &= ~mask;
            move_to(w, mask, at + 1);
        }
    }

    static constexpr u64 most_steps = 100'000'000;

    kernel& kernel_;
    block& block_;
    std::vector<warp> warps_;
    u64 steps_ = 0;
};

}  // namespace

void add_warps(dictionary& all) {
    all["shfl.sync.down.b32"].push_back({shuffled<false>, "wpwwww", control::whole_warp});
    all["shfl.sync.bfly.b32"].push_back({shuffled<true>, "wpwwww", control::whole_warp});
    all["redux.sync.add.u32"].push_back({summed, "www", control::whole_warp});
    all["bar.warp.sync"].push_back({synchronized, "w", control::whole_warp});
    all["mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"].push_back(
        {multiply_matrices, "wwwwwwwwwww", control::aligned});
    all["bar.sync"].push_back({nullptr, "w", control::barrier});
    all["bra"].push_back({nullptr, "", control::branch});
    all["bra.uni"].push_back({nullptr, "", control::branch});
    all["ret"].push_back({nullptr, "", control::exit});
}

void launch(kernel& k, dimensions grid, dimensions size, const std::vector<u8>& parameters,
            const std::function<range(u64)>& find) {
    // One file of registers for all launches: they run one after the other.
    static std::vector<u8> registers;
    const u32 warps = (size.volume() + warp_size - 1) / warp_size;
    if (const std::size_t bytes = std::size_t{warps} * k.register_bytes; registers.size() < bytes)
        registers.assign(bytes, 0xa5);
    ++k.launches;
    ++totals.launches;
    race_check races;
    block b;
    b.of = &k;
    b.grid = grid;
    b.size = size;
    b.parameters = &parameters;
    b.find = find;
    b.races = chosen().races ? &races : nullptr;
    scheduler all(k, b, registers);
    for (u32 i = 0; i != grid.volume(); ++i) {
        b.number = chosen().greatest_first ? grid.volume() - 1 - i : i;
        b.index = {b.number % grid.x, b.number / grid.x};
        b.shared.assign(k.shared_bytes, 0xa5);
        b.awaited.assign(k.shared_bytes, false);
        all.run_block();
    }
}

}  // namespace zeropp_test::ptx
