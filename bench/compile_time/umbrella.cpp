#include <zeropp/zeropp.hpp>

int main() {}
