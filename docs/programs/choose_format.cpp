/// \file
/// A format chosen by name at run time, and one chosen by what it would cost the data: `choose_format int8:256:fp16`.

#include <zeropp/zeropp.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>
#include <variant>
#include <vector>

namespace {

// [formats]
using bf16 = zeropp::lossless<zeropp::bfloat16>;
using int8 = zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::half>;
using int4 = zeropp::block_integer<4, 128, zeropp::signed_extreme, zeropp::bfloat16>;
using int4_rotated = zeropp::hadamard<int4, 32>;
using formats = zeropp::named_quantizers<bf16, int8, int4, int4_rotated>;  // what this program is compiled with
// [formats]

}  // namespace

int main(int argc, char** argv) try {
    const std::string name = argc > 1 ? argv[1] : "int4:128:signed:bf16:h32";
    zeropp::run_on_threads(4, [&](zeropp::thread_transport transport) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        std::vector<float> shard(10'000), full(40'000);
        for (std::size_t i = 0; i != shard.size(); ++i) shard[i] = std::tan(0.001f * static_cast<float>(i));

        // [by_name]
        const formats::variant chosen = formats::parse(name);  // or an error that lists the names
        std::visit([&](const auto& q) { zeropp::quantized_all_gather(zeropp::host{}, comm, q, shard, full); }, chosen);
        // [by_name]

        // [by_data]
        const zeropp::adaptive_precision<int4, int4_rotated, int8, bf16> precision(35.0);  // dB, cheapest first
        std::vector<std::byte> scratch(precision.workspace_bytes(shard.size(), comm.size()));
        const auto found = precision.choose(zeropp::host{}, comm, shard, scratch);  // the same on every rank
        std::visit([&](const auto& q) { zeropp::quantized_all_gather(zeropp::host{}, comm, q, shard, full); },
                   found.quantizer);
        // [by_data]
        if (comm.rank() == 0) {
            std::printf(
                "by name: %s; by data: %s, %.1f dB\n", formats::name(chosen).c_str(),
                std::visit([](const auto& q) { return zeropp::short_text(q.name()).str(); }, found.quantizer).c_str(),
                found.sqnr_db);
        }
        if (!found.holds) throw zeropp::error("no format holds 35 dB");
    });
    try {
        formats::parse("int3:7");
    } catch (const zeropp::precondition_error& wrong) {
        std::printf("%s\n", wrong.what());
        return 0;
    }
    return 1;
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
