#include "memory.hpp"

#include <algorithm>
#include <cstring>

namespace zeropp_test::ptx {

namespace {

u64 thread_number(const warp& w, u32 lane) {
    return u64{w.in->number} * w.in->size.volume() + w.number * warp_size + lane;
}

/// A place in a window of `size` bytes from `begin`.
u8* window(const operation& o, u8* begin, u64 size, u64 offset, u32 bytes, const char* name) {
    if (offset > size || bytes > size - offset) {
        stop(o, std::string("address outside of ") + name + " memory, offset " + std::to_string(offset) + " of " +
                    std::to_string(size));
    }
    return begin + offset;
}

}  // namespace

u8* reach(const operation& o, warp& w, u32 lane, u64 address, u32 bytes, access how) {
    if (address % bytes != 0) stop(o, "misaligned address in lane " + std::to_string(lane));
    block& b = *w.in;
    space in = o.in;
    if (in == space::generic && address >= shared_window) {
        in = address >= parameter_window ? space::parameter : address >= local_window ? space::local : space::shared;
        address &= ~(u64{0xff} << 56);
    }
    switch (in) {
    case space::parameter:
        if (how == access::write || how == access::atomic) stop(o, "parameters are constant");
        return window(o, const_cast<u8*>(b.parameters->data()), b.parameters->size(), address, bytes, "parameter");
    case space::local: {
        const u64 size = b.of->local_bytes;
        return window(o, b.local.data() + (w.number * warp_size + lane) * size, size, address, bytes, "local");
    }
    case space::shared:
        if (b.races != nullptr) {
            // Each block has its own: told apart by addresses that nobody else has.
            const u64 begin = shared_window + u64{b.number} * b.shared.size();
            b.races->note(o, w, lane, {begin, begin + b.shared.size()}, begin + address, bytes, how);
        }
        return window(o, b.shared.data(), b.shared.size(), address, bytes, "shared");
    default:
        if (address < b.recent.begin || address + bytes > b.recent.end) {
            b.recent = b.find(address);
            if (address < b.recent.begin || address + bytes > b.recent.end) {
                stop(o, "address outside of device memory in lane " + std::to_string(lane) + " of warp " +
                            std::to_string(w.number) + " of block " + std::to_string(b.number));
            }
        }
        if (b.races != nullptr) b.races->note(o, w, lane, b.recent, address, bytes, how);
        return reinterpret_cast<u8*>(address);
    }
}

void race_check::note(const operation& o, const warp& w, u32 lane, const range& where, u64 address, u32 bytes,
                      access how) {
    if (address + bytes > where.end) return;  // a fault already
    std::vector<byte>& all = bytes_[where.begin];
    if (all.empty()) all.resize(where.end - where.begin);
    const u32 threads = w.in->size.volume();
    const visit now{static_cast<u32>(thread_number(w, lane)) + 1, static_cast<u16>(w.in->barriers),
                    static_cast<u16>(w.syncs)};
    const auto races = [&](const visit& before) {
        if (before.thread == 0 || before.thread == now.thread) return false;
        const u32 a = before.thread - 1;
        const u32 b = now.thread - 1;
        if (a / threads != b / threads) return true;
        if (before.barriers != now.barriers) return false;
        return a % threads / warp_size != b % threads / warp_size || before.syncs == now.syncs;
    };
    const bool writes = how == access::write || how == access::atomic;
    for (u64 i = address - where.begin; i != address - where.begin + bytes; ++i) {
        byte& x = all[i];
        const bool both_atomic = how == access::atomic && x.atomic;
        if (!both_atomic && races(x.writer)) {
            stop(o, "race: thread " + std::to_string(now.thread - 1) + (writes ? " writes" : " reads") +
                        " a byte that thread " + std::to_string(x.writer.thread - 1) + " has written");
        }
        if (writes && races(x.reader)) {
            stop(o, "race: thread " + std::to_string(now.thread - 1) + " writes a byte that thread " +
                        std::to_string(x.reader.thread - 1) + " has read");
        }
        if ((how == access::read_only && x.writer.thread != 0) || (writes && x.read_only)) {
            stop(o, "the launch writes memory that it reads with ld.global.nc");
        }
        if (writes) {
            x.atomic = how == access::atomic && (x.writer.thread == 0 || x.atomic);
            x.writer = now;
        } else {
            x.reader = now;
            x.read_only = x.read_only || how == access::read_only;
        }
    }
}

namespace {

u64 address_of(const operation& o, warp& w, u32 operand, u32 lane) {
    const u64 base = o.bytes[operand] == 4 ? w.lanes<u32>(o.at[operand])[lane] : w.lanes<u64>(o.at[operand])[lane];
    return base + static_cast<u64>(o.displacement);
}

/// Operands: registers, address. Memory of type M, registers of type R, which are wider or as wide.
template <class M, class R>
void load(const operation& o, warp& w, u32 lanes) {
    const u32 count = o.count;
    const access how = o.in == space::read_only ? access::read_only : access::read;
    for_lanes(lanes, [&](u32 lane) {
        const u8* const from = reach(o, w, lane, address_of(o, w, count, lane), sizeof(M) * count, how);
        for (u32 i = 0; i != count; ++i) {
            M x;
            std::memcpy(&x, from + i * sizeof(M), sizeof(M));
            w.lanes<R>(o.at[i])[lane] = static_cast<R>(x);
        }
    });
}

/// Operands: address, registers.
template <class M, class R>
void store(const operation& o, warp& w, u32 lanes) {
    const u32 count = o.count;
    for_lanes(lanes, [&](u32 lane) {
        u8* const to = reach(o, w, lane, address_of(o, w, 0, lane), sizeof(M) * count, access::write);
        for (u32 i = 0; i != count; ++i) {
            const auto x = static_cast<M>(w.lanes<R>(o.at[i + 1])[lane]);
            std::memcpy(to + i * sizeof(M), &x, sizeof(M));
        }
    });
}

/// Operands: the value before, address, an argument. F()(before, argument) is stored.
template <class T, class F>
void atomic(const operation& o, warp& w, u32 lanes) {
    for_lanes(lanes, [&](u32 lane) {
        u8* const at = reach(o, w, lane, address_of(o, w, 1, lane), sizeof(T), access::atomic);
        T before;
        std::memcpy(&before, at, sizeof(T));
        const T after = F()(before, read<T>(w, o.at[2], lane));
        std::memcpy(at, &after, sizeof(T));
        w.lanes<bits_t<T>>(o.at[0])[lane] = std::bit_cast<bits_t<T>>(before);
    });
}

template <class M, class R>
void add_type(dictionary& all, const std::string& type, char letter) {
    const std::pair<const char*, space> spaces[] = {
        {"", space::generic},       {".global", space::global}, {".global.nc", space::read_only},
        {".shared", space::shared}, {".local", space::local},   {".param", space::parameter}};
    for (const auto& [name, in] : spaces) {
        for (const u8 count : {u8{1}, u8{2}, u8{4}}) {
            const std::string vector = count == 1 ? "" : ".v" + std::to_string(count);
            const std::string registers(count, letter);
            all["ld" + (name + vector) + type].push_back({load<M, R>, registers + '@', control::next, count, in});
            if (in == space::read_only || in == space::parameter) continue;
            all["st" + (name + vector) + type].push_back({store<M, R>, '@' + registers, control::next, count, in});
        }
    }
}

template <class T, class F>
void add_atomic(dictionary& all, const std::string& what, F) {
    const char letter = sizeof(T) == 4 ? 'w' : 'd';
    const std::pair<const char*, space> spaces[] = {
        {"", space::generic}, {".global", space::global}, {".shared", space::shared}};
    for (const auto& [name, in] : spaces) {
        all["atom" + (name + what)].push_back({atomic<T, F>, std::string{letter, '@', letter}, control::next, 1, in});
    }
}

}  // namespace

void add_memory(dictionary& all) {
    const auto narrow = [&]<class U, class S>(U, S, const std::string& bits) {
        for (const std::string kind : {".u", ".b"}) {
            if constexpr (sizeof(U) <= 2) add_type<U, u16>(all, kind + bits, 'h');
            add_type<U, u32>(all, kind + bits, 'w');
            add_type<U, u64>(all, kind + bits, 'd');
        }
        if constexpr (sizeof(S) <= 2) add_type<S, u16>(all, ".s" + bits, 'h');
        add_type<S, u32>(all, ".s" + bits, 'w');
        add_type<S, u64>(all, ".s" + bits, 'd');
    };
    narrow(u8(), s8(), "8");
    narrow(u16(), s16(), "16");
    narrow(u32(), s32(), "32");
    add_type<u32, u32>(all, ".f32", 'w');
    for (const std::string type : {".u64", ".b64", ".f64"}) add_type<u64, u64>(all, type, 'd');
    add_type<s64, u64>(all, ".s64", 'd');

    add_atomic<u32>(all, ".max.u32", [](u32 a, u32 b) { return std::max(a, b); });
    add_atomic<u32>(all, ".min.u32", [](u32 a, u32 b) { return std::min(a, b); });
    add_atomic<u32>(all, ".add.u32", [](u32 a, u32 b) { return a + b; });
    add_atomic<u32>(all, ".or.b32", [](u32 a, u32 b) { return a | b; });
    add_atomic<u64>(all, ".add.u64", [](u64 a, u64 b) { return a + b; });
}

}  // namespace zeropp_test::ptx
