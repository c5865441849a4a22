#include "library.hpp"

#include <zeropp/version.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace zeropp_c {
namespace {

std::string& last_error() noexcept {
    thread_local std::string words;
    return words;
}

zeropp::process_group group_of(const zeropp_callbacks& callbacks, int number, int rank, int size) {
    const auto mover = [callbacks, number](auto move) {
        return [callbacks, number, move](void* stream, const std::byte* send, std::byte* receive, std::size_t bytes) {
            if (move(callbacks.context, number, stream, send, receive, bytes) != 0) throw callback_failure();
        };
    };
    return {.rank = rank,
            .size = size,
            .all_gather = mover(callbacks.all_gather),
            .all_to_all = mover(callbacks.all_to_all),
            .split = [callbacks, number, rank](std::span<const int> members) {
                const int count = static_cast<int>(members.size());
                const int group = callbacks.split(callbacks.context, number, members.data(), count);
                if (group < 0) throw callback_failure();
                const auto place = std::find(members.begin(), members.end(), rank) - members.begin();
                return group_of(callbacks, group, static_cast<int>(place), count);
            }};
}

/// Names of `Formats`; null if there is no memory for them.
template <class Formats>
const char* names_of() noexcept {
    try {
        static const std::string names = Formats::list();
        return names.c_str();
    } catch (...) {
        keep_error("out of memory");
        return nullptr;
    }
}

}  // namespace

void keep_error(const char* words) noexcept {
    try {
        last_error() = words;
    } catch (...) {
        last_error() = "out of memory";  // short enough to need none
    }
}

}  // namespace zeropp_c

using namespace zeropp_c;

int zeropp_c_version() { return ZEROPP_C_VERSION; }

const char* zeropp_version() {
    static const std::string version = std::to_string(zeropp::version_major) + "." +
                                       std::to_string(zeropp::version_minor) + "." +
                                       std::to_string(zeropp::version_patch);
    return version.c_str();
}

const char* zeropp_device() {
#ifdef ZEROPP_C_CUDA
    return "cuda";
#else
    return "host";
#endif
}

const char* zeropp_error() { return last_error().c_str(); }

#ifndef ZEROPP_C_CUDA
zeropp_status zeropp_threads_create(int threads, void** stream) {
    return status_of([&] { *stream = new execution(threads); });
}
#endif

const char* zeropp_gather_formats() { return names_of<gather_formats>(); }
const char* zeropp_difference_formats() { return names_of<difference_formats>(); }
const char* zeropp_reduce_formats() { return names_of<reduce_formats>(); }
const char* zeropp_reduce_formats_in_sites() { return names_of<site_reduce_formats>(); }

zeropp_status zeropp_communicator_create(const int* node_of_rank, int size, int rank, zeropp_callbacks callbacks,
                                         zeropp_communicator** communicator) {
    return zeropp_communicator_create_in_sites(node_of_rank, 0, size, rank, callbacks, communicator);
}

zeropp_status zeropp_communicator_create_in_sites(const int* node_of_rank, int nodes_per_site, int size, int rank,
                                                  zeropp_callbacks callbacks, zeropp_communicator** communicator) {
    return status_of([&] {
        const zeropp::three_level nodes = places_of(node_of_rank, nodes_per_site, size);
        *communicator = new zeropp_communicator(nodes, zeropp::callback_transport(group_of(callbacks, 0, rank, size)));
    });
}

void zeropp_compare(zeropp_communicator* communicator, size_t calls) {
    // A sum that wraps would compare no call.
    communicator->calls_to_compare += std::min(calls, SIZE_MAX - communicator->calls_to_compare);
}

void zeropp_name(zeropp_communicator* communicator, const char* name) { communicator->call->name = name; }

zeropp_status zeropp_refuse(zeropp_communicator* communicator, const char* function, const char* words, void* stream) {
    return status_of_collective(*communicator, function, stream,
                                [&](const execution&) { throw std::runtime_error(words); });
}

void zeropp_communicator_destroy(zeropp_communicator* communicator) { delete communicator; }

void zeropp_traffic(const zeropp_communicator* communicator, uint64_t* intra_node, uint64_t* inter_node,
                    uint64_t* calls) {
    const zeropp::traffic total = communicator->world.total();
    *intra_node = total.intra_node_bytes;
    *inter_node = total.inter_node_bytes + total.inter_site_bytes;
    *calls = total.calls;
}

void zeropp_traffic_in_sites(const zeropp_communicator* communicator, uint64_t* bytes, uint64_t* calls) {
    const zeropp::traffic total = communicator->world.total();
    bytes[0] = total.intra_node_bytes;
    bytes[1] = total.inter_node_bytes;
    bytes[2] = total.inter_site_bytes;
    *calls = total.calls;
}
