// fuzz_seeds DIR: writes the inputs that fuzzing begins with: DIR/decoder has messages that encode() made, for each
// standard quantizer and each thing that is done with them, and exact differences; DIR/names the names; DIR/topology
// maps of small clusters; DIR/peers sizes and messages of exact differences.

#include "fuzz/decoder_input.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/layout/exact_differences.hpp>
#include <zeropp/quantizer/named.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace {

using namespace zeropp;
using namespace zeropp_test;
namespace fs = std::filesystem;

void write(const fs::path& file, const std::vector<std::uint8_t>& bytes) {
    fs::create_directories(file.parent_path());
    std::ofstream stream(file, std::ios::binary);
    stream.exceptions(std::ios::badbit | std::ios::failbit);
    stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

/// The messages of one tensor in three slices, which the decoder has as two contributors'.
template <class Q>
std::vector<std::uint8_t> messages_of(const Q& q, const decoder_input& input) {
    const slices where = input.where(static_cast<std::size_t>(Q::block_size));
    std::vector<float> tensor(where.part.count());
    for (std::size_t i = 0; i != tensor.size(); ++i) {
        tensor[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) * (i % 29 == 0 ? 4.0f : 0.125f);
    }
    std::vector<std::byte> messages(static_cast<std::size_t>(where.slots) * wire_bytes(q, where.count));
    codec<host>::write(host(), q, tensor.data(), where, messages.data());
    std::vector<std::uint8_t> bytes = input.bytes();
    for (const std::byte b : messages) bytes.push_back(static_cast<std::uint8_t>(b));
    return bytes;
}

/// Messages of exact differences: of few changes, of many, and of all bits.
template <class T>
void write_exact_seeds(const fs::path& folder, std::uint8_t quantizer) {
    for (std::uint8_t kind = 0; kind != 3; ++kind) {
        const decoder_input input{.quantizer = quantizer,
                                  .what = 0,
                                  .ranks = static_cast<std::uint8_t>(kind == 0 ? 2 : 0),
                                  .contributors = 0,
                                  .elements = 4900,
                                  .begin = 0,
                                  .count = 5000};
        const slices where = input.where_exact();
        const std::vector<T> old = decoder_input::old_elements<T>(where.part.count());
        std::vector<T> now = old;
        for (std::size_t i = 0; i != now.size(); ++i) {
            if (i % (kind == 0 ? 97 : 2) == 0) now[i].bits = static_cast<std::uint16_t>(now[i].bits + i % 7);
            if (i % 301 == 0 || (kind == 2 && i / 256 % 2 == 0)) now[i].bits = static_cast<std::uint16_t>(i * 2654435u);
        }
        std::vector<std::uint8_t> bytes = input.bytes();
        for (int s = 0; s != where.slots; ++s) {
            // In the slot's order of tiles, which is the message's.
            const slices one = slices::single(where.part.count(), where.offset(s), where.size(s));
            std::vector<std::byte> room(format_of<exact_differences>.bytes(one.count)), message(input.exact_stride());
            std::uint64_t size = 0;
            codec<host>::write_exact(host(), difference{std::as_const(now).data(), old.data()}, one, room.data(),
                                     &size);
            codec<host>::place_exact(host(), one, room.data(), message.data(), message.size());
            for (const std::byte b : message) bytes.push_back(static_cast<std::uint8_t>(b));
        }
        write(folder / "decoder" / ("exact" + std::to_string(quantizer) + "_" + std::to_string(kind)), bytes);
    }
}

template <class>
struct each;
template <class... Quantizers>
struct each<std::variant<Quantizers...>> {
    static void write_seeds(const fs::path& folder) {
        std::uint8_t index = 0;
        const auto write_those_of = [&](const auto& q) {
            for (std::uint8_t what = 0; what != decodings; ++what) {
                const decoder_input input{.quantizer = index,
                                          .what = what,
                                          .ranks = 2,
                                          .contributors = 1,
                                          .elements = 389,
                                          .begin = static_cast<std::uint16_t>(what % 2),
                                          .count = 1000};
                const std::string name = "quantizer" + std::to_string(index) + "_" + std::to_string(what);
                write(folder / "decoder" / name, messages_of(q, input));
            }
            const std::string name = short_text(q.name()).str();
            write(folder / "names" / ("name" + std::to_string(index)), {name.begin(), name.end()});
            ++index;
        };
        (write_those_of(Quantizers{}), ...);
        write_exact_seeds<bfloat16>(folder, index);
        write_exact_seeds<half>(folder, static_cast<std::uint8_t>(index + 1));
    }
};

/// Defaults in their places, and out of them.
void write_spelt_out_names(const fs::path& folder) {
    const std::vector<std::string> names{"int8:256:symmetric:fp32", "mxfp4:fp32", "int4:symmetric:128",
                                         "int4:128:symmetric:symmetric:fp16", "fp32:int8:256"};
    for (std::size_t i = 0; i != names.size(); ++i) {
        write(folder / "names" / ("spelt_out" + std::to_string(i)), {names[i].begin(), names[i].end()});
    }
}

/// A peer's bytes in three operations, 64 apart: whole weights, and a size and a message for each of two chunks. The
/// messages are of blocks without changes.
void write_peers(const fs::path& folder) {
    std::vector<std::uint8_t> bytes(64 * 4);
    for (std::size_t i = 0; i != 64; ++i) bytes[i] = static_cast<std::uint8_t>(i * 7);
    bytes[64] = 36;
    bytes[72] = 8;
    bytes[128] = 8;  // words of the payload: headers of 16 blocks
    bytes[192] = 1;
    write(folder / "peers" / "unchanged", bytes);
}

void write_topologies(const fs::path& folder) {
    const std::vector<std::vector<std::uint8_t>> maps{
        {0},
        {0, 0},
        {0, 1},
        {0, 0, 1, 1},
        {0, 1, 0, 1},
        {0, 1, 1, 0},
        {5, 200, 200, 5, 7, 7},
        {0, 0, 1},
        {3, 2, 1, 0, 0, 1, 2, 3},
    };
    for (std::size_t i = 0; i != maps.size(); ++i) {
        // 1003 elements, blocks of 32, 3 chunks, and 6 ranks on nodes of 2.
        std::vector<std::uint8_t> bytes{0xeb, 0x03, 2, 0, 3, 6, 2};
        bytes.insert(bytes.end(), maps[i].begin(), maps[i].end());
        write(folder / "topology" / ("map" + std::to_string(i)), bytes);
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fputs("usage: fuzz_seeds DIR\n", stderr);
        return 2;
    }
    try {
        each<fuzzed_quantizers::variant>::write_seeds(argv[1]);
        write_spelt_out_names(argv[1]);
        write_topologies(argv[1]);
        write_peers(argv[1]);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "fuzz_seeds: %s\n", e.what());
        return 1;
    }
    return 0;
}
