/// \file
/// A format chosen by name at run time: `choose_format int8:256:fp16`.

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
using bf16 = zeropp::cast_to<zeropp::bfloat16>;
using int8 = zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::half>;
using int4 = zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16>;
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

        if (comm.rank() == 0) std::printf("gathered in %s\n", formats::name(chosen).c_str());
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
