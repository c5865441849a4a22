#include "text.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"
#include "support/expectations.hpp"

namespace {

namespace fs = std::filesystem;
using zero3_gpt::text;
using zeropp_test::contains;
using zeropp_test::thrown;
using bytes = std::vector<std::uint8_t>;

/// A folder of its own for one test.
class temporary_folder {
public:
    temporary_folder() {
        std::string name = (fs::temp_directory_path() / "zero3_gpt_XXXXXX").string();
        REQUIRE(mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    temporary_folder(const temporary_folder&) = delete;
    temporary_folder& operator=(const temporary_folder&) = delete;
    ~temporary_folder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }

    [[nodiscard]] const fs::path& path() const { return path_; }

    fs::path write(std::string_view name, std::string_view content) const {
        std::ofstream{path_ / name, std::ios::binary} << content;
        return path_ / name;
    }

private:
    fs::path path_;
};

/// Bytes in which a window tells its place: four at a time count up.
std::string counting_text(std::size_t size) {
    std::string result(size, '\0');
    for (std::size_t i = 0; i < size; ++i) result[i] = static_cast<char>((i / 4) >> (8 * (i % 4)));
    return result;
}

}  // namespace

TEST_CASE("held-out and training windows never share a byte", "[zero3_gpt][text]") {
    struct shape {
        std::size_t size;
        int context;
    };
    const auto [size, context] =
        GENERATE(shape{180, 8}, shape{5000, 64}, shape{50'003, 64}, shape{90'000, 100}, shape{100'000, 4000});
    CAPTURE(size, context);
    const text corpus{counting_text(size), context};
    REQUIRE(corpus.held_out_windows() > 0);
    REQUIRE(corpus.training_windows() > 0);

    const auto window = static_cast<std::size_t>(context) + 1;
    std::vector<int> owner(size);
    for (std::size_t w = 0; w < corpus.held_out_windows(); ++w) {
        REQUIRE(corpus.held_out_start(w) + window <= size);
        std::fill_n(owner.begin() + static_cast<std::ptrdiff_t>(corpus.held_out_start(w)), window, 1);
    }
    for (std::size_t w = 0; w < corpus.training_windows(); ++w) {
        const std::size_t start = corpus.training_start(w);
        REQUIRE(start + window <= size);
        // Both ends suffice: held-out text comes in stretches of at least a window.
        REQUIRE(owner[start] != 1);
        REQUIRE(owner[start + window - 1] != 1);
        owner[start] = owner[start + window - 1] = 2;
    }
    CHECK_THROWS_AS(corpus.training_start(corpus.training_windows()), std::out_of_range);

    const auto held_out = std::ranges::count(owner, 1);
    const auto training = std::ranges::count(owner, 2);
    CHECK(static_cast<double>(held_out) > 0.04 * static_cast<double>(size));
    CHECK(static_cast<double>(held_out) < 0.15 * static_cast<double>(size));
    CHECK(static_cast<double>(training) > 0.75 * static_cast<double>(size));
}

TEST_CASE("targets are the tokens one byte later", "[zero3_gpt][text]") {
    const std::string source = counting_text(40'000);
    const text corpus{source, 16};
    bytes tokens(5 * 16);
    bytes targets(5 * 16);
    const auto check_row = [&](std::size_t row) {
        const std::string_view found{reinterpret_cast<const char*>(tokens.data()) + row * 16, 16};
        const auto place = source.find(found);
        REQUIRE(place != std::string::npos);
        CHECK(std::string_view{reinterpret_cast<const char*>(targets.data()) + row * 16, 16} ==
              std::string_view{source}.substr(place + 1, 16));
        return place;
    };
    corpus.sample_batch(1, 2, 3, 5, tokens, targets);
    for (std::size_t row = 0; row < 5; ++row) check_row(row);
    REQUIRE(corpus.held_out_batch(0, 1, 2, 5, tokens, targets) == 5);
    for (std::size_t row = 0; row < 5; ++row) CHECK(check_row(row) == corpus.held_out_start(5 + row));
}

TEST_CASE("a batch depends on seed and step, and ranks share the global one", "[zero3_gpt][text]") {
    const text corpus{counting_text(40'000), 16};
    const auto sample = [&](std::uint64_t seed, std::int64_t step, int rank, int batch) {
        bytes tokens(static_cast<std::size_t>(batch) * 16);
        bytes targets(tokens.size());
        corpus.sample_batch(seed, step, rank, batch, tokens, targets);
        return tokens;
    };
    const bytes whole = sample(1, 5, 0, 8);
    CHECK(sample(1, 5, 0, 8) == whole);
    CHECK(sample(2, 5, 0, 8) != whole);
    CHECK(sample(1, 6, 0, 8) != whole);
    bytes joined;
    for (int rank = 0; rank < 4; ++rank) {
        const bytes part = sample(1, 5, rank, 2);
        joined.insert(joined.end(), part.begin(), part.end());
    }
    CHECK(joined == whole);

    // Over many steps the windows come from all over the text.
    const std::string source = counting_text(40'000);
    std::set<std::size_t> places;
    for (int step = 0; step < 200; ++step) {
        const bytes window = sample(1, step, 0, 1);
        places.insert(source.find(std::string{window.begin(), window.end()}));
    }
    CHECK(places.size() > 190);
    CHECK(*places.begin() < 2000);
    CHECK(*places.rbegin() > 38'000);
}

TEST_CASE("every held-out window is seen once, by some rank", "[zero3_gpt][text]") {
    const text corpus{counting_text(60'000), 32};
    const int ranks = GENERATE(1, 3, 4);
    const int batch = GENERATE(1, 8, 1000);
    bytes tokens(static_cast<std::size_t>(batch) * 32);
    bytes targets(tokens.size());
    std::multiset<bytes> seen;
    for (int round = 0; round < corpus.held_out_rounds(ranks, batch); ++round) {
        for (int rank = 0; rank < ranks; ++rank) {
            const int count = corpus.held_out_batch(round, rank, ranks, batch, tokens, targets);
            for (int row = 0; row < count; ++row) {
                seen.emplace(tokens.begin() + row * 32, tokens.begin() + (row + 1) * 32);
            }
        }
    }
    CHECK(seen.size() == corpus.held_out_windows());
    CHECK(std::set<bytes>(seen.begin(), seen.end()).size() == seen.size());
}

TEST_CASE("few held-out windows are spread over all of them", "[zero3_gpt][text]") {
    const std::string source = counting_text(60'000);
    const text all{source, 32};
    const auto count = static_cast<int>(all.held_out_windows());
    for (const int most : {1, 7, count - 1, count, count + 1}) {
        CAPTURE(most);
        const text few{source, 32, most};
        REQUIRE(few.held_out_windows() == static_cast<std::size_t>(std::min(most, count)));
        CHECK(few.training_windows() == all.training_windows());
        std::size_t next = 0;  // among all windows
        for (std::size_t w = 0; w < few.held_out_windows(); ++w) {
            while (next < all.held_out_windows() && all.held_out_start(next) != few.held_out_start(w)) ++next;
            REQUIRE(next++ == w * all.held_out_windows() / few.held_out_windows());
        }
    }
}

TEST_CASE("a text comes from a file", "[zero3_gpt][text]") {
    const temporary_folder folder;
    const std::string content{"a\0b\r\nc\xff", 7};
    CHECK(zero3_gpt::read_text(folder.write("some.txt", content)) == content);
    CHECK(zero3_gpt::read_text(folder.write("empty.txt", "")).empty());

    const std::string missing =
        thrown<std::runtime_error>([&] { (void)zero3_gpt::read_text(folder.path() / "missing.txt"); });
    CHECK(contains(missing, "missing.txt"));
    CHECK(contains(missing, "No such file"));
    CHECK(contains(thrown<std::runtime_error>([&] { (void)zero3_gpt::read_text(folder.path()); }), "is a folder"));
}

TEST_CASE("each distinct licence is read once, in the order of names", "[zero3_gpt][text]") {
    const temporary_folder folder;
    folder.write("b-2", "second ");
    folder.write("c-1", "third");
    folder.write("a-9", "first ");
    fs::create_symlink("c-1", folder.path() / "a");
    fs::create_symlink("nowhere", folder.path() / "dangling");
    fs::create_directory(folder.path() / "inner");
    CHECK(zero3_gpt::read_licences(folder.path()) == "first second third");
}

TEST_CASE("without licences the message offers --text", "[zero3_gpt][text]") {
    const temporary_folder folder;
    const std::string empty = thrown<std::runtime_error>([&] { (void)zero3_gpt::read_licences(folder.path()); });
    CHECK(contains(empty, folder.path().string()));
    CHECK(contains(empty, "--text FILE"));
    const std::string missing =
        thrown<std::runtime_error>([&] { (void)zero3_gpt::read_licences(folder.path() / "none"); });
    CHECK(contains(missing, "No such file"));
    CHECK(contains(missing, "--text FILE"));
}

TEST_CASE("a text that is too short says how long it must be", "[zero3_gpt][text]") {
    CHECK_NOTHROW(text{std::string(20 * 65, 'x'), 64});
    const std::string message = thrown<std::logic_error>([] { text{std::string(20 * 65 - 1, 'x'), 64}; });
    CHECK(contains(message, "1299 bytes"));
    CHECK(contains(message, "at least 1300"));
    CHECK_THROWS_AS((text{"abc", 0}), std::invalid_argument);

    const text corpus{std::string(20 * 65, 'x'), 64};
    bytes room(63);
    CHECK(contains(thrown<std::logic_error>([&] { corpus.sample_batch(0, 0, 0, 1, room, room); }),
                   "given room for 63 tokens"));
}
