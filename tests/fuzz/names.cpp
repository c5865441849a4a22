// Any text as the name of a quantizer: it is one of the names, the defaults possibly spelt out, or an error that lists
// them.

#include "fuzz/reader.hpp"

#include <zeropp/core/error.hpp>
#include <zeropp/quantizer/named.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace {

using zeropp::standard_quantizers;
using zeropp_test::require;

std::vector<std::string_view> fields_of(std::string_view text, std::string_view separator) {
    std::vector<std::string_view> fields;
    for (std::size_t end = 0; (end = text.find(separator)) != std::string_view::npos;) {
        fields.push_back(text.substr(0, end));
        text.remove_prefix(end + separator.size());
    }
    fields.push_back(text);
    return fields;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

/// Whether `name` is `canonical` with nothing but defaults between its fields, each in its place: the scheme of
/// integers in the third, and the scale there or behind a scheme.
bool spells_out(std::string_view name, std::string_view canonical) {
    const auto wanted = fields_of(canonical, ":");
    const auto given = fields_of(name, ":");
    std::size_t next = 0;
    for (std::size_t i = 0; i != given.size(); ++i) {
        const std::string_view wants = next == wanted.size() ? "" : wanted[next];
        const bool behind_scheme = i == 3 && is_one_of(given[2], {"symmetric", "signed", "asymmetric"});
        const bool has_scale = is_one_of(wants, {"fp16", "bf16", "signed", "asymmetric"});
        if (next != wanted.size() && given[i] == wants) {
            ++next;
        } else if (given[i] == "fp32") {
            if (has_scale || !(i == 2 || behind_scheme)) return false;
        } else if (i != 2 || given[i] != "symmetric" || !canonical.starts_with("int")) {
            return false;
        }
    }
    return next == wanted.size();
}

bool is_listed(std::string_view name) {
    static const std::string list = standard_quantizers::list();
    for (const std::string_view listed : fields_of(list, ", ")) {
        if (listed == name) return true;
    }
    return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string name(data, data + size);
    try {
        const auto q = standard_quantizers::parse(name);
        const std::string canonical = standard_quantizers::name(q);
        require(is_listed(canonical), "a name that is listed");
        require(spells_out(name, canonical), "the name that was given, with defaults or without");
        require(standard_quantizers::parse(canonical).index() == q.index(), "the same quantizer by its canonical name");
    } catch (const zeropp::precondition_error& e) {
        const std::string expected =
            "quantizer: expected one of " + standard_quantizers::list() + ", given \"" + name + "\"";
        require(!is_listed(name), "every listed name to be one");
        require(e.what() == std::string(expected.c_str()), "an error with the list and the name");
    }
    return 0;
}
