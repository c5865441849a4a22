#pragma once
/// \file
/// The instructions that a call executes, in order, for a model of a processor.

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

/// Begin and end of the program's instructions, from the linker.
extern "C" const char __executable_start;
extern "C" const char etext;
#endif

namespace zeropp_bench {

#if defined(__linux__) && defined(__x86_64__)

/// Addresses, as in the program's file, of its own instructions that call() executes. Shared libraries are left out;
/// each repetition counts. A fork of the process makes the call and is stopped after each instruction, so the call must
/// not need other threads. Throws std::runtime_error if the system does not allow that.
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

/// Marks the begin and the end of a trace in an emulator's log.
extern "C" [[gnu::noinline]] inline void zeropp_bench_trace_mark() { asm volatile("" ::: "memory"); }

/// Returns no addresses, because an emulator cannot step. Its log has them between two marks.
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
