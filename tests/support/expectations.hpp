#pragma once
/// \file
/// Expectations of ranks, noted on any thread and checked on the main one, because Catch's assertions are not
/// thread-safe.

#include <cstddef>
#include <exception>
#include <mutex>
#include <source_location>
#include <string>
#include <string_view>

namespace zeropp_test {

/// Counts met expectations and keeps the text of unmet ones.
class expectations {
public:
    void operator()(bool met, const std::string& what = "this",
                    std::source_location at = std::source_location::current()) {
        const std::lock_guard lock(mutex_);
        if (met) {
            ++met_;
        } else if (++unmet_ <= 20) {  // more would only repeat the cause
            text_ += std::string(at.file_name()) + ":" + std::to_string(at.line()) + ": expected " + what + "\n";
        }
    }

    /// Expects a == b; the text shows both.
    void equal(const std::string& a, const std::string& b, std::source_location at = std::source_location::current()) {
        (*this)(a == b, "\"" + b + "\", given \"" + a + "\"", at);
    }
    template <class A, class B>
        requires requires(const A& a, const B& b) { std::to_string(a) + std::to_string(b); }
    void equal(const A& a, const B& b, std::source_location at = std::source_location::current()) {
        (*this)(a == static_cast<A>(b), std::to_string(b) + ", given " + std::to_string(a), at);
    }

    std::size_t met() const {
        const std::lock_guard lock(mutex_);
        return met_;
    }

    /// Unmet expectations, one a line; empty if all were met.
    std::string unmet() const {
        const std::lock_guard lock(mutex_);
        return text_;
    }

private:
    mutable std::mutex mutex_;
    std::size_t met_ = 0;
    std::size_t unmet_ = 0;
    std::string text_;
};

/// Text of the Error that call() throws; in angle brackets if it throws another exception or none.
template <class Error, class Call>
std::string thrown(Call&& call) {
    try {
        call();
    } catch (const Error& e) {
        return e.what();
    } catch (const std::exception& e) {
        return std::string("<another exception: ") + e.what() + ">";
    } catch (...) {
        return "<another exception>";
    }
    return "<nothing thrown>";
}

/// True if `part` stands in `text`.
inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace zeropp_test
