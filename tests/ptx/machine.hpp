#pragma once
/// \file
/// An interpreter of PTX: the kernels that nvcc makes run on the processor. Its files: parse.cpp reads PTX,
/// arithmetic.cpp has the instructions of single lanes, memory.cpp loads and stores, warp.cpp instructions of whole
/// warps and the order of execution, runtime.cpp the entry points that nvcc's host code calls, faults.cpp deliberate
/// mistakes.
///
/// Stricter than a GPU: an instruction that is not in the dictionary, an address outside of memory, a misaligned
/// address, a race, a lane that never arrives, or a sum in `mma` that depends on its order is a fault with the
/// instruction's text.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace zeropp_test::ptx {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using f16 = _Float16;
using f32 = float;
using f64 = double;

/// An error of a kernel, of its PTX, or of its launch.
struct fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline constexpr u32 warp_size = 32;
inline constexpr u32 all_lanes = 0xffffffffu;

struct operation;
struct warp;
/// Executes an operation for the lanes of a mask.
using executor = void (*)(const operation&, warp&, u32 lanes);

/// The order of execution. Lanes of a mask (the last operand) meet at `whole_warp`, and all lanes of a warp at
/// `aligned`.
enum class control : u8 { next, branch, exit, whole_warp, aligned, barrier };
enum class space : u8 { global, read_only, shared, parameter };

/// One instruction, decoded. Operands are offsets in the register file of a warp, in the order of the text. Constants
/// and special registers have places there too.
struct operation {
    executor run = nullptr;
    control flow = control::next;
    space in = space::global;
    u8 count = 1;          // elements of a load or a store
    bool negated = false;  // its guard
    u32 guard = 0;         // offset of a predicate, or 0
    u32 target = 0;        // of a branch
    u32 mask = 0;          // offset of the mask of lanes that meet, or 0 for all
    s64 displacement = 0;  // of an address
    std::array<u32, 16> at{};
    std::array<u8, 16> bytes{};  // of operands; 1 for a predicate
    u32 line = 0;
    std::string text;
    u64 executed = 0;  // times
};

/// Stops with the instruction's text.
[[noreturn]] void stop(const operation& o, const std::string& why);

/// One way to write the operands of an opcode, one character each: p predicate, h, w, d registers of 16, 32, 64 bits, x
/// any of these, @ an address.
struct form {
    executor run = nullptr;
    std::string operands;
    control flow = control::next;
    u8 count = 1;
    space in = space::global;
};

/// All that is supported. An opcode that is not here is an error.
using dictionary = std::unordered_map<std::string, std::vector<form>>;
void add_arithmetic(dictionary& all);
void add_memory(dictionary& all);
void add_warps(dictionary& all);
/// Replaces an instruction by a wrong one. Throws if there is no mistake of this name.
void break_on_purpose(dictionary& all, const std::string& name);
const dictionary& instructions();

struct kernel {
    std::string name;
    std::vector<operation> code;
    u32 register_bytes = 0;  // of one warp
    u32 shared_bytes = 0;
    u32 parameter_bytes = 0;
    std::vector<std::pair<u32, u32>> parameters;  // offset and bytes
    u32 resident_blocks = 1;
    /// Offset and value, in all lanes, of `bytes` bytes each.
    struct constant {
        u32 offset;
        u8 bytes;
        u64 value;
    };
    std::vector<constant> constants;
    std::map<std::string, u32> specials;  // %tid.x and so on: offsets
    u64 launches = 0;
};

/// Kernels by name.
using module = std::map<std::string, std::unique_ptr<kernel>>;

/// Reads PTX. `mutant` is empty, or "LINE TEXT": a statement, or nothing, in the place of that which ends in the line.
module parse(const std::string& ptx, const std::string& mutant);

struct dimensions {
    u32 x = 1, y = 1;
    u32 volume() const { return x * y; }
};

/// An allocation of device memory: begin and end. Both are 0 if there is none.
struct range {
    u64 begin = 0;
    u64 end = 0;
};

class race_check;

/// A copy of a lane from global to shared memory that is on its way.
struct async_copy {
    u64 from = 0;
    u64 to = 0;
    u32 bytes = 0;
    u32 group = 0;
    const operation* by = nullptr;
};

/// A block that runs.
struct block {
    const kernel* of = nullptr;
    dimensions grid, size, index;
    const std::vector<u8>* parameters = nullptr;
    std::vector<u8> shared;
    std::vector<bool> awaited;       // bytes of shared memory to which a copy is on its way
    std::function<range(u64)> find;  // the allocation that holds an address
    range recent;                    // found last
    race_check* races = nullptr;
    u32 number = 0;
    u32 barriers = 0;  // passed
};

struct warp {
    u8* registers = nullptr;
    block* in = nullptr;
    u32 number = 0;
    u32 live = 0;     // lanes that have not ended
    u32 blocked = 0;  // lanes that wait for others of the warp
    u32 at_barrier = 0;
    u32 syncs = 0;     // warp barriers passed
    u32 shuffles = 0;  // exchanges of registers
    std::array<u32, warp_size> pc{};
    std::array<std::vector<async_copy>, warp_size> copies;
    std::array<u32, warp_size> groups{};  // of copies, committed

    template <class T>
    T* lanes(u32 offset) {
        return reinterpret_cast<T*>(registers + offset);
    }
    u32& predicate(u32 offset) { return *lanes<u32>(offset); }
    /// Sets the bits of some lanes.
    void set_predicate(u32 offset, u32 some, u32 bits) {
        predicate(offset) = (predicate(offset) & ~some) | (bits & some);
    }
};

/// f(lane) for each lane of a mask.
template <class F>
void for_lanes(u32 lanes, F f) {
    for (; lanes != 0; lanes &= lanes - 1) f(static_cast<u32>(std::countr_zero(lanes)));
}

/// The lanes of a mask for which f(lane).
template <class F>
u32 lanes_where(u32 lanes, F f) {
    u32 found = 0;
    for_lanes(lanes, [&](u32 lane) { found |= static_cast<u32>(f(lane)) << lane; });
    return found;
}

/// Sum of what has run.
struct counts {
    u64 launches = 0;
    u64 lane_instructions = 0;
    u64 mma = 0;
};
extern counts totals;

/// Options: PTX_RACES=1 looks for races, PTX_GREATEST_FIRST=1 runs the lanes of greatest program counter, and the last
/// warps and blocks, first.
struct options {
    bool races = false;
    bool greatest_first = false;
};
const options& chosen();

void launch(kernel& k, dimensions grid, dimensions size, const std::vector<u8>& parameters,
            const std::function<range(u64)>& find);

// Values of registers: the bits of a type, and every NaN that arithmetic makes is one.

template <class T>
struct bits_of {
    using type = std::make_unsigned_t<T>;
};
template <>
struct bits_of<f16> {
    using type = u16;
};
template <>
struct bits_of<f32> {
    using type = u32;
};
template <>
struct bits_of<f64> {
    using type = u64;
};
template <class T>
using bits_t = typename bits_of<T>::type;

template <class T>
bits_t<T> to_bits(T x) {
    if constexpr (std::is_same_v<T, f16>) return x != x ? u16{0x7fff} : std::bit_cast<u16>(x);
    if constexpr (std::is_same_v<T, f32>) return x != x ? 0x7fffffffu : std::bit_cast<u32>(x);
    if constexpr (std::is_same_v<T, f64>) return x != x ? u64{0x7fffffffffffffff} : std::bit_cast<u64>(x);
    return std::bit_cast<bits_t<T>>(x);
}

template <class T>
T read(warp& w, u32 offset, u32 lane) {
    if constexpr (std::is_same_v<T, bool>)
        return (w.predicate(offset) >> lane & 1u) != 0;
    else
        return std::bit_cast<T>(w.lanes<bits_t<T>>(offset)[lane]);
}

/// F()(sources...) in each lane.
template <class F, class D, class... S, std::size_t... I>
void apply(const operation& o, warp& w, u32 lanes, std::index_sequence<I...>) {
    const auto result = [&](u32 lane) { return F()(read<S>(w, o.at[I + 1], lane)...); };
    if constexpr (std::is_same_v<D, bool>) {
        w.set_predicate(o.at[0], lanes, lanes_where(all_lanes, result));
    } else {
        auto* const d = w.lanes<bits_t<D>>(o.at[0]);
        if (lanes == all_lanes) {
#pragma GCC ivdep
            for (u32 lane = 0; lane != warp_size; ++lane) d[lane] = to_bits<D>(result(lane));
        } else {
            for_lanes(lanes, [&](u32 lane) { d[lane] = to_bits<D>(result(lane)); });
        }
    }
}

template <class T>
constexpr char letter() {
    return std::is_same_v<T, bool> ? 'p' : sizeof(T) == 2 ? 'h' : sizeof(T) == 4 ? 'w' : 'd';
}

template <class F, class D, class... S>
form lanewise(D (F::*)(S...) const) {
    return {
        [](const operation& o, warp& w, u32 lanes) { apply<F, D, S...>(o, w, lanes, std::index_sequence_for<S...>()); },
        std::string{letter<D>(), letter<S>()...}};
}

/// Adds an instruction of single lanes, a function object without state: operands are its result and arguments.
template <class F>
void define(dictionary& all, const std::string& opcode, F) {
    all[opcode].push_back(lanewise(&F::operator()));
}

}  // namespace zeropp_test::ptx
