/* zeropp_callbacks over MPI: copy it into your program. Calls of one communicator come from one thread at a time, so
 * MPI_THREAD_SERIALIZED is enough. */
#ifndef ZEROPP_MPI_GROUPS_H
#define ZEROPP_MPI_GROUPS_H

#include <zeropp_c.h>

#include <limits.h>
#include <mpi.h>
#include <sched.h>

/* Process groups by number; 0 is the first. For a communicator, zeropp makes two more, a node's ranks and their
 * counterparts, and a third if nodes are in several sites. If nodes differ in size, it makes several of counterparts,
 * at most 1 more than the largest node has ranks. */
enum { mpi_groups_most = 256 };
typedef struct mpi_groups {
    MPI_Comm comms[mpi_groups_most];
    int count;
    double seconds;      /* longest wait in one operation */
    const char* problem; /* of the last failed operation */
} mpi_groups;

static inline int mpi_groups_failed(mpi_groups* groups, const char* problem) {
    groups->problem = problem;
    return -1;
}

/* Waits for `request`, which MPI cannot cancel: after a failure its memory must stay until the process ends. */
static inline int mpi_groups_wait(mpi_groups* groups, int status, MPI_Request* request) {
    const double start = MPI_Wtime();
    int done = 0;
    if (status != MPI_SUCCESS) return mpi_groups_failed(groups, "MPI has refused an operation");
    for (;;) {
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return mpi_groups_failed(groups, "an operation of MPI has failed");
        if (done) return 0;
        if (!(MPI_Wtime() - start <= groups->seconds)) /* true for NaN, too */
            return mpi_groups_failed(groups, "timeout: a rank has died, or has not made this call");
        sched_yield(); /* ranks may share cores */
    }
}

static inline int mpi_groups_all_gather(void* context, int group, void* stream, const void* send, void* receive,
                                        size_t bytes) {
    mpi_groups* groups = (mpi_groups*)context;
    MPI_Request request;
    int rank = 0;
    (void)stream; /* for device memory alone */
    if (bytes > INT_MAX) return mpi_groups_failed(groups, "expected messages below 2 GiB");
    MPI_Comm_rank(groups->comms[group], &rank);
    /* MPI refuses an address of `receive` as `send`. */
    if (send == (char*)receive + (size_t)rank * bytes) send = MPI_IN_PLACE;
    return mpi_groups_wait(
        groups,
        MPI_Iallgather(send, (int)bytes, MPI_BYTE, receive, (int)bytes, MPI_BYTE, groups->comms[group], &request),
        &request);
}

static inline int mpi_groups_all_to_all(void* context, int group, void* stream, const void* send, void* receive,
                                        size_t bytes) {
    mpi_groups* groups = (mpi_groups*)context;
    MPI_Request request;
    (void)stream;
    if (bytes > INT_MAX) return mpi_groups_failed(groups, "expected messages below 2 GiB");
    return mpi_groups_wait(
        groups,
        MPI_Ialltoall(send, (int)bytes, MPI_BYTE, receive, (int)bytes, MPI_BYTE, groups->comms[group], &request),
        &request);
}

static inline int mpi_groups_split(void* context, int group, const int* members, int count) {
    mpi_groups* groups = (mpi_groups*)context;
    MPI_Group all, some;
    MPI_Request request;
    int status;
    if (groups->count == mpi_groups_most) return mpi_groups_failed(groups, "too many groups");
    /* All ranks of `group` split it together. They meet first, because MPI_Comm_create_group cannot be given up. */
    if (mpi_groups_wait(groups, MPI_Ibarrier(groups->comms[group], &request), &request) != 0) return -1;
    MPI_Comm_group(groups->comms[group], &all);
    MPI_Group_incl(all, count, members, &some);
    status = MPI_Comm_create_group(groups->comms[group], some, 0, &groups->comms[groups->count]);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    if (status != MPI_SUCCESS) return mpi_groups_failed(groups, "MPI has refused a group");
    /* MPICH's new communicators do not have the error handler of `group`. */
    MPI_Comm_set_errhandler(groups->comms[groups->count], MPI_ERRORS_RETURN);
    return groups->count++;
}

/* The callbacks of `groups`, which must outlive them. Collective: duplicates `comm`, so that messages of others on it
 * are apart. A rank that does not come leaves the others waiting, because MPI_Comm_dup cannot be given up. */
static inline zeropp_callbacks mpi_groups_of(mpi_groups* groups, MPI_Comm comm, double seconds) {
    zeropp_callbacks callbacks;
    groups->count = 1;
    groups->seconds = seconds;
    groups->problem = "";
    MPI_Comm_dup(comm, &groups->comms[0]);
    MPI_Comm_set_errhandler(groups->comms[0], MPI_ERRORS_RETURN);
    callbacks.context = groups;
    callbacks.all_gather = mpi_groups_all_gather;
    callbacks.all_to_all = mpi_groups_all_to_all;
    callbacks.split = mpi_groups_split;
    return callbacks;
}

/* Collective. Not after a failure. */
static inline void mpi_groups_free(mpi_groups* groups) {
    while (groups->count != 0) MPI_Comm_free(&groups->comms[--groups->count]);
}

#endif
