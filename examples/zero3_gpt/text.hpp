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

/// Bytes of `file`. Throws std::runtime_error with the file and the reason.
[[nodiscard]] std::string read_text(const std::filesystem::path& file);

/// Default training text: the English licences that Debian and its derivatives install. Contains each distinct file
/// once (some names are links), in the order of their names, so that all ranks have equal text. Throws
/// std::runtime_error if there are none.
[[nodiscard]] std::string read_licences(const std::filesystem::path& folder = "/usr/share/common-licenses");

/// A text cut into windows of context + 1 bytes: tokens, and targets, which are the tokens one byte later.
///
/// Every tenth chunk of the text is held out. A window lies wholly in held-out or wholly in training text. Licences
/// quote each other, so their held-out loss shows the progress of training, not knowledge of English.
class text {
public:
    /// Keeps at most `most_held_out` held-out windows, evenly spread; 0 keeps all. Throws std::invalid_argument if the
    /// text is too short for the context.
    text(std::string bytes, int context, int most_held_out = 0);

    [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
    [[nodiscard]] std::size_t training_windows() const noexcept { return training_windows_; }
    [[nodiscard]] std::size_t held_out_windows() const noexcept { return held_out_starts_.size(); }

    /// Fills `batch` random training windows; tokens and targets are [batch, context]. Window w of rank r is window r *
    /// batch + w of the step's global batch, which is equal for any number of ranks.
    void sample_batch(std::uint64_t seed, std::int64_t step, int rank, int batch, std::span<std::uint8_t> tokens,
                      std::span<std::uint8_t> targets) const;

    /// Number of rounds in which all ranks together see every held-out window once. Equal on every rank.
    [[nodiscard]] int held_out_rounds(int ranks, int batch) const;

    /// Fills this rank's windows of a round and returns their number: at most `batch`, fewer at the end of the text,
    /// perhaps 0.
    [[nodiscard]] int held_out_batch(int round, int rank, int ranks, int batch, std::span<std::uint8_t> tokens,
                                     std::span<std::uint8_t> targets) const;

    /// First byte of a window.
    [[nodiscard]] std::size_t training_start(std::size_t window) const;
    [[nodiscard]] std::size_t held_out_start(std::size_t window) const { return held_out_starts_.at(window); }

private:
    void check_room(int batch, std::size_t tokens, std::size_t targets) const;
    void copy_window(std::size_t start, std::size_t row, std::span<std::uint8_t> tokens,
                     std::span<std::uint8_t> targets) const;

    std::string bytes_;
    std::size_t context_;
    std::vector<index_range> training_starts_;  // of each stretch of training text: first bytes of its windows
    std::size_t training_windows_ = 0;          // their total number
    std::vector<std::size_t> held_out_starts_;
};

}  // namespace zero3_gpt
