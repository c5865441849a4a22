#pragma once

#include "compared_transport.hpp"
#include "execution.hpp"
#include "in_flight.hpp"
#include "kept_lists.hpp"
#include <zeropp_c.h>

#include <zeropp/transport/callback.hpp>
#include <zeropp/zeropp.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace zeropp_c {

using fp32 = zeropp::quantizer_named<"fp32">;
using fp16 = zeropp::quantizer_named<"fp16">;
using bf16 = zeropp::quantizer_named<"bf16">;
using int8 = zeropp::quantizer_named<"int8:256:bf16">;
using int6 = zeropp::quantizer_named<"int6:128:bf16">;
using int4 = zeropp::quantizer_named<"int4:128:signed:bf16">;
using int8_rotated = zeropp::quantizer_named<"int8:256:bf16:h32">;
using int4_rotated = zeropp::quantizer_named<"int4:128:signed:bf16:h32">;
using int2_rotated = zeropp::quantizer_named<"int2:64:signed:bf16:h32">;
using fp8 = zeropp::quantizer_named<"fp8_e4m3:128:bf16">;
using mxfp4 = zeropp::quantizer_named<"mxfp4">;
using three_levels = zeropp::quantizer_named<"lloyd3:128:h128">;
using three_levels_unbiased = zeropp::quantizer_named<"lloyd3:128:unbiased:h128">;

/// Formats of all-gathers.
using gather_formats =
    zeropp::named_quantizers<fp32, fp16, bf16, zeropp::quantizer_named<"int8:256:fp16">, int8, int6, int4, fp8, mxfp4>;

/// Formats of weight differences. The three levels are unbiased: levels of least error would let nodes lag behind.
using difference_formats =
    zeropp::named_quantizers<int4_rotated, int2_rotated, three_levels_unbiased, zeropp::exact_differences>;

/// Sizes of messages in the format `q`: of exact differences, which vary, the largest.
template <class Q>
zeropp::wire_format on_wire(const Q& q) {
    if constexpr (std::same_as<Q, zeropp::exact_differences>) {
        return {zeropp::format_of<zeropp::exact_differences>, q.name(), 8.0 * sizeof(std::uint16_t), false};
    } else {
        return zeropp::wire_format_of(q);
    }
}

/// Pairs of formats of reductions: within nodes, and between them, also between sites. Each is compiled, so the list is
/// short.
using zeropp::hops;
using reduce_formats = zeropp::named_hops<hops<fp32, fp32>, hops<fp16, fp16>, hops<bf16, bf16>, hops<int8, int8>,
                                          hops<int8, int6>, hops<int8, int4>, hops<int6, int6>, hops<int4, int4>,
                                          hops<int8_rotated, int4_rotated>, hops<int8_rotated, int2_rotated>,
                                          hops<int8_rotated, three_levels>, hops<fp8, fp8>, hops<fp8, mxfp4>>;

/// `Pairs` with their second format between sites, too, and `More`.
template <class Pairs, class... More>
struct with_sites;
template <class... IntraNode, class... InterNode, class... More>
struct with_sites<zeropp::named_hops<hops<IntraNode, InterNode>...>, More...> {
    using type = zeropp::named_hops<hops<IntraNode, InterNode, InterNode>..., More...>;
};
using site_reduce_formats =
    with_sites<reduce_formats, hops<int8, int8, int4>, hops<int8_rotated, int4_rotated, int2_rotated>>::type;

/// The formats of a reduction. `inter_node` is one name, also for hops between sites, or "INTER_NODE + INTER_SITE".
inline site_reduce_formats::variant hops_named(std::string_view intra_node, std::string_view inter_node) {
    constexpr std::string_view separator = " + ";
    if (const auto end = inter_node.find(separator); end != std::string_view::npos) {
        return site_reduce_formats::parse(intra_node, inter_node.substr(0, end),
                                          inter_node.substr(end + separator.size()));
    }
    return std::visit(
        []<class IntraNode, class InterNode>(const hops<IntraNode, InterNode>&) -> site_reduce_formats::variant {
            return hops<IntraNode, InterNode, InterNode>();
        },
        reduce_formats::parse(intra_node, inter_node));
}

/// The names of `by_level`, without the third one if it is the second.
template <class IntraNode, class InterNode, class InterSite, class... AllGather>
std::string text_of(const hops<IntraNode, InterNode, InterSite, AllGather...>& by_level) {
    if constexpr (std::same_as<InterNode, InterSite>) return hops<IntraNode, InterNode, AllGather...>().name();
    return by_level.name();
}

/// A failed callback of the caller, who knows the reason.
struct callback_failure : std::exception {
    const char* what() const noexcept override { return "a callback has failed"; }
};

/// Keeps the text for zeropp_error on this thread.
void keep_error(const char* words) noexcept;

/// Runs call() and returns its exception as a status. The text goes to zeropp_error.
template <class Call>
zeropp_status status_of(Call call) noexcept {
    try {
        call();
        return zeropp_success;
    } catch (const callback_failure&) {
        return zeropp_callback_failed;
    } catch (const std::exception& e) {
        keep_error(e.what());
    } catch (...) {
        keep_error("an unknown exception");
    }
    return zeropp_failure;
}

/// Throws precondition_error, for `function`, if `elements` elements are more than `most`.
inline void require_at_most(const char* function, std::size_t most, std::size_t elements) {
    if (elements <= most) return;
    throw zeropp::precondition_error(function, "at most " + std::to_string(most) + " elements",
                                     std::to_string(elements));
}

/// The places of `size` ranks: rank r on node `node_of_rank[r]`, and node n in site n / `nodes_per_site`. With 0, all
/// nodes are in one site, and any integers name them.
inline zeropp::three_level places_of(const int* node_of_rank, int nodes_per_site, int size) {
    using zeropp::precondition_error;
    if (size < 1) throw precondition_error("zeropp_c", "at least one rank", std::to_string(size));
    const zeropp::two_level nodes(std::span(node_of_rank, static_cast<std::size_t>(size)));
    if (nodes_per_site == 0) return nodes;
    if (nodes_per_site < 0) {
        throw precondition_error("zeropp_c", "a number of nodes in each site, or 0 for one site",
                                 std::to_string(nodes_per_site));
    }
    std::vector<int> site_of_node;
    for (int node = 0; node != nodes.groups(); ++node) {
        const int number = node_of_rank[nodes.rank_of(node, 0)];
        if (number < 0) throw precondition_error("zeropp_c", "numbers of nodes from 0", std::to_string(number));
        site_of_node.push_back(number / nodes_per_site);
    }
    return {nodes, site_of_node, "zeropp_c"};
}

/// Runs call(T{}) for the element type.
template <class Call>
void with_element(zeropp_element element, Call call) {
    switch (element) {
    case zeropp_float32:
        return call(float{});
    case zeropp_float16:
        return call(zeropp::half{});
    case zeropp_bfloat16:
        return call(zeropp::bfloat16{});
    }
    throw zeropp::precondition_error("zeropp_c", "an element type from 0 to 2", std::to_string(element));
}

template <class T>
using replica_of = zeropp::secondary_replica<zeropp::cast_to<T>, space>;

template <class Hops>
using feedback_of = zeropp::error_feedback<Hops, zeropp::residuals_in_int8, space>;

/// The hops of an all-reduce. Its all-gather phase has the format of the last level.
template <class Hops>
auto all_reduce_hops(const Hops& by_level) {
    return hops{by_level.at(zeropp::level<0>), by_level.at(zeropp::level<1>), by_level.last(), by_level.last()};
}
template <class Hops>
using all_reduce_feedback_of = feedback_of<decltype(all_reduce_hops(Hops{}))>;

template <class T>
std::vector<zeropp::list_tensor<T, space>> listed(const zeropp_tensor* tensors, std::size_t count) {
    std::vector<zeropp::list_tensor<T, space>> list;
    list.reserve(count);
    for (std::size_t t = 0; t != count; ++t) {
        list.emplace_back(zeropp::view<T, space>(static_cast<T*>(tensors[t].data), tensors[t].elements),
                          zeropp::division{.row = tensors[t].row});
    }
    return list;
}

}  // namespace zeropp_c

struct zeropp_communicator {
    zeropp_communicator(const zeropp::three_level& nodes, const zeropp::callback_transport& ranks)
        : call(std::make_shared<zeropp_c::current_call>()), beside(std::make_shared<zeropp_c::aside>()),
          channel(ranks, call, beside), uncounted(ranks, channel), world(ranks, nodes),
          comm(nodes, zeropp_c::compared_transport(world, channel, call)) {}

    /// At least `bytes` bytes of scratch for the current call.
    zeropp::view<std::byte, zeropp_c::space> scratch_of(std::size_t bytes) {
        if (!scratch || scratch->view().size() < bytes) {
            beside->run([&](const zeropp_c::execution&, auto&...) {
                scratch = std::make_shared<zeropp::workspace<zeropp_c::space>>(bytes);
            });
        }
        pending.keep(scratch);
        return scratch->view();
    }

    /// Compares the current call, if it is to be compared, where no collective on `comm` does so.
    void compare(zeropp::collective_call stated, const std::string& problem = {}) {
        if (!call->compared) return;
        call->stated = true;
        stated.topology = zeropp::topology_digest(comm.topology());
        uncounted.begin(call->named(stated), problem);
    }

    /// If the current call failed before its comparison, makes the comparison fail on all ranks.
    void refuse(const char* function, const char* words) noexcept {
        if (call->stated) return;
        try {
            compare({function, 0, {}, {}, {}}, words);
        } catch (...) {  // The comparison throws on every rank. The caller knows the words.
        }
    }

    /// A list of whole tensors, or of this rank's shards if `sliced`, for the current call.
    template <class T>
    const zeropp::tensor_list<T, zeropp_c::space>& list(const zeropp_tensor* tensors, std::size_t count,
                                                        bool sliced = false) {
        using list_type = zeropp::tensor_list<T, zeropp_c::space>;
        const auto found = std::get<zeropp_c::kept_lists<T, zeropp_c::space>>(lists).of(tensors, count, sliced, [&] {
            const auto given = zeropp_c::listed<T>(tensors, count);
            std::optional<list_type> made;
            beside->run([&](const zeropp_c::execution&, auto&... memory) {
                if (sliced) {
                    made.emplace(given, memory...);
                } else {
                    made.emplace(comm.topology(), given, memory...);
                }
            });
            return *std::move(made);
        });
        pending.keep(found);
        return *found;
    }

    std::shared_ptr<zeropp_c::current_call> call;
    std::shared_ptr<zeropp_c::aside> beside;
    zeropp_c::side_channel channel;
    zeropp::checked<zeropp::callback_transport, zeropp_c::side_channel> uncounted;
    zeropp_c::compared_transport::counted world;
    zeropp::communicator<zeropp::three_level, zeropp_c::compared_transport> comm;
    zeropp_c::executions executions;
    std::shared_ptr<zeropp::workspace<zeropp_c::space>> scratch;
    std::tuple<zeropp_c::kept_lists<float, zeropp_c::space>, zeropp_c::kept_lists<zeropp::half, zeropp_c::space>,
               zeropp_c::kept_lists<zeropp::bfloat16, zeropp_c::space>>
        lists;
    zeropp_c::in_flight<zeropp_c::execution> pending;
    std::size_t calls_to_compare = 0;
};

namespace zeropp_c {

/// Runs call(hops, T{}) for the formats' names and the element type. One rank sends nothing, so its hops are lossless.
template <class Call>
void with_hops(const zeropp_communicator& communicator, std::string_view intra_node, std::string_view inter_node,
               zeropp_element element, Call call) {
    auto formats = hops_named(intra_node, inter_node);
    with_element(element, [&]<class T>(T) {
        using own = zeropp::cast_to<T>;
        if (communicator.comm.size() == 1) formats = hops<own, own, own>();
        std::visit([&](const auto& hops) { call(hops, T{}); }, formats);
    });
}

/// Runs call(execution), the collective `function` on `stream`, and returns its status. Keeps memory until the work is
/// complete.
template <class Call>
zeropp_status status_of_collective(zeropp_communicator& communicator, const char* function, void* stream,
                                   Call call) noexcept {
    return status_of([&] {
        const execution& exec = communicator.executions.on(stream);
        communicator.call->formats.clear();
        communicator.call->stated = false;
        communicator.call->compared = communicator.calls_to_compare != 0;
        if (communicator.calls_to_compare != 0) --communicator.calls_to_compare;
        try {
            communicator.call->captured = communicator.pending.begin(exec);
            call(exec);
        } catch (const std::exception& e) {
            communicator.refuse(function, e.what());
            communicator.pending.end(exec);
            throw;
        }
        communicator.pending.end(exec);
    });
}

/// An object that outlives a collective, and its memory.
template <class Object>
struct in_storage {
    zeropp::workspace<space> storage;
    Object object;

    template <class Make>
    in_storage(std::size_t bytes, Make make) : storage(bytes), object(make(storage.view())) {}
};

/// A shared in_storage<Object>. The user of `as` knows the type.
struct lasting {
    std::shared_ptr<void> memory;
    std::size_t bytes;

    template <class Object, class Make>
    static lasting made(std::size_t bytes, Make make) {
        return {std::make_shared<in_storage<Object>>(bytes, make), bytes};
    }
    template <class Object>
    Object& as() const {
        return static_cast<in_storage<Object>*>(memory.get())->object;
    }
};

}  // namespace zeropp_c

struct zeropp_feedback {
    /// A feedback_of<Hops> or all_reduce_feedback_of<Hops>, for the hops named `hops`.
    zeropp_c::lasting memory;
    std::string hops;
    void (*reset)(const zeropp_c::lasting& memory);

    template <class Feedback, class T>
    static zeropp_feedback* made(const zeropp_communicator& communicator, const zeropp_tensor* fulls,
                                 std::size_t count) {
        const auto& ranks = communicator.comm.topology();
        const zeropp::tensor_list<T, zeropp_c::space> full(ranks, zeropp_c::listed<T>(fulls, count));
        return new zeropp_feedback{
            zeropp_c::lasting::made<Feedback>(Feedback::storage_bytes(ranks, full),
                                              [&](const zeropp::view<std::byte, zeropp_c::space>& storage) {
                                                  return Feedback(ranks, full, storage);
                                              }),
            zeropp_c::text_of(typename Feedback::hops_type{}),
            [](const zeropp_c::lasting& residuals) { residuals.as<Feedback>().reset(); }};
    }

    /// The residuals, for `function`. Throws precondition_error unless they are a `Feedback`.
    template <class Feedback>
    Feedback& of(const char* function) const {
        const std::string wanted = zeropp_c::text_of(typename Feedback::hops_type{});
        if (hops != wanted)
            throw zeropp::precondition_error(function, "error feedback of " + wanted, "that of " + hops);
        return memory.as<Feedback>();
    }
};

struct zeropp_replica {
    /// A replica_of<T>, for the type of `element`.
    zeropp_c::lasting memory;
    zeropp_element element;
    /// False if the next update has the last one's shards.
    bool shards_changed;
};
