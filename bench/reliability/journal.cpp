#include "reliability/journal.hpp"

#include "support/fault_injecting.hpp"

#include <zeropp/core/error.hpp>
#include <zeropp/mpi.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>

namespace zeropp_reliability {

held held::now() {
    // Threads would count each other's open folder.
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    const std::filesystem::directory_iterator open("/proc/self/fd");
    // Without the descriptor that reads the folder.
    const auto descriptors = static_cast<int>(std::distance(begin(open), end(open))) - 1;
    long pages = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident;
    return {descriptors, resident * (sysconf(_SC_PAGESIZE) / 1024)};
}

double wall_seconds() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

journal::journal(const std::string& folder, int rank)
    : file_(open((folder + "/rank" + std::to_string(rank) + ".jsonl").c_str(),
                 O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644)) {
    if (file_ < 0) throw zeropp::error("journal: cannot write in " + folder);
}

journal::~journal() { close(file_); }

void journal::write(const std::string& event, nlohmann::json facts) {
    facts["event"] = event;
    facts["wall"] = wall_seconds();
    const std::string line = facts.dump() + "\n";
    if (::write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
        throw zeropp::error("journal: cannot write");
    }
}

nlohmann::json current_error() {
    const auto named = [](const char* type, const std::exception& e) {
        return nlohmann::json{{"type", type}, {"what", e.what()}};
    };
    try {
        throw;
    } catch (const zeropp::precondition_error& e) {
        return named("precondition_error", e);
    } catch (const zeropp::peer_error& e) {
        return named("peer_error", e);
    } catch (const zeropp::timeout_error& e) {
        return named("timeout_error", e);
    } catch (const zeropp::integrity_error& e) {
        return named("integrity_error", e);
    } catch (const zeropp::mpi_error& e) {
        return named("mpi_error", e);
    } catch (const zeropp_test::injected_fault& e) {
        return named("injected_fault", e);
    } catch (const zeropp::error& e) {
        return named("error", e);
    } catch (const std::exception& e) {
        return named("exception", e);
    }
}

}  // namespace zeropp_reliability
