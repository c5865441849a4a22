/* zeropp's collectives as C functions, so that one library serves every Python and every PyTorch. Functions that can
 * fail return a zt_status; zt_error() has the calling thread's error text. */
#ifndef ZEROPP_TORCH_H
#define ZEROPP_TORCH_H

#include <stddef.h>
#include <stdint.h>

#define ZT_API __attribute__((visibility("default")))

#if defined(__cplusplus)
extern "C" {
#endif

typedef enum zt_status {
    zt_success = 0,
    zt_failure = 1,        /* zt_error() has the text */
    zt_callback_failed = 2 /* a callback returned non-zero, or no group; the caller knows why */
} zt_status;

typedef enum zt_element { zt_float32 = 0, zt_float16 = 1, zt_bfloat16 = 2 } zt_element;

/* One tensor of a call, in host or device memory as zt_device() says. */
typedef struct zt_tensor {
    void* data;
    size_t elements;
    size_t row; /* shards are whole rows of `row` elements; 1 for any shards */
} zt_tensor;

/* A framework's process groups, by numbers; 0 is the first. `all_gather` and `all_to_all` are MPI's, with `bytes` bytes
 * from each rank to each, on `stream` for device memory. They return 0, or non-zero if they failed. `split` returns the
 * number of a new group of `members`, ranks of `group`, or -1 if it failed. */
typedef struct zt_callbacks {
    void* context;
    int (*all_gather)(void* context, int group, void* stream, const void* send, void* receive, size_t bytes);
    int (*all_to_all)(void* context, int group, void* stream, const void* send, void* receive, size_t bytes);
    int (*split)(void* context, int group, const int* members, int count);
} zt_callbacks;

typedef struct zt_communicator zt_communicator;
typedef struct zt_feedback zt_feedback;
typedef struct zt_replica zt_replica;

/* The version of zeropp, and the memory of tensors: "host" or "cuda". */
ZT_API const char* zt_version(void);
ZT_API const char* zt_device(void);
/* Text of the calling thread's last zt_failure. */
ZT_API const char* zt_error(void);

/* Formats of gathers, of weight differences and of reductions ("INSIDE + ACROSS"), separated by ", ". */
ZT_API const char* zt_gather_formats(void);
ZT_API const char* zt_difference_formats(void);
ZT_API const char* zt_reduce_formats(void);

/* Joins the ranks of group 0; rank r is on node node_of_rank[r]. Collective, because it calls `split`. A communicator
 * runs one call at a time. */
ZT_API zt_status zt_communicator_create(const int* node_of_rank, int size, int rank, zt_callbacks callbacks,
                                        zt_communicator** communicator);
ZT_API void zt_communicator_destroy(zt_communicator* communicator);

/* Compares `calls` more collectives before they move data; the number must be equal on all ranks. If calls differ, or
 * one has wrong arguments, the call fails on every rank. Each rank sends 0.9 KB for a collective, twice that for an
 * update, and waits for the stream. */
ZT_API void zt_compare(zt_communicator* communicator, size_t calls);
/* Names the next collectives. Names are compared, because calls on equal shapes differ only by them. */
ZT_API void zt_name(zt_communicator* communicator, const char* name);

/* Fails with `words`, in place of collective `function`, if the caller refuses its arguments. Ranks that compare the
 * call fail too. */
ZT_API zt_status zt_refuse(zt_communicator* communicator, const char* function, const char* words, void* stream);

/* Bytes that this rank has sent within its node and to other nodes, and its number of collectives. */
ZT_API void zt_traffic(const zt_communicator* communicator, uint64_t* intra_node, uint64_t* inter_node,
                       uint64_t* calls);

/* Makes a pool of `threads` threads, the calling one included, as the `stream` of calls on host tensors: codecs divide
 * their work over it. A null stream is the calling thread alone. The pool is never freed, and a forked child cannot use
 * it. Host library only. */
ZT_API zt_status zt_threads_create(int threads, void** stream);

/* Collectives on lists of `count` tensors. They block, or on a GPU are enqueued on `stream`. `fulls` are whole tensors,
 * `shards` this rank's shards. Reductions are sums over all ranks, or means if `mean` is not 0. */
ZT_API zt_status zt_all_gather(zt_communicator* communicator, const char* format, zt_element element,
                               const zt_tensor* shards, const zt_tensor* fulls, size_t count, void* stream);
ZT_API zt_status zt_reduce_scatter(zt_communicator* communicator, const char* intra_node, const char* inter_node,
                                   zt_element element, const zt_tensor* fulls, const zt_tensor* shards, size_t count,
                                   int mean, zt_feedback* feedback, void* stream);
ZT_API zt_status zt_all_reduce(zt_communicator* communicator, const char* intra_node, const char* inter_node,
                               zt_element element, const zt_tensor* tensors, const zt_tensor* results, size_t count,
                               int mean, zt_feedback* feedback, void* stream);

/* The quantization error of reduce-scatters or all-reduces of `fulls`, kept for the next one. */
ZT_API zt_status zt_feedback_create(zt_communicator* communicator, const char* intra_node, const char* inter_node,
                                    zt_element element, const zt_tensor* fulls, size_t count, zt_feedback** feedback);
ZT_API zt_status zt_all_reduce_feedback_create(zt_communicator* communicator, const char* intra_node,
                                               const char* inter_node, zt_element element, const zt_tensor* fulls,
                                               size_t count, zt_feedback** feedback);
ZT_API void zt_feedback_destroy(zt_feedback* feedback);
ZT_API size_t zt_feedback_bytes(const zt_feedback* feedback);

/* A node's copy of whole tensors, divided over its ranks; starts empty. zt_update_gather brings it up to date with all
 * ranks' shards and writes `fulls`: differences in `format` travel between nodes, or whole tensors if it is empty.
 * zt_replica_gather writes `fulls` once more, within the node. Tensors have the replica's element type. */
ZT_API zt_status zt_replica_create(zt_communicator* communicator, zt_element element, const zt_tensor* fulls,
                                   size_t count, zt_replica** replica);
ZT_API void zt_replica_destroy(zt_replica* replica);
ZT_API size_t zt_replica_bytes(const zt_replica* replica);
/* Empties this rank's replica; the next zt_update_gather then empties all ranks'. */
ZT_API void zt_replica_invalidate(zt_replica* replica);
ZT_API zt_status zt_update_gather(zt_communicator* communicator, zt_replica* replica, const char* format,
                                  const zt_tensor* shards, const zt_tensor* fulls, size_t count, void* stream);
ZT_API zt_status zt_replica_gather(zt_communicator* communicator, const zt_replica* replica, const zt_tensor* fulls,
                                   size_t count, void* stream);

/* Bytes that each rank sends in a collective on a tensor of `elements` elements, exactly as zt_traffic counts them.
 * Planning is in the host library only. */
ZT_API zt_status zt_gather_volume(const int* node_of_rank, int size, const char* format, size_t elements,
                                  uint64_t* intra_node, uint64_t* inter_node);
/* Of zt_update_gather and zt_replica_gather. The replica has the format `kept`. */
ZT_API zt_status zt_update_volume(const int* node_of_rank, int size, const char* differences, const char* kept,
                                  size_t elements, uint64_t* intra_node, uint64_t* inter_node);
ZT_API zt_status zt_replica_volume(const int* node_of_rank, int size, const char* kept, size_t elements,
                                   uint64_t* intra_node, uint64_t* inter_node);
ZT_API zt_status zt_reduce_volume(const int* node_of_rank, int size, const char* intra_node_format,
                                  const char* inter_node_format, size_t elements, uint64_t* intra_node,
                                  uint64_t* inter_node);
/* `two_shot` is 1 for tensors of every size, as with error feedback; 0 if zt_all_reduce chooses by size. */
ZT_API zt_status zt_all_reduce_volume(const int* node_of_rank, int size, const char* intra_node_format,
                                      const char* inter_node_format, size_t elements, int two_shot,
                                      uint64_t* intra_node, uint64_t* inter_node);

/* A training step to predict, as zeropp-plan does. `intra_node_` is the link of a rank within its node, `inter_node_`
 * that of a whole node to others: Gbit/s and microseconds. `codec_gb` is GB/s read and written. `compute_ms` and memory
 * in GB are 0 if unknown. */
typedef struct zt_plan {
    const size_t* tensors; /* elements of each; gathered separately */
    size_t count;
    int nodes;
    int ranks_per_node;
    int secondary_group; /* hpZ's group size; 0 for none */
    const char* plain;   /* format of ZeRO-3's weights */
    const char* plain_gradients;
    const char* weights;
    const char* differences; /* replaces weights and hpZ; null for none */
    const char* intra_node;  /* gradients */
    const char* inter_node;
    int error_feedback;
    double intra_node_gbit, inter_node_gbit, intra_node_us, inter_node_us, codec_gb, compute_ms, memory_gb,
        other_memory_gb;
} zt_plan;

/* A step on one rank: inter-node bytes sent, seconds, and bytes of memory. */
typedef struct zt_step {
    uint64_t inter_node;
    double seconds, overlapped_seconds;
    uint64_t memory;
} zt_step;

typedef struct zt_prediction {
    zt_step before, after;
    int gains;          /* 1 if the step is at least 5 % shorter, without overlap or with it */
    const char* advice; /* effect on the step, in a sentence; the thread's next prediction replaces both texts */
    const char* report; /* zeropp-plan's report */
} zt_prediction;

ZT_API zt_status zt_predict(const zt_plan* plan, zt_prediction* prediction);

/* A message by itself: its size in bytes, encoding and decoding. */
ZT_API zt_status zt_message_bytes(const char* format, size_t elements, size_t* bytes);
ZT_API zt_status zt_quantize(const char* format, zt_element element, const void* tensor, size_t elements, void* message,
                             void* stream);
ZT_API zt_status zt_dequantize(const char* format, zt_element element, const void* message, size_t elements,
                               void* tensor, void* stream);

#if defined(__cplusplus)
}
#endif

#endif
