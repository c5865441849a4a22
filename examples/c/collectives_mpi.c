/* ZeRO++ in C, on nodes of two MPI ranks: weights in 8 bits, a copy in each node that differences update, and the
 * gradients' sum in 4 bits between nodes; then over sites. Compares each result with plain arithmetic. */
#include "mpi_groups.h"

#include <zeropp_c.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { elements = 10007, ranks_per_node = 2, most_ranks = 64 };

static int rank;

/* Ends all ranks with `words`, unless `right`. */
static void require(int right, const char* words) {
    if (right) return;
    fprintf(stderr, "rank %d: %s\n", rank, words);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void succeeds(zeropp_status status, const mpi_groups* groups) {
    require(status != zeropp_callback_failed, groups->problem);
    require(status == zeropp_success, zeropp_error());
}

/* Weight i, in step `step`; gradient i is its product with the rank's number plus 1. */
static float weight(size_t i, int step) { return sinf((float)i) + 0.001f * (float)step * cosf((float)i); }

/* Largest error of `factor` times the weights, in `count` elements from `begin`. */
static float error_of(const float* given, size_t begin, size_t count, float factor, int step) {
    float largest = 0;
    for (size_t i = 0; i != count; ++i) largest = fmaxf(largest, fabsf(given[i] - factor * weight(begin + i, step)));
    return largest;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    require(size <= most_ranks && size % ranks_per_node == 0, "expected an even number of ranks, 64 at most");
    require(zeropp_c_version() / 1000 == ZEROPP_C_VERSION_MAJOR && zeropp_c_version() >= ZEROPP_C_VERSION,
            "the library is older or newer than its header");

    int nodes[most_ranks];
    for (int r = 0; r != size; ++r) nodes[r] = r / ranks_per_node;
    mpi_groups groups;
    const zeropp_callbacks callbacks = mpi_groups_of(&groups, MPI_COMM_WORLD, 60);
    zeropp_communicator* comm;
    succeeds(zeropp_communicator_create(nodes, size, rank, callbacks, &comm), &groups);
    zeropp_compare(comm, 100); /* the first calls: a rank that makes another one is an error, not a hang */

    /* Ranks own ceil(n / P) elements, the last ones fewer. */
    const size_t longest = (elements + (size_t)size - 1) / (size_t)size;
    const size_t begin = (size_t)rank * longest < elements ? (size_t)rank * longest : elements;
    const size_t own = elements - begin < longest ? elements - begin : longest;
    float* const full = malloc(elements * sizeof(float));
    float* const gradient = malloc(elements * sizeof(float));
    float* const shard = malloc(longest * sizeof(float));
    require(full != NULL && gradient != NULL && shard != NULL, "no memory");
    const zeropp_tensor of_full = {full, elements, 1};
    const zeropp_tensor of_gradient = {gradient, elements, 1};
    const zeropp_tensor of_shard = {shard, own, 1};

    /* qwZ: half a step of 8 bits is 1 / 254 of a block's largest value, which the scale in bfloat16 raises by 1 %. */
    for (size_t i = 0; i != own; ++i) shard[i] = weight(begin + i, 0);
    succeeds(zeropp_all_gather(comm, "int8:256:bf16", zeropp_float32, &of_shard, &of_full, 1, NULL), &groups);
    require(error_of(full, 0, elements, 1, 0) < 0.0041f, "the all-gather's error is too large");

    /* The bytes are the predicted ones. */
    uint64_t intra, inter, calls, intra_expected, inter_expected;
    zeropp_traffic(comm, &intra, &inter, &calls);
    succeeds(zeropp_gather_volume(nodes, size, rank, "int8:256:bf16", elements, &intra_expected, &inter_expected),
             &groups);
    require(calls == 1 && intra == intra_expected && inter == inter_expected, "the prediction misses the bytes");

    /* hpZ: each rank keeps a part of its node's copy. Differences in 2 bits bring it up to date. */
    zeropp_replica* replica;
    succeeds(zeropp_replica_create(comm, zeropp_float32, &of_full, 1, &replica), &groups);
    for (int step = 0; step != 3; ++step) {
        for (size_t i = 0; i != own; ++i) shard[i] = weight(begin + i, step);
        succeeds(zeropp_update_gather(comm, replica, "int2:64:signed:bf16:h32", &of_shard, &of_full, 1, NULL), &groups);
        require(error_of(full, 0, elements, 1, step) <= 0.001f * (float)step, "the update's error is too large");
        memcpy(gradient, full, elements * sizeof(float));
        memset(full, 0, elements * sizeof(float));
        zeropp_traffic(comm, &intra, &inter, &calls);
        succeeds(zeropp_replica_gather(comm, replica, &of_full, 1, NULL), &groups);
        require(memcmp(full, gradient, elements * sizeof(float)) == 0, "the node's copy has other bits");
        zeropp_traffic(comm, &intra, &inter_expected, &calls);
        require(inter == inter_expected, "the node's copy was gathered from another node");
    }
    zeropp_replica_destroy(replica);

    /* qgZ and the all-reduce: sums of all ranks' gradients. */
    float factor = 0, largest = 0;
    for (int r = 0; r != size; ++r) factor += (float)(r + 1);
    for (size_t i = 0; i != elements; ++i) gradient[i] = (float)(rank + 1) * weight(i, 0);
    succeeds(zeropp_reduce_scatter(comm, "fp32", "fp32", zeropp_float32, &of_gradient, &of_shard, 1, 0, NULL, NULL),
             &groups);
    require(error_of(shard, begin, own, factor, 0) < 1e-5f * factor, "the reduce-scatter's sum is wrong");
    succeeds(zeropp_reduce_scatter(comm, "int8:256:bf16", "int4:128:signed:bf16", zeropp_float32, &of_gradient,
                                   &of_shard, 1, 0, NULL, NULL),
             &groups);
    largest = error_of(shard, begin, own, factor, 0);
    /* At most a step of 4 bits, 1 / 8 of a block's largest value, and half a step of 8. */
    require(largest < 0.13f * factor, "the reduce-scatter's error is too large");
    succeeds(zeropp_all_reduce(comm, "int8:256:bf16", "int8:256:bf16", zeropp_float32, &of_gradient, &of_full, 1, 1,
                               NULL, NULL),
             &groups);
    require(error_of(full, 0, elements, factor / (float)size, 0) < 0.013f * factor / (float)size,
            "the all-reduce's error is too large");

    /* By an algorithm of choice. One-shot sends each rank's messages whole; two-shot is planned. */
    const char* const algorithms[] = {"one_shot", "two_shot"};
    const uint64_t in_node = ranks_per_node, nodes_of_job = (uint64_t)size / in_node;
    size_t message;
    succeeds(zeropp_message_bytes("int8:256:bf16", longest, &message), &groups);
    for (int two_shot = 0; two_shot != 2; ++two_shot) {
        intra_expected = (in_node - 1) * nodes_of_job * (uint64_t)size * message;
        inter_expected = (nodes_of_job - 1) * (uint64_t)size * message;
        if (two_shot != 0)
            succeeds(zeropp_all_reduce_volume(nodes, size, rank, "int8:256:bf16", "int8:256:bf16", elements, 1,
                                              &intra_expected, &inter_expected),
                     &groups);
        uint64_t intra_before, inter_before;
        zeropp_traffic(comm, &intra_before, &inter_before, &calls);
        succeeds(zeropp_all_reduce_with_algorithm(comm, algorithms[two_shot], "int8:256:bf16", "int8:256:bf16",
                                                  zeropp_float32, &of_gradient, &of_full, 1, 0, NULL, NULL),
                 &groups);
        zeropp_traffic(comm, &intra, &inter, &calls);
        require(error_of(full, 0, elements, factor, 0) < 0.013f * factor, "the chosen all-reduce's error is too large");
        require(intra - intra_before == intra_expected && inter - inter_before == inter_expected,
                "the chosen all-reduce has another algorithm's bytes");
    }

    /* A refused call is an error with the expected and the given value, on every rank. */
    require(zeropp_all_gather(comm, "int9", zeropp_float32, &of_shard, &of_full, 1, NULL) == zeropp_failure &&
                strstr(zeropp_error(), "given \"int9\"") != NULL,
            zeropp_error());
    require(zeropp_all_reduce_with_algorithm(comm, "ring", "fp32", "fp32", zeropp_float32, &of_gradient, &of_full, 1, 0,
                                             NULL, NULL) == zeropp_failure &&
                strstr(zeropp_error(), "one_shot or two_shot, given ring") != NULL,
            zeropp_error());
    /* So is a call that differs between ranks, while calls are compared. */
    require(zeropp_all_gather(comm, rank == 0 ? "fp32" : "bf16", zeropp_float32, &of_shard, &of_full, 1, NULL) ==
                zeropp_failure,
            "ranks of two formats were not refused");
    if (rank == 0) printf("%d ranks, the sum in 8 and 4 bits off by %.3f; %s\n", size, (double)largest, zeropp_error());

    /* Nodes in sites, here nodes of one rank in sites of two: 8 bits within a site, and 4 between sites. */
    const char *const within = "int8:256:bf16", *const beyond = "int8:256:bf16 + int4:128:signed:bf16";
    zeropp_communicator* in_sites;
    uint64_t sent[3], planned[3];
    for (int r = 0; r != size; ++r) nodes[r] = r;
    succeeds(zeropp_communicator_create_in_sites(nodes, 2, size, rank, callbacks, &in_sites), &groups);
    succeeds(zeropp_reduce_scatter(in_sites, within, beyond, zeropp_float32, &of_gradient, &of_shard, 1, 0, NULL, NULL),
             &groups);
    require(error_of(shard, begin, own, factor, 0) < 0.13f * factor, "the sum over sites has too large an error");
    zeropp_traffic_in_sites(in_sites, sent, &calls);
    succeeds(
        zeropp_volume_in_sites("zeropp_reduce_scatter", within, beyond, elements, 0, nodes, 2, size, rank, planned),
        &groups);
    require(memcmp(sent, planned, sizeof sent) == 0, "the plan misses the bytes between sites");
    require(sent[0] == 0 && (size == 2 || (sent[2] != 0 && sent[1] > sent[2])), "not all levels have their bytes");
    zeropp_communicator_destroy(in_sites);

    /* Nodes of different sizes, here the last rank alone, which gathers from all other ranks. */
    zeropp_communicator* uneven;
    for (int r = 0; r != size; ++r) nodes[r] = r == size - 1;
    succeeds(zeropp_communicator_create(nodes, size, rank, callbacks, &uneven), &groups);
    for (size_t i = 0; i != own; ++i) shard[i] = weight(begin + i, 0);
    succeeds(zeropp_all_gather(uneven, "int8:256:bf16", zeropp_float32, &of_shard, &of_full, 1, NULL), &groups);
    require(error_of(full, 0, elements, 1, 0) < 0.0041f, "the error on nodes of different sizes is too large");
    zeropp_communicator_destroy(uneven);

    zeropp_communicator_destroy(comm);
    mpi_groups_free(&groups);
    free(full);
    free(gradient);
    free(shard);
    MPI_Finalize();
    return 0;
}
