#pragma once
/// \file
/// Which instructions a call executes, one after the other: what a model of a processor wants to know of a loop.

#include <cstdint>
#include <stdexcept>
#include <vector>

#if defined(__linux__) && defined(__x86_64__)
#include <link.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

/// Where the linker has put the program's instructions.
extern "C" const char __executable_start;
extern "C" const char etext;
#endif

namespace zeropp_bench {

#if defined(__linux__) && defined(__x86_64__)

/// The addresses of the program's own instructions that call() executes, as its file has them. What it executes of
/// shared libraries is left out; an instruction that repeats itself counts each time. The call is made by a copy of the
/// process, which is stopped behind each instruction; it must not need other threads. Throws std::runtime_error where
/// the system does not allow that.
template <class Call>
std::vector<std::uint64_t> trace(const Call& call) {
    const auto require = [](bool held) {
        if (!held) throw std::runtime_error("a process cannot be stopped behind each instruction here (ptrace)");
    };
    std::uint64_t base = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* program, std::size_t, void* to) {
            *static_cast<std::uint64_t*>(to) = program->dlpi_addr;
            return 1;
        },
        &base);
    const auto begin = reinterpret_cast<std::uint64_t>(&__executable_start);
    const auto end = reinterpret_cast<std::uint64_t>(&etext);

    const pid_t copy = fork();
    require(copy >= 0);
    if (copy == 0) {
        if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
        std::raise(SIGSTOP);
        call();
        std::raise(SIGSTOP);
        _exit(0);
    }
    int status = 0;
    const auto stopped_by = [&](int signal) {
        return waitpid(copy, &status, 0) == copy && WIFSTOPPED(status) && WSTOPSIG(status) == signal;
    };
    require(stopped_by(SIGSTOP));
    std::vector<std::uint64_t> executed;
    while (true) {
        require(ptrace(PTRACE_SINGLESTEP, copy, nullptr, nullptr) == 0);
        if (!stopped_by(SIGTRAP)) {
            if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGWINCH) continue;
            break;
        }
        user_regs_struct registers{};
        require(ptrace(PTRACE_GETREGS, copy, nullptr, &registers) == 0);
        if (registers.rip >= begin && registers.rip < end) executed.push_back(registers.rip - base);
    }
    require(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    require(ptrace(PTRACE_CONT, copy, nullptr, nullptr) == 0);
    require(waitpid(copy, &status, 0) == copy);
    return executed;
}

#elif defined(__linux__) && defined(__aarch64__)

/// Where what is to be traced begins and ends.
extern "C" [[gnu::noinline]] inline void zeropp_bench_trace_mark() { asm volatile("" ::: "memory"); }

/// No addresses, but a log of the emulator that runs the program, in which there is no stepping, has them between two
/// marks.
template <class Call>
std::vector<std::uint64_t> trace(const Call& call) {
    zeropp_bench_trace_mark();
    call();
    zeropp_bench_trace_mark();
    return {};
}

#else

template <class Call>
std::vector<std::uint64_t> trace(const Call&) {
    throw std::runtime_error("--trace is for Linux on x86-64, and on 64-bit Arm in an emulator that writes a log");
}

#endif

}  // namespace zeropp_bench
