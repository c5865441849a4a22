/* Loads the library of a wheel, without Python: quantizes, is refused an unknown format, and, if the processor
 * has AVX2, sees that it is used. */
#include "../../include/zeropp_c.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { elements = 1 << 20 };
static float tensor[elements], back[elements];
static unsigned short brain[elements];
static unsigned char message[4 * elements];

typedef zeropp_status (*quantizer)(const char*, zeropp_element, const void*, size_t, void*, void*);

static double shortest(quantizer quantize, const char* format, zeropp_element element, const void* from) {
    double best = 1e9;
    for (int run = 0; run != 20; ++run) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        if (quantize(format, element, from, elements, message, NULL) != zeropp_success) return -1;
        clock_gettime(CLOCK_MONOTONIC, &end);
        best = fmin(best, (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec));
    }
    return best;
}

static void* required(void* found, const char* name) {
    if (found != NULL) return found;
    fprintf(stderr, "%s: %s\n", name, dlerror());
    exit(1);
}

int main(int count, char** arguments) {
    if (count != 3) return 2; /* LIBRARY, yes if it must use AVX2 */
    void* library = required(dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL), arguments[1]);
    quantizer quantize = (quantizer)required(dlsym(library, "zeropp_quantize"), "zeropp_quantize");
    quantizer dequantize = (quantizer)required(dlsym(library, "zeropp_dequantize"), "zeropp_dequantize");
    const char* (*error)(void) = (const char* (*)(void))required(dlsym(library, "zeropp_error"), "zeropp_error");

    for (int i = 0; i != elements; ++i) {
        tensor[i] = sinf((float)i);
        memcpy(&brain[i], (const char*)&tensor[i] + 2, 2);
    }
    int failed = quantize("int8:256:bf16", zeropp_float32, tensor, elements, message, NULL) != zeropp_success ||
                 dequantize("int8:256:bf16", zeropp_float32, message, elements, back, NULL) != zeropp_success;
    for (int i = 0; i != elements; ++i) failed |= fabsf(tensor[i] - back[i]) > 0.005f;
    if (failed) return fprintf(stderr, "expected the tensor to within half a step of 8 bits\n"), 1;

    const zeropp_status refused = quantize("int9", zeropp_float32, tensor, elements, message, NULL);
    if (refused != zeropp_failure || strstr(error(), "int9") == NULL)
        return fprintf(stderr, "expected int9 to be refused in words, given %d, %s\n", refused, error()), 1;

    const double ratio = shortest(quantize, "int8:256:bf16", zeropp_bfloat16, brain) /
                         shortest(quantize, "fp32", zeropp_float32, tensor);
    printf("8 bits of 16-bit elements take %.2f of the time of a copy of 32-bit elements\n", ratio);
    if (strcmp(arguments[2], "yes") == 0 && !(ratio < 3)) return fprintf(stderr, "expected AVX2: at most 3\n"), 1;
    return 0;
}
