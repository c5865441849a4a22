#include <regex>
#include <string>

int main(int argc, char** argv) {
    const std::regex words("(\\w+)\\s+(\\w+)");
    return std::regex_match(std::string(argv[argc - 1]), words) ? 0 : 1;
}
