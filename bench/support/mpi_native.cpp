#include "support/mpi_native.hpp"

#include <zeropp/core/element.hpp>

#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace zeropp_bench {

namespace {

using zeropp::detail::require_mpi;

/// Sums bfloat16, which MPI lacks, in 16-bit words. Rounds after each addition, as MPI's own sums do.
void add_bfloat16(void* in, void* inout, int* count, MPI_Datatype*) {
    const auto* const a = static_cast<const zeropp::bfloat16*>(in);
    auto* const b = static_cast<zeropp::bfloat16*>(inout);
    for (int i = 0; i != *count; ++i) b[i] = zeropp::bfloat16(static_cast<float>(a[i]) + static_cast<float>(b[i]));
}

/// A communicator with one algorithm for its collectives.
struct algorithm {
    /// The collective, and the algorithm's name in Open MPI.
    std::string name;
    MPI_Comm comm;
};

/// Duplicates `ranks`, with collectives of Open MPI's component `component`, or of Open MPI's choice if empty.
MPI_Comm duplicate(MPI_Comm ranks, const char* component) {
    MPI_Info info = MPI_INFO_NULL;
    require_mpi(MPI_Info_create(&info), "MPI_Info_create");
    if (*component) require_mpi(MPI_Info_set(info, "ompi_comm_coll_preference", component), "MPI_Info_set");
    MPI_Comm copy = MPI_COMM_NULL;
    require_mpi(MPI_Comm_dup_with_info(ranks, info, &copy), "MPI_Comm_dup_with_info");
    MPI_Info_free(&info);
    // An algorithm that does not support this number of ranks returns an error, and is skipped.
    require_mpi(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return copy;
}

/// Appends a communicator for each algorithm that Open MPI's component `tuned` has for `collective`.
void add_tuned(std::vector<algorithm>& all, MPI_Comm ranks, const std::string& collective) {
    int variable = 0;
    if (MPI_T_cvar_get_index(("coll_tuned_" + collective + "_algorithm").c_str(), &variable) != MPI_SUCCESS) return;
    int verbosity = 0, binding = 0, scope = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_T_enum names = MPI_T_ENUM_NULL;
    require_mpi(
        MPI_T_cvar_get_info(variable, nullptr, nullptr, &verbosity, &type, &names, nullptr, nullptr, &binding, &scope),
        "MPI_T_cvar_get_info");
    if (names == MPI_T_ENUM_NULL) return;
    int count = 0;
    require_mpi(MPI_T_enum_get_info(names, &count, nullptr, nullptr), "MPI_T_enum_get_info");
    MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
    int one = 0;
    require_mpi(MPI_T_cvar_handle_alloc(variable, nullptr, &handle, &one), "MPI_T_cvar_handle_alloc");
    constexpr int own_choice = 0;
    for (int i = 0; i != count; ++i) {
        char name[64] = {};
        int length = sizeof name, value = 0;
        require_mpi(MPI_T_enum_get_item(names, i, &value, name, &length), "MPI_T_enum_get_item");
        if (value == own_choice) continue;
        // A communicator keeps the algorithm that is set while it is made.
        require_mpi(MPI_T_cvar_write(handle, &value), "MPI_T_cvar_write");
        all.push_back({collective + ", " + name, duplicate(ranks, "tuned")});
    }
    require_mpi(MPI_T_cvar_write(handle, &own_choice), "MPI_T_cvar_write");
    MPI_T_cvar_handle_free(&handle);
}

/// Every algorithm for each of `collectives`, which are names in Open MPI's variables.
std::vector<algorithm> algorithms_of(MPI_Comm ranks, const std::vector<std::string>& collectives) {
    std::vector<algorithm> all;
    for (const std::string& collective : collectives) {
        all.push_back({collective + ", the default", duplicate(ranks, "")});
        add_tuned(all, ranks, collective);
        // han has no reduce-scatter and no all-to-all.
        if (collective == "allgather" || collective == "allreduce")
            all.push_back({collective + ", han", duplicate(ranks, "han")});
    }
    return all;
}

class fastest_of_mpi final : public native_collectives {
public:
    explicit fastest_of_mpi(zeropp::mpi_transport transport) : transport_(std::move(transport)) {
        // Open MPI applies this level to the whole program.
        int level = MPI_THREAD_SINGLE;
        require_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
        require_mpi(MPI_T_init_thread(level, &level), "MPI_T_init_thread");
        require_mpi(MPI_Op_create(add_bfloat16, 1, &add_bfloat16_), "MPI_Op_create");
    }
    ~fastest_of_mpi() override {
        for (auto& [collectives, all] : algorithms_) {
            for (algorithm& a : all) MPI_Comm_free(&a.comm);
        }
        MPI_Op_free(&add_bfloat16_);
        MPI_T_finalize();
    }
    fastest_of_mpi(const fastest_of_mpi&) = delete;
    fastest_of_mpi& operator=(const fastest_of_mpi&) = delete;

    void all_gather(native_format format, const void* send, void* recv, std::size_t count) override {
        call({"allgather"}, format, counted(count), [&](const algorithm& a, int n) {
            return MPI_Allgather(send, n, type(format), recv, n, type(format), a.comm);
        });
    }

    void reduce_scatter(native_format format, const void* send, void* recv, std::size_t count) override {
        call({"reduce_scatter", "reduce_scatter_block"}, format, counted(count), [&](const algorithm& a, int n) {
            if (a.name.starts_with("reduce_scatter_block")) {
                return MPI_Reduce_scatter_block(send, recv, n, type(format), add(format), a.comm);
            }
            const std::vector<int> counts(static_cast<std::size_t>(transport_.size()), n);
            return MPI_Reduce_scatter(send, recv, counts.data(), type(format), add(format), a.comm);
        });
    }

    void all_reduce(native_format format, const void* send, void* recv, std::size_t count) override {
        call({"allreduce"}, format, counted(count), [&](const algorithm& a, int n) {
            return MPI_Allreduce(send, recv, n, type(format), add(format), a.comm);
        });
    }

    void all_to_all(native_format format, const void* send, void* recv, std::size_t count) override {
        call({"alltoall"}, format, counted(count), [&](const algorithm& a, int n) {
            return MPI_Alltoall(send, n, type(format), recv, n, type(format), a.comm);
        });
    }

    std::string algorithm_of_last_call() const override { return last_; }

private:
    /// Calls f(algorithm, count), which returns MPI's code, with the fastest algorithm.
    template <class F>
    void call(const std::vector<std::string>& collectives, native_format format, int count, F f) {
        const auto [known, is_new] = algorithms_.try_emplace(collectives);
        std::vector<algorithm>& all = known->second;
        if (is_new) {
            all = algorithms_of(transport_.native(), collectives);
            // Warms up: the first message between two ranks also connects them.
            for (const algorithm& a : all) f(a, 1);
        }
        const auto [place, is_untried] = fastest_.try_emplace({collectives, format, count});
        if (is_untried) {
            double least = std::numeric_limits<double>::infinity();
            for (const algorithm& a : all) {
                const double time = time_of(f, a, count);
                if (time < least) place->second = &a;
                least = std::min(least, time);
            }
            if (!place->second) throw zeropp::error("no algorithm of this MPI did " + collectives.front());
        }
        last_ = place->second->name;
        require_mpi(f(*place->second, count), last_.c_str());
    }

    /// Seconds of the slowest rank: the least of 3 calls, or of fewer if one takes 50 ms. Infinite if the algorithm
    /// fails on any rank. Collective.
    template <class F>
    double time_of(F& f, const algorithm& a, int count) {
        constexpr double long_time = 0.05;
        double least = std::numeric_limits<double>::infinity();
        for (int call = 0; call != 3; ++call) {
            require_mpi(MPI_Barrier(transport_.native()), "MPI_Barrier");
            const double begin = MPI_Wtime();
            double time = f(a, count) == MPI_SUCCESS ? MPI_Wtime() - begin : std::numeric_limits<double>::infinity();
            require_mpi(MPI_Allreduce(MPI_IN_PLACE, &time, 1, MPI_DOUBLE, MPI_MAX, transport_.native()),
                        "MPI_Allreduce");
            least = std::min(least, time);
            if (time > long_time) break;
        }
        return least;
    }

    MPI_Op add(native_format format) const { return format == native_format::fp32 ? MPI_SUM : add_bfloat16_; }
    static MPI_Datatype type(native_format format) { return format == native_format::fp32 ? MPI_FLOAT : MPI_UINT16_T; }

    int counted(std::size_t count) const {
        const auto most = static_cast<std::size_t>(std::numeric_limits<int>::max() / transport_.size());
        if (count > most) throw zeropp::error("MPI's own collectives count in int: the tensor is too large for them");
        return static_cast<int>(count);
    }

    zeropp::mpi_transport transport_;
    MPI_Op add_bfloat16_ = MPI_OP_NULL;
    std::map<std::vector<std::string>, std::vector<algorithm>> algorithms_;
    std::map<std::tuple<std::vector<std::string>, native_format, int>, const algorithm*> fastest_;
    std::string last_;
};

}  // namespace

void let_algorithms_be_chosen() {
    // Open MPI reads the variable in MPI_Init. Without it, algorithms that are set later are ignored.
    setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 0);
}

std::shared_ptr<native_collectives> mpi_native(zeropp::mpi_transport transport) {
    return std::make_shared<fastest_of_mpi>(std::move(transport));
}

}  // namespace zeropp_bench
