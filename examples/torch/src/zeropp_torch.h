/* What zeropp_torch calls: zeropp's collectives behind C functions, so that one library serves every Python and every
 * PyTorch. Functions that can fail return a zt_status; zt_error() says what was wrong, in words, for the calling
 * thread. */
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
    zt_failure = 1,        /* zt_error() says what */
    zt_callback_failed = 2 /* a callback returned something else than 0, or no group: whoever brought it knows why */
} zt_status;

typedef enum zt_element { zt_float32 = 0, zt_float16 = 1, zt_bfloat16 = 2 } zt_element;

/* One tensor of a call, in the memory that the library was built for. */
typedef struct zt_tensor {
    void* data;
    size_t elements;
    size_t row; /* its slices are whole rows of so many elements; 1 for any */
} zt_tensor;

/* A framework's process groups, which it numbers; 0 is the first. `all_gather` and `all_to_all` are as MPI's, `bytes`
 * from each rank to each, on `stream` where memory is a GPU's; they return 0 unless they have failed. `split` returns
 * the number of a group of these members, ranks of `group`, or -1. */
typedef struct zt_callbacks {
    void* context;
    int (*all_gather)(void* context, int group, void* stream, const void* send, void* receive, size_t bytes);
    int (*all_to_all)(void* context, int group, void* stream, const void* send, void* receive, size_t bytes);
    int (*split)(void* context, int group, const int* members, int count);
} zt_callbacks;

typedef struct zt_communicator zt_communicator;
typedef struct zt_feedback zt_feedback;
typedef struct zt_replica zt_replica;

/* The version of zeropp, and where its tensors are: "host" or "cuda". */
ZT_API const char* zt_version(void);
ZT_API const char* zt_device(void);
/* The words of the calling thread's last zt_failure. */
ZT_API const char* zt_error(void);

/* The formats that a gather can take, separated by ", ", those of differences, and those of a reduction, "INSIDE +
 * ACROSS". */
ZT_API const char* zt_gather_formats(void);
ZT_API const char* zt_difference_formats(void);
ZT_API const char* zt_reduce_formats(void);

/* Joins the ranks of group 0; rank r is on node node_of_rank[r]. Collective, by way of `split`. One call at a time may
 * run on a communicator. */
ZT_API zt_status zt_communicator_create(const int* node_of_rank, int size, int rank, zt_callbacks callbacks,
                                        zt_communicator** communicator);
ZT_API void zt_communicator_destroy(zt_communicator* communicator);

/* Has all ranks compare their next `calls` collectives before these move data. Where one differs, or has wrong
 * arguments, the call fails on every rank. Costs an exchange of 0.9 KB from each rank, two for an update, and waits
 * for the stream. The same number on all ranks. */
ZT_API void zt_compare(zt_communicator* communicator, size_t calls);
/* The name of the next collectives, which is compared too: calls on tensors of the same shapes differ in nothing
 * else. */
ZT_API void zt_name(zt_communicator* communicator, const char* name);

/* Fails with these words, in place of a collective whose arguments the caller refuses. Ranks that compare the call
 * fail too. */
ZT_API zt_status zt_refuse(zt_communicator* communicator, const char* function, const char* words, void* stream);

/* Bytes that this rank has sent to ranks of its node and to others, and how many collectives that took. */
ZT_API void zt_traffic(const zt_communicator* communicator, uint64_t* inside, uint64_t* across, uint64_t* calls);

/* So many threads, the calling one among them, for the `stream` of calls on tensors of the host, where codecs divide
 * their work over them; null is the calling one alone. For ever, and not for a process that forks later. In the library
 * for the host alone. */
ZT_API zt_status zt_threads_create(int threads, void** stream);

/* Collectives on lists of `count` tensors. They block, or on a GPU are enqueued on `stream`. `fulls` are whole tensors,
 * `shards` this rank's slices of them. Sums are of all ranks' tensors, or means. */
ZT_API zt_status zt_all_gather(zt_communicator* communicator, const char* format, zt_element element,
                               const zt_tensor* shards, const zt_tensor* fulls, size_t count, void* stream);
ZT_API zt_status zt_reduce_scatter(zt_communicator* communicator, const char* inside, const char* across,
                                   zt_element element, const zt_tensor* fulls, const zt_tensor* shards, size_t count,
                                   int mean, zt_feedback* feedback, void* stream);
ZT_API zt_status zt_all_reduce(zt_communicator* communicator, const char* inside, const char* across,
                               zt_element element, const zt_tensor* tensors, const zt_tensor* results, size_t count,
                               int mean, void* stream);

/* What quantization loses in reduce-scatters of such tensors, kept for the next one. */
ZT_API zt_status zt_feedback_create(zt_communicator* communicator, const char* inside, const char* across,
                                    zt_element element, const zt_tensor* fulls, size_t count, zt_feedback** feedback);
ZT_API void zt_feedback_destroy(zt_feedback* feedback);
ZT_API size_t zt_feedback_bytes(const zt_feedback* feedback);

/* What a node keeps of whole tensors, divided over its ranks; empty. zt_update_gather brings it up to date with all
 * ranks' shards, moving differences in `format` across nodes alone (whole tensors where it is empty), and makes whole
 * tensors of it; zt_replica_gather makes them once more, inside the node. All of the replica's element type. */
ZT_API zt_status zt_replica_create(zt_communicator* communicator, zt_element element, const zt_tensor* fulls,
                                   size_t count, zt_replica** replica);
ZT_API void zt_replica_destroy(zt_replica* replica);
ZT_API size_t zt_replica_bytes(const zt_replica* replica);
/* Forgets what it keeps, on all ranks alike. */
ZT_API void zt_replica_invalidate(zt_replica* replica);
ZT_API zt_status zt_update_gather(zt_communicator* communicator, zt_replica* replica, const char* format,
                                  const zt_tensor* shards, const zt_tensor* fulls, size_t count, void* stream);
ZT_API zt_status zt_replica_gather(zt_communicator* communicator, const zt_replica* replica, const zt_tensor* fulls,
                                   size_t count, void* stream);

/* What each rank sends in such a collective on a tensor of so many elements: exactly what zt_traffic would count.
 * Planning, which touches no tensors, is in the library for the host alone. */
ZT_API zt_status zt_gather_volume(const int* node_of_rank, int size, const char* format, size_t elements,
                                  uint64_t* inside, uint64_t* across);
/* Of an update by differences, which is gathered as `kept` says, and of a gather of what is kept. */
ZT_API zt_status zt_update_volume(const int* node_of_rank, int size, const char* differences, const char* kept,
                                  size_t elements, uint64_t* inside, uint64_t* across);
ZT_API zt_status zt_replica_volume(const int* node_of_rank, int size, const char* kept, size_t elements,
                                   uint64_t* inside, uint64_t* across);
ZT_API zt_status zt_reduce_volume(const int* node_of_rank, int size, const char* inside_format,
                                  const char* across_format, size_t elements, uint64_t* inside, uint64_t* across);

/* A training step to be predicted, as zeropp-plan does: rates and latencies of a rank inside its node and of a node to
 * others, what a codec reads and writes, and 0 where the computation of a step or a GPU's memory is not known. */
typedef struct zt_plan {
    const size_t* tensors; /* elements of each, gathered by itself */
    size_t count;
    int nodes;
    int ranks_per_node;
    int secondary_group; /* of hpZ; 0 for none */
    const char* plain;   /* what ZeRO-3 sends: weights, and gradients */
    const char* plain_gradients;
    const char* weights;
    const char* differences; /* of the weights that nodes keep, in place of weights and hpZ; null for none */
    const char* inside;      /* of gradients */
    const char* across;
    int error_feedback;
    double inside_gbit, across_gbit, inside_us, across_us, codec_gb, compute_ms, memory_gb, other_memory_gb;
} zt_plan;

/* ZeRO-3 or ZeRO++, on one rank: bytes sent across nodes in a step, seconds, and bytes kept. */
typedef struct zt_step {
    uint64_t across;
    double seconds, overlapped_seconds;
    uint64_t memory;
} zt_step;

typedef struct zt_prediction {
    zt_step before, after;
    int gains; /* whether the step is notably faster */
    const char*
        advice; /* what becomes of the step, in a sentence; both texts are the thread's until its next prediction */
    const char* report; /* all of it, for people */
} zt_prediction;

ZT_API zt_status zt_predict(const zt_plan* plan, zt_prediction* prediction);

/* A message by itself: its bytes, and to it and back. */
ZT_API zt_status zt_message_bytes(const char* format, size_t elements, size_t* bytes);
ZT_API zt_status zt_quantize(const char* format, zt_element element, const void* tensor, size_t elements, void* message,
                             void* stream);
ZT_API zt_status zt_dequantize(const char* format, zt_element element, const void* message, size_t elements,
                               void* tensor, void* stream);

#if defined(__cplusplus)
}
#endif

#endif
