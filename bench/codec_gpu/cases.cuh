#pragma once
/// \file
/// The measured cases of one quantizer.

#include "timing.cuh"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace zeropp_bench {

/// Writes about normal numbers, which depend on `seed`.
template <class T>
__global__ void fill_random(T* to, std::size_t n, std::uint64_t seed) {
    const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
        std::uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u + seed;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        float sum = -131070.0f;  // minus the mean of a sum of four 16-bit numbers
        for (int k = 0; k != 4; ++k) sum += static_cast<float>(z >> (16 * k) & 0xffffu);
        to[i] = zeropp::element_traits<T>::from_float(sum * (1.0f / 37837.0f));
    }
}

/// The wanted cases of one quantizer on one element type and tensor size.
template <zeropp::quantizer Q, class T>
struct cases {
    using codec = zeropp::codec<zeropp::cuda_stream>;

    bed& b;
    const settings& wanted;
    const std::function<void(const row&)>& report;
    std::size_t elements;
    Q q{};

    void run() const {
        const unsigned blocks = 16 * static_cast<unsigned>(b.stream.multiprocessors());
        fill_random<<<blocks, 256, 0, b.native>>>(reinterpret_cast<T*>(b.tensors.view().data()), b.bytes / sizeof(T),
                                                  elements);
        require_cuda(cudaGetLastError(), "fill_random");
        encode("encode", zeropp::slices::single(elements, 0, elements));
        decode();
        // Two nodes of four ranks: the order of the first hop.
        const zeropp::partition part(elements, 8);
        encode("reorder_encode", {part, {2, 4, 1, nullptr}, 0, part.slice_size(), 0, 8});
        for (const int contributors : {2, 3, 4, 6, 8}) reduce(contributors);
    }

private:
    bool wants(const std::string& kernel) const {
        return std::find(wanted.kernels.begin(), wanted.kernels.end(), kernel) != wanted.kernels.end();
    }

    row start(const std::string& kernel, std::size_t read, std::size_t written) const {
        row r;
        r.quantizer = zeropp::short_text(q.name()).str();
        r.kernel = kernel;
        r.element = std::string(zeropp::element_traits<T>::name);
        r.tensor_bytes = elements * sizeof(T);
        r.bytes_read = read;
        r.bytes_written = written;
        return r;
    }

    std::size_t message_bytes(const zeropp::slices& where) const {
        return static_cast<std::size_t>(where.slots) * wire_bytes(q, where.count);
    }
    /// Bytes of a message without padding.
    static std::size_t payload_bytes(std::size_t n) {
        return zeropp::code_bytes<Q>(n) + zeropp::wire_layout<Q>(n).blocks * zeropp::params_bytes<Q>;
    }
    T* tensor(std::size_t set, std::size_t n) const { return reinterpret_cast<T*>(at(b.tensors, set, n * sizeof(T))); }

    /// Encodes into message set `set`. There may be more sets of small messages than of tensors, which are then reused.
    void enqueue_encode(const zeropp::slices& where, std::size_t set) const {
        const std::size_t room = b.bytes / zeropp::round_up(elements * sizeof(T), 256);
        codec::write(b.stream, q, tensor(set % room, elements), where, at(b.messages, set, message_bytes(where)));
    }

    void encode(const std::string& kernel, const zeropp::slices& where) const {
        if (!wants(kernel)) return;
        row r = start(kernel, elements * sizeof(T), message_bytes(where));
        const std::size_t sets = b.sets(r.bytes_read + r.bytes_written);
        time_beside_copy(b, sets, wanted.repetitions, r, [&](std::size_t set) { enqueue_encode(where, set); });
        report(r);
    }

    void decode() const {
        if (!wants("decode")) return;
        const auto where = zeropp::slices::single(elements, 0, elements);
        row r = start("decode", payload_bytes(elements), elements * sizeof(T));
        const std::size_t sets = b.sets(r.bytes_read + r.bytes_written);
        for (std::size_t set = 0; set != sets; ++set) enqueue_encode(where, set);
        time_beside_copy(b, sets, wanted.repetitions, r, [&](std::size_t set) {
            codec::read(b.stream, zeropp::message_sum{q, at(b.messages, set, message_bytes(where))}, where,
                        tensor(set, elements));
        });
        report(r);
    }

    /// Measures sums. The tensor holds the contributors' tensors, one after another.
    void reduce(int contributors) const {
        const auto c = static_cast<std::size_t>(contributors);
        const std::size_t n = elements / c;
        const zeropp::slices all{zeropp::partition(n * c, contributors), {}, 0, n, 0, contributors};
        const zeropp::slices sum = zeropp::slices::single(n, 0, n);
        const std::size_t read = c * payload_bytes(n);
        const auto prepare = [&](std::size_t sets) {
            for (std::size_t set = 0; set != sets; ++set) enqueue_encode(all, set);
        };

        const std::string encode_name = "reduce_encode_" + std::to_string(contributors);
        // reduce_encode touches no elements, so the first wanted element type stands for all.
        if (wants(encode_name) && zeropp::element_traits<T>::name == wanted.elements.front()) {
            row r = start(encode_name, read, wire_bytes(q, n));
            const std::size_t sets = b.sets(r.bytes_read + r.bytes_written);
            prepare(sets);
            time_beside_copy(b, sets, wanted.repetitions, r, [&](std::size_t set) {
                codec::write(b.stream, q, zeropp::message_sum{q, at(b.messages, set, message_bytes(all)), contributors},
                             sum, at(b.outputs, set, wire_bytes(q, n)));
            });
            report(r);
        }
        const std::string decode_name = "reduce_decode_" + std::to_string(contributors);
        if (wants(decode_name)) {
            row r = start(decode_name, read, n * sizeof(T));
            const std::size_t sets = b.sets(r.bytes_read + r.bytes_written);
            prepare(sets);
            const auto divisor = static_cast<float>(contributors);
            time_beside_copy(b, sets, wanted.repetitions, r, [&](std::size_t set) {
                codec::read(b.stream,
                            zeropp::message_sum{q, at(b.messages, set, message_bytes(all)), contributors, divisor}, sum,
                            tensor(set, n));
            });
            report(r);
        }
    }
};

/// Measures one quantizer. Each is instantiated in a separate source file, so that they compile in parallel.
template <zeropp::quantizer Q>
void measure_quantizer(bed& b, const settings& wanted, const std::function<void(const row&)>& report) {
    const auto element = [&]<class T>(T) {
        const auto& names = wanted.elements;
        if (std::find(names.begin(), names.end(), zeropp::element_traits<T>::name) == names.end()) return;
        for (const std::size_t megabytes : wanted.megabytes) {
            cases<Q, T>{b, wanted, report, (megabytes << 20) / sizeof(T)}.run();
        }
    };
    element(zeropp::bfloat16{});
    element(zeropp::half{});
    element(float{});
}

}  // namespace zeropp_bench
