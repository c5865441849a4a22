/// \file
/// outer_step against plain arithmetic in doubles: islands, lists, delays, turns of fragments, and refusals.

#include <zeropp/local_steps.hpp>

#include "collective/ranks.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/on_threads.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/local_steps/outer_options.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/residual_storage.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/transport/adaptor.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/counting.hpp>

#include <atomic>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using namespace collective_test;
using zeropp::host;
using zeropp::host_queue;
using zeropp::host_space;
using zeropp::outer_options;
using zeropp_test::expectations;
using zeropp_test::on_threads;
using zeropp_test::thrown;

namespace {

constexpr zeropp::cast_to<float> fp32;
constexpr zeropp::block_integer<2, 64, zeropp::signed_absmax, zeropp::bfloat16> int2;
constexpr zeropp::hops exactly{fp32, fp32, fp32};
constexpr zeropp::hops in_two_bits{int2, int2, int2};
using outer_type = zeropp::outer_optimizer<host_space>;

/// A double rounded to float and back. One operation on two floats, in double and then rounded, is the float's own.
double rounded(double x) { return static_cast<double>(static_cast<float>(x)); }

/// The outer optimizer in doubles, for all islands at once, one element after another.
struct plain_outer {
    std::vector<double> anchor;
    std::vector<double> momentum;
    std::vector<double> mean;

    explicit plain_outer(const std::vector<float>& weights)
        : anchor(weights.begin(), weights.end()), momentum(weights.size()), mean(weights.size()) {}

    void begin(const std::vector<std::vector<float>>& of_islands) {
        for (std::size_t i = 0; i != anchor.size(); ++i) {
            double sum = 0;
            for (const auto& w : of_islands) sum = rounded(sum + rounded(anchor[i] - static_cast<double>(w[i])));
            mean[i] = rounded(sum / static_cast<double>(of_islands.size()));
        }
    }
    void apply(std::vector<std::vector<float>>& of_islands, const outer_options& o,
               const reference::floating_format& to) {
        const auto rate = static_cast<double>(o.learning_rate), factor = static_cast<double>(o.momentum);
        const auto alpha = static_cast<double>(o.alpha);
        for (std::size_t i = 0; i != anchor.size(); ++i) {
            momentum[i] = rounded(rounded(factor * momentum[i]) + mean[i]);
            const double along = rounded(mean[i] + rounded(factor * momentum[i]));
            anchor[i] = rounded(anchor[i] - rounded(rate * along));
            for (auto& w : of_islands) {
                const double own = rounded(alpha * static_cast<double>(w[i]));
                const double blended = rounded(own + rounded(rounded(1.0 - alpha) * anchor[i]));
                w[i] = static_cast<float>(to.rounded(alpha == 0 ? anchor[i] : blended));
            }
        }
    }
};

/// Inner step `step` of an island: weights move by numbers that differ between islands.
template <class T>
void inner_step(std::vector<T>& weights, std::size_t island, int step) {
    for (std::size_t i = 0; i != weights.size(); ++i) {
        const double moved = std::sin(static_cast<double>(1 + i + 7919 * at(step) + 104729 * island)) / 64;
        weights[i] = zeropp::element_traits<T>::from_float(zeropp::element_traits<T>::to_float(weights[i]) +
                                                           static_cast<float>(moved));
    }
}

std::vector<float> as_floats(const std::vector<double>& values) { return {values.begin(), values.end()}; }

/// Tensors of these sizes in one buffer, as a list.
template <class T>
zeropp::tensor_list<T> listed(std::vector<T>& memory, const std::vector<std::size_t>& sizes) {
    std::vector<zeropp::list_tensor<T, host_space>> tensors;
    std::size_t begin = 0;
    for (const std::size_t n : sizes) {
        tensors.emplace_back(zeropp::host_view<T>(memory.data() + begin, n));
        begin += n;
    }
    return zeropp::tensor_list<T>(tensors);
}

/// Trains tensors of `sizes` on `islands` islands for `steps` inner steps and compares with the plain optimizer.
template <class T, class Execution>
void check_training(int islands, const std::vector<std::size_t>& sizes, const outer_options& options, int steps) {
    std::size_t n = 0;
    for (const std::size_t size : sizes) n += size;
    INFO(islands << " islands, " << sizes.size() << " tensors, " << n << " elements, " << options.text().str());
    const std::vector<float> initial = tensor_of(n, format_of<T>, n);
    std::vector<std::vector<float>> weights(at(islands)), anchors(at(islands));
    std::vector<char> intact(at(islands));
    on_ranks(islands, "an outer step", [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(zeropp::flat(islands), transport);
        const auto island = at(comm.rank());
        std::vector<T> own = narrowed<T>(initial);
        const zeropp::tensor_list<T> list = listed(own, sizes);
        guarded<std::byte> storage(outer_type::storage_bytes(list));
        storage.fill(std::vector<std::byte>(outer_type::storage_bytes(list), std::byte{0x42}));
        outer_type outer(comm.topology(), list, storage.view());
        guarded<std::byte> scratch(zeropp::outer_step_workspace_bytes(comm.topology(), exactly, outer, options));
        const Execution exec;
        outer.start(exec, list);
        for (int step = 1; step <= steps; ++step) {
            exec.wait();
            inner_step(own, island, step);
            if (options.delay == 0 && options.begins(0, step)) {
                zeropp::outer_step(exec, comm, exactly, list, outer, options, scratch.view());
                continue;
            }
            if (options.applies(0, step)) outer.apply(exec, list, options);
            if (options.begins(0, step)) {
                const auto taken = zeropp::outer_begin(exec, comm, exactly, list, outer, options, scratch.view());
                exec.wait(taken);
            }
        }
        exec.wait();
        weights[island] = widened(own.data(), n);
        for (std::size_t t = 0; t != sizes.size(); ++t) {
            const auto of_tensor = outer.anchor(t);
            anchors[island].insert(anchors[island].end(), of_tensor.data(), of_tensor.data() + of_tensor.size());
        }
        intact[island] = storage.intact() && scratch.intact();
    });

    plain_outer plain(widened(narrowed<T>(initial).data(), n));
    std::vector<std::vector<T>> islands_of_plain(at(islands), narrowed<T>(initial));
    std::vector<std::vector<float>> expected(at(islands), widened(narrowed<T>(initial).data(), n));
    for (int step = 1; step <= steps; ++step) {
        for (std::size_t k = 0; k != expected.size(); ++k) {
            islands_of_plain[k] = narrowed<T>(expected[k]);
            inner_step(islands_of_plain[k], k, step);
            expected[k] = widened(islands_of_plain[k].data(), n);
        }
        if (options.delay != 0 && step > options.delay && (step - options.delay) % options.every == 0) {
            plain.apply(expected, options, format_of<T>);
        }
        if (step % options.every == 0) plain.begin(expected);
        if (options.delay == 0 && step % options.every == 0) plain.apply(expected, options, format_of<T>);
    }
    for (std::size_t k = 0; k != expected.size(); ++k) {
        INFO("island " << k);
        REQUIRE(difference(weights[k], expected[k]) == "");
        REQUIRE(difference(anchors[k], as_floats(plain.anchor)) == "");
        REQUIRE(intact[k]);
    }
}

}  // namespace

TEST_CASE("outer step: islands have the bits of plain arithmetic, in every size, list and delay") {
    const std::vector<std::vector<std::size_t>> lists{{0}, {1}, {5}, {257}, {3001}, {70001}, {7, 0, 130, 1, 997}, {}};
    for (const int islands : {1, 2, 3}) {
        for (const auto& sizes : lists) {
            check_training<float, host>(islands, sizes, {.every = 3}, 9);
            check_training<float, host_queue>(islands, sizes, {.every = 4, .delay = 3, .momentum = 0.6f, .alpha = 0.5f},
                                              15);
        }
        check_training<zeropp::bfloat16, host>(islands, {7, 0, 130, 1, 997},
                                               {.every = 2, .delay = 1, .learning_rate = 1.0f, .alpha = 0.25f}, 8);
        check_training<float, host>(islands, {33}, {.every = 1, .learning_rate = 0.5f, .momentum = 0.0f}, 4);
    }
}

TEST_CASE("outer step: ranks of two-level islands become equal to their counterparts, through any wire") {
    constexpr std::size_t n = 1003;
    const auto weights_of_ranks = [&]<class Hops, bool FeedsBack>(const Hops& by_hop,
                                                                  std::bool_constant<FeedsBack> feeds_back) {
        std::vector<std::vector<float>> weights(6);
        on_threads(6, "two-level islands", [&](zeropp::thread_transport& transport, expectations& expect) {
            const zeropp::two_level islands(3, 2);
            zeropp::counting world(transport, islands);
            const int rank = world.rank();
            zeropp::communicator inside(zeropp::flat(2), world.split(zeropp::peer_ranks(islands, 0, rank)));
            zeropp::communicator comm(zeropp::two_level(3, 1), world.split(zeropp::peer_ranks(islands, 1, rank)));
            expect(inside.rank() == rank % 2 && comm.rank() == rank / 2);
            const std::vector<float> full = tensor_of(n, reference::fp32, 1);
            const zeropp::partition part(n, inside.size());
            const auto first = full.begin() + static_cast<std::ptrdiff_t>(part.offset(inside.rank()));
            std::vector<float> shard(first, first + static_cast<std::ptrdiff_t>(part.size(inside.rank())));
            zeropp::workspace<host_space> storage(outer_type::storage_bytes(shard));
            outer_type outer(comm.topology(), shard, storage.view());
            outer.start(host{}, shard);
            using memory_type = zeropp::error_feedback<Hops, zeropp::residuals_in_int8, host_space>;
            zeropp::workspace<host_space> kept(memory_type::storage_bytes(comm.topology(), outer.differences()));
            memory_type memory(comm.topology(), outer.differences(), kept.view());
            for (int step = 1; step <= 8; ++step) {
                inner_step(shard, at(rank / 2), step);
                if (step % 2 != 0) continue;
                if constexpr (FeedsBack) {
                    zeropp::outer_step(host{}, comm, zeropp::with_error_feedback(by_hop, memory), shard, outer,
                                       {.every = 2});
                } else {
                    zeropp::outer_step(host{}, comm, by_hop, shard, outer, {.every = 2});
                }
            }
            expect(outer.exchanges() == 4 && !outer.pending());
            expect(world.total().intra_node_bytes == 0);
            expect(feeds_back == (memory.uses() == 4));
            weights[at(rank)] = shard;
        });
        for (std::size_t r = 2; r != 6; ++r) {
            INFO("rank " << r);
            REQUIRE(difference(weights[r], weights[r % 2]) == "");
        }
        return weights[0];
    };
    const auto exact = weights_of_ranks(exactly, std::false_type());
    const auto distance = [&](const std::vector<float>& from) {
        double squares = 0;
        for (std::size_t i = 0; i != from.size(); ++i) squares += std::pow(static_cast<double>(from[i] - exact[i]), 2);
        return std::sqrt(squares / static_cast<double>(from.size()));
    };
    const double plain = distance(weights_of_ranks(in_two_bits, std::false_type()));
    const double fed_back = distance(weights_of_ranks(in_two_bits, std::true_type()));
    INFO("without feedback " << plain << ", with " << fed_back);
    CHECK(plain > 0);
    CHECK(plain < 0.05);
    CHECK(fed_back < plain);
}

TEST_CASE("outer step: an inner step may change weights once the returned event is complete") {
    const auto trained = [](bool overlaps) {
        std::vector<std::vector<float>> weights(2);
        on_ranks(2, "overlap", [&](zeropp::thread_transport& transport) {
            zeropp::communicator comm(zeropp::flat(2), transport);
            std::vector<float> own = tensor_of(5000, reference::fp32, 3);
            zeropp::workspace<host_space> storage(outer_type::storage_bytes(own));
            outer_type outer(comm.topology(), own, storage.view());
            const outer_options options{.every = 3, .delay = 2, .alpha = 0.5f};
            zeropp::workspace<host_space> scratch(
                zeropp::outer_step_workspace_bytes(comm.topology(), in_two_bits, outer, options));
            const host_queue exchange;
            outer.start(exchange, own);
            exchange.wait();
            inner_step(own, at(comm.rank()), 1);
            const auto taken = zeropp::outer_begin(exchange, comm, in_two_bits, own, outer, options, scratch.view());
            overlaps ? taken.wait() : exchange.wait();
            inner_step(own, at(comm.rank()), 2);
            outer.apply(exchange, own, options);
            exchange.wait();
            weights[at(comm.rank())] = own;
        });
        return weights;
    };
    CHECK(trained(true) == trained(false));
}

TEST_CASE("outer step: without scratch, a call on a queue returns when its work is complete") {
    struct late : zeropp::nesterov {
        float operator()(const outer_options& options, float anchor, float mean, float* kept) const {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            return nesterov::operator()(options, anchor, mean, kept);
        }
    };
    using late_type = zeropp::outer_optimizer<host_space, late>;
    for (const int islands : {1, 2}) {
        std::vector<char> begun(at(islands));
        std::vector<float> applied(at(islands));
        on_ranks(islands, "calls that block", [&](zeropp::thread_transport& transport) {
            zeropp::communicator comm(zeropp::flat(islands), transport);
            std::atomic<bool> ran = false;
            std::vector<float> own{1.0f};
            zeropp::workspace<host_space> storage(late_type::storage_bytes(own));
            late_type outer(comm.topology(), own, storage.view());
            const outer_options options{.learning_rate = 0.5f, .momentum = 0};
            const host_queue exec;
            outer.start(exec, own);
            exec.enqueue([&ran] {
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                ran = true;
            });
            zeropp::outer_begin(exec, comm, exactly, own, outer, options);
            begun[at(comm.rank())] = ran;
            outer.apply(exec, own, options);
            exec.wait();
            own[0] = 3;
            zeropp::outer_step(exec, comm, exactly, own, outer, options);
            applied[at(comm.rank())] = own[0];
        });
        CHECK(begun == std::vector<char>(at(islands), 1));
        CHECK(applied == std::vector<float>(at(islands), 2));
    }
}

TEST_CASE("outer step: fragments take turns, each once in every H steps") {
    for (const auto& [every, fragments] : {std::pair{12, 4}, std::pair{12, 1}, std::pair{7, 3}, std::pair{2, 5}}) {
        for (int delay = 0; delay != every; ++delay) {
            const outer_options options{.every = every, .fragments = fragments, .delay = delay};
            REQUIRE(options.problem() == "");
            std::vector<int> begun(at(every));
            for (int f = 0; f != fragments; ++f) {
                int last = 0;
                for (int step = 1; step <= 4 * every; ++step) {
                    REQUIRE(options.applies(f, step) == (step > delay && options.begins(f, step - delay)));
                    if (!options.begins(f, step)) continue;
                    REQUIRE(step - last <= every);
                    if (last != 0) REQUIRE(step - last == every);
                    last = step;
                    ++begun[at(step % every)];
                }
                REQUIRE(last > 3 * every);
            }
            // No step has more turns than another by more than one in each of the four rounds.
            for (const int b : begun) REQUIRE(b <= 4 * ((fragments + every - 1) / every));
        }
    }
    CHECK_FALSE(outer_options{}.begins(0, 0));
    CHECK_FALSE(outer_options{.every = 2, .fragments = 2}.begins(0, -1));
    using Catch::Contains;
    CHECK_THROWS_WITH(outer_options{.every = 0}.begins(0, 4), Contains("expected an exchange every 1 step or more"));
    CHECK_THROWS_WITH(outer_options{.fragments = 0}.applies(0, 4), Contains("expected at least 1 fragment, given 0"));
    for (const int fragment : {-1, 3, std::numeric_limits<int>::max()}) {
        CHECK_THROWS_WITH((outer_options{.fragments = 3}.begins(fragment, 4)),
                          Contains("expected a fragment from 0 to 2, given " + std::to_string(fragment)));
    }
}

namespace {
/// A transport whose all-gathers fail in their turn, on every rank, while `broken`.
class failing : public zeropp::adaptor<failing, zeropp::thread_transport> {
public:
    failing(zeropp::thread_transport inner, const std::atomic<bool>& broken)
        : adaptor(std::move(inner)), broken_(&broken) {}

    template <zeropp::host_execution Execution>
    void move(const Execution& exec, const zeropp::operation& what, const std::byte* send, std::byte* recv) {
        if (what.kind == zeropp::operation::all_gather) {
            exec.enqueue([broken = broken_] {
                if (*broken) throw zeropp::integrity_error("a changed message", 0, 1);
            });
        }
        adaptor::move(exec, what, send, recv);
    }
    failing around(zeropp::thread_transport next, std::span<const int>) const { return {std::move(next), *broken_}; }

private:
    const std::atomic<bool>* broken_;
};

template <class Execution>
void check_failed_exchange() {
    std::atomic<bool> broken = true;
    on_threads(2, "a failed exchange", [&](zeropp::thread_transport& transport, expectations& expect) {
        zeropp::communicator comm(zeropp::flat(2), failing(transport, broken));
        std::vector<float> own(64, 1.0f);
        zeropp::workspace<host_space> storage(outer_type::storage_bytes(own));
        outer_type outer(comm.topology(), own, storage.view());
        outer.start(host{}, own);
        zeropp::workspace<host_space> scratch(zeropp::outer_step_workspace_bytes(comm.topology(), exactly, outer));
        for (float& x : own) x -= static_cast<float>(comm.rank() + 1);
        const Execution exec;
        const auto exchange = [&] {
            zeropp::outer_begin(exec, comm, exactly, own, outer, {.learning_rate = 1, .momentum = 0}, scratch.view());
            exec.wait();
        };
        for (int times = 0; times != 2; ++times) {
            expect(thrown<zeropp::integrity_error>(exchange) == "a changed message");
            expect(!outer.pending());
            const std::string said = thrown<zeropp::precondition_error>([&] { outer.apply(exec, own, {}); });
            expect(said.find("expected an exchange that has begun, given ") != std::string::npos, said);
        }
        // On a queue, `apply` may be enqueued before the exchange fails.
        const auto step = [&] {
            std::promise<void> enqueued;
            if (std::same_as<Execution, host>) enqueued.set_value();
            exec.enqueue([ready = enqueued.get_future().share()] { ready.wait(); });
            zeropp::outer_step(exec, comm, exactly, own, outer, {.learning_rate = 1, .momentum = 0}, scratch.view());
            enqueued.set_value();
            exec.wait();
        };
        expect(thrown<zeropp::integrity_error>(step) == "a changed message");
        expect(!outer.pending() && outer.exchanges() == 0);
        transport.split(std::vector<int>{0, 1});
        broken = false;
        transport.split(std::vector<int>{0, 1});
        exchange();
        expect(outer.pending());
        outer.apply(exec, own, {.learning_rate = 1, .momentum = 0});
        exec.wait();
        expect(own == std::vector<float>(64, -0.5f));
    });
}
}  // namespace

TEST_CASE("outer step: an exchange that has failed begins again, and is never used") {
    check_failed_exchange<host>();
    check_failed_exchange<host_queue>();
}

TEST_CASE("outer step: state that is saved between begin and apply continues with equal bits") {
    on_threads(2, "checkpoint", [&](zeropp::thread_transport& transport, expectations& expect) {
        zeropp::communicator comm(zeropp::flat(2), transport);
        std::vector<float> own = tensor_of(1001, reference::fp32, 9);
        const outer_options options{.every = 2, .delay = 1};
        zeropp::workspace<host_space> storage(outer_type::storage_bytes(own)), other(outer_type::storage_bytes(own));
        outer_type outer(comm.topology(), own, storage.view());
        outer.start(host{}, own);
        inner_step(own, at(comm.rank()), 1);
        zeropp::outer_begin(host{}, comm, exactly, own, outer, options);
        std::vector<float> again = own;
        outer_type restored(comm.topology(), again, other.view());
        std::memcpy(restored.state().data(), outer.state().data(), outer.state().size());
        restored.restore(outer.exchanges(), outer.pending());
        outer.apply(host{}, own, options);
        restored.apply(host{}, again, options);
        for (auto* w : {&own, &again}) inner_step(*w, at(comm.rank()), 2);
        zeropp::outer_step(host{}, comm, exactly, own, outer, options);
        zeropp::outer_step(host{}, comm, exactly, again, restored, options);
        expect(own == again);
    });
}

TEST_CASE("outer step: weights that are not finite in one island are not hidden in any") {
    on_threads(3, "not finite", [&](zeropp::thread_transport& transport, expectations& expect) {
        zeropp::communicator comm(zeropp::flat(3), transport);
        std::vector<float> own(5000, 1.0f);
        zeropp::workspace<host_space> storage(outer_type::storage_bytes(own));
        outer_type outer(comm.topology(), own, storage.view());
        outer.start(host{}, own);
        if (comm.rank() == 1) own[3000] = std::numeric_limits<float>::infinity();
        zeropp::outer_step(host{}, comm, in_two_bits, own, outer);
        expect(std::isnan(own[3000]));
        expect(own[2900] == 1.0f);
        // Lossless formats keep Inf: NaN in all islands all the same.
        if (comm.rank() == 2) own[7] = -std::numeric_limits<float>::infinity();
        zeropp::outer_step(host{}, comm, exactly, own, outer);
        expect(std::isnan(own[7]) && std::isnan(outer.anchor().data()[7]));
        expect(own[8] == 1.0f);
    });
}

namespace {

/// A rule without slots: the new anchor is the mean of the islands' weights.
struct averaging {
    static constexpr std::size_t slots = 0;
    zeropp::agreed_text text() const { return "averaging"; }
    float operator()(const outer_options&, float anchor, float mean, float*) const { return anchor - mean; }
};

/// AdamW without decay: a rule with two slots, and options that change with each exchange.
struct outer_adamw {
    static constexpr std::size_t slots = 2;
    float first_bias = 1, second_bias = 1;  // 1 - momentum^t and 1 - 0.95^t in exchange t

    zeropp::agreed_text text() const {
        zeropp::agreed_text t("adamw ");
        return t.append(zeropp::float_bits(first_bias)).append(" ").append(zeropp::float_bits(second_bias));
    }
    float operator()(const outer_options& options, float anchor, float mean, float* kept) const {
        using zeropp::product;
        kept[0] = product(options.momentum, kept[0]) + product(1 - options.momentum, mean);
        kept[1] = product(0.95f, kept[1]) + product(0.05f, product(mean, mean));
        const float step = kept[0] / first_bias / (std::sqrt(kept[1] / second_bias) + 1e-8f);
        return anchor - product(options.learning_rate, step);
    }
};

static_assert(zeropp::outer_rule<averaging> && zeropp::outer_rule<outer_adamw>);
static_assert(!zeropp::outer_rule<std::string>);

/// Trains tensors on three islands with `Rule` for three exchanges of one inner step. `expected(initial, before)` is
/// the last anchor of an element, from its initial value and its weights on all islands before each exchange.
template <class Rule, class Expected>
void check_rule(const outer_options& options, std::size_t slots, Expected expected) {
    const std::vector<std::size_t> sizes{7, 0, 130, 1};
    constexpr std::size_t n = 138;
    const std::vector<float> initial = tensor_of(n, reference::fp32, n);
    std::vector<std::vector<float>> weights(3);
    std::vector<std::vector<std::vector<float>>> before(3);  // exchange, island
    for (auto& of_islands : before) of_islands.resize(3);
    on_threads(3, "a rule", [&](zeropp::thread_transport& transport, expectations& expect) {
        zeropp::communicator comm(zeropp::flat(3), transport);
        const auto island = at(comm.rank());
        std::vector<float> own = initial;
        const zeropp::tensor_list<float> list = listed(own, sizes);
        using ruled = zeropp::outer_optimizer<host_space, Rule>;
        // Tensors of 8, 0, 132 and 4 floats, with padding.
        expect(ruled::storage_bytes(list) == (2 + slots) * 144 * sizeof(float));
        guarded<std::byte> storage(ruled::storage_bytes(list));
        ruled outer(comm.topology(), list, storage.view());
        outer.start(host{}, list);
        for (int exchange = 0; exchange != 3; ++exchange) {
            inner_step(own, island, exchange);
            before[at(exchange)][island] = own;
            if constexpr (std::is_same_v<Rule, outer_adamw>) {
                outer.rule() = {1 - std::pow(options.momentum, static_cast<float>(exchange + 1)),
                                1 - std::pow(0.95f, static_cast<float>(exchange + 1))};
            }
            zeropp::outer_step(host{}, comm, exactly, list, outer, options);
        }
        expect(storage.intact() && outer.state().size() == ruled::storage_bytes(list));
        weights[island] = own;
    });
    REQUIRE(weights[1] == weights[0]);
    REQUIRE(weights[2] == weights[0]);
    for (std::size_t i = 0; i != n; ++i) {
        std::vector<std::vector<double>> moved;
        for (const auto& of_islands : before) {
            moved.emplace_back();
            for (const auto& w : of_islands) moved.back().push_back(static_cast<double>(w[i]));
        }
        REQUIRE(std::abs(static_cast<double>(weights[0][i]) - expected(static_cast<double>(initial[i]), moved)) < 2e-6);
    }
}

double mean_of(const std::vector<double>& values) { return (values[0] + values[1] + values[2]) / 3; }

}  // namespace

TEST_CASE("outer step: rules of a user's own, without slots and with two") {
    check_rule<averaging>({}, 0, [](double, const auto& before) { return mean_of(before.back()); });
    const outer_options options{.learning_rate = 0.01f, .momentum = 0.8f};
    check_rule<outer_adamw>(options, 2, [](double anchor, const auto& before) {
        double first = 0, second = 0, first_power = 1, second_power = 1;
        for (const auto& weights : before) {
            const double mean = anchor - mean_of(weights);
            first += 0.2 * (mean - first);
            second += 0.05 * (mean * mean - second);
            first_power *= 0.8;
            second_power *= 0.95;
            anchor -= 0.01 * first / (1 - first_power) / std::sqrt(second / (1 - second_power));
        }
        return anchor;
    });
}

TEST_CASE("outer step: ranks with other rules, or other options of a rule, are refused") {
    on_threads(2, "rules", [&](zeropp::thread_transport& transport, expectations& expect) {
        zeropp::communicator comm(zeropp::flat(2), zeropp::checked(transport));
        std::vector<float> own(64, 1.0f);
        const auto said_with = [&]<class Rule>(const Rule& rule) {
            using ruled = zeropp::outer_optimizer<host_space, Rule>;
            zeropp::workspace<host_space> storage(ruled::storage_bytes(own));
            ruled outer(comm.topology(), own, storage.view(), rule);
            outer.start(host{}, own);
            return thrown<zeropp::precondition_error>([&] { zeropp::outer_step(host{}, comm, exactly, own, outer); });
        };
        const std::string other = comm.rank() == 0 ? said_with(averaging{}) : said_with(zeropp::nesterov{});
        expect(other.find("averaging") != std::string::npos && other.find("nesterov") != std::string::npos, other);
        const std::string bias = said_with(outer_adamw{1, comm.rank() == 0 ? 1.0f : 0.5f});
        expect(bias.find(" " + std::to_string(zeropp::float_bits(0.5f))) != std::string::npos, bias);
        expect(own == std::vector<float>(64, 1.0f));
    });
}

TEST_CASE("outer step: refuses wrong arguments on every rank, before anything moves") {
    on_threads(4, "refusals", [&](zeropp::thread_transport& transport, expectations& expect) {
        zeropp::communicator comm(zeropp::flat(4), zeropp::checked(transport));
        const bool last = comm.rank() == 3;
        std::vector<float> own = tensor_of(1000, reference::fp32, 3);
        const std::vector<float> before = own;
        zeropp::workspace<host_space> storage(outer_type::storage_bytes(own));
        outer_type outer(comm.topology(), own, storage.view());
        outer.start(host{}, own);
        const auto refuses = [&](auto call, const std::string& words) {
            const std::string said = thrown<zeropp::precondition_error>(call);
            expect(said.find(words) != std::string::npos, "\"" + words + "\", given \"" + said + "\"");
        };
        const auto step_with = [&](const outer_options& options) {
            return [&, options] { zeropp::outer_step(host{}, comm, exactly, own, outer, options); };
        };
        refuses(step_with({.every = last ? 31 : 30}), "every 31 steps in 1 fragments");
        refuses(step_with({.fragments = last ? 2 : 1}), "every 30 steps in 2 fragments");
        refuses(step_with({.delay = last ? 1 : 0}), "applied after 1");
        refuses(step_with({.learning_rate = last ? 0.5f : 0.7f}), "rate " + std::to_string(zeropp::float_bits(0.5f)));
        refuses(step_with({.momentum = last ? 0.5f : 0.9f}), "momentum " + std::to_string(zeropp::float_bits(0.5f)));
        refuses(step_with({.alpha = last ? 0.5f : 0.0f}), "alpha " + std::to_string(zeropp::float_bits(0.5f)));
        refuses(step_with({.every = last ? 0 : 30}), "on rank 3, expected an exchange every 1 step or more, given 0");
        refuses(step_with({.fragments = 0}), "expected at least 1 fragment, given 0");
        refuses(step_with({.every = 4, .delay = 4}), "expected a delay from 0 to less than `every`, given 4");
        refuses(step_with({.delay = -1}), "expected a delay from 0 to less than `every`, given -1");
        refuses(step_with({.learning_rate = 0.0f}), "expected a learning rate above 0");
        refuses(step_with({.learning_rate = std::numeric_limits<float>::infinity()}), "a learning rate above 0");
        refuses(step_with({.momentum = 1.0f}), "expected a momentum from 0 to less than 1");
        refuses(step_with({.alpha = 1.5f}), "expected an alpha from 0 to 1");
        refuses(step_with({.momentum = std::numeric_limits<float>::quiet_NaN()}), "expected a momentum");
        refuses(
            [&] {
                const zeropp::host_view<float> fewer(own.data(), last ? 999 : 1000);
                zeropp::outer_step(host{}, comm, exactly, fewer, outer);
            },
            "on rank 3, expected weights of 1000 elements in tensor 0, given 999");
        refuses(
            [&] {
                zeropp::workspace<host_space> small(last ? 16 : 1 << 20);
                zeropp::outer_step(host{}, comm, exactly, own, outer, {}, small.view());
            },
            "on rank 3, expected a workspace of at least");
        refuses([&] { outer.apply(host{}, own, {}); }, "expected an exchange that has begun, given none");
        refuses(
            [&] {
                outer_type wrong(zeropp::flat(2), own, storage.view());
                zeropp::outer_step(host{}, comm, exactly, own, wrong);
            },
            "expected a list of whole tensors over 4 ranks, given one over 2");
        refuses(
            [&] {
                const zeropp::tensor_list<float> two{own, own};
                zeropp::outer_step(host{}, comm, exactly, two, outer);
            },
            "expected weights of 1 tensors, given 2");
        refuses(
            [&] {
                const zeropp::tensor_list<float> gaps(zeropp::flat(4), {{own, {.stride = 250, .elements = 1000}}});
                zeropp::outer_step(host{}, comm, exactly, gaps, outer);
            },
            "expected tensors without gaps");
        refuses([&] { outer_type small(comm.topology(), own, storage.view().subview(0, 64)); },
                "outer_optimizer: expected a workspace of at least");
        expect(own == before && outer.exchanges() == 0);
        zeropp::outer_begin(host{}, comm, exactly, own, outer);
        refuses(step_with({}), "given one whose last exchange waits for `apply`");
        outer.apply(host{}, own, {});
        if (last) outer.restore(7, false);
        refuses(step_with({}), "exchange 7");
    });
}
