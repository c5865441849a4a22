#include "settings.hpp"

#include "report.hpp"

#include <zeropp/layout/exact_differences.hpp>
#include <zeropp/quantizer/lloyd_max.hpp>
#include <zeropp/quantizer/named.hpp>
#include <zeropp/quantizer/residual_storage.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <variant>

namespace plan {

const char* const usage =
    "usage: zeropp-plan (--params N | --tensors [COUNTx]SIZE,...) (--nodes N --ranks-per-node N | --node-sizes N,...) "
    "[options]\n"
    "       zeropp-plan --help";

namespace {

using formats = zeropp::known_quantizers;

/// A whole number; text such as 70e9 works too.
std::size_t count_from(const std::string& text, const std::string& option, std::size_t most = most_parameters) {
    double number = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (problem != std::errc() || end != text.data() + text.size() ||
        !(number >= 1 && number <= static_cast<double>(most)) || number != std::floor(number)) {
        throw std::invalid_argument(option + ": expected a whole number from 1 to " + std::to_string(most) +
                                    ", given \"" + text + "\"");
    }
    return static_cast<std::size_t>(number);
}

/// Items of a list with commas. CLI11 would drop empty ones.
std::vector<std::string> items_of(const std::string& list) {
    std::vector<std::string> items(1);
    for (const char c : list) {
        if (c == ',') {
            items.emplace_back();
        } else {
            items.back() += c;
        }
    }
    return items;
}

/// Tensors of "[COUNTx]SIZE,...", in elements.
std::vector<std::size_t> tensors_from(const std::string& list) {
    std::vector<std::size_t> tensors;
    for (const std::string& item : items_of(list)) {
        const std::size_t x = item.find('x');
        const std::size_t count = x == std::string::npos ? 1 : count_from(item.substr(0, x), "--tensors");
        const std::size_t size = count_from(x == std::string::npos ? item : item.substr(x + 1), "--tensors");
        if (count > most_tensors - tensors.size()) {
            throw std::invalid_argument("--tensors: expected at most " + std::to_string(most_tensors) + " tensors");
        }
        tensors.insert(tensors.end(), count, size);
    }
    return tensors;
}

/// Nodes of "RANKS,...".
zeropp::two_level ranks_from(const std::string& list) {
    std::vector<int> sizes;
    std::size_t ranks = 0;
    for (const std::string& item : items_of(list)) {
        const std::size_t size = count_from(item, "--node-sizes", most_ranks);
        ranks += size;
        sizes.push_back(static_cast<int>(size));
    }
    if (ranks > most_ranks) {
        throw std::invalid_argument("--node-sizes: expected at most " + std::to_string(most_ranks) + " ranks, given " +
                                    std::to_string(ranks));
    }
    return zeropp::two_level::of_nodes(sizes);
}

/// Divides `parameters` into at most `units` tensors of nearly equal size.
std::vector<std::size_t> even_tensors(std::size_t parameters, std::size_t units) {
    const std::size_t some = std::min(parameters, units);
    std::vector<std::size_t> tensors(some, parameters / some);
    for (std::size_t i = 0; i != parameters % some; ++i) ++tensors[i];
    return tensors;
}

/// Moves the tensors of `size` elements, embeddings and head, to the front and returns their number. Throws if there
/// are more than two, because a block's matrix may be as large.
std::size_t embeddings_to_front(std::vector<std::size_t>& tensors, std::size_t size) {
    const auto end = std::partition(tensors.begin(), tensors.end(), [=](std::size_t n) { return n == size; });
    const auto embeddings = static_cast<std::size_t>(end - tensors.begin());
    if (embeddings == 0) {
        throw std::invalid_argument(
            "--vocabulary x --width: expected one of --tensors to have as many elements, given " +
            std::to_string(size));
    }
    if (embeddings > 2) {
        throw std::invalid_argument("--vocabulary x --width: expected at most two of --tensors to have " +
                                    std::to_string(size) + " elements, embeddings and head, given " +
                                    std::to_string(embeddings));
    }
    return embeddings;
}

/// Throws before the work if `file` cannot be written. Appending keeps its present contents.
void require_writable(const std::string& option, const std::string& file) {
    if (!file.empty() && !std::ofstream(file, std::ios::app)) {
        throw std::invalid_argument(option + ": cannot write " + file);
    }
}

}  // namespace

zeropp::wire_format format_named(const std::string& name) {
    return std::visit([](const auto& q) { return zeropp::wire_format_of(q); }, formats::parse(name));
}

zeropp::wire_format difference_format_named(const std::string& name, double exact_bits) {
    return std::visit(
        [&]<class Q>(const Q& q) -> zeropp::wire_format {
            if constexpr (zeropp::quantizer<Q>) {
                return zeropp::wire_format_of(q);
            } else {
                return {zeropp::format_of<zeropp::exact_differences>, q.name(), exact_bits, false};
            }
        },
        formats::with<zeropp::exact_differences>::parse(name));
}

zeropp::wire_format residual_format(const std::string& storage, const std::string& quantizer) {
    if (storage == "fp32") return zeropp::wire_format_of(zeropp::cast_to<float>{});
    if (storage == "bf16") return zeropp::wire_format_of(zeropp::cast_to<zeropp::bfloat16>{});
    return std::visit(
        []<class Q>(const Q&) {
            return zeropp::wire_format_of(typename zeropp::residuals_in_int8::template storage<Q>{});
        },
        formats::parse(quantizer));
}

std::optional<settings> read_settings(int argc, char** argv, int& exit_code) {
    CLI::App app("Predicts the bytes, the memory and the time of a training step with ZeRO-3 and with ZeRO++.",
                 "zeropp-plan");
    app.get_formatter()->column_width(44);
    std::string params, tensors;
    std::size_t units = 64;
    auto* const of_model = app.add_option_group("model");
    of_model->add_option("--params", params, "parameters of the model, e.g. 70e9");
    of_model->add_option("--tensors", tensors, "or its tensors: [COUNTx]SIZE,...; each is gathered by itself");
    of_model->require_option(1);
    app.add_option("--units", units, "tensors that --params are divided into")
        ->check(CLI::Range(std::size_t{1}, most_tensors))
        ->capture_default_str()
        ->excludes("--tensors");
    std::size_t vocabulary = 0, width = 0;
    const CLI::Range dimension(std::size_t{1}, std::size_t{1'000'000'000});
    auto* const of_vocabulary =
        app.add_option("--vocabulary", vocabulary,
                       "tokens: with --width, embeddings and head are two of the tensors, and there is a row by_layer")
            ->check(dimension);
    of_vocabulary->needs(
        app.add_option("--width", width, "elements of a token's embedding")->check(dimension)->needs(of_vocabulary));

    int nodes = 0, ranks_per_node = 0;
    std::string node_sizes;
    const CLI::Range count(1, most_ranks);
    auto* const of_nodes = app.add_option_group("nodes");
    auto* const number = of_nodes->add_option("--nodes", nodes, "nodes of equal size")->check(count);
    number->needs(
        app.add_option("--ranks-per-node", ranks_per_node, "ranks (GPUs) on each")->check(count)->needs(number));
    of_nodes->add_option("--node-sizes", node_sizes, "or the ranks on each node, e.g. 8,8,7");
    of_nodes->require_option(1);
    settings s;
    auto* const of_sites =
        app.add_option("--sites", s.sites, "sites, of as many of the nodes each, with slower links between them")
            ->check(count)
            ->needs(number)
            ->capture_default_str();
    int secondary_group_size = 0;
    app.add_option("--secondary-group", secondary_group_size,
                   "ranks that share a secondary partition (default: a node's)")
        ->check(CLI::PositiveNumber);

    std::string plain = "bf16", weights = "int8:256:fp16", gradients_intra_node = "int8:256:bf16";
    std::string gradients_inter_node = "int4:128:signed:bf16", secondary = "bf16", residuals = "none";
    std::string differences = "int2:64:signed:bf16:h32", difference_gradients = differences;
    app.add_option("--plain", plain, "what ZeRO-3 sends")->capture_default_str();
    app.add_option("--weights", weights, "quantizer of weights (qwZ)")->capture_default_str();
    app.add_option("--gradients-intra-node", gradients_intra_node, "quantizer of intra-node gradients (qgZ)")
        ->capture_default_str();
    app.add_option("--gradients-inter-node", gradients_inter_node, "quantizer of inter-node gradients (qgZ)")
        ->capture_default_str();
    std::string gradients_inter_site;
    app.add_option("--gradients-inter-site", gradients_inter_site,
                   "quantizer of gradients between sites (default: as between nodes)");
    app.add_option("--secondary", secondary, "quantizer of the secondary partition (hpZ)")->capture_default_str();
    app.add_option("--differences", differences,
                   "quantizer of differences of the weights that nodes keep, or exact, to the bit")
        ->capture_default_str();
    auto* const of_exact_bits = app.add_option(
        "--exact-bits", s.exact_bits,
        "bits a weight of exact differences, of a small GPT and AdamW (bench/results/exact_bits.md): the default at a "
        "peak learning rate of 1e-4, 3.4 at 1e-3; in fine-tuning 0.52 at 1e-5, 0.26 at 3e-6");
    of_exact_bits->capture_default_str();
    app.add_option("--difference-gradients", difference_gradients, "quantizer of inter-node gradients beside them")
        ->capture_default_str();
    std::string by_layer = "lloyd2:128:unbiased:h128", block_gradients = "lloyd3:128:h128";
    std::string embedding_gradients = "int4:128:signed:bf16:h32";
    app.add_option("--by-layer-differences", by_layer, "by_layer: quantizer of differences")
        ->needs(of_vocabulary)
        ->capture_default_str();
    app.add_option("--by-layer-block-gradients", block_gradients, "by_layer: quantizer of blocks' inter-node gradients")
        ->needs(of_vocabulary)
        ->capture_default_str();
    app.add_option("--by-layer-embedding-gradients", embedding_gradients, "by_layer: the same of embeddings and head")
        ->needs(of_vocabulary)
        ->capture_default_str();
    app.add_option("--error-feedback", residuals, "what residuals of gradients are stored as")
        ->check(CLI::IsMember({"none", "fp32", "bf16", "int8"}))
        ->capture_default_str();
    int chunks = 1, gather_chunks = 1;
    app.add_option("--chunks", chunks, "chunks of a reduce-scatter")->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--gather-chunks", gather_chunks, "chunks of an all-gather")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();

    machine_numbers m;
    app.add_option("--intra-node-gbit", m.intra_node_gbit, "Gbit/s of a rank inside its node, each way")
        ->capture_default_str();
    app.add_option("--inter-node-gbit", m.inter_node_gbit, "Gbit/s of a whole node to others, each way")
        ->capture_default_str();
    app.add_option("--intra-node-us", m.intra_node_us, "latency of an intra-node message in microseconds")
        ->capture_default_str();
    app.add_option("--inter-node-us", m.inter_node_us, "latency of an inter-node message in microseconds")
        ->capture_default_str();
    app.add_option("--inter-site-gbit", m.inter_site_gbit, "Gbit/s of a whole site to others, each way")
        ->needs(of_sites)
        ->capture_default_str();
    app.add_option("--inter-site-us", m.inter_site_us, "latency of a message between sites in microseconds")
        ->needs(of_sites)
        ->capture_default_str();
    app.add_option("--codec-gb", m.codec_gb, "GB/s that a rank's codec reads and writes; 0 does not count it")
        ->capture_default_str();
    app.add_option("--compute-ms", m.compute_ms, "milliseconds that a step computes")->capture_default_str();

    int islands = 0, every = 30, delay = 0;
    double between_rate = 1, between_latency = 20'000;
    std::string exchange = "int4:128:signed:bf16:h32";
    auto* const of_islands =
        app.add_option("--islands", islands, "islands of whole nodes that take local steps: there is a table of them")
            ->check(CLI::Range(1, most_ranks));
    app.add_option("--every", every, "islands: inner steps between two exchanges (H)")
        ->check(CLI::PositiveNumber)
        ->needs(of_islands)
        ->capture_default_str();
    app.add_option("--delay", delay, "islands: inner steps that hide an exchange")
        ->check(CLI::NonNegativeNumber)
        ->needs(of_islands)
        ->capture_default_str();
    app.add_option("--exchange", exchange, "islands: quantizer of exchanges")->needs(of_islands)->capture_default_str();
    app.add_option("--between-gbit", between_rate, "islands: Gbit/s of a whole island to the others, each way")
        ->needs(of_islands)
        ->capture_default_str();
    app.add_option("--between-us", between_latency, "islands: latency of a message to another in microseconds")
        ->needs(of_islands)
        ->capture_default_str();

    std::string mirror;
    int mirror_every = 100;
    auto* const of_mirror =
        app.add_option("--mirror", mirror, "quantizer of copies of the optimizer's moments on partner nodes");
    app.add_option("--mirror-every", mirror_every, "optimizer steps between two copies")
        ->check(CLI::PositiveNumber)
        ->needs(of_mirror)
        ->capture_default_str();

    auto* const of_memory = app.add_option("--gpu-memory-gb", m.memory_gb, "memory of a GPU, in GB of 10^9 bytes");
    app.add_option("--other-memory-gb", m.other_memory_gb, "what else lies there: activations, buffers")
        ->needs(of_memory)
        ->capture_default_str();
    const CLI::Range state(0, 64);
    app.add_option("--parameter-bytes", s.bytes.parameter, "bytes of a parameter")->check(state)->capture_default_str();
    app.add_option("--gradient-bytes", s.bytes.gradient, "bytes of its gradient")->check(state)->capture_default_str();
    app.add_option("--optimizer-bytes", s.bytes.optimizer, "bytes of its optimizer states (K)")
        ->check(state)
        ->capture_default_str();
    auto* const advise = app.add_flag(
        "--advise", s.advise,
        "print the recommended settings, then all, in the formats of the measured losses; with --islands, local steps "
        "compete");
    app.add_option("--loss-budget", s.loss_budget,
                   "advise: most held-out loss above synchronous bf16's, in percent: measured mean and standard error")
        ->needs(advise)
        ->capture_default_str();
    app.add_option("--json", s.json_file, "write everything to this file");
    app.add_option("--sweep", s.sweep_file, "write a plot of the speed-up against link rates across, for gnuplot");
    for (const char* const without_effect :
         {"--plain", "--weights", "--gradients-intra-node", "--gradients-inter-node", "--differences",
          "--difference-gradients", "--by-layer-differences", "--by-layer-block-gradients",
          "--by-layer-embedding-gradients", "--secondary", "--error-feedback", "--every", "--delay", "--exchange",
          "--mirror", "--json", "--sweep"}) {
        advise->excludes(without_effect);
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& e) {
        exit_code = app.exit(e);
        return std::nullopt;
    }

    const std::size_t embedding = vocabulary * width;
    std::size_t embeddings = 0;
    if (tensors.empty()) {
        const std::size_t parameters = count_from(params, "--params");
        if (2 * embedding >= parameters) {
            throw std::invalid_argument("--vocabulary x --width: expected embeddings and head of fewer than the " +
                                        std::to_string(parameters) + " parameters, given twice " +
                                        std::to_string(embedding));
        }
        s.tensors = even_tensors(parameters - 2 * embedding, units);
        if (embedding != 0) {
            embeddings = 2;
            s.tensors.insert(s.tensors.begin(), embeddings, embedding);
        }
    } else {
        s.tensors = tensors_from(tensors);
        if (embedding != 0) embeddings = embeddings_to_front(s.tensors, embedding);
    }
    require_tensors(s.tensors);
    s.ranks = nodes != 0 ? ranks_of(nodes, ranks_per_node) : ranks_from(node_sizes);
    if (s.ranks.groups() % s.sites != 0) {
        throw std::invalid_argument("--sites: expected a divisor of the " + std::to_string(s.ranks.groups()) +
                                    " nodes, given " + std::to_string(s.sites));
    }
    s.secondary_group_size = secondary_group_size;
    if (secondary_group_size == 0) {
        s.secondary_group_size = has_equal_groups(s.ranks) ? s.ranks.group_size(0) : zeropp::whole_nodes;
    }
    s.on_topology([&](const auto& ranks) { zeropp::secondary_peers(ranks, s.secondary_group_size); });
    s.plain = format_named(plain);
    s.plain_gradients = s.plain;
    s.weights = format_named(weights);
    s.gradients.intra_node = format_named(gradients_intra_node);
    s.gradients.inter_node = format_named(gradients_inter_node);
    if (!gradients_inter_site.empty()) s.gradients.inter_site = format_named(gradients_inter_site);
    s.secondary = format_named(secondary);
    s.differences = difference_format_named(differences, in_range("--exact-bits", s.exact_bits, 0.01, 16));
    const zeropp::wire_format& kept = s.secondary.plain ? s.secondary : s.plain;
    if (s.differences.varies && kept.code_bits != 16) {
        throw std::invalid_argument("--differences exact: expected weights kept in bf16 or fp16 (--secondary), given " +
                                    kept.name.str());
    }
    if (of_exact_bits->count() != 0 && !s.differences.varies && !s.advise) {
        throw std::invalid_argument("--exact-bits: expected --differences exact or --advise, given " + differences);
    }
    s.difference_gradients = format_named(difference_gradients);
    const auto residuals_beside = [&](const std::string& inter_node) -> std::optional<zeropp::level_formats> {
        if (residuals == "none") return std::nullopt;
        zeropp::level_formats stored{residual_format(residuals, gradients_intra_node),
                                     residual_format(residuals, inter_node)};
        if (!gradients_inter_site.empty()) stored.inter_site = residual_format(residuals, gradients_inter_site);
        return stored;
    };
    s.residuals = residuals_beside(gradients_inter_node);
    s.difference_residuals = residuals_beside(difference_gradients);
    if (embedding != 0) {
        s.by_layer = by_layer_formats{.embeddings = embeddings,
                                      .differences = format_named(by_layer),
                                      .block_gradients = format_named(block_gradients),
                                      .embedding_gradients = format_named(embedding_gradients),
                                      .block_residuals = residuals_beside(block_gradients),
                                      .embedding_residuals = residuals_beside(embedding_gradients)};
    }
    if (s.sites != 1 && (islands != 0 || !mirror.empty() || s.advise)) {
        throw std::invalid_argument(
            "--sites: expected no --islands, --mirror or --advise beside it; --advise takes --islands as sites");
    }
    if (s.sites == 1 && !gradients_inter_site.empty()) {
        throw std::invalid_argument("--gradients-inter-site: expected several --sites, given 1");
    }
    if (islands != 0) {
        if (!has_equal_groups(s.ranks)) {
            throw std::invalid_argument("--islands: expected nodes of equal size, given " + nodes_text(s.ranks));
        }
        if (s.ranks.groups() % islands != 0) {
            throw std::invalid_argument("--islands: expected a divisor of the " + std::to_string(s.ranks.groups()) +
                                        " nodes, given " + std::to_string(islands));
        }
        if (delay >= every) {
            throw std::invalid_argument("--delay: expected fewer steps than the " + std::to_string(every) +
                                        " of --every, given " + std::to_string(delay));
        }
        static_cast<void>(zeropp::secondary_peers(zeropp::two_level(s.ranks.groups() / islands, s.ranks.group_size(0)),
                                                  s.secondary_group_size));
        s.islands = island_settings{
            {.islands = islands,
             .every = every,
             .delay = delay,
             .differences = format_named(exchange),
             .residuals = residuals == "none" ? std::nullopt : std::optional(residual_format(residuals, exchange))},
            link_of("between islands,", between_rate, between_latency)};
    }
    if (!mirror.empty()) {
        if (s.ranks.groups() == 1) throw std::invalid_argument("--mirror: expected at least 2 nodes, given 1");
        s.mirrors = mirror_settings{format_named(mirror), mirror_every};
    }
    s.chunks = chunks;
    s.gather_chunks = gather_chunks;
    set_machine(s, m);
    in_range("--loss-budget", s.loss_budget, 0, 100);
    if (s.advise && m.compute_ms == 0) {
        throw std::invalid_argument(
            "--advise: expected --compute-ms above 0, for without it the fewest bytes are best");
    }
    if (s.advise && islands == 1) throw std::invalid_argument("--islands: expected at least 2 with --advise, given 1");
    if (!s.sweep_file.empty() && s.ranks.groups() == 1) {
        throw std::invalid_argument("--sweep: expected at least 2 nodes, for there is no link across one");
    }
    require_writable("--json", s.json_file);
    require_writable("--sweep", s.sweep_file);
    return s;
}

}  // namespace plan
