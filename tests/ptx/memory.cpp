#include "memory.hpp"

#include <algorithm>
#include <cstring>

namespace zeropp_test::ptx {

namespace {

u64 thread_number(const warp& w, u32 lane) {
    return u64{w.in->number} * w.in->size.volume() + w.number * warp_size + lane;
}

/// A place in memory of `size` bytes from `begin`.
u8* within(const operation& o, u8* begin, u64 size, u64 offset, u32 bytes, const char* name) {
    if (offset > size || bytes > size - offset) {
        stop(o, std::string("address outside of ") + name + " memory, offset " + std::to_string(offset) + " of " +
                    std::to_string(size));
    }
    return begin + offset;
}

}  // namespace

u8* reach(const operation& o, space in, warp& w, u32 lane, u64 address, u32 bytes, access how) {
    if (address % bytes != 0) stop(o, "misaligned address in lane " + std::to_string(lane));
    block& b = *w.in;
    if (in == space::parameter)
        return within(o, const_cast<u8*>(b.parameters->data()), b.parameters->size(), address, bytes, "parameter");
    if (in == space::shared) {
        u8* const place = within(o, b.shared.data(), b.shared.size(), address, bytes, "shared");
        const auto first = b.awaited.begin() + static_cast<std::ptrdiff_t>(address);
        if (std::find(first, first + bytes, true) != first + bytes) {
            stop(o, "a copy to this place is on its way, in lane " + std::to_string(lane) + " of warp " +
                        std::to_string(w.number));
        }
        if (b.races != nullptr) {
            // Each block has its own: told apart by addresses that nobody else has.
            const u64 begin = (u64{0x80} << 56) + u64{b.number} * b.shared.size();
            b.races->note(o, w, lane, {begin, begin + b.shared.size()}, begin + address, bytes, how);
        }
        return place;
    }
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

void race_check::note(const operation& o, const warp& w, u32 lane, const range& where, u64 address, u32 bytes,
                      access how) {
    if (address + bytes > where.end) return;  // a fault already
    std::vector<byte>& all = bytes_[where.begin];
    if (all.empty()) all.resize(where.end - where.begin);
    const u32 threads = w.in->size.volume();
    const visit now{static_cast<u32>(thread_number(w, lane)) + 1, static_cast<u16>(w.in->barriers),
                    static_cast<u16>(w.syncs), static_cast<u16>(w.shuffles)};
    const auto races = [&](const visit& before, bool shuffled = false) {
        if (before.thread == 0 || before.thread == now.thread) return false;
        const u32 a = before.thread - 1;
        const u32 b = now.thread - 1;
        if (a / threads != b / threads) return true;
        if (before.barriers != now.barriers) return false;
        return a % threads / warp_size != b % threads / warp_size || (before.syncs == now.syncs && !shuffled);
    };
    const bool writes = how == access::write || how == access::atomic;
    for (u64 i = address - where.begin; i != address - where.begin + bytes; ++i) {
        byte& x = all[i];
        const bool both_atomic = how == access::atomic && x.atomic;
        if (!both_atomic && races(x.writer)) {
            stop(o, "race: thread " + std::to_string(now.thread - 1) + (writes ? " writes" : " reads") +
                        " a byte that thread " + std::to_string(x.writer.thread - 1) + " has written");
        }
        const bool global = where.begin >> 63 == 0;
        if (writes && races(x.reader, global && x.reader.shuffles != now.shuffles)) {
            stop(o, "race: thread " + std::to_string(now.thread - 1) + " writes a byte that thread " +
                        std::to_string(x.reader.thread - 1) + " has read");
        }
        if ((how == access::read_only && x.writer.thread != 0) || (writes && x.read_only)) {
            stop(o, "the launch writes memory that it reads with ld.global.nc");
        }
        if (writes) {
            x.atomic = how == access::atomic;
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
        const u8* const from = reach(o, o.in, w, lane, address_of(o, w, count, lane), sizeof(M) * count, how);
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
        u8* const to = reach(o, o.in, w, lane, address_of(o, w, 0, lane), sizeof(M) * count, access::write);
        for (u32 i = 0; i != count; ++i) {
            const auto x = static_cast<M>(w.lanes<R>(o.at[i + 1])[lane]);
            std::memcpy(to + i * sizeof(M), &x, sizeof(M));
        }
    });
}

/// Operands: the value before, address, an argument. F()(value before, argument) is the value after.
template <class F>
void atomic(const operation& o, warp& w, u32 lanes) {
    for_lanes(lanes, [&](u32 lane) {
        u8* const at = reach(o, o.in, w, lane, address_of(o, w, 1, lane), sizeof(u32), access::atomic);
        u32 before = 0;
        std::memcpy(&before, at, sizeof before);
        const u32 after = F()(before, w.lanes<u32>(o.at[2])[lane]);
        std::memcpy(at, &after, sizeof after);
        w.lanes<u32>(o.at[0])[lane] = before;
    });
}

void mark(block& b, const async_copy& c, bool awaited) {
    const auto first = b.awaited.begin() + static_cast<std::ptrdiff_t>(c.to);
    std::fill(first, first + c.bytes, awaited);
}

/// Operands: shared address, global address, bytes. The bytes arrive when the lane waits for them, and no sooner.
void start_copy(const operation& o, warp& w, u32 lanes) {
    for_lanes(lanes, [&](u32 lane) {
        const async_copy c{address_of(o, w, 1, lane), address_of(o, w, 0, lane), w.lanes<u32>(o.at[2])[lane],
                           w.groups[lane], &o};
        reach(o, space::global, w, lane, c.from, c.bytes, access::read);
        reach(o, space::shared, w, lane, c.to, c.bytes, access::write);
        mark(*w.in, c, true);
        w.copies[lane].push_back(c);
    });
}

void end_group(const operation&, warp& w, u32 lanes) {
    for_lanes(lanes, [&](u32 lane) { ++w.groups[lane]; });
}

/// Operand: number of groups, the last ones, that need not have arrived.
void wait_for_groups(const operation& o, warp& w, u32 lanes) {
    for_lanes(lanes, [&](u32 lane) {
        std::erase_if(w.copies[lane], [&](const async_copy& c) {
            if (c.group + w.lanes<u32>(o.at[0])[lane] >= w.groups[lane]) return false;
            mark(*w.in, c, false);
            std::memcpy(reach(o, space::shared, w, lane, c.to, c.bytes, access::write),
                        reach(o, space::global, w, lane, c.from, c.bytes, access::read), c.bytes);
            return true;
        });
    });
}

template <class M, class R>
void add_type(dictionary& all, const std::string& type, char letter) {
    // Generic addresses are of global memory: no kernel has others.
    const std::pair<const char*, space> spaces[] = {{"", space::global},
                                                    {".global", space::global},
                                                    {".global.nc", space::read_only},
                                                    {".shared", space::shared},
                                                    {".param", space::parameter}};
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

}  // namespace

void add_memory(dictionary& all) {
    // Registers may be wider than memory.
    add_type<u8, u16>(all, ".u8", 'h');
    add_type<u8, u32>(all, ".u8", 'w');
    add_type<u8, u64>(all, ".u8", 'd');
    add_type<u16, u16>(all, ".u16", 'h');
    add_type<u16, u32>(all, ".u16", 'w');
    add_type<u16, u64>(all, ".u16", 'd');
    for (const char* const type : {".u32", ".s32", ".f32"}) {
        add_type<u32, u32>(all, type, 'w');
        add_type<u32, u64>(all, type, 'd');
    }
    for (const char* const type : {".u64", ".f64"}) add_type<u64, u64>(all, type, 'd');
    for (const char* const cache : {"ca", "cg"}) {
        all["cp.async." + std::string(cache) + ".shared.global"].push_back({start_copy, "@@w"});
    }
    all["cp.async.commit_group"].push_back({end_group, ""});
    all["cp.async.wait_group"].push_back({wait_for_groups, "w"});
    const auto greater = [](u32 a, u32 b) { return std::max(a, b); };
    all["atom.global.max.u32"].push_back({atomic<decltype(greater)>, "w@w", control::next, 1, space::global});
    all["atom.shared.or.b32"].push_back({atomic<std::bit_or<u32>>, "w@w", control::next, 1, space::shared});
}

}  // namespace zeropp_test::ptx
