/// \file
/// Tensors that are their own messages: lossless collectives send from them and receive into them, without a copy, and
/// encode all others. Results are exact, because values and sums are small integers.

#include "collective/ranks.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/on_threads.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/moves.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_all_reduce.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/hops.hpp>
#include <zeropp/transport/adaptor.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace collective_test;
using zeropp::host;
using zeropp_test::expectations;
using zeropp_test::on_threads;

namespace {

constexpr zeropp::cast_to<float> fp32;

/// Memory of the last operations.
struct seen {
    const std::byte* sent_to_all = nullptr;
    const std::byte* gathered = nullptr;
};

/// A transport that notes the memory of its operations.
class noting : public zeropp::adaptor<noting, zeropp::thread_transport> {
public:
    noting(zeropp::thread_transport ranks, seen& notes) : adaptor(std::move(ranks)), notes_(&notes) {}

    void move(const host& exec, const zeropp::operation& what, const std::byte* send, std::byte* recv) {
        if (what.kind == zeropp::operation::all_gather) notes_->gathered = recv;
        if (what.kind == zeropp::operation::all_to_all) notes_->sent_to_all = send;
        adaptor::move(exec, what, send, recv);
    }
    noting around(zeropp::thread_transport next, std::span<const int>) const { return {std::move(next), *notes_}; }

private:
    seen* notes_;
};

struct shape {
    int nodes;
    int ranks_per_node;
    std::size_t shard;
    std::size_t less;   // elements that the last rank's shard lacks
    std::size_t shift;  // bytes from a multiple of 16

    int ranks() const { return nodes * ranks_per_node; }
    std::size_t n() const { return at(ranks()) * shard - less; }
    /// True if a tensor is its own messages.
    bool in_place() const { return (nodes == 1 || ranks_per_node == 1) && shard % 4 == 0 && less == 0 && shift == 0; }
    std::string text() const {
        return std::to_string(nodes) + " nodes x " + std::to_string(ranks_per_node) + ", shards of " +
               std::to_string(shard) + ", " + std::to_string(less) + " less, at " + std::to_string(shift);
    }
};

std::vector<shape> shapes() {
    std::vector<shape> all;
    for (const auto& [nodes, per_node] : {std::pair{1, 1}, {1, 3}, {4, 1}, {2, 2}}) {
        for (const std::size_t shard : {4u, 6u, 20000u, 20001u}) {
            for (const std::size_t less : {0u, 1u}) {
                for (const std::size_t shift : {0u, 4u}) all.push_back({nodes, per_node, shard, less, shift});
            }
        }
    }
    return all;
}

float element(int rank, std::size_t i) { return static_cast<float>((i * 7 + i / 100) % 1000 + 1000 * at(rank)); }

/// Calls work(comm, notes, expect) on the ranks of `of`.
template <class Work>
void on_ranks_of(const shape& of, Work work) {
    on_threads(of.ranks(), of.text(), [&](zeropp::thread_transport& transport, expectations& expect) {
        seen notes;
        zeropp::communicator comm(zeropp::two_level(of.nodes, of.ranks_per_node), noting(transport, notes));
        work(comm, notes, expect);
    });
}

void fill(guarded<float>& tensor, int rank, std::size_t n) {
    for (std::size_t i = 0; i != n; ++i) tensor.data()[i] = element(rank, i);
}

bool is_at(const std::byte* memory, const float* tensor) {
    return static_cast<const void*>(memory) == static_cast<const void*>(tensor);
}

}  // namespace

TEST_CASE("in place: an all-reduce sends from the tensor and gathers into the result") {
    for (const shape& of : shapes()) {
        for (const bool apart : {false, true}) {
            on_ranks_of(of, [&](auto& comm, const seen& notes, expectations& expect) {
                const std::size_t n = of.n();
                guarded<float> full(n, of.shift), other(n);
                fill(full, comm.rank(), n);
                guarded<float>& result = apart ? other : full;
                const zeropp::all_reduce_options options{.operation = zeropp::reduction::mean,
                                                         .algorithm = zeropp::all_reduce_algorithm::two_shot};
                const zeropp::hops hops{fp32, fp32, fp32};
                if (of.less == 0) {
                    const zeropp::tensor_list<float> in(comm.topology(), {{full.view()}});
                    const zeropp::tensor_list<float> out(comm.topology(), {{result.view()}});
                    zeropp::quantized_all_reduce(host{}, comm, hops, in, out, options);
                } else {
                    zeropp::quantized_all_reduce(host{}, comm, hops, full.view(), result.view(), options);
                }
                if (of.ranks() > 1) {
                    const bool result_in_place =
                        of.in_place() || (apart && shape{of.nodes, of.ranks_per_node, of.shard, of.less, 0}.in_place());
                    expect(is_at(notes.sent_to_all, full.data()) == of.in_place(), "sends from the tensor");
                    expect(is_at(notes.gathered, result.data()) == result_in_place, "gathers into the result");
                }
                bool right = true;
                for (std::size_t i = 0; i != n; ++i) {
                    float sum = 0;
                    for (int r = 0; r != of.ranks(); ++r) sum += element(r, i);
                    right = right && result.data()[i] == sum / static_cast<float>(of.ranks());
                    right = right && (!apart || full.data()[i] == element(comm.rank(), i));
                }
                expect(right, "has the means");
                expect(full.intact() && other.intact(), "writes nothing else");
            });
        }
    }
}

TEST_CASE("in place: a reduce-scatter sends from the tensor") {
    for (const shape& of : shapes()) {
        on_ranks_of(of, [&](auto& comm, const seen& notes, expectations& expect) {
            const std::size_t n = of.n();
            const zeropp::partition part(n, of.ranks());
            guarded<float> full(n, of.shift), shard(part.size(comm.rank()));
            fill(full, comm.rank(), n);
            zeropp::hierarchical_quantized_reduce_scatter(host{}, comm, zeropp::hops{fp32, fp32}, full.view(),
                                                          shard.view());
            if (of.ranks() > 1) expect(is_at(notes.sent_to_all, full.data()) == of.in_place(), "sends from the tensor");
            bool right = true;
            for (std::size_t i = 0; i != part.size(comm.rank()); ++i) {
                float sum = 0;
                for (int r = 0; r != of.ranks(); ++r) sum += element(r, part.offset(comm.rank()) + i);
                right = right && shard.data()[i] == sum;
            }
            for (std::size_t i = 0; i != n; ++i) right = right && full.data()[i] == element(comm.rank(), i);
            expect(right, "has the sums, and leaves the tensor");
            expect(shard.intact(), "writes nothing else");
        });
    }
}

TEST_CASE("in place: an all-gather gathers into full, unless the shard lies elsewhere in it") {
    enum { apart, in_its_place, elsewhere };
    for (const shape& of : shapes()) {
        for (const int where : {apart, in_its_place, elsewhere}) {
            on_ranks_of(of, [&](auto& comm, const seen& notes, expectations& expect) {
                const std::size_t n = of.n();
                const zeropp::partition part(n, of.ranks());
                const std::size_t begin = part.offset(comm.rank()), own = part.size(comm.rank());
                guarded<float> full(n, of.shift), other(own);
                // One element before its place, or behind it: an encoder that ran there would read what it has written.
                const std::size_t beside = begin != 0 ? begin - 1 : begin + own < n ? 1 : 0;
                float* const from = where == apart ? other.data() : full.data() + (where == elsewhere ? beside : begin);
                for (std::size_t i = 0; i != own; ++i) from[i] = element(0, begin + i);
                zeropp::quantized_all_gather(host{}, comm, fp32, std::span(from, own), full.view());
                if (of.ranks() > 1) {
                    const bool in_place = of.in_place() && where != elsewhere;
                    expect(is_at(notes.gathered, full.data()) == in_place, "gathers into full");
                }
                bool right = true;
                for (std::size_t i = 0; i != n; ++i) right = right && full.data()[i] == element(0, i);
                expect(right, "has all shards");
                expect(full.intact() && other.intact(), "writes nothing else");
            });
        }
    }
}

TEST_CASE("in place: chunks are encoded, and so are several tensors and gaps") {
    on_ranks_of({4, 1, 4096, 0, 0}, [&](auto& comm, const seen& notes, expectations& expect) {
        const std::size_t n = 4 * 4096;
        guarded<float> full(n);
        const auto check = [&](auto tensors, int chunks) {
            fill(full, comm.rank(), n);
            zeropp::quantized_all_reduce(host{}, comm, zeropp::hops{fp32, fp32, fp32}, tensors, tensors,
                                         {.chunks = chunks, .algorithm = zeropp::all_reduce_algorithm::two_shot});
            expect(!is_at(notes.sent_to_all, full.data()) && !is_at(notes.gathered, full.data()));
            for (const std::size_t i : {std::size_t{0}, n - 1}) {
                expect(full.data()[i] == element(0, i) + element(1, i) + element(2, i) + element(3, i));
            }
        };
        using list = zeropp::tensor_list<float>;
        check(full.view(), 2);
        check(list(comm.topology(), {{full.view().subview(0, n / 2)}, {full.view().subview(n / 2, n / 2)}}), 1);
        check(list(comm.topology(), {{full.view().subview(n, 0)}, {full.view()}}), 1);
        check(list(comm.topology(), {{full.view(), {.stride = 4096, .elements = n}}}), 1);
    });
}
