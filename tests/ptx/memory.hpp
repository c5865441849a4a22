#pragma once
/// \file
/// Where addresses lead, and a check for races.

#include "machine.hpp"

namespace zeropp_test::ptx {

enum class access : u8 { read, read_only, write, atomic };

/// Where a lane's address leads. Faults unless all bytes lie in one allocation, the address is aligned to their number,
/// and no copy to them is on its way.
u8* reach(const operation& o, space in, warp& w, u32 lane, u64 address, u32 bytes, access how);

/// Remembers who wrote and who read each byte last in a launch. Two accesses of different threads, one of them a write,
/// are a race unless a barrier lies between: of the block, or, in one warp, bar.warp.sync. Between a read and a write
/// of global memory in one warp, a shuffle is enough: the value written is taken to depend on the value read.
class race_check {
public:
    void note(const operation& o, const warp& w, u32 lane, const range& where, u64 address, u32 bytes, access how);

private:
    struct visit {
        u32 thread = 0;  // number in the grid, plus 1
        u16 barriers = 0;
        u16 syncs = 0;
        u16 shuffles = 0;
    };
    struct byte {
        visit writer, reader;
        bool atomic = false;     // written last by an atomic operation
        bool read_only = false;  // read by ld.global.nc
    };
    std::unordered_map<u64, std::vector<byte>> bytes_;  // of an allocation, by its begin
};

}  // namespace zeropp_test::ptx
