/* zeropp's collectives as C functions, for frameworks and languages other than C++. Functions that can fail return a
 * zeropp_status; zeropp_error() has the calling thread's error text. Pointers are not null, unless a comment says so.
 * Texts end with a zero; those of the library live as long as it does, unless a comment says so. */
#ifndef ZEROPP_C_H
#define ZEROPP_C_H

#include <stddef.h>
#include <stdint.h>

/* Version of this interface, apart from zeropp's own. The major number rises if a function, structure or constant
 * changes or goes; the minor number if one is added. */
#define ZEROPP_C_VERSION_MAJOR 1
#define ZEROPP_C_VERSION_MINOR 1
#define ZEROPP_C_VERSION (1000 * ZEROPP_C_VERSION_MAJOR + ZEROPP_C_VERSION_MINOR)

#define ZEROPP_C_API __attribute__((visibility("default")))

#if defined(__cplusplus)
extern "C" {
#endif

typedef enum zeropp_status {
    zeropp_success = 0,
    zeropp_failure = 1,        /* zeropp_error() has the text */
    zeropp_callback_failed = 2 /* a callback returned non-zero, or no group; the caller knows why */
} zeropp_status;

typedef enum zeropp_element { zeropp_float32 = 0, zeropp_float16 = 1, zeropp_bfloat16 = 2 } zeropp_element;

/* One tensor of a call, in host or device memory as zeropp_device() says. */
typedef struct zeropp_tensor {
    void* data;
    size_t elements;
    size_t row; /* shards are whole rows of `row` elements; 1 for any shards */
} zeropp_tensor;

/* A framework's process groups, by numbers; 0 is the first. `all_gather` and `all_to_all` are MPI's, with `bytes` bytes
 * from each rank to each, on `stream` for device memory: the call's, or one of the library's own. They return 0, or
 * non-zero if they failed. `split` returns the number of a new group of `members`, ranks of `group`, or -1 if it
 * failed. */
typedef struct zeropp_callbacks {
    void* context;
    int (*all_gather)(void* context, int group, void* stream, const void* send, void* receive, size_t bytes);
    int (*all_to_all)(void* context, int group, void* stream, const void* send, void* receive, size_t bytes);
    int (*split)(void* context, int group, const int* members, int count);
} zeropp_callbacks;

typedef struct zeropp_communicator zeropp_communicator;
typedef struct zeropp_feedback zeropp_feedback;
typedef struct zeropp_replica zeropp_replica;

/* The library's ZEROPP_C_VERSION. A program needs one of its header's major number, with a minor number as high. */
ZEROPP_C_API int zeropp_c_version(void);
/* The version of zeropp, as "2.0.0", and the memory of tensors: "host" or "cuda". */
ZEROPP_C_API const char* zeropp_version(void);
ZEROPP_C_API const char* zeropp_device(void);
/* Text of the calling thread's last zeropp_failure, until its next one. */
ZEROPP_C_API const char* zeropp_error(void);

/* Formats of gathers, of weight differences and of reductions ("INTRA_NODE + INTER_NODE"), separated by ", "; null if
 * there is no memory for them. */
ZEROPP_C_API const char* zeropp_gather_formats(void);
ZEROPP_C_API const char* zeropp_difference_formats(void);
ZEROPP_C_API const char* zeropp_reduce_formats(void);

/* Reductions' formats of nodes in sites: "INTRA_NODE + INTER_NODE + INTER_SITE", separated by ", ". */
ZEROPP_C_API const char* zeropp_reduce_formats_in_sites(void);

/* Joins the ranks of group 0; rank r is on node node_of_rank[r]. Collective, because it calls `split`. A communicator
 * runs one call at a time. */
ZEROPP_C_API zeropp_status zeropp_communicator_create(const int* node_of_rank, int size, int rank,
                                                      zeropp_callbacks callbacks, zeropp_communicator** communicator);
/* The same for nodes in sites, with slower links between these: node n, from 0, is in site n / nodes_per_site; all are
 * in one site if it is 0. Several sites have as many nodes each, all of one size. */
ZEROPP_C_API zeropp_status zeropp_communicator_create_in_sites(const int* node_of_rank, int nodes_per_site, int size,
                                                               int rank, zeropp_callbacks callbacks,
                                                               zeropp_communicator** communicator);
ZEROPP_C_API void zeropp_communicator_destroy(zeropp_communicator* communicator);

/* Compares `calls` more collectives before they move data; the number must be equal on all ranks. If calls differ, or
 * one has wrong arguments, the call fails on every rank. Each rank sends 0.9 KB for a collective, twice that for an
 * update, and waits for the others. */
ZEROPP_C_API void zeropp_compare(zeropp_communicator* communicator, size_t calls);
/* Names the next collectives. Names are compared, because calls on equal shapes differ only by them. */
ZEROPP_C_API void zeropp_name(zeropp_communicator* communicator, const char* name);

/* Fails with `words`, in place of collective `function`, if the caller refuses its arguments. Ranks that compare the
 * call fail too. */
ZEROPP_C_API zeropp_status zeropp_refuse(zeropp_communicator* communicator, const char* function, const char* words,
                                         void* stream);

/* Bytes that this rank has sent within its node and to other nodes, and its number of collectives. */
ZEROPP_C_API void zeropp_traffic(const zeropp_communicator* communicator, uint64_t* intra_node, uint64_t* inter_node,
                                 uint64_t* calls);
/* `bytes` are three: within its node, to other nodes of its site, and to other sites. */
ZEROPP_C_API void zeropp_traffic_in_sites(const zeropp_communicator* communicator, uint64_t* bytes, uint64_t* calls);

/* Makes a pool of `threads` threads, the calling one included, as the `stream` of calls on host tensors: codecs divide
 * their work over it. A null stream is the calling thread alone. The pool is never freed, and a forked child cannot use
 * it. Host library only. */
ZEROPP_C_API zeropp_status zeropp_threads_create(int threads, void** stream);

/* Collectives on lists of `count` tensors, called by all ranks in one order. They block, or on a GPU are enqueued on
 * `stream`. `fulls` are whole tensors of n elements. `shards` are this rank's ceil(n / size) elements of each, from
 * element rank * ceil(n / size); the last ranks have fewer or none. A shard may lie at its place in its full tensor.
 * Reductions are sums over all ranks, or means if `mean` is not 0. Their `inter_node` is one format, also between
 * sites, or "INTER_NODE + INTER_SITE". An all-reduce gathers its result in the last one. `feedback` may be null. One
 * rank sends nothing, and has exact results in every format.
 *
 * Destroy a stream once its calls are complete. It may be captured into a CUDA graph if the callbacks can be. Compared
 * calls and zeropp_update_gather fail there. Memory of a captured call stays until its communicator is destroyed, after
 * the graph. The library orders captured calls and replays with no other calls, and all share scratch: keep them on one
 * stream, or order streams by events. */
ZEROPP_C_API zeropp_status zeropp_all_gather(zeropp_communicator* communicator, const char* format,
                                             zeropp_element element, const zeropp_tensor* shards,
                                             const zeropp_tensor* fulls, size_t count, void* stream);
/* Part r of each of `sent` goes to rank r; part r of each of `received` comes from rank r. Both are whole tensors, of a
 * multiple of the ranks in elements; `received` may be `sent`. Nodes must be of equal size. */
ZEROPP_C_API zeropp_status zeropp_all_to_all(zeropp_communicator* communicator, const char* format,
                                             zeropp_element element, const zeropp_tensor* sent,
                                             const zeropp_tensor* received, size_t count, void* stream);
ZEROPP_C_API zeropp_status zeropp_reduce_scatter(zeropp_communicator* communicator, const char* intra_node,
                                                 const char* inter_node, zeropp_element element,
                                                 const zeropp_tensor* fulls, const zeropp_tensor* shards, size_t count,
                                                 int mean, zeropp_feedback* feedback, void* stream);
ZEROPP_C_API zeropp_status zeropp_all_reduce(zeropp_communicator* communicator, const char* intra_node,
                                             const char* inter_node, zeropp_element element,
                                             const zeropp_tensor* tensors, const zeropp_tensor* results, size_t count,
                                             int mean, zeropp_feedback* feedback, void* stream);

/* The quantization error of reduce-scatters or all-reduces of `fulls`, kept for the next one. Of `fulls` only sizes
 * count: their data may be null. */
ZEROPP_C_API zeropp_status zeropp_feedback_create(zeropp_communicator* communicator, const char* intra_node,
                                                  const char* inter_node, zeropp_element element,
                                                  const zeropp_tensor* fulls, size_t count, zeropp_feedback** feedback);
ZEROPP_C_API zeropp_status zeropp_all_reduce_feedback_create(zeropp_communicator* communicator, const char* intra_node,
                                                             const char* inter_node, zeropp_element element,
                                                             const zeropp_tensor* fulls, size_t count,
                                                             zeropp_feedback** feedback);
ZEROPP_C_API void zeropp_feedback_destroy(zeropp_feedback* feedback);
/* Makes the residuals zero from the next call on. All ranks call it between the same two reductions. */
ZEROPP_C_API void zeropp_feedback_reset(zeropp_feedback* feedback);
ZEROPP_C_API size_t zeropp_feedback_bytes(const zeropp_feedback* feedback);

/* A node's copy of whole tensors, divided over its ranks; starts empty. Of `fulls` only sizes count: their data may be
 * null. zeropp_update_gather brings the copy up to date with all ranks' shards, and writes `fulls`. Differences in
 * `format` travel between nodes, or whole tensors if a rank's copy is empty. With one node, `fulls` are exact.
 * zeropp_replica_gather writes `fulls` once more, by messages within the node. Tensors have the replica's type. */
ZEROPP_C_API zeropp_status zeropp_replica_create(zeropp_communicator* communicator, zeropp_element element,
                                                 const zeropp_tensor* fulls, size_t count, zeropp_replica** replica);
ZEROPP_C_API void zeropp_replica_destroy(zeropp_replica* replica);
ZEROPP_C_API size_t zeropp_replica_bytes(const zeropp_replica* replica);
/* Empties this rank's replica; the next zeropp_update_gather then empties all ranks'. */
ZEROPP_C_API void zeropp_replica_invalidate(zeropp_replica* replica);
/* States that the next zeropp_update_gather has the last one's shards on this rank. If all ranks state it, the call
 * changes no copy, and sends nothing between nodes, as zeropp_replica_gather. */
ZEROPP_C_API void zeropp_replica_unchanged(zeropp_replica* replica);
ZEROPP_C_API zeropp_status zeropp_update_gather(zeropp_communicator* communicator, zeropp_replica* replica,
                                                const char* format, const zeropp_tensor* shards,
                                                const zeropp_tensor* fulls, size_t count, void* stream);
ZEROPP_C_API zeropp_status zeropp_replica_gather(zeropp_communicator* communicator, const zeropp_replica* replica,
                                                 const zeropp_tensor* fulls, size_t count, void* stream);

/* Bytes that `rank` sends in a collective on one tensor of `elements` elements and `row` 1, exactly as zeropp_traffic
 * counts them. They are equal on all ranks if nodes are of equal size. With a larger `row`, shards and
 * messages can be larger. Planning is in the host library only. */
ZEROPP_C_API zeropp_status zeropp_gather_volume(const int* node_of_rank, int size, int rank, const char* format,
                                                size_t elements, uint64_t* intra_node, uint64_t* inter_node);
/* Of zeropp_update_gather and zeropp_replica_gather. The replica has the format `kept`. */
ZEROPP_C_API zeropp_status zeropp_update_volume(const int* node_of_rank, int size, int rank, const char* differences,
                                                const char* kept, size_t elements, uint64_t* intra_node,
                                                uint64_t* inter_node);
ZEROPP_C_API zeropp_status zeropp_replica_volume(const int* node_of_rank, int size, int rank, const char* kept,
                                                 size_t elements, uint64_t* intra_node, uint64_t* inter_node);
ZEROPP_C_API zeropp_status zeropp_reduce_volume(const int* node_of_rank, int size, int rank,
                                                const char* intra_node_format, const char* inter_node_format,
                                                size_t elements, uint64_t* intra_node, uint64_t* inter_node);
/* `two_shot` is 1 for tensors of every size, as with error feedback; 0 if zeropp_all_reduce chooses by size. */
ZEROPP_C_API zeropp_status zeropp_all_reduce_volume(const int* node_of_rank, int size, int rank,
                                                    const char* intra_node_format, const char* inter_node_format,
                                                    size_t elements, int two_shot, uint64_t* intra_node,
                                                    uint64_t* inter_node);
/* Of any collective, by its name, "zeropp_all_gather" for example, for nodes in sites. `bytes` are three, as in
 * zeropp_traffic_in_sites. `first` and `second` are the call's formats, in order: of a reduction `intra_node` and
 * `inter_node`, of zeropp_update_gather the differences' and the replica's, of zeropp_replica_gather the replica's.
 * `second` may be null for others. `two_shot` is for an all-reduce alone. */
ZEROPP_C_API zeropp_status zeropp_volume_in_sites(const char* function, const char* first, const char* second,
                                                  size_t elements, int two_shot, const int* node_of_rank,
                                                  int nodes_per_site, int size, int rank, uint64_t* bytes);

/* A training step to predict, as zeropp-plan does. `intra_node_` is the link of a rank within its node, `inter_node_`
 * that of a whole node to others: Gbit/s and microseconds. `codec_gb` is GB/s read and written. `compute_ms` and memory
 * in GB are 0 if unknown. */
typedef struct zeropp_plan {
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
} zeropp_plan;

/* A step on one rank: inter-node bytes sent, seconds, and bytes of memory. */
typedef struct zeropp_step {
    uint64_t inter_node;
    double seconds, overlapped_seconds;
    uint64_t memory;
} zeropp_step;

typedef struct zeropp_prediction {
    zeropp_step before, after;
    int gains;          /* 1 if the step is at least 5 % shorter, without overlap or with it */
    const char* advice; /* effect on the step, in a sentence; the thread's next prediction replaces both texts */
    const char* report; /* zeropp-plan's report */
} zeropp_prediction;

/* Fails for numbers that zeropp-plan refuses, such as a rate of 0, a time below 0 or NaN. */
ZEROPP_C_API zeropp_status zeropp_predict(const zeropp_plan* plan, zeropp_prediction* prediction);
/* For nodes in sites of `nodes_per_site` nodes. `inter_site_` is the link of a whole site to others. `inter_site` are
 * two: the bytes that a rank sends to other sites, before and after. They are part of `inter_node`. */
ZEROPP_C_API zeropp_status zeropp_predict_in_sites(const zeropp_plan* plan, int nodes_per_site, double inter_site_gbit,
                                                   double inter_site_us, zeropp_prediction* prediction,
                                                   uint64_t* inter_site);

/* A message by itself: its size in bytes, encoding and decoding. On a GPU it begins at a whole 16 bytes. */
ZEROPP_C_API zeropp_status zeropp_message_bytes(const char* format, size_t elements, size_t* bytes);
ZEROPP_C_API zeropp_status zeropp_quantize(const char* format, zeropp_element element, const void* tensor,
                                           size_t elements, void* message, void* stream);
ZEROPP_C_API zeropp_status zeropp_dequantize(const char* format, zeropp_element element, const void* message,
                                             size_t elements, void* tensor, void* stream);

#if defined(__cplusplus)
}
#endif

#endif
