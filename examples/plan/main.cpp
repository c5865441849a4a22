/// zeropp-plan predicts bytes, time and memory of ZeRO-3 and ZeRO++ on a cluster, before it is rented.

#include "files.hpp"
#include "recommendation.hpp"
#include "report.hpp"

#include <exception>
#include <iostream>

int main(int argc, char** argv) {
    using namespace plan;
    std::optional<settings> s;
    try {
        int exit_code = 0;
        s = read_settings(argc, argv, exit_code);
        if (!s) return exit_code;
    } catch (const std::exception& e) {
        std::cerr << "zeropp-plan: " << e.what() << '\n' << usage << '\n';
        return 2;
    }
    try {
        if (s->advise) {
            print_recommendation(std::cout, *s);
            return 0;
        }
        const prediction p = predict(*s);
        print_report(std::cout, *s, p);
        if (!s->json_file.empty()) write_json(*s, p);
        if (!s->sweep_file.empty()) {
            write_sweep(*s);
            std::cout << "\ngnuplot " << s->sweep_file << " draws " << s->sweep_file << ".png\n";
        }
        return 0;
    } catch (const std::exception& e) {
        std::cerr << "zeropp-plan: " << e.what() << '\n';
        return 1;
    }
}
