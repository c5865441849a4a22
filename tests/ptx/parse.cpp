#include "machine.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

namespace zeropp_test::ptx {

namespace {

std::string trimmed(std::string_view s) {
    constexpr const char* blanks = " \t\r\n";
    const auto first = s.find_first_not_of(blanks);
    if (first == std::string_view::npos) return {};
    return std::string(s.substr(first, s.find_last_not_of(blanks) - first + 1));
}

std::vector<std::string> words(const std::string& s) {
    std::istringstream in(s);
    return {std::istream_iterator<std::string>(in), {}};
}

/// Parts between commas and bars outside of brackets; braces are taken off: {a, b}, c|d, [e] is a b c d [e].
std::vector<std::string> flat_operands(const std::string& s) {
    std::vector<std::string> all;
    std::string now;
    const auto end = [&] {
        if (const std::string part = trimmed(now); !part.empty()) all.push_back(part);
        now.clear();
    };
    for (const char c : s) {
        if (c == ',' || c == '|' || c == '{' || c == '}')
            end();
        else
            now += c;
    }
    end();
    return all;
}

/// Bytes of a type's register: .pred 1, .b16 2, .f32 4, .u64 8. 0 if it is no type.
u32 bytes_of_type(const std::string& type) {
    if (type == ".pred") return 1;
    if (type.size() < 3 || std::string_view("bsuf").find(type[1]) == std::string_view::npos) return 0;
    return static_cast<u32>(std::atoi(type.c_str() + 2)) / 8;
}

/// `.shared .align 4 .b8 name[32]`: shared memory, or a parameter.
struct declaration {
    std::string name;
    u32 alignment = 1;
    u32 bytes = 1;

    explicit declaration(const std::string& text) {
        const std::vector<std::string> all = words(text);
        for (std::size_t i = 0; i != all.size(); ++i) {
            if (all[i] == ".align") alignment = static_cast<u32>(std::stoul(all[i + 1]));
            if (bytes_of_type(all[i]) != 0) bytes = bytes_of_type(all[i]);
        }
        alignment = std::max(alignment, bytes);
        name = all.back();
        if (const auto bracket = name.find('['); bracket != std::string::npos) {
            bytes *= static_cast<u32>(std::stoul(name.substr(bracket + 1)));
            name.resize(bracket);
        }
    }

    /// Takes its place behind `end`, which moves.
    u32 place(u32& end) const {
        const u32 at = (end + alignment - 1) / alignment * alignment;
        end = at + bytes;
        return at;
    }
};

/// Text, cut into statements.
class source {
public:
    explicit source(const std::string& text) : text_(text) {}

    u32 line() const { return line_; }
    bool ended() {
        skip();
        return at_ == text_.size();
    }
    /// The next character that is no blank and in no comment.
    char peek() {
        skip();
        return at_ == text_.size() ? '\0' : text_[at_];
    }
    void take() {
        if (text_[at_++] == '\n') ++line_;
    }
    /// Text up to one of these characters, which stays.
    std::string until(const char* ends) {
        std::string all;
        while (at_ != text_.size() && std::strchr(ends, text_[at_]) == nullptr) {
            if (text_.compare(at_, 2, "//") == 0)
                skip();
            else {
                all += text_[at_];
                take();
            }
        }
        return trimmed(all);
    }

private:
    void skip() {
        while (at_ != text_.size()) {
            if (std::isspace(static_cast<unsigned char>(text_[at_])) != 0)
                take();
            else if (text_.compare(at_, 2, "//") == 0)
                at_ = std::min(text_.find('\n', at_), text_.size());
            else
                return;
        }
    }

    const std::string& text_;
    std::size_t at_ = 0;
    u32 line_ = 1;
};

/// One register, or an operand that has a place among them.
struct place {
    u32 offset = 0;
    u8 bytes = 0;
};

class kernel_reader {
public:
    /// `shared_bytes` of shared memory are taken by variables of all kernels.
    kernel_reader(const std::map<std::string, u64>& symbols, u32 shared_bytes, const std::string& mutant)
        : kernel_(std::make_unique<kernel>()), symbols_(symbols),
          mutated_(static_cast<u32>(std::strtoul(mutant.c_str(), nullptr, 10))),
          mutant_(trimmed(mutant.substr(std::min(mutant.find(' '), mutant.size())))) {
        kernel_->shared_bytes = shared_bytes;
        kernel_->register_bytes = 256;  // offset 0 takes results that nobody wants
    }

    /// `name(parameters) directives`
    void read_head(const std::string& head) {
        const auto open = head.find('(');
        const auto close = head.rfind(')');
        kernel_->name = trimmed(head.substr(0, open));
        if (open != std::string::npos) {
            for (const std::string& text : flat_operands(head.substr(open + 1, close - open - 1))) {
                const declaration d(text);
                const u32 at = d.place(kernel_->parameter_bytes);
                symbols_[d.name] = at;
                kernel_->parameters.emplace_back(at, d.bytes);
            }
        }
        if (const auto at = head.find(".minnctapersm"); at != std::string::npos)
            kernel_->resident_blocks = static_cast<u32>(std::atoi(head.c_str() + at + 13));
    }

    std::unique_ptr<kernel> read_body(source& text) {
        do {
            const char next = text.peek();
            if (next == '\0') throw fault("PTX ends in " + kernel_->name);
            if (next == '{') scopes_.emplace_back();
            if (next == '}') scopes_.pop_back();
            if (next == '{' || next == '}') {
                text.take();
                continue;
            }
            read_statement(text);
        } while (!scopes_.empty());
        for (const auto& [at, label] : jumps_) {
            const auto target = labels_.find(label);
            if (target == labels_.end()) throw fault("no label " + label);
            kernel_->code[at].target = target->second;
        }
        // A label may stand behind the last instruction.
        kernel_->code.emplace_back().text = "the end of the kernel";
        kernel_->code.back().flow = control::exit;
        return std::move(kernel_);
    }

private:
    void read_statement(source& text) {
        std::string s = text.until(";:{");
        // Braces of operands, and not of a scope.
        while (text.peek() == '{') {
            s += ' ' + text.until("}") + '}';
            text.take();
            s += text.until(";:{");
        }
        const u32 line = text.line();
        const char end = text.peek();
        text.take();
        if (end == ':') {
            if (!labels_.emplace(s, static_cast<u32>(kernel_->code.size())).second) throw fault("label twice: " + s);
            return;
        }
        if (s.starts_with(".reg")) return declare_registers(s);
        if (s.starts_with(".pragma")) return;
        if (s.starts_with(".")) {
            if (!s.starts_with(".shared")) throw fault("not supported: `" + s + "`");
            const declaration d(s);
            symbols_[d.name] = d.place(kernel_->shared_bytes);
            return;
        }
        if (line == mutated_) s = mutant_;
        if (!s.empty()) add_operation(s, line);
    }

    /// `.reg .b32 %r<9>` is nine registers, `.reg .b16 a, b` two.
    void declare_registers(const std::string& s) {
        const std::string type = words(s).at(1);
        const u32 bytes = bytes_of_type(type);
        if (bytes == 0) throw fault("not supported: `" + s + "`");
        for (std::string name : flat_operands(s.substr(s.find(type) + type.size()))) {
            const auto angle = name.find('<');
            if (angle == std::string::npos) {
                scopes_.back()[name] = new_register(bytes);
                continue;
            }
            const unsigned long count = std::stoul(name.substr(angle + 1));
            name.resize(angle);
            for (unsigned long i = 0; i != count; ++i) scopes_.back()[name + std::to_string(i)] = new_register(bytes);
        }
    }

    place new_register(u32 bytes) {
        const u32 at = kernel_->register_bytes;
        // 64 bytes are a line of a cache: a predicate takes one.
        kernel_->register_bytes += bytes == 1 ? 64 : bytes * warp_size;
        return {at, static_cast<u8>(bytes)};
    }

    std::optional<place> find_register(const std::string& name) const {
        for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
            if (const auto found = scope->find(name); found != scope->end()) return found->second;
        }
        return {};
    }

    place constant(u64 value, u32 bytes) {
        const auto [at, is_new] = constants_.try_emplace({value, bytes});
        if (is_new) {
            at->second = new_register(bytes);
            kernel_->constants.push_back({at->second.offset, static_cast<u8>(bytes), value});
        }
        return at->second;
    }

    /// A number, `0f` or `0d` and the bits of a float, or the address of a variable.
    std::optional<u64> value_of(const std::string& s) const {
        if (s.starts_with("0f") || s.starts_with("0d")) return std::strtoull(s.c_str() + 2, nullptr, 16);
        if (std::isdigit(static_cast<unsigned char>(s[0])) != 0) return std::strtoull(s.c_str(), nullptr, 0);
        if (s[0] == '-') return 0 - std::strtoull(s.c_str() + 1, nullptr, 0);
        if (const auto symbol = symbols_.find(s); symbol != symbols_.end()) return symbol->second;
        return {};
    }

    /// The operand as this kind of form (see `form`), if it is one.
    std::optional<place> resolve(const std::string& s, char kind, operation& o) {
        if (kind == '@') {
            if (s[0] != '[') return {};
            const std::string inner = trimmed(std::string_view(s).substr(1, s.size() - 2));
            const auto plus = inner.find('+');
            const std::string base = trimmed(inner.substr(0, plus));
            if (plus != std::string::npos) o.displacement = std::strtoll(inner.c_str() + plus + 1, nullptr, 0);
            if (const auto found = find_register(base)) return found;
            const auto value = value_of(base);
            return value ? std::optional(constant(*value, 8)) : std::nullopt;
        }
        const u32 bytes = kind == 'p' ? 1 : kind == 'h' ? 2 : kind == 'w' ? 4 : kind == 'd' ? 8 : 0;
        if (s == "_") return place{0, static_cast<u8>(bytes)};
        if (const auto found = find_register(s)) {
            const bool fits = kind == 'x' ? found->bytes > 1 : found->bytes == bytes;
            return fits ? found : std::nullopt;
        }
        static const std::set<std::string> specials{"%tid.x",   "%tid.y",   "%ntid.x",   "%ntid.y",
                                                    "%ctaid.x", "%ctaid.y", "%nctaid.x", "%nctaid.y"};
        if (specials.contains(s)) {
            if (bytes != 4) return {};
            const auto [at, is_new] = kernel_->specials.try_emplace(s);
            if (is_new) at->second = new_register(4).offset;
            return place{at->second, 4};
        }
        const auto value = bytes == 0 ? std::nullopt : value_of(s);
        return value ? std::optional(constant(*value, bytes)) : std::nullopt;
    }

    void add_operation(const std::string& s, u32 line) {
        operation o;
        o.text = s;
        o.line = line;
        std::string rest = s;
        if (rest[0] == '@') {
            const auto blank = rest.find(' ');
            o.negated = rest[1] == '!';
            const auto guard = find_register(rest.substr(o.negated ? 2 : 1, blank - (o.negated ? 2 : 1)));
            if (!guard) stop(o, "no such predicate");
            o.guard = guard->offset;
            rest = trimmed(std::string_view(rest).substr(blank));
        }
        const auto blank = std::find_if(rest.begin(), rest.end(), [](unsigned char c) { return std::isspace(c) != 0; });
        const std::string opcode(rest.begin(), blank);
        std::vector<std::string> operands = flat_operands(std::string(blank, rest.end()));
        const auto forms = instructions().find(opcode);
        if (forms == instructions().end()) stop(o, "this instruction is not supported");
        if (forms->second[0].flow == control::branch) {
            jumps_.emplace_back(kernel_->code.size(), operands.at(0));
            operands.clear();
        }
        // Without a predicate, as with one that nobody wants.
        if (opcode.starts_with("shfl") && operands.size() == 5) operands.insert(operands.begin() + 1, "_");
        for (const form& f : forms->second) {
            if (take_form(f, operands, o)) {
                if (o.flow == control::whole_warp) o.mask = o.at[operands.size() - 1];
                if (o.flow == control::barrier && operands[0] != "0") stop(o, "only barrier 0 is supported");
                refuse_fusion(opcode, o);
                kernel_->code.push_back(std::move(o));
                return;
            }
        }
        stop(o, "these operands are not supported");
    }

    bool take_form(const form& f, const std::vector<std::string>& operands, operation& o) {
        if (operands.size() != f.operands.size()) return false;
        for (std::size_t i = 0; i != operands.size(); ++i) {
            const auto found = resolve(operands[i], f.operands[i], o);
            if (!found) return false;
            o.at[i] = found->offset;
            o.bytes[i] = found->bytes;
        }
        if (o.displacement != 0 && std::count(f.operands.begin(), f.operands.end(), '@') > 1)
            stop(o, "a displacement beside another address is not supported");
        o.run = f.run;
        o.flow = f.flow;
        o.count = f.count;
        o.in = f.in;
        return true;
    }

    /// ptxas may fuse a product and a sum neither of which names its rounding: the bits would be another thing than
    /// these.
    void refuse_fusion(const std::string& opcode, const operation& o) {
        if (opcode == "mul.f32" || (opcode == "mov.f32" && products_.contains(o.at[1]))) products_.insert(o.at[0]);
        if ((opcode == "add.f32" || opcode == "sub.f32") &&
            (products_.contains(o.at[1]) || products_.contains(o.at[2]))) {
            stop(o, "ptxas may fuse it with a product that does not name its rounding");
        }
    }

    std::unique_ptr<kernel> kernel_;
    std::map<std::string, u64> symbols_;
    u32 mutated_;
    std::string mutant_;
    std::vector<std::unordered_map<std::string, place>> scopes_;
    std::map<std::string, u32> labels_;
    std::vector<std::pair<std::size_t, std::string>> jumps_;
    std::map<std::pair<u64, u32>, place> constants_;
    std::set<u32> products_;
};

}  // namespace

auto parse(const std::string& ptx, const std::string& mutant) -> module {
    auto all = module();
    std::map<std::string, u64> shared;  // variables of all kernels
    u32 shared_bytes = 0;
    source in(ptx);
    while (!in.ended()) {
        std::string head = in.until("\n;{");
        if (head.starts_with(".version") || head.starts_with(".target") || head.starts_with(".address_size")) continue;
        head += ' ' + in.until(";{");
        if (const auto entry = head.find(".entry"); entry != std::string::npos) {
            kernel_reader reader(shared, shared_bytes, mutant);
            reader.read_head(head.substr(entry + 6));
            auto k = reader.read_body(in);
            all[k->name] = std::move(k);
        } else if (head.starts_with(".shared")) {
            const declaration d(head);
            shared[d.name] = d.place(shared_bytes);
            in.take();
        } else {
            throw fault("not supported: `" + head + "`");
        }
    }
    return all;
}

}  // namespace zeropp_test::ptx
