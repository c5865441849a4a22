/* The collectives of zeropp as C functions, for frameworks and languages other than C++. Functions that can fail return
 * a zeropp_status; zeropp_error() has the calling thread's error text. Pointers are not null, and texts that the
 * library returns live as long as the library, unless a comment says otherwise. Texts end with a zero. */
#ifndef ZEROPP_C_H
#define ZEROPP_C_H

#include <stddef.h>
#include <stdint.h>

/* Version of this interface, independent of the version of zeropp. The major number rises if a function, structure or
 * constant changes or goes; the minor number if one is added. */
#define ZEROPP_C_VERSION_MAJOR 1
#define ZEROPP_C_VERSION_MINOR 1
#define ZEROPP_C_VERSION (1000 * ZEROPP_C_VERSION_MAJOR + ZEROPP_C_VERSION_MINOR)

#define ZEROPP_C_API __attribute__((visibility("default")))

#if defined(__cplusplus)
extern "C" {
#endif

/* Result of a function. */
typedef enum zeropp_status {
    zeropp_success = 0,
    zeropp_failure = 1,        /* zeropp_error() has the text */
    zeropp_callback_failed = 2 /* a callback of the caller failed; zeropp_error() has no text for it */
} zeropp_status;

/* Type of the elements of tensors. */
typedef enum zeropp_element { zeropp_float32 = 0, zeropp_float16 = 1, zeropp_bfloat16 = 2 } zeropp_element;

/* One tensor of a call, in host or device memory as zeropp_device() says. Together, the tensors of a call have
 * fewer than 2^56 elements, counted as if every rank had as many as the first rank. */
typedef struct zeropp_tensor {
    void* data;
    size_t elements;
    size_t row; /* shards are whole rows of `row` elements; 1 allows any shards */
} zeropp_tensor;

/* Functions over a framework's process groups, which have numbers; group 0 has all ranks. Each function gets `context`.
 * `all_gather` and `all_to_all` do as MPI_Allgather and MPI_Alltoall, with `bytes` bytes from each rank to each. In an
 * `all_gather`, `send` may be `receive` + rank * `bytes`, for which MPI takes MPI_IN_PLACE. For device memory the
 * functions enqueue on `stream`: the stream of the call, or one that the library made. They return 0, or non-zero if
 * they failed. `split` makes a group of `members`, ranks of `group`, and returns its number, or -1 if it
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

/* ZEROPP_C_VERSION of the library. A program needs a library with the major number of the program's header, and at
 * least the minor number of that header. */
ZEROPP_C_API int zeropp_c_version(void);
/* The version of zeropp, such as "2.0.0". */
ZEROPP_C_API const char* zeropp_version(void);
/* The memory in which tensors lie: "host" or "cuda". */
ZEROPP_C_API const char* zeropp_device(void);
/* Text of the calling thread's last zeropp_failure. It is valid until the thread's next zeropp_failure. */
ZEROPP_C_API const char* zeropp_error(void);

/* Names of the formats of gathers, separated by ", "; null if there is no memory for them. */
ZEROPP_C_API const char* zeropp_gather_formats(void);
/* Names of the formats of weight differences, separated by ", "; null if there is no memory for them. */
ZEROPP_C_API const char* zeropp_difference_formats(void);
/* Names of the formats of reductions, "INTRA_NODE + INTER_NODE", separated by ", "; null if there is no memory for
 * them. */
ZEROPP_C_API const char* zeropp_reduce_formats(void);
/* Names of the formats of reductions in sites, "INTRA_NODE + INTER_NODE + INTER_SITE", separated by ", "; null if there
 * is no memory for them. */
ZEROPP_C_API const char* zeropp_reduce_formats_in_sites(void);

/* Makes a communicator of the `size` ranks of group 0, for the rank `rank`. Rank r is on node node_of_rank[r]. All
 * ranks must call this, because it calls `split`. A communicator runs one call at a time. */
ZEROPP_C_API zeropp_status zeropp_communicator_create(const int* node_of_rank, int size, int rank,
                                                      zeropp_callbacks callbacks, zeropp_communicator** communicator);
/* Makes a communicator as zeropp_communicator_create, for nodes in sites, which slower links join. Node n, counted from
 * 0, is in site n / nodes_per_site; 0 puts all nodes in one site. Several sites must have equally many nodes, all of
 * one size. */
ZEROPP_C_API zeropp_status zeropp_communicator_create_in_sites(const int* node_of_rank, int nodes_per_site, int size,
                                                               int rank, zeropp_callbacks callbacks,
                                                               zeropp_communicator** communicator);
/* Frees a communicator. */
ZEROPP_C_API void zeropp_communicator_destroy(zeropp_communicator* communicator);

/* Lets the ranks compare the arguments of the next `calls` collectives, in addition to earlier numbers, before data
 * moves. All ranks must give the same number. If calls differ, or have wrong arguments on a rank, they fail on every
 * rank. Each rank sends 0.9 KB for a collective, twice that for an update, and waits for the others. */
ZEROPP_C_API void zeropp_compare(zeropp_communicator* communicator, size_t calls);
/* Gives all later collectives of this rank the name `name`. Ranks that compare calls compare names, too, because calls
 * on equal shapes may differ only by name. */
ZEROPP_C_API void zeropp_name(zeropp_communicator* communicator, const char* name);

/* Call this in place of collective `function` if the caller refuses its arguments. Fails with the text `words`, also on
 * all other ranks if they compare the call. */
ZEROPP_C_API zeropp_status zeropp_refuse(zeropp_communicator* communicator, const char* function, const char* words,
                                         void* stream);

/* Returns the bytes that this rank has sent within its node and to other nodes, and its number of collectives. */
ZEROPP_C_API void zeropp_traffic(const zeropp_communicator* communicator, uint64_t* intra_node, uint64_t* inter_node,
                                 uint64_t* calls);
/* Returns the bytes that this rank has sent, and its number of collectives. `bytes` is an array of three: bytes within
 * the node, to other nodes of its site, and to other sites. */
ZEROPP_C_API void zeropp_traffic_in_sites(const zeropp_communicator* communicator, uint64_t* bytes, uint64_t* calls);

/* Makes a pool of `threads` threads, the calling one included, to give as `stream` to calls on host tensors: codecs
 * divide their work over the pool. A null stream is the calling thread alone. The pool is never freed. A forked child
 * cannot use it. Host library only. */
ZEROPP_C_API zeropp_status zeropp_threads_create(int threads, void** stream);

/* Collectives on lists of `count` tensors, called by all ranks in one order. They block, or on a GPU are enqueued on
 * `stream`. `fulls` are whole tensors of n elements. `shards` are this rank's parts of these: ceil(n / size) elements
 * from element rank * ceil(n / size) on; the last ranks have fewer or none. A shard may lie at its elements in the
 * whole tensor. Reductions are sums over all ranks, or means if `mean` is not 0. `inter_node` is one format, also for
 * hops between sites, or "INTER_NODE + INTER_SITE". The all-gather phase of an all-reduce has the format of the last
 * level. `feedback` may be null. A communicator of one rank sends nothing, and has exact results in every format.
 *
 * Destroy a stream once its calls are complete. It may be captured into a CUDA graph if the callbacks can be. Compared
 * calls and zeropp_update_gather fail there. Memory of a captured call stays until its communicator is destroyed, after
 * the graph. The library orders captured calls and replays with no other calls, and all share scratch: keep them on one
 * stream, or order streams by events. */

/* Gathers the `shards` of all ranks to `fulls` on every rank. */
ZEROPP_C_API zeropp_status zeropp_all_gather(zeropp_communicator* communicator, const char* format,
                                             zeropp_element element, const zeropp_tensor* shards,
                                             const zeropp_tensor* fulls, size_t count, void* stream);
/* Sends part r of each tensor of `sent` to rank r; part r of each tensor of `received` comes from rank r. Both are
 * lists of whole tensors of a number of elements that the number of ranks divides; `received` may be `sent`. Nodes must
 * be of equal size. */
ZEROPP_C_API zeropp_status zeropp_all_to_all(zeropp_communicator* communicator, const char* format,
                                             zeropp_element element, const zeropp_tensor* sent,
                                             const zeropp_tensor* received, size_t count, void* stream);
/* Sums `fulls` over all ranks. Each rank gets its shards of the sums in `shards`. */
ZEROPP_C_API zeropp_status zeropp_reduce_scatter(zeropp_communicator* communicator, const char* intra_node,
                                                 const char* inter_node, zeropp_element element,
                                                 const zeropp_tensor* fulls, const zeropp_tensor* shards, size_t count,
                                                 int mean, zeropp_feedback* feedback, void* stream);
/* Sums `tensors` over all ranks. Every rank gets the whole sums in `results`. */
ZEROPP_C_API zeropp_status zeropp_all_reduce(zeropp_communicator* communicator, const char* intra_node,
                                             const char* inter_node, zeropp_element element,
                                             const zeropp_tensor* tensors, const zeropp_tensor* results, size_t count,
                                             int mean, zeropp_feedback* feedback, void* stream);
/* Sums `tensors` as zeropp_all_reduce, by `algorithm`: "by_size", as zeropp_all_reduce, "one_shot" or "two_shot", as
 * zeropp::all_reduce_algorithm has them. In "one_shot", all messages have the first hop's format. Error feedback needs
 * "by_size" or "two_shot". */
ZEROPP_C_API zeropp_status zeropp_all_reduce_with_algorithm(zeropp_communicator* communicator, const char* algorithm,
                                                            const char* intra_node, const char* inter_node,
                                                            zeropp_element element, const zeropp_tensor* tensors,
                                                            const zeropp_tensor* results, size_t count, int mean,
                                                            zeropp_feedback* feedback, void* stream);

/* Makes error feedback for reduce-scatters of `fulls`: memory that keeps the quantization errors of a call, which the
 * next call adds to its tensors. Only sizes of `fulls` count: their data may be null. */
ZEROPP_C_API zeropp_status zeropp_feedback_create(zeropp_communicator* communicator, const char* intra_node,
                                                  const char* inter_node, zeropp_element element,
                                                  const zeropp_tensor* fulls, size_t count, zeropp_feedback** feedback);
/* Makes error feedback for all-reduces of `fulls`, as zeropp_feedback_create does for reduce-scatters. */
ZEROPP_C_API zeropp_status zeropp_all_reduce_feedback_create(zeropp_communicator* communicator, const char* intra_node,
                                                             const char* inter_node, zeropp_element element,
                                                             const zeropp_tensor* fulls, size_t count,
                                                             zeropp_feedback** feedback);
/* Frees error feedback. */
ZEROPP_C_API void zeropp_feedback_destroy(zeropp_feedback* feedback);
/* Sets the quantization errors that `feedback` keeps to zero before the next reduction. All ranks must call this
 * between the same reductions. */
ZEROPP_C_API void zeropp_feedback_reset(zeropp_feedback* feedback);
/* Bytes of memory that error feedback keeps on this rank. */
ZEROPP_C_API size_t zeropp_feedback_bytes(const zeropp_feedback* feedback);

/* Makes an empty replica: a node's copy of whole tensors, of which each rank of the node keeps a part. Only sizes of
 * `fulls` count: their data may be null. All calls with this replica have tensors of type `element`. */
ZEROPP_C_API zeropp_status zeropp_replica_create(zeropp_communicator* communicator, zeropp_element element,
                                                 const zeropp_tensor* fulls, size_t count, zeropp_replica** replica);
/* Frees a replica. */
ZEROPP_C_API void zeropp_replica_destroy(zeropp_replica* replica);
/* Bytes of memory that a replica keeps on this rank. */
ZEROPP_C_API size_t zeropp_replica_bytes(const zeropp_replica* replica);
/* Empties this rank's replica. The next zeropp_update_gather then empties the replicas of all ranks. */
ZEROPP_C_API void zeropp_replica_invalidate(zeropp_replica* replica);
/* States that this rank's shards have not changed since the last zeropp_update_gather. If all ranks state this, the
 * next zeropp_update_gather changes no replica, and sends nothing between nodes. */
ZEROPP_C_API void zeropp_replica_unchanged(zeropp_replica* replica);
/* Brings `replica` up to date with all ranks' `shards`, and writes the whole tensors to `fulls`. Differences in
 * `format` travel between nodes, or whole tensors if a rank's replica is empty. With one node, `fulls` are exact. With
 * "exact" differences, for elements of 16 bits, they always are. */
ZEROPP_C_API zeropp_status zeropp_update_gather(zeropp_communicator* communicator, zeropp_replica* replica,
                                                const char* format, const zeropp_tensor* shards,
                                                const zeropp_tensor* fulls, size_t count, void* stream);
/* Gathers the whole tensors from the parts of `replica` on this node's ranks, and writes them to `fulls`. Fails if the
 * replica is empty. */
ZEROPP_C_API zeropp_status zeropp_replica_gather(zeropp_communicator* communicator, const zeropp_replica* replica,
                                                 const zeropp_tensor* fulls, size_t count, void* stream);

/* Bytes that `rank` sends in a zeropp_all_gather of one tensor with `elements` elements and `row` 1, exactly as
 * zeropp_traffic counts them. If nodes are of equal size, all ranks send equally many. With a larger `row`, shards and
 * messages can be larger. Fails for more than 10^13 elements. Functions that plan are in the host library only. */
ZEROPP_C_API zeropp_status zeropp_gather_volume(const int* node_of_rank, int size, int rank, const char* format,
                                                size_t elements, uint64_t* intra_node, uint64_t* inter_node);
/* Bytes that `rank` sends in a zeropp_update_gather, counted as by zeropp_gather_volume. `differences` is the format of
 * differences, `kept` the format of the replica. For "exact", the most bytes: messages vary. */
ZEROPP_C_API zeropp_status zeropp_update_volume(const int* node_of_rank, int size, int rank, const char* differences,
                                                const char* kept, size_t elements, uint64_t* intra_node,
                                                uint64_t* inter_node);
/* Bytes that `rank` sends in a zeropp_replica_gather, counted as by zeropp_gather_volume. `kept` is the format of the
 * replica. */
ZEROPP_C_API zeropp_status zeropp_replica_volume(const int* node_of_rank, int size, int rank, const char* kept,
                                                 size_t elements, uint64_t* intra_node, uint64_t* inter_node);
/* Bytes that `rank` sends in a zeropp_reduce_scatter, counted as by zeropp_gather_volume. */
ZEROPP_C_API zeropp_status zeropp_reduce_volume(const int* node_of_rank, int size, int rank,
                                                const char* intra_node_format, const char* inter_node_format,
                                                size_t elements, uint64_t* intra_node, uint64_t* inter_node);
/* Bytes that `rank` sends in a zeropp_all_reduce, counted as by zeropp_gather_volume. `two_shot` is 0 if
 * zeropp_all_reduce chooses the algorithm by size. It is 1 if tensors of every size are two-shot, as with error
 * feedback. */
ZEROPP_C_API zeropp_status zeropp_all_reduce_volume(const int* node_of_rank, int size, int rank,
                                                    const char* intra_node_format, const char* inter_node_format,
                                                    size_t elements, int two_shot, uint64_t* intra_node,
                                                    uint64_t* inter_node);
/* Bytes that `rank` sends in collective `function`, such as "zeropp_all_gather", for nodes in sites. `bytes` is an
 * array of three: bytes within the node, to other nodes of the site, and to other sites. `first` and `second` are
 * the formats: of a reduction `intra_node` and `inter_node`; of zeropp_update_gather the differences' and the
 * replica's; of zeropp_replica_gather the replica's. `second` may be null where `first` is the only format. `two_shot`
 * is for zeropp_all_reduce alone. */
ZEROPP_C_API zeropp_status zeropp_volume_in_sites(const char* function, const char* first, const char* second,
                                                  size_t elements, int two_shot, const int* node_of_rank,
                                                  int nodes_per_site, int size, int rank, uint64_t* bytes);

/* A training step to predict, as zeropp-plan does. Rates `..._gbit` are in Gbit/s, latencies `..._us` in microseconds.
 * Fields `intra_node_...` are of the link of a rank within its node. Fields `inter_node_...` are of the link of a whole
 * node to other nodes. `codec_gb` is the rate of codecs, in GB/s read and written. `compute_ms` is the time of a step's
 * computation in milliseconds. `memory_gb` is the memory of a rank in GB, `other_memory_gb` the part for activations
 * and buffers. The last three are 0 if unknown. */
typedef struct zeropp_plan {
    const size_t* tensors; /* number of elements of each tensor; each tensor is gathered by itself */
    size_t count;          /* number of tensors */
    int nodes;
    int ranks_per_node;
    int secondary_group;         /* ranks in each group of hpZ; 0 without hpZ */
    const char* plain;           /* format of weights in ZeRO-3, and of hpZ's secondary shards */
    const char* plain_gradients; /* format of gradients in ZeRO-3 */
    const char* weights;         /* format of gathered weights in qwZ */
    const char* differences;     /* format of weight differences, in place of weights and hpZ; null for none */
    const char* intra_node;      /* format of gradients within nodes */
    const char* inter_node;      /* format of gradients between nodes, as in zeropp_reduce_scatter */
    int error_feedback;          /* not 0: gradients have error feedback */
    double intra_node_gbit, inter_node_gbit, intra_node_us, inter_node_us, codec_gb, compute_ms, memory_gb,
        other_memory_gb;
} zeropp_plan;

/* A step on one rank: bytes sent to other nodes, seconds without and with overlap of communication, bytes of memory. */
typedef struct zeropp_step {
    uint64_t inter_node;
    double seconds, overlapped_seconds;
    uint64_t memory;
} zeropp_step;

/* Prediction of a step with ZeRO-3 (`before`) and with the formats of a zeropp_plan (`after`). */
typedef struct zeropp_prediction {
    zeropp_step before, after;
    int gains;          /* 1 if the step is at least 5 % shorter, without overlap or with it */
    const char* advice; /* effect on the step, in a sentence; lives until the thread's next prediction */
    const char* report; /* zeropp-plan's report; lives as long as `advice` */
} zeropp_prediction;

/* Predicts a step with ZeRO-3 (`before`) and with the formats of `plan` (`after`). Fails for numbers that zeropp-plan
 * refuses, such as a rate of 0, a time below 0, or NaN. */
ZEROPP_C_API zeropp_status zeropp_predict(const zeropp_plan* plan, zeropp_prediction* prediction);
/* Predicts a step as zeropp_predict, for sites of `nodes_per_site` nodes. `inter_site_gbit` and `inter_site_us` are of
 * the link of a whole site to other sites. `inter_site` is an array of two: bytes of `inter_node` that cross sites,
 * before and after. */
ZEROPP_C_API zeropp_status zeropp_predict_in_sites(const zeropp_plan* plan, int nodes_per_site, double inter_site_gbit,
                                                   double inter_site_us, zeropp_prediction* prediction,
                                                   uint64_t* inter_site);

/* Bytes of a message of `elements` elements in `format`. Fails for 2^61 elements or more. */
ZEROPP_C_API zeropp_status zeropp_message_bytes(const char* format, size_t elements, size_t* bytes);
/* Encodes `elements` elements of `tensor` to `message`, which has the bytes that zeropp_message_bytes gives. On a GPU,
 * the message must begin at a multiple of 16 bytes. */
ZEROPP_C_API zeropp_status zeropp_quantize(const char* format, zeropp_element element, const void* tensor,
                                           size_t elements, void* message, void* stream);
/* Decodes `message`, as zeropp_quantize has encoded it, to `elements` elements of `tensor`. */
ZEROPP_C_API zeropp_status zeropp_dequantize(const char* format, zeropp_element element, const void* message,
                                             size_t elements, void* tensor, void* stream);

/* Moves `elements` weights by the outer step of local steps, with the bits of outer_optimizer::apply and `nesterov`.
 * `means` are the means over islands of anchor minus weight. Changes `weights`, `anchors` and `momenta`. Fails for a
 * rate, momentum or alpha that outer_options refuses, also with 0 elements. */
ZEROPP_C_API zeropp_status zeropp_outer_step(zeropp_element element, void* weights, float* anchors, float* momenta,
                                             const float* means, size_t elements, float learning_rate, float momentum,
                                             float alpha, void* stream);

/* Most bytes of a message of exact differences of `elements` elements. Functions of exact differences are in the host
 * library only, because they encode host memory. */
ZEROPP_C_API zeropp_status zeropp_exact_bytes(size_t elements, size_t* bytes);
/* Encodes to `message` the exact differences of `elements` elements of `tensor` from those of `old`, and copies the
 * elements to `old`. Old elements are float16 or bfloat16; `tensor` has elements of this type, or of float32, which are
 * rounded. `message` has room for the bytes that zeropp_exact_bytes gives; `bytes` gets the number of bytes used. */
ZEROPP_C_API zeropp_status zeropp_encode_exact(zeropp_element element, const void* tensor, zeropp_element old_element,
                                               void* old, size_t elements, void* message, size_t* bytes, void* stream);
/* Decodes `message`, of `bytes` bytes, in place of `elements` elements at `old`, which then have the bits that
 * zeropp_encode_exact left in its `old`. Fails for other bytes, perhaps with some elements written. Never reads or
 * writes outside of the two arrays. */
ZEROPP_C_API zeropp_status zeropp_decode_exact(zeropp_element old_element, const void* message, size_t bytes, void* old,
                                               size_t elements, void* stream);

#if defined(__cplusplus)
}
#endif

#endif
