/// \file
/// zeropp's C functions as typed handlers of XLA on CPU, over MPI.
///
/// A handler only enqueues. The communicator's thread makes the call and completes XLA's future. So no thread of XLA
/// waits for other ranks: a wait could keep XLA from a collective of JAX that the other ranks wait for.

#include "mpi_groups.h"

#include <xla/ffi/api/ffi.h>
#include <zeropp_c.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace ffi = xla::ffi;

namespace {

/// Tokens are 1 + the number of earlier calls modulo this. A float holds them exactly, and 0 is no token.
constexpr std::uint64_t token_period = 1 << 23;

class communicator {
public:
    communicator(const int* nodes, int nodes_per_site, int size, int rank, double seconds)
        : thread_([this] { run(); }) {
        const zeropp_callbacks callbacks = mpi_groups_of(&groups_, MPI_COMM_WORLD, seconds);
        try {
            require(zeropp_communicator_create_in_sites(nodes, nodes_per_site, size, rank, callbacks, &comm));
        } catch (...) {
            stop();
            throw;
        }
        zeropp_compare(comm, SIZE_MAX);
    }

    /// Runs `call` after all earlier ones, with token `token`, and writes the next token.
    ffi::Future enqueue(float token, float* next, std::function<void()> call) {
        ffi::Promise promise;
        ffi::Future future(promise);
        const std::lock_guard lock(mutex_);
        if (stopped_) {
            promise.SetError(ffi::Error::Internal("zeropp_jax: expected a call before the process ends"));
            return future;
        }
        jobs_.push_back({token, next, std::move(call), std::move(promise)});
        changed_.notify_one();
        return future;
    }

    /// The next call's token, if no call is under way.
    float token() {
        const std::lock_guard lock(mutex_);
        return token_;
    }

    /// A replica of a tensor of `elements` elements. Waits for the call that is under way.
    zeropp_replica* make_replica(zeropp_element element, std::size_t elements) {
        const std::lock_guard lock(calling_);
        const zeropp_tensor full{nullptr, elements, 1};
        zeropp_replica* made = nullptr;
        require(zeropp_replica_create(comm, element, &full, 1, &made));
        return made;
    }

    /// Waits for the call that is under way.
    void traffic(std::uint64_t* bytes, std::uint64_t* calls) {
        const std::lock_guard lock(calling_);
        zeropp_traffic_in_sites(comm, bytes, calls);
    }

    /// Throws unless `status` is success. After a failed callback all later calls fail.
    void require(zeropp_status status) {
        if (status == zeropp_callback_failed) {
            broken_ = std::string("zeropp: ") + groups_.problem;
            throw std::runtime_error(broken_);
        }
        if (status != zeropp_success) throw std::runtime_error(zeropp_error());
    }

    /// Ends the thread, after its last call.
    void stop() {
        {
            const std::lock_guard lock(mutex_);
            stopped_ = true;
            changed_.notify_one();
        }
        if (thread_.joinable()) thread_.join();
    }

    /// After stop(): true if no rank's call has been given up, so that MPI is through with their messages.
    bool is_complete() {
        MPI_Request request;
        return broken_.empty() && mpi_groups_wait(&groups_, MPI_Ibarrier(MPI_COMM_WORLD, &request), &request) == 0;
    }

    zeropp_communicator* comm = nullptr;

private:
    struct job {
        float token;
        float* next;
        std::function<void()> call;
        ffi::Promise promise;
    };

    void run() {
        for (;;) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return stopped_ || !jobs_.empty(); });
            if (jobs_.empty()) return;
            job next = std::move(jobs_.front());
            jobs_.pop_front();
            const float expected = token_;
            lock.unlock();
            try {
                if (!broken_.empty()) throw std::runtime_error(broken_);
                if (next.token != expected) {
                    throw std::runtime_error("zeropp_jax: expected token " +
                                             std::to_string(static_cast<int>(expected)) + ", given " +
                                             std::to_string(static_cast<int>(next.token)) +
                                             "; each call takes the token that the call before it has returned");
                }
                {
                    const std::lock_guard call(calling_);
                    next.call();
                }
                lock.lock();
                *next.next = token_ = static_cast<float>(++calls_ % token_period + 1);
                lock.unlock();
                next.promise.SetAvailable();
            } catch (const std::exception& e) {
                next.promise.SetError(ffi::Error::Internal(e.what()));
            }
        }
    }

    mpi_groups groups_{};
    std::mutex mutex_;
    std::mutex calling_;
    std::condition_variable changed_;
    std::deque<job> jobs_;
    std::uint64_t calls_ = 0;
    float token_ = 1;
    std::string broken_;
    bool stopped_ = false;
    std::thread thread_;
};

/// The node's copy of one tensor. `version` counts its updates.
struct replica {
    zeropp_replica* memory;
    std::int32_t version;
};

/// By the numbers that Python has. They live until the process ends, because compiled programs have the numbers too.
std::mutex tables;
std::vector<std::unique_ptr<communicator>> communicators;
std::vector<std::unique_ptr<replica>> replicas;
std::string last_error;

communicator& communicator_of(std::int64_t number) {
    const std::lock_guard lock(tables);
    return *communicators.at(static_cast<std::size_t>(number));
}

replica& replica_of(std::int64_t number) {
    const std::lock_guard lock(tables);
    return *replicas.at(static_cast<std::size_t>(number));
}

zeropp_element element_of(ffi::DataType type) {
    switch (type) {
    case ffi::DataType::F32:
        return zeropp_float32;
    case ffi::DataType::F16:
        return zeropp_float16;
    case ffi::DataType::BF16:
        return zeropp_bfloat16;
    default:
        throw std::runtime_error("zeropp_jax: expected float32, float16 or bfloat16");
    }
}

using token = ffi::Buffer<ffi::DataType::F32, 0>;
using next_token = ffi::Result<token>;
using version = ffi::Buffer<ffi::DataType::S32, 0>;

zeropp_tensor tensor_of(ffi::AnyBuffer buffer) { return {buffer.untyped_data(), buffer.element_count(), 1}; }

ffi::Future all_gather(ffi::AnyBuffer shard, token at, ffi::Result<ffi::AnyBuffer> full, next_token next,
                       std::int64_t index, std::string_view format) {
    communicator& ranks = communicator_of(index);
    const auto call = [&ranks, from = tensor_of(shard), to = tensor_of(*full), type = shard.element_type(),
                       format = std::string(format)] {
        ranks.require(zeropp_all_gather(ranks.comm, format.c_str(), element_of(type), &from, &to, 1, nullptr));
    };
    return ranks.enqueue(*at.typed_data(), next->typed_data(), call);
}

using reduction = decltype(zeropp_reduce_scatter);

/// zeropp_reduce_scatter, or zeropp_all_reduce, by `function`.
ffi::Future reduce(reduction* function, ffi::AnyBuffer full, token at, ffi::AnyBuffer result, float* next,
                   std::int64_t index, std::string_view intra_node, std::string_view inter_node, bool mean) {
    communicator& ranks = communicator_of(index);
    const auto call = [&ranks, function, from = tensor_of(full), to = tensor_of(result), type = full.element_type(),
                       intra_node = std::string(intra_node), inter_node = std::string(inter_node), mean] {
        ranks.require(function(ranks.comm, intra_node.c_str(), inter_node.c_str(), element_of(type), &from, &to, 1,
                               mean ? 1 : 0, nullptr, nullptr));
    };
    return ranks.enqueue(*at.typed_data(), next, call);
}

ffi::Future reduce_scatter(ffi::AnyBuffer full, token at, ffi::Result<ffi::AnyBuffer> shard, next_token next,
                           std::int64_t index, std::string_view intra_node, std::string_view inter_node, bool mean) {
    return reduce(zeropp_reduce_scatter, full, at, *shard, next->typed_data(), index, intra_node, inter_node, mean);
}

ffi::Future all_reduce(ffi::AnyBuffer tensor, token at, ffi::Result<ffi::AnyBuffer> result, next_token next,
                       std::int64_t index, std::string_view intra_node, std::string_view inter_node, bool mean) {
    return reduce(zeropp_all_reduce, tensor, at, *result, next->typed_data(), index, intra_node, inter_node, mean);
}

ffi::Future update_gather(ffi::AnyBuffer shard, token at, ffi::Result<ffi::AnyBuffer> full, ffi::Result<version> made,
                          next_token next, std::int64_t index, std::int64_t number, std::string_view differences) {
    communicator& ranks = communicator_of(index);
    replica& kept = replica_of(number);
    const auto call = [&ranks, &kept, from = tensor_of(shard), to = tensor_of(*full), made = made->typed_data(),
                       differences = std::string(differences)] {
        ranks.require(zeropp_update_gather(ranks.comm, kept.memory, differences.c_str(), &from, &to, 1, nullptr));
        *made = ++kept.version;
    };
    return ranks.enqueue(*at.typed_data(), next->typed_data(), call);
}

ffi::Future replica_gather(version wanted, token at, ffi::Result<ffi::AnyBuffer> full, next_token next,
                           std::int64_t index, std::int64_t number) {
    communicator& ranks = communicator_of(index);
    const replica& kept = replica_of(number);
    const auto call = [&ranks, &kept, to = tensor_of(*full), wanted = *wanted.typed_data()] {
        if (wanted != kept.version) {
            throw std::runtime_error("zeropp_jax: expected version " + std::to_string(wanted) +
                                     " in the replica, given " + std::to_string(kept.version) +
                                     ": it has been updated since");
        }
        ranks.require(zeropp_replica_gather(ranks.comm, kept.memory, &to, 1, nullptr));
    };
    return ranks.enqueue(*at.typed_data(), next->typed_data(), call);
}

/// Operands, results and attributes of both reductions.
auto bind_reduction() {
    return ffi::Ffi::Bind()
        .Arg<ffi::AnyBuffer>()
        .Arg<token>()
        .Ret<ffi::AnyBuffer>()
        .Ret<token>()
        .Attr<std::int64_t>("communicator")
        .Attr<std::string_view>("intra_node")
        .Attr<std::string_view>("inter_node")
        .Attr<bool>("mean");
}

/// Returns call(), or -1 after an exception, with its text for zeropp_jax_error.
template <class Call>
int number_of(Call call) noexcept {
    try {
        return call();
    } catch (const std::exception& e) {
        last_error = e.what();
        return -1;
    }
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(zeropp_jax_all_gather, all_gather,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<token>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<token>()
                                  .Attr<std::int64_t>("communicator")
                                  .Attr<std::string_view>("format"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(zeropp_jax_reduce_scatter, reduce_scatter, bind_reduction());

XLA_FFI_DEFINE_HANDLER_SYMBOL(zeropp_jax_all_reduce, all_reduce, bind_reduction());

XLA_FFI_DEFINE_HANDLER_SYMBOL(zeropp_jax_update_gather, update_gather,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<token>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<version>()
                                  .Ret<token>()
                                  .Attr<std::int64_t>("communicator")
                                  .Attr<std::int64_t>("replica")
                                  .Attr<std::string_view>("differences"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(zeropp_jax_replica_gather, replica_gather,
                              ffi::Ffi::Bind()
                                  .Arg<version>()
                                  .Arg<token>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<token>()
                                  .Attr<std::int64_t>("communicator")
                                  .Attr<std::int64_t>("replica"));

extern "C" {

/// Text of the last function that returned -1.
const char* zeropp_jax_error() { return last_error.c_str(); }

/// Starts MPI, unless it has been started. Returns -1 if it refuses several threads: each communicator has one.
int zeropp_jax_start(int* rank, int* size) {
    return number_of([&] {
        int started = 0, level = 0;
        MPI_Initialized(&started);
        if (started == 0) MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
        MPI_Query_thread(&level);
        if (level < MPI_THREAD_MULTIPLE) throw std::runtime_error("zeropp_jax: expected MPI_THREAD_MULTIPLE");
        MPI_Comm_rank(MPI_COMM_WORLD, rank);
        MPI_Comm_size(MPI_COMM_WORLD, size);
        return 0;
    });
}

/// Gives all ranks rank 0's `text` of `bytes` bytes.
void zeropp_jax_broadcast(char* text, int bytes) { MPI_Bcast(text, bytes, MPI_BYTE, 0, MPI_COMM_WORLD); }

/// The number of a new communicator, or -1. Collective.
int zeropp_jax_communicator(const int* nodes, int nodes_per_site, int size, int rank, double seconds) {
    return number_of([&] {
        auto made = std::make_unique<communicator>(nodes, nodes_per_site, size, rank, seconds);
        const std::lock_guard lock(tables);
        communicators.push_back(std::move(made));
        return static_cast<int>(communicators.size()) - 1;
    });
}

/// Bytes that this rank has sent within its node, to other nodes of its site and to other sites, and its calls.
void zeropp_jax_traffic(int number, std::uint64_t* bytes, std::uint64_t* calls) {
    communicator_of(number).traffic(bytes, calls);
}

float zeropp_jax_token(int number) { return communicator_of(number).token(); }

/// The number of a new replica of a tensor of `elements` elements, or -1.
int zeropp_jax_replica(int number, int element, std::size_t elements) {
    return number_of([&] {
        auto made = std::make_unique<replica>(
            replica{communicator_of(number).make_replica(static_cast<zeropp_element>(element), elements), 0});
        const std::lock_guard lock(tables);
        replicas.push_back(std::move(made));
        return static_cast<int>(replicas.size()) - 1;
    });
}

/// Ends the communicators and MPI. MPI stays if a call has been given up, because its messages may still arrive. All
/// memory is the process's until its end.
void zeropp_jax_stop() {
    bool complete = true;
    for (const auto& each : communicators) each->stop();
    for (const auto& each : communicators) complete = each->is_complete() && complete;
    if (complete) MPI_Finalize();
}

}  // extern "C"
