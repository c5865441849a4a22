#include "text.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "random.hpp"

namespace zero3_gpt {
namespace {

namespace fs = std::filesystem;

// One chunk in ten is held out, from the middle of each ten: a text may end with unusual parts, such as appendices.
constexpr std::size_t chunks_per_held_out = 10;
constexpr std::size_t held_out_place = 5;
constexpr std::size_t chunk_size_wanted = 2048;
constexpr std::size_t fewest_chunks = 2 * chunks_per_held_out;

}  // namespace

std::string read_text(const fs::path& file) {
    const auto fail = [&file](const std::string& reason) {
        throw std::runtime_error("cannot read the text " + file.string() + ": " + reason);
    };
    std::error_code ignored;
    if (fs::is_directory(file, ignored)) fail("it is a folder");
    errno = 0;
    std::ifstream stream{file, std::ios::binary};
    if (!stream) fail(std::generic_category().message(errno));
    std::string bytes{std::istreambuf_iterator<char>{stream}, std::istreambuf_iterator<char>{}};
    if (stream.bad()) fail(std::generic_category().message(errno));
    return bytes;
}

std::string read_licences(const fs::path& folder) {
    std::set<fs::path> files;  // sorted, with one entry for all links to a file
    std::error_code failure;
    for (fs::directory_iterator entry{folder, failure}, end; !failure && entry != end; entry.increment(failure)) {
        std::error_code dangling;
        const fs::path file = fs::canonical(entry->path(), dangling);
        if (!dangling && fs::is_regular_file(file)) files.insert(file);
    }
    if (failure || files.empty()) {
        throw std::runtime_error("no text to train on in " + folder.string() + ": " +
                                 (failure ? failure.message() : "it holds no files") +
                                 "; name a file with --text FILE");
    }
    std::string bytes;
    for (const fs::path& file : files) bytes += read_text(file);
    return bytes;
}

text::text(std::string bytes, int context, int most_held_out)
    : bytes_{std::move(bytes)}, context_{static_cast<std::size_t>(context)} {
    if (context < 1)
        throw std::invalid_argument("text: context is " + std::to_string(context) + ", allowed is 1 or more");
    const std::size_t window = context_ + 1;
    if (bytes_.size() < fewest_chunks * window) {
        throw std::invalid_argument("text: " + std::to_string(bytes_.size()) +
                                    " bytes are too short for a context of " + std::to_string(context) +
                                    ", which needs at least " + std::to_string(fewest_chunks * window));
    }
    // A short text has smaller chunks, down to one window each; a long context has larger ones.
    const std::size_t chunk = std::max(window, std::min(chunk_size_wanted, bytes_.size() / fewest_chunks));

    std::size_t training_begin = 0;
    const auto add_training = [&](std::size_t begin, std::size_t end) {
        if (end - begin < window) return;
        training_starts_.push_back({begin, end - context_});
        training_windows_ += end - context_ - begin;
    };
    for (std::size_t begin = held_out_place * chunk; begin < bytes_.size(); begin += chunks_per_held_out * chunk) {
        const std::size_t end = std::min(begin + chunk, bytes_.size());
        add_training(training_begin, begin);
        for (std::size_t start = begin; start + window <= end; start += context_) held_out_starts_.push_back(start);
        training_begin = end;
    }
    add_training(training_begin, bytes_.size());

    const auto most = static_cast<std::size_t>(most_held_out);
    if (most == 0 || most >= held_out_starts_.size()) return;
    for (std::size_t w = 0; w < most; ++w) held_out_starts_[w] = held_out_starts_[w * held_out_starts_.size() / most];
    held_out_starts_.resize(most);
}

std::size_t text::training_start(std::size_t window) const {
    for (const index_range& starts : training_starts_) {
        const std::size_t count = starts.end - starts.begin;
        if (window < count) return starts.begin + window;
        window -= count;
    }
    throw std::out_of_range("text: there are " + std::to_string(training_windows_) + " training windows");
}

void text::check_room(int batch, std::size_t tokens, std::size_t targets) const {
    if (batch >= 0 && tokens == static_cast<std::size_t>(batch) * context_ && targets == tokens) return;
    throw std::invalid_argument("text: a batch of " + std::to_string(batch) + " windows of " +
                                std::to_string(context_) + " bytes, given room for " + std::to_string(tokens) +
                                " tokens and " + std::to_string(targets) + " targets");
}

void text::copy_window(std::size_t start, std::size_t row, std::span<std::uint8_t> tokens,
                       std::span<std::uint8_t> targets) const {
    const auto to_byte = [](char character) { return static_cast<std::uint8_t>(character); };
    const auto* first = bytes_.data() + start;
    std::transform(first, first + context_, tokens.data() + row * context_, to_byte);
    std::transform(first + 1, first + 1 + context_, targets.data() + row * context_, to_byte);
}

void text::sample_batch(std::uint64_t seed, std::int64_t step, int rank, int batch, std::span<std::uint8_t> tokens,
                        std::span<std::uint8_t> targets) const {
    check_room(batch, tokens.size(), targets.size());
    for (int window = 0; window < batch; ++window) {
        const std::int64_t in_global_batch = std::int64_t{rank} * batch + window;
        const std::uint64_t bits =
            random_bits(seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(in_global_batch));
        copy_window(training_start(bits % training_windows_), static_cast<std::size_t>(window), tokens, targets);
    }
}

int text::held_out_rounds(int ranks, int batch) const {
    const std::size_t each_round = static_cast<std::size_t>(ranks) * static_cast<std::size_t>(batch);
    return static_cast<int>((held_out_windows() + each_round - 1) / each_round);
}

int text::held_out_batch(int round, int rank, int ranks, int batch, std::span<std::uint8_t> tokens,
                         std::span<std::uint8_t> targets) const {
    check_room(batch, tokens.size(), targets.size());
    const std::size_t first =
        (static_cast<std::size_t>(round) * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(rank)) *
        static_cast<std::size_t>(batch);
    const std::size_t last = std::min(first + static_cast<std::size_t>(batch), held_out_windows());
    for (std::size_t window = first; window < last; ++window) {
        copy_window(held_out_starts_[window], window - first, tokens, targets);
    }
    return first < last ? static_cast<int>(last - first) : 0;
}

}  // namespace zero3_gpt
