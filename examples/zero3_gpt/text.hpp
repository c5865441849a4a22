#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "model.hpp"

namespace zero3_gpt {

/// Indices [begin, end).
struct index_range {
    std::size_t begin = 0;
    std::size_t end = 0;
};

/// The bytes of `file`. Throws std::runtime_error that names the file and the reason.
[[nodiscard]] std::string read_text(const std::filesystem::path& file);

/// The text to train on when none is given: the English licences that Debian and its relatives install. Each distinct
/// file once (several names there are links to others), in the order of their names, so the text is the same on every
/// rank. Throws std::runtime_error where there are none.
[[nodiscard]] std::string read_licences(const std::filesystem::path& folder = "/usr/share/common-licenses");

/// A text cut into windows of context + 1 bytes: tokens, and targets that are the tokens one byte later.
///
/// Every tenth chunk of the text is held out. A window lies wholly in held-out or wholly in training text. Licences
/// quote each other, so their held-out loss says how training goes and not how well the model knows English.
class text {
public:
    /// Throws std::invalid_argument if the text is too short for the context.
    text(std::string bytes, int context);

    [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
    [[nodiscard]] std::size_t training_windows() const noexcept { return training_windows_; }
    [[nodiscard]] std::size_t held_out_windows() const noexcept { return held_out_starts_.size(); }

    /// Fills `batch` random training windows, tokens and targets being [batch, context]. Window w of rank r is window
    /// r * batch + w of the step's global batch, which is the same however many ranks share it.
    void sample_batch(std::uint64_t seed, std::int64_t step, int rank, int batch, std::span<std::uint8_t> tokens,
                      std::span<std::uint8_t> targets) const;

    /// How often all ranks together must call held_out_batch to see every held-out window once. The same on every rank.
    [[nodiscard]] int held_out_rounds(int ranks, int batch) const;

    /// Fills this rank's share of a round and returns how many windows that is: at the end of the text fewer than
    /// `batch`, perhaps none.
    [[nodiscard]] int held_out_batch(int round, int rank, int ranks, int batch, std::span<std::uint8_t> tokens,
                                     std::span<std::uint8_t> targets) const;

    /// Where the windows start, for whoever wants to see the split.
    [[nodiscard]] std::size_t training_start(std::size_t window) const;
    [[nodiscard]] std::size_t held_out_start(std::size_t window) const { return held_out_starts_.at(window); }

private:
    void check_room(int batch, std::size_t tokens, std::size_t targets) const;
    void copy_window(std::size_t start, std::size_t row, std::span<std::uint8_t> tokens,
                     std::span<std::uint8_t> targets) const;

    std::string bytes_;
    std::size_t context_;
    std::vector<index_range> training_starts_;  // of each stretch of training text: the positions a window may start at
    std::size_t training_windows_ = 0;          // all of those together
    std::vector<std::size_t> held_out_starts_;
};

}  // namespace zero3_gpt
