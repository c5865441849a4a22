#include <zeropp_c.h>

#include <stdio.h>
#include <string.h>

/* A message of 8 bits, and a format that does not exist. */
int main(void) {
    const float tensor[5] = {1, -2, 3, -4, 5};
    float back[5] = {0};
    unsigned char message[64];
    size_t bytes = 0;
    if (zeropp_c_version() != ZEROPP_C_VERSION || strcmp(zeropp_device(), "host") != 0 ||
        zeropp_message_bytes("int8:256:bf16", 5, &bytes) != zeropp_success || bytes > sizeof message ||
        zeropp_quantize("int8:256:bf16", zeropp_float32, tensor, 5, message, NULL) != zeropp_success ||
        zeropp_dequantize("int8:256:bf16", zeropp_float32, message, 5, back, NULL) != zeropp_success) {
        fprintf(stderr, "error: %s\n", zeropp_error());
        return 1;
    }
    for (int i = 0; i != 5; ++i) {
        if (back[i] - tensor[i] > 0.021f || tensor[i] - back[i] > 0.021f) return 2;
    }
    if (zeropp_message_bytes("int9", 5, &bytes) != zeropp_failure || strstr(zeropp_error(), "int9") == NULL) return 3;
    return 0;
}
