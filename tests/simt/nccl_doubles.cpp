#include "simt/nccl_doubles.hpp"

#include <zeropp/core/element.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace zeropp_test::simt {
namespace {

/// What one rank sends to, or receives from, another.
struct transfer {
    int peer;
    std::byte* memory;
    std::size_t bytes;
};

/// to <- to + from, of elements in `bytes` bytes.
using add_function = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);

/// One rank's part of a call.
struct part {
    std::string operation;
    std::vector<transfer> sends;
    std::vector<transfer> receives;
    device_work::place place{};
    add_function add = nullptr;  // where what is received is added up, in order of `receives`
};

struct clique;

/// One call of all ranks of a communicator: what travels, and whether it has left.
struct call {
    clique& ranks;
    std::size_t number;
    std::vector<std::optional<part>> parts;
    std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> in_flight;  // by sender and receiver
    bool sent = false;

    /// True if all ranks have made the call, and none has ended it since.
    bool complete() const;
    std::string name() const { return "call " + std::to_string(number); }
};

/// The ranks that one communicator connects.
struct clique {
    explicit clique(int size) : comms(static_cast<std::size_t>(size)), left(comms.size()) {}

    std::vector<ncclComm_t> comms;  // by rank; null until it has joined, and when it has left
    std::vector<bool> left;
    bool formed = false;  // all have joined
    std::vector<std::unique_ptr<call>> calls;

    int size() const { return static_cast<int>(comms.size()); }

    // The split that goes on: colour and key by rank, and what becomes of it.
    struct choice {
        int colour;
        int key;
    };
    struct splitting {
        std::vector<std::optional<choice>> choices;
        std::map<int, std::shared_ptr<clique>> cliques;  // by colour
        std::size_t taken = 0;
    };
    std::shared_ptr<splitting> split;

    // A shrink by the ranks that gave one list of ranks to leave out.
    struct shrinking {
        explicit shrinking(int size) : left(std::make_shared<clique>(size)) {}
        std::shared_ptr<clique> left;
        int called = 0;
    };
    std::map<std::vector<int>, std::shared_ptr<shrinking>> shrinks;

    std::map<int, std::vector<std::size_t>> windows;  // sizes of those that a rank has registered, in order
};

}  // namespace
}  // namespace zeropp_test::simt

// The handle points to a type that only NCCL defines; here, this. Handles that have ended are kept, so that they can be
// told from new ones.
struct ncclComm {
    std::shared_ptr<zeropp_test::simt::clique> ranks;
    int rank = 0;
    std::thread::id device;  // ranks are threads with a device each, whatever numbers those have
    bool ended = false;
    bool revoked = false;
    std::size_t calls = 0;
    std::size_t interrupted = 0;                                // calls with lower numbers end without their data
    std::vector<zeropp_test::simt::device_work::place> places;  // of its calls
    std::shared_ptr<int> in_graphs = std::make_shared<int>();   // graphs share it that have calls of its own
    ncclResult_t noticed = ncclSuccess;
    bool blocking = true;
    std::function<bool()> goes_on;        // whether a call of its own, if it does not block, is still in progress
    ncclComm_t* makes = nullptr;          // where that call writes a new communicator
    std::optional<ncclResult_t> outcome;  // of a call that is settled later
    int times_in_progress = 0;
};

#ifdef NCCL_WIN_COLL_SYMMETRIC
struct ncclWindow_vidmem {
    ncclComm_t comm;
    std::byte* memory;
    std::size_t bytes;
};
#endif

namespace zeropp_test::simt {
namespace {

namespace work = device_work;

bool call::complete() const {
    const auto ended = [&](ncclComm_t comm) { return comm != nullptr && number < comm->interrupted; };
    return std::all_of(parts.begin(), parts.end(), [](const auto& p) { return p.has_value(); }) &&
           std::none_of(ranks.comms.begin(), ranks.comms.end(), ended);
}

struct network {
    std::vector<std::unique_ptr<ncclComm>> comms;
    std::map<std::array<char, NCCL_UNIQUE_ID_BYTES>, std::shared_ptr<clique>> joining;
    std::uint64_t ids = 0;
    std::string last_error;
    std::map<std::string, ncclResult_t> injected;
    std::map<std::string, ncclResult_t> later;
    bool calls_hang = false;
    std::set<void*> allocated;  // by ncclMemAlloc
#ifdef NCCL_WIN_COLL_SYMMETRIC
    std::map<ncclWindow_t, std::unique_ptr<ncclWindow_vidmem>> windows;

    /// Whether all that is sent and received lies in windows of the communicator.
    bool in_windows(ncclComm_t comm, const part& p) const {
        const auto covered = [&](const transfer& t) {
            const auto* const first = static_cast<const std::byte*>(t.memory);
            return std::any_of(windows.begin(), windows.end(), [&](const auto& w) {
                const ncclWindow_vidmem& of = *w.second;
                return of.comm == comm && first >= of.memory && first + t.bytes <= of.memory + of.bytes;
            });
        };
        return std::all_of(p.sends.begin(), p.sends.end(), covered) &&
               std::all_of(p.receives.begin(), p.receives.end(), covered);
    }
#endif
};

/// Only while no other thread is inside the device.
network& the_network() {
    static network n;
    return n;
}

// The group that the calling thread has opened.
using group_parts = std::vector<std::pair<std::pair<ncclComm_t, cudaStream_t>, part>>;
thread_local int group_depth = 0;
thread_local group_parts group;
thread_local ncclResult_t group_failure = ncclSuccess;

ncclResult_t fail(ncclResult_t code, const std::string& why) {
    the_network().last_error = why;
    return code;
}

/// Wrong use of NCCL that NCCL need not notice.
ncclResult_t fault(const std::string& why) {
    work::fault(why);
    return fail(ncclInvalidUsage, why);
}

/// The body of an entry point: one at a time, unless it was told to fail. `comm` is the communicator that it is about,
/// if there is one.
template <class Body>
ncclResult_t nccl_entry_point(const char* name, ncclComm_t comm, Body body) {
    ncclResult_t code = ncclSuccess;
    work::alone([&] {
        network& n = the_network();
        work::count(name);
        if (comm != nullptr && comm->ended) {
            code = fault(std::string(name) + ": the communicator has been destroyed or aborted");
        } else if (const auto injected = n.injected.extract(name)) {
            code = fail(injected.mapped(), std::string(name) + " was told to fail");
        } else if (const auto later = n.later.extract(name)) {
            if (later.mapped() == ncclSuccess) code = body(n);
            if (later.mapped() != ncclSuccess) fail(later.mapped(), std::string(name) + " was told to fail later");
            comm->outcome = later.mapped();
            comm->times_in_progress = 2;
            if (code == ncclSuccess) code = ncclInProgress;
        } else {
            code = body(n);
        }
        if (group_depth != 0 && code != ncclSuccess && code != ncclInProgress) group_failure = code;
    });
    return code;
}

ncclComm_t join(network& n, const std::shared_ptr<clique>& ranks, int rank) {
    n.comms.push_back(std::make_unique<ncclComm>());
    const ncclComm_t comm = n.comms.back().get();
    comm->ranks = ranks;
    comm->rank = rank;
    comm->device = std::this_thread::get_id();
    ranks->comms[static_cast<std::size_t>(rank)] = comm;
    ranks->formed = std::count(ranks->comms.begin(), ranks->comms.end(), nullptr) == 0;
    work::changed();
    return comm;
}

void end(ncclComm_t comm) {
    comm->ended = true;
    const auto rank = static_cast<std::size_t>(comm->rank);
    comm->ranks->comms[rank] = nullptr;
    comm->ranks->left[rank] = true;
    work::changed();
}

std::string bytes_of(const std::vector<transfer>& transfers, int peer) {
    std::string text;
    for (const transfer& t : transfers) {
        if (t.peer == peer) text += (text.empty() ? "" : " and ") + std::to_string(t.bytes);
    }
    return text.empty() ? "nothing" : text + " bytes";
}

/// What is wrong with a call that all ranks have made; "" if nothing is.
std::string disagreement(const call& c) {
    const int size = static_cast<int>(c.parts.size());
    for (int r = 0; r != size; ++r) {
        const std::string& mine = c.parts[static_cast<std::size_t>(r)]->operation;
        if (mine == c.parts[0]->operation) continue;
        return c.name() + " is " + c.parts[0]->operation + " on rank 0 and " + mine + " on rank " + std::to_string(r);
    }
    for (int r = 0; r != size; ++r) {
        const part& mine = *c.parts[static_cast<std::size_t>(r)];
        for (int peer = 0; peer != size; ++peer) {
            const std::string sent = bytes_of(mine.sends, peer);
            const std::string received = bytes_of(c.parts[static_cast<std::size_t>(peer)]->receives, r);
            if (sent != received) {
                return c.name() + ", " + mine.operation + ": rank " + std::to_string(r) + " sends " + sent +
                       " to rank " + std::to_string(peer) + ", which receives " + received;
            }
        }
    }
    return {};
}

/// All ranks' data leaves, when what their streams hold before the call has run.
void send(call& c) {
    const std::string wrong = disagreement(c);
    if (!wrong.empty()) return work::fault(wrong);
    for (const auto& p : c.parts) work::run_before(p->place);
    if (c.sent || work::failed()) return;  // another thread may have come first
    for (std::size_t r = 0; r != c.parts.size(); ++r) {
        for (const transfer& t : c.parts[r]->sends) {
            c.in_flight[{static_cast<int>(r), t.peer}].emplace_back(t.memory, t.memory + t.bytes);
        }
    }
    c.sent = true;
    work::changed();
}

/// The work that a call is on one rank's stream.
void run(ncclComm_t comm, call& c) {
    const auto missing_for_good = [&] {
        for (std::size_t r = 0; r != c.parts.size(); ++r) {
            if (!c.parts[r] && c.ranks.left[r]) return static_cast<int>(r);
        }
        return -1;
    };
    const auto over = [&] { return work::failed() || comm->ended || c.number < comm->interrupted; };
    work::wait_until([&] {
        const bool for_ever = comm->noticed != ncclSuccess || missing_for_good() != -1;
        return over() || c.sent || c.complete() || (for_ever && !the_network().calls_hang);
    });
    if (over()) return;
    if (!c.sent) {
        const std::string who = "rank " + std::to_string(comm->rank) + " waits for ever in " + c.name();
        if (comm->noticed != ncclSuccess) return work::fault(who + ", on a communicator that has failed");
        if (!c.complete()) {
            return work::fault(who + " for rank " + std::to_string(missing_for_good()) + ", which has left");
        }
        send(c);
    }
    if (over()) return;
    const part& mine = *c.parts[static_cast<std::size_t>(comm->rank)];
    for (std::size_t i = 0; i != mine.receives.size(); ++i) {
        const transfer& t = mine.receives[i];
        auto& messages = c.in_flight[{t.peer, comm->rank}];
        if (t.bytes != 0 && mine.add != nullptr && i != 0) {
            mine.add(t.memory, messages.front().data(), t.bytes);
        } else if (t.bytes != 0) {
            std::memcpy(t.memory, messages.front().data(), t.bytes);
        }
        messages.pop_front();
    }
}

void enqueue(ncclComm_t comm, cudaStream_t stream, part p) {
    if (work::capture(stream, [comm, p, keep = comm->in_graphs](cudaStream_t on) { enqueue(comm, on, p); })) return;
    clique& ranks = *comm->ranks;
    if (ranks.calls.size() == comm->calls) {
        ranks.calls.push_back(std::make_unique<call>(call{ranks, comm->calls, {}, {}}));
        ranks.calls.back()->parts.resize(ranks.comms.size());
    }
    call& c = *ranks.calls[comm->calls++];
    p.place = work::enqueue(stream, [comm, &c, keep = comm->ranks] { run(comm, c); });
    comm->places.push_back(p.place);
    c.parts[static_cast<std::size_t>(comm->rank)] = std::move(p);
    work::changed();
}

/// A part that is enqueued now or, in a group, with the rest of it.
ncclResult_t add(ncclComm_t comm, cudaStream_t stream, part p) {
    if (comm->revoked) return fail(ncclInvalidUsage, p.operation + ": the communicator is revoked");
    if (!work::exists(stream)) return fail(ncclUnhandledCudaError, p.operation + ": no such stream");
    for (const auto& [direction, transfers] : {std::pair{"sends", p.sends}, {"receives", p.receives}}) {
        for (const transfer& t : transfers) {
            if (t.peer < 0 || t.peer >= comm->ranks->size()) {
                return fail(ncclInvalidArgument, p.operation + ": there is no rank " + std::to_string(t.peer));
            }
            if (t.bytes != 0 && !work::holds(t.memory, t.bytes)) {
                return fail(ncclInvalidArgument, p.operation + ": what it " + direction + " is not in device memory");
            }
        }
    }
#ifdef NCCL_WIN_COLL_SYMMETRIC
    if (the_network().in_windows(comm, p)) work::count("a call in windows");
#endif
    if (group_depth == 0) {
        enqueue(comm, stream, std::move(p));
        return ncclSuccess;
    }
    const std::pair where{comm, stream};
    auto same = std::find_if(group.begin(), group.end(), [&](const auto& g) { return g.first == where; });
    if (same == group.end()) same = group.insert(group.end(), {where, {p.operation, {}, {}, {}}});
    same->second.sends.insert(same->second.sends.end(), p.sends.begin(), p.sends.end());
    same->second.receives.insert(same->second.receives.end(), p.receives.begin(), p.receives.end());
    return ncclSuccess;
}

/// What ncclAllGather and ncclAlltoAll have in common: rank r's bytes end at recv + r * bytes.
ncclResult_t add_collective(const char* name, ncclComm_t comm, cudaStream_t stream, const void* send, void* recv,
                            std::size_t bytes, bool same_to_all) {
    auto* const out = static_cast<std::byte*>(const_cast<void*>(send));
    auto* const in = static_cast<std::byte*>(recv);
    const auto size = static_cast<std::size_t>(comm->ranks->size());
    const std::byte* const in_place = in + static_cast<std::size_t>(comm->rank) * bytes;
    const bool overlap = out < in + size * bytes && in < out + (same_to_all ? bytes : size * bytes);
    if (overlap && !(same_to_all && out == in_place)) return fault(std::string(name) + ": its buffers overlap");
    part p{name, {}, {}, {}};
    for (std::size_t r = 0; r != size; ++r) {
        p.sends.push_back({static_cast<int>(r), same_to_all ? out : out + r * bytes, bytes});
        p.receives.push_back({static_cast<int>(r), in + r * bytes, bytes});
    }
    return add(comm, stream, std::move(p));
}

/// to <- to + from, rounded to T after each addition.
template <class T>
void add_elements(std::byte* to, const std::byte* from, std::size_t bytes) {
    using traits = zeropp::element_traits<T>;
    for (std::size_t at = 0; at != bytes; at += sizeof(T)) {
        T a;
        T b;
        std::memcpy(&a, to + at, sizeof(T));
        std::memcpy(&b, from + at, sizeof(T));
        a = traits::from_float(traits::to_float(a) + traits::to_float(b));
        std::memcpy(to + at, &a, sizeof(T));
    }
}

/// Sums of these elements; null where the doubles have none.
add_function add_of(ncclDataType_t type) {
    switch (type) {
    case ncclFloat32:
        return add_elements<float>;
    case ncclFloat16:
        return add_elements<zeropp::half>;
    case ncclBfloat16:
        return add_elements<zeropp::bfloat16>;
    default:
        return nullptr;
    }
}

/// The clique of this rank's colour, made by whoever comes last.
void choose_cliques(clique::splitting& s) {
    std::set<int> colours;
    for (const auto& c : s.choices) colours.insert(c->colour);
    for (const int colour : colours) {
        const auto size =
            std::count_if(s.choices.begin(), s.choices.end(), [&](const auto& c) { return c->colour == colour; });
        if (colour != NCCL_SPLIT_NOCOLOR) s.cliques[colour] = std::make_shared<clique>(static_cast<int>(size));
    }
}

/// The place of `rank` among those of its colour, by key and then by rank.
int place_in_split(const clique::splitting& s, int rank) {
    const auto& mine = *s.choices[static_cast<std::size_t>(rank)];
    int place = 0;
    for (int r = 0; r != static_cast<int>(s.choices.size()); ++r) {
        const auto& other = *s.choices[static_cast<std::size_t>(r)];
        if (other.colour == mine.colour && std::pair(other.key, r) < std::pair(mine.key, rank)) ++place;
    }
    return place;
}

std::size_t size_of(ncclDataType_t type) {
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
        return 4;
    default:
        return 8;
    }
}

/// Waits until done(), or, on a communicator that does not block, leaves that to ncclCommGetAsyncError. done() writes a
/// new communicator to `makes`.
ncclResult_t wait_or_leave(ncclComm_t comm, std::function<bool()> done, ncclComm_t* makes = nullptr) {
    if (comm->blocking) {
        work::wait_until(done);
        return ncclSuccess;
    }
    comm->goes_on = [done = std::move(done)] { return !done(); };
    comm->makes = makes;
    return ncclInProgress;
}

/// Ends a call that is still in progress, as the end of its communicator does. A split or a shrink then writes a new
/// communicator, which has failed.
void cut_short(network& n, ncclComm_t comm) {
    if (!comm->goes_on || !std::exchange(comm->goes_on, nullptr)()) return;
    ncclComm_t* const made = std::exchange(comm->makes, nullptr);
    if (made == nullptr) return;
    *made = join(n, std::make_shared<clique>(1), 0);
    (*made)->noticed = ncclSystemError;
}

/// NCCL ends no communicator while a graph has calls of it.
void wait_for_graphs(ncclComm_t comm) {
    work::wait_until([comm] { return comm->in_graphs.use_count() == 1; });
}

/// Ends all calls of the communicator so far, when its streams have come to them.
void interrupt(ncclComm_t comm) {
    comm->interrupted = comm->calls;
    work::changed();
}

ncclResult_t init_rank(const char* name, ncclComm_t* comm, int size, ncclUniqueId id, int rank, bool blocking) {
    *comm = nullptr;
    return nccl_entry_point(name, nullptr, [&](network& n) {
        if (size < 1 || rank < 0 || rank >= size) {
            return fail(ncclInvalidArgument,
                        "invalid rank " + std::to_string(rank) + " of " + std::to_string(size) + " ranks");
        }
        auto& joining = n.joining[std::to_array(id.internal)];
        if (!joining) joining = std::make_shared<clique>(size);
        const std::shared_ptr<clique> ranks = joining;
        if (ranks->size() != size || ranks->comms[static_cast<std::size_t>(rank)] != nullptr) {
            return fault(std::string(name) + ": ranks with one id disagree about who they are");
        }
        *comm = join(n, ranks, rank);
        (*comm)->blocking = blocking;
        if (ranks->formed) n.joining.erase(std::to_array(id.internal));
        return wait_or_leave(*comm, [ranks] { return ranks->formed; });
    });
}

}  // namespace

hanging_calls::hanging_calls() {
    work::alone([] { the_network().calls_hang = true; });
}

hanging_calls::~hanging_calls() {
    work::alone([] { the_network().calls_hang = false; });
}

std::size_t live_communicators() {
    std::size_t live = 0;
    work::alone([&] {
        const auto& comms = the_network().comms;
        live = static_cast<std::size_t>(
            std::count_if(comms.begin(), comms.end(), [](const auto& comm) { return !comm->ended; }));
    });
    return live;
}

void fail_next(const std::string& entry_point, ncclResult_t code) {
    work::alone([&] { the_network().injected[entry_point] = code; });
}

void settle_later(const std::string& entry_point, ncclResult_t outcome) {
    work::alone([&] { the_network().later[entry_point] = outcome; });
}

void notice(ncclComm_t comm, ncclResult_t code) {
    work::alone([&] {
        comm->noticed = code;
        fail(code, "the network was told to fail");
        work::changed();
    });
}

}  // namespace zeropp_test::simt

// The entry points.

namespace simt = zeropp_test::simt;
using simt::fail;
using simt::nccl_entry_point;
using simt::network;

const char* ncclGetErrorString(ncclResult_t code) {
    switch (code) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
        return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
        return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
        return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
        return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    default:
        return "unknown result code";
    }
}

const char* ncclGetLastError(ncclComm_t) {
    static thread_local std::string text;
    simt::work::alone([] { text = simt::the_network().last_error; });
    return text.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    return nccl_entry_point("ncclGetUniqueId", nullptr, [&](network& n) {
        *id = {};
        ++n.ids;
        std::memcpy(id->internal, &n.ids, sizeof n.ids);
        return ncclSuccess;
    });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
    return simt::init_rank("ncclCommInitRank", comm, size, id, rank, true);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
    return simt::init_rank("ncclCommInitRankConfig", comm, size, id, rank, config->blocking != 0);
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
    return nccl_entry_point("ncclCommUserRank", comm, [&](network&) {
        *rank = comm->rank;
        return ncclSuccess;
    });
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* size) {
    return nccl_entry_point("ncclCommCount", comm, [&](network&) {
        *size = comm->ranks->size();
        return ncclSuccess;
    });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* code) {
    return nccl_entry_point("ncclCommGetAsyncError", comm, [&](network&) {
        *code = comm->noticed;
        if (comm->goes_on && comm->noticed == ncclSuccess) {
            if (comm->goes_on()) {
                *code = ncclInProgress;
                return ncclSuccess;
            }
            comm->goes_on = nullptr;
        }
        if (comm->outcome && comm->times_in_progress-- > 0) {
            *code = ncclInProgress;
        } else if (comm->outcome) {
            *code = comm->noticed = *std::exchange(comm->outcome, std::nullopt);
        }
        return ncclSuccess;
    });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* child, ncclConfig_t*) {
    *child = nullptr;
    return nccl_entry_point("ncclCommSplit", comm, [&](network& n) {
        if (simt::group_depth != 0) return simt::fault("ncclCommSplit in a group that is still open");
        simt::clique& ranks = *comm->ranks;
        if (!ranks.split) ranks.split = std::make_shared<simt::clique::splitting>();
        const auto mine = ranks.split;
        mine->choices.resize(ranks.comms.size());
        auto& choice = mine->choices[static_cast<std::size_t>(comm->rank)];
        choice = {colour, key};
        if (std::none_of(mine->choices.begin(), mine->choices.end(), [](const auto& c) { return !c; })) {
            simt::choose_cliques(*mine);
            ranks.split.reset();
            simt::work::changed();
        }
        return simt::wait_or_leave(
            comm,
            [comm, mine, colour, child, &n] {
                if (comm->ranks->split == mine) return false;
                if (colour == NCCL_SPLIT_NOCOLOR) return true;
                *child = simt::join(n, mine->cliques.at(colour), simt::place_in_split(*mine, comm->rank));
                (*child)->blocking = comm->blocking;
                return true;
            },
            colour == NCCL_SPLIT_NOCOLOR ? nullptr : child);
    });
}

#ifdef NCCL_SHRINK_ABORT
ncclResult_t ncclCommShrink(ncclComm_t comm, int* list, int count, ncclComm_t* next, ncclConfig_t*, int flags) {
    *next = nullptr;
    return nccl_entry_point("ncclCommShrink", comm, [&](network& n) {
        if (simt::group_depth != 0) return simt::fault("ncclCommShrink in a group that is still open");
        std::vector<int> excluded(list, list + count);
        std::sort(excluded.begin(), excluded.end());
        const auto out = [&](int r) { return std::binary_search(excluded.begin(), excluded.end(), r); };
        const int size = comm->ranks->size();
        if (excluded.empty() || excluded.front() < 0 || excluded.back() >= size || out(comm->rank)) {
            return fail(ncclInvalidArgument, "ncclCommShrink: wrong ranks to exclude");
        }
        if (flags != NCCL_SHRINK_ABORT && comm->noticed != ncclSuccess) {
            return fail(ncclInvalidArgument, "ncclCommShrink: a communicator that has failed, without its flag");
        }
        if (flags == NCCL_SHRINK_ABORT) {
            simt::cut_short(n, comm);
            simt::interrupt(comm);
            for (const auto& place : comm->places) simt::work::run_through(place);
        }
        auto& shrink = comm->ranks->shrinks[excluded];
        if (!shrink) shrink = std::make_shared<simt::clique::shrinking>(size - count);
        ++shrink->called;
        simt::work::changed();
        const auto below = std::lower_bound(excluded.begin(), excluded.end(), comm->rank) - excluded.begin();
        return simt::wait_or_leave(
            comm,
            [comm, next, &n, mine = shrink, place = comm->rank - static_cast<int>(below)] {
                if (mine->called != mine->left->size()) return false;
                *next = simt::join(n, mine->left, place);
                (*next)->blocking = comm->blocking;
                return true;
            },
            next);
    });
}
#endif

#ifdef NCCL_REVOKE_DEFAULT
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
    return nccl_entry_point("ncclCommRevoke", comm, [&](network& n) {
        if (flags != NCCL_REVOKE_DEFAULT) return fail(ncclInvalidArgument, "ncclCommRevoke: unknown flags");
        simt::cut_short(n, comm);
        comm->revoked = true;
        simt::interrupt(comm);
        return simt::wait_or_leave(comm, [comm] {
            for (const auto& place : comm->places) simt::work::run_through(place);
            return true;
        });
    });
}
#endif

ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes) {
    const ncclResult_t code = nccl_entry_point("ncclMemAlloc", nullptr, [](network&) { return ncclSuccess; });
    if (code != ncclSuccess) return code;
    if (cudaMalloc(memory, bytes) != cudaSuccess) return ncclUnhandledCudaError;
    simt::work::alone([&] { simt::the_network().allocated.insert(*memory); });
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void* memory) {
    const ncclResult_t code = nccl_entry_point("ncclMemFree", nullptr, [&](network& n) {
#ifdef NCCL_WIN_COLL_SYMMETRIC
        const auto of_memory = [&](const auto& window) { return window.second->memory == memory; };
        if (std::any_of(n.windows.begin(), n.windows.end(), of_memory)) {
            return simt::fault("ncclMemFree: the memory is a window");
        }
#endif
        return n.allocated.erase(memory) == 1 ? ncclSuccess : simt::fault("ncclMemFree: not from ncclMemAlloc");
    });
    if (code == ncclSuccess) cudaFree(memory);
    return code;
}

#ifdef NCCL_WIN_COLL_SYMMETRIC
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, std::size_t bytes, ncclWindow_t* window, int flags) {
    return nccl_entry_point("ncclCommWindowRegister", comm, [&](network& n) {
        if (flags != NCCL_WIN_COLL_SYMMETRIC || !n.allocated.contains(memory)) {
            return simt::fault("ncclCommWindowRegister: no memory of ncclMemAlloc for a symmetric window");
        }
        auto& sizes = comm->ranks->windows;
        const std::size_t index = sizes[comm->rank].size();
        sizes[comm->rank].push_back(bytes);
        simt::work::changed();
        return simt::wait_or_leave(comm, [comm, &sizes, index, memory, bytes, window, &n] {
            for (int r = 0; r != comm->ranks->size(); ++r) {
                if (sizes[r].size() <= index) return false;
            }
            for (int r = 0; r != comm->ranks->size(); ++r) {
                if (sizes[r][index] != bytes) simt::fault("ncclCommWindowRegister: ranks have other sizes");
            }
            auto made = std::make_unique<ncclWindow_vidmem>(comm, static_cast<std::byte*>(memory), bytes);
            *window = made.get();
            n.windows.emplace(made.get(), std::move(made));
            return true;
        });
    });
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
    return nccl_entry_point("ncclCommWindowDeregister", comm, [&](network& n) {
        const auto found = n.windows.find(window);
        if (found == n.windows.end() || found->second->comm != comm) {
            return simt::fault("ncclCommWindowDeregister: no window of this communicator");
        }
        n.windows.erase(found);
        return ncclSuccess;
    });
}
#endif

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    return nccl_entry_point("ncclCommDestroy", comm, [&](network& n) {
        if (simt::group_depth != 0) return simt::fault("ncclCommDestroy in a group that is still open");
#ifdef NCCL_WIN_COLL_SYMMETRIC
        const auto of_comm = [&](const auto& window) { return window.second->comm == comm; };
        if (std::any_of(n.windows.begin(), n.windows.end(), of_comm)) {
            return simt::fault("ncclCommDestroy: a window is registered");
        }
#endif
        for (const auto& place : comm->places) simt::work::run_through(place);
        simt::wait_for_graphs(comm);
        simt::end(comm);
        return ncclSuccess;
    });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    return nccl_entry_point("ncclCommFinalize", comm, [&](network&) {
        if (simt::group_depth != 0) return simt::fault("ncclCommFinalize in a group that is still open");
        if (comm->revoked) return simt::fault("ncclCommFinalize: the communicator is revoked");
        return simt::wait_or_leave(comm, [comm] {
            return std::all_of(comm->places.begin(), comm->places.end(),
                               [](const auto& place) { return simt::work::completed(place); });
        });
    });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    return nccl_entry_point("ncclCommAbort", comm, [&](network& n) {
        if (simt::group_depth != 0) return simt::fault("ncclCommAbort in a group that is still open");
#ifdef NCCL_WIN_COLL_SYMMETRIC
        std::erase_if(n.windows, [&](const auto& window) { return window.second->comm == comm; });
#endif
        simt::cut_short(n, comm);
        simt::end(comm);
        // The others lose a connection.
        for (const ncclComm_t other : comm->ranks->comms) {
            if (other == nullptr || other->noticed != ncclSuccess) continue;
            other->noticed = ncclRemoteError;
            fail(ncclRemoteError, "rank " + std::to_string(comm->rank) + " has closed its connections");
        }
        // NCCL waits for the whole device here, its other communicators' kernels included.
        std::vector<simt::work::place> places;
        for (const auto& other : n.comms) {
            if (other->device == comm->device) places.insert(places.end(), other->places.begin(), other->places.end());
        }
        for (const auto& place : places) simt::work::run_through(place);
        simt::wait_for_graphs(comm);
        return ncclSuccess;
    });
}

ncclResult_t ncclGroupStart() {
    return nccl_entry_point("ncclGroupStart", nullptr, [](network&) {
        if (simt::group_depth++ == 0) simt::group_failure = ncclSuccess;
        return ncclSuccess;
    });
}

ncclResult_t ncclGroupEnd() {
    // Whatever becomes of it, the group is over.
    const bool open = simt::group_depth != 0;
    const bool last = open && --simt::group_depth == 0;
    const auto parts = last ? std::exchange(simt::group, {}) : simt::group_parts();
    const ncclComm_t comm = parts.empty() ? nullptr : parts.front().first.first;
    return nccl_entry_point("ncclGroupEnd", comm, [&](network&) {
        if (!open) return fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
        if (last && simt::group_failure != ncclSuccess) return simt::group_failure;
        for (const auto& [where, part] : parts) simt::enqueue(where.first, where.second, part);
        return ncclSuccess;
    });
}

ncclResult_t ncclSend(const void* memory, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return nccl_entry_point("ncclSend", comm, [&](network&) {
        auto* const bytes = static_cast<std::byte*>(const_cast<void*>(memory));
        return simt::add(comm, stream, {"a group", {{peer, bytes, count * simt::size_of(type)}}, {}, {}});
    });
}

ncclResult_t ncclRecv(void* memory, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return nccl_entry_point("ncclRecv", comm, [&](network&) {
        auto* const bytes = static_cast<std::byte*>(memory);
        return simt::add(comm, stream, {"a group", {}, {{peer, bytes, count * simt::size_of(type)}}, {}});
    });
}

ncclResult_t ncclAllGather(const void* send, void* recv, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    return nccl_entry_point("ncclAllGather", comm, [&](network&) {
        return simt::add_collective("ncclAllGather", comm, stream, send, recv, count * simt::size_of(type), true);
    });
}

ncclResult_t ncclBroadcast(const void* send, void* recv, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    return nccl_entry_point("ncclBroadcast", comm, [&](network&) {
        auto* const out = static_cast<std::byte*>(const_cast<void*>(send));
        auto* const in = static_cast<std::byte*>(recv);
        const std::size_t bytes = count * simt::size_of(type);
        simt::part p{"ncclBroadcast", {}, {{root, in, bytes}}, {}};
        if (comm->rank == root) {
            if (out < in + bytes && in < out + bytes && in != out) {
                return simt::fault("ncclBroadcast: its buffers overlap");
            }
            for (int r = 0; r != comm->ranks->size(); ++r) p.sends.push_back({r, out, bytes});
        }
        return simt::add(comm, stream, std::move(p));
    });
}

ncclResult_t ncclReduceScatter(const void* send, void* recv, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
    return nccl_entry_point("ncclReduceScatter", comm, [&](network&) {
        const simt::add_function add = simt::add_of(type);
        if (op != ncclSum || add == nullptr) {
            return fail(ncclInvalidArgument, "ncclReduceScatter: the doubles have sums of floats only");
        }
        auto* const out = static_cast<std::byte*>(const_cast<void*>(send));
        auto* const in = static_cast<std::byte*>(recv);
        const auto size = static_cast<std::size_t>(comm->ranks->size());
        const std::size_t bytes = count * simt::size_of(type);
        const bool overlap = out < in + bytes && in < out + size * bytes;
        if (overlap && in != out + static_cast<std::size_t>(comm->rank) * bytes) {
            return simt::fault("ncclReduceScatter: its buffers overlap");
        }
        simt::part p{"ncclReduceScatter", {}, {}, {}, add};
        for (std::size_t r = 0; r != size; ++r) {
            p.sends.push_back({static_cast<int>(r), out + r * bytes, bytes});
            p.receives.push_back({static_cast<int>(r), in, bytes});
        }
        return simt::add(comm, stream, std::move(p));
    });
}

ncclResult_t ncclAllReduce(const void* send, void* recv, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return nccl_entry_point("ncclAllReduce", comm, [&](network&) {
        const simt::add_function add = simt::add_of(type);
        if (op != ncclSum || add == nullptr) {
            return fail(ncclInvalidArgument, "ncclAllReduce: the doubles have sums of floats only");
        }
        auto* const out = static_cast<std::byte*>(const_cast<void*>(send));
        auto* const in = static_cast<std::byte*>(recv);
        const std::size_t bytes = count * simt::size_of(type);
        if (out < in + bytes && in < out + bytes && in != out) {
            return simt::fault("ncclAllReduce: its buffers overlap");
        }
        simt::part p{"ncclAllReduce", {}, {}, {}, add};
        for (int r = 0; r != comm->ranks->size(); ++r) {
            p.sends.push_back({r, out, bytes});
            p.receives.push_back({r, in, bytes});
        }
        return simt::add(comm, stream, std::move(p));
    });
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
ncclResult_t ncclAlltoAll(const void* send, void* recv, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
    return nccl_entry_point("ncclAlltoAll", comm, [&](network&) {
        return simt::add_collective("ncclAlltoAll", comm, stream, send, recv, count * simt::size_of(type), false);
    });
}
#endif
