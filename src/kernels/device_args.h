/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_args.h - what kernels on device memory are given: the communicator and the arguments of
 * each launcher. protocol.cuh explains the protocol between the ranks' kernels.
 */
#ifndef EPX_KERNELS_DEVICE_ARGS_H
#define EPX_KERNELS_DEVICE_ARGS_H

#include "base/field.h"
#include "config.h"
#include "kernels/control_words.h"
#include "kernels/copy_queues.h"
#include "kernels/device_plan.h"
#include "kernels/element.h"
#include "kernels/layout.h"
#include "kernels/ring.h"

enum {
    EPX_WAITING_THREADS = 512, /* in a block that may wait for other ranks */
    EPX_WARP = 32
};

/* The words of a ready note, 32 bits each; the first five, and those of fields, are compared across
 * ranks. */
enum epx_ready_word {
    EPX_READY_VERB,
    EPX_READY_ROUTE,   /* id, -1 = none */
    EPX_READY_ROW_LOW, /* bytes of a row, of the first field */
    EPX_READY_ROW_HIGH,
    EPX_READY_DATATYPE, /* where rows are added */
    EPX_READY_WEIGHTS,  /* enum of ready.h */
    EPX_READY_SEGMENT,  /* of the receive buffer; -1 = it cannot be stored into */
    EPX_READY_OFFSET_LOW,
    EPX_READY_OFFSET_HIGH,
    EPX_READY_CAPACITY_LOW, /* alltoallv: rows of the receive buffer */
    EPX_READY_CAPACITY_HIGH,
    EPX_READY_ERROR, /* of the routing that the operation stands on; added by the kernel */
    EPX_READY_FIELDS /* of fields 1, 2 and 3: bytes of a row plus 1; 0 = there is no such field */
};

enum { EPX_READY_COMPARED = EPX_READY_WEIGHTS, EPX_MOST_DEVICE_RANKS = 128 };

/* Whether all ranks must tell the same in a word. */
EPX_HD int epx_ready_compared(int32_t word)
{
    return word < EPX_READY_COMPARED || word >= EPX_READY_FIELDS;
}

struct epx_ready_note {
    uint32_t word[EPX_READY_WORDS];
};

/* The receive buffers of fields 1, 2 and 3, three words each: what EPX_READY_SEGMENT and the two
 * words behind it tell of field 0. */
struct epx_list_note {
    uint32_t word[EPX_LIST_WORDS];
};

/* In the outcome EPX_OUTCOME_DIFFERS, in place of a word: this plus the number of a field. */
enum { EPX_DIFFERS_FIELD = EPX_READY_WORDS };

/* How an operation ended; the meaning of the values depends on what. */
enum epx_outcome_what {
    EPX_OUTCOME_FINE,
    EPX_OUTCOME_SILENT,    /* rank did not answer; a = verb */
    EPX_OUTCOME_DIFFERS,   /* word `a` of rank differs from rank 0's: b here is 0's, c its own; or
                              the bytes of a row of a field, -1 = it is missing */
    EPX_OUTCOME_WEIGHTS,   /* weights are NULL on rank but not on rank a */
    EPX_OUTCOME_SHORT,     /* rank needs a rows, its capacity is b */
    EPX_OUTCOME_FULL,      /* expert c of rank needs a rows, its slab has b */
    EPX_OUTCOME_BAD_ID,    /* token a, choice b, value c; rank holds how many, at most INT_MAX */
    EPX_OUTCOME_BAD_COUNT, /* alltoallv: sendcounts[rank] is a, sdispls[rank] is b */
    EPX_OUTCOME_NO_ROWS,   /* alltoallv: sendcounts[rank] is a, but there is no buffer */
    EPX_OUTCOME_PAST_END,  /* alltoallv: the same with sdispls[rank] b, but sendbuf has c rows */
    EPX_OUTCOME_ROUTING    /* the routing failed on rank */
};

struct epx_outcome {
    int32_t code; /* EPX_ERR_* */
    int32_t what; /* enum epx_outcome_what */
    int32_t rank;
    int32_t unused;
    int64_t a, b, c;
};

/*
 * Pinned host memory: written by the last block of an operation, read by EPX_Wait and EPX_Test. The
 * word is written last, behind a fence: number << 32 | rows; or number << 32 |
 * EPX_COMPLETION_DETAILS if the rest was written before it. Most operations write the word alone.
 */
struct epx_completion {
    uint64_t word;
    int64_t rows; /* that this rank received */
    struct epx_outcome outcome;
};

#define EPX_COMPLETION_DETAILS 0xffffffffu

/* Counted by kernels in device memory; the host copies them. */
struct epx_device_stats {
    uint64_t rows_self, rows_node, rows_network, bytes_self, bytes_node, bytes_network,
        dropped_rows;
};

/* Most blocks of a large operation that store, and most that count as few; warps in a block that
 * moves rows one by one: long ones, not so long ones, and where blocks are few long ones of one
 * field or of several; warps in one that adds rows, or adds them through rings. */
enum {
    EPX_MOST_SENDERS = 64,
    EPX_FEW_SENDERS = 33,
    EPX_MOVING_WARPS = 8,
    EPX_MIDDLE_WARPS = 16,
    EPX_CROWDED_WARPS = 14,
    EPX_CROWDED_LIST_WARPS = 13,
    EPX_ADDING_WARPS = 16,
    EPX_RING_WARPS = 20
};

/* Counts exchanges of messages; times are by the device's clock. */
struct epx_device_exchanges {
    uint64_t num;       /* posted so far */
    uint64_t posted_ns; /* when the last one was posted */
    uint64_t waited_ns; /* sum of the times from post to arrival, as kernels saw them */
    uint64_t least_ns;  /* the shortest of these times, 0 = none has arrived */
};

/* Private device memory of a communicator. Written by the kernels of one operation at a time. */
struct epx_device_state {
    uint64_t epoch;    /* operations begun and ended */
    uint64_t arrivals; /* that each source has posted in all operations */
    uint64_t credits;  /* that each source has posted in all operations */
    uint64_t barrier;  /* blocks that have come to a barrier, in all kernels */
    uint64_t rounds;   /* from here on: of the operation under way */
    uint64_t credit_rounds;
    uint64_t ended; /* blocks of the kernel under way: remarked << 48 | failed << 32 | ended; the
                          last block to end sets it to 0 */
    uint64_t sent;  /* blocks that have ended of a kernel that only sends; the kernel that takes
                          sets it to 0 */
    uint64_t taken; /* tasks that takers have claimed (streaming/task_claims.cuh), and runs that
                          senders have; in an alltoallv pieces of own rows, and of others
                          (alltoallv/piece_turns.cuh); the last block sets both to 0 */
    uint64_t runs;
    uint64_t begun; /* blocks that send and have begun; the last block sets it to 0 */
    int32_t weighted;
    int32_t deferred; /* the next kernel moves the rows */
    int64_t rows;     /* that this rank received, where the last block to end does not know it */
    struct epx_outcome outcome;
    struct epx_outcome ids; /* bad ids, found by the routing that was the first half */
    struct epx_device_stats stats;
    struct epx_device_exchanges exchanges;
    struct epx_copy_progress copies;
};

/* By value in the arguments of every kernel. */
struct epx_device_comm {
    int32_t rank, num_ranks;
    int32_t blocks;      /* of the kernels that wait, or halves of them in a kernel that has halves;
                            the same on all ranks */
    int32_t most_blocks; /* of kernels that wait for nobody */
    uint64_t timeout_ns; /* 0 = for ever */
    struct epx_device_state *state;
    char *const *control;              /* [R] */
    char *own_control;                 /* this rank's control window */
    char *const *segments;             /* [segments][R] windows of EPX_Alloc_mem */
    const int32_t *node;               /* [R] node of each rank; NULL = all are on one node */
    const int32_t *place;              /* [R] place of each rank by (node, rank); NULL if node is */
    struct epx_completion *completion; /* pinned; of this operation */
    uint32_t number;
    int32_t captured; /* all captured operations share the completion, which takes errors alone */
    int32_t verb;
    int32_t half;             /* enum epx_half of request.h */
    char *ring;               /* pinned; NULL where ranks store into each other's memory */
    const uint64_t *released; /* the last exchange in the ring that is complete; NULL if kernels
                                 make the copies of exchanges */
    struct epx_copy_queues *copies; /* pinned; NULL if the proxy moves exchanges on a stream */
    uint64_t jitter_seed;           /* --enable-jitter */
};

/*
 * What a kernel does of an operation in which some blocks send and others take what comes: both, or
 * one, so that between two kernels the operation holds no multiprocessor. phases.cuh has more.
 */
enum epx_phase { EPX_PHASE_BOTH, EPX_PHASE_SEND, EPX_PHASE_TAKE };

/*
 * Most that a small operation may have; the same on all ranks, as are their routes. Pairs, tokens,
 * experts and counts are those of a small routing.
 */
enum {
    EPX_SMALL_PAIRS = 1 << 13, /* of all ranks, as the next */
    EPX_SMALL_TOKENS = 1 << 11,
    EPX_SMALL_EXPERTS = 1 << 10,
    EPX_SMALL_COUNTS = 21 * 1024, /* in the count matrix */
    EPX_SMALL_RANKS = 64,
    EPX_SMALL_TOP_K = EPX_WARP
};

/*
 * How a small operation travels: through banks, in each rank's window one for operations of even
 * number and one for odd; banks.cuh, row_packets.cuh and small_ids.cuh say how. In a bank come
 * EPX_BANK_FLAGS flags and EPX_BANK_WORDS words with ids, of 8 bytes each, then rows of `pitch`
 * bytes, each with words that go with it, then rows in packets.
 */
enum { EPX_BANK_FLAGS = 1 << 15, EPX_BANK_WORDS = EPX_SMALL_PAIRS + 2 * EPX_SMALL_RANKS };

/* A stripe: the part of a row that a warp sends or takes in packets at once. A lane has so many
 * packs of 16 bytes, 32 packs apart, which travel in so many packets of 16. */
enum {
    EPX_LANE_PACKS = 3,
    EPX_LANE_PACKETS = 4,
    EPX_STRIPE_BYTES = 16 * EPX_LANE_PACKS * EPX_WARP,
    EPX_STRIPE_PACKETS = EPX_LANE_PACKETS * EPX_WARP
};

struct epx_banks {
    char *const *bank; /* [2][R] */
    int64_t pitch, words_at;
    struct epx_slices slices; /* of each row, the same on all ranks */
    int64_t packets_at;       /* where packets begin in a bank; 0 = rows come with flags */
    int32_t row_packets;      /* from a row's first packet to the next row's */
    int32_t stripes;          /* of a slice */
    int32_t senders;          /* blocks that store; 0 = the operation is not small */
    int32_t takers;           /* blocks that take what comes */
    int32_t phase;            /* enum epx_phase */
};

/* Bytes that a row takes in a bank, or one field of it. */
EPX_HD int64_t epx_bytes_in_bank(int64_t row_bytes)
{
    return epx_round_up(row_bytes, 16);
}

/*
 * How an operation that is not small is shared out between blocks: `senders` store to all ranks,
 * `takers` take what comes. Rows go by slices. Slices, chunks and runs are the same on all ranks.
 * Where ranks exchange messages, or there is one rank, blocks are of one kind only.
 */
enum { /* most bytes of a slice, and of one that EPX_MIDDLE_WARPS move faster */
       EPX_BOX_SLICE = 29 * EPX_SLICE_QUANTUM,
       EPX_MIDDLE_SLICE = 12 * EPX_SLICE_QUANTUM,
       EPX_GRAD_SLICE = 22 * EPX_SLICE_QUANTUM /* combine backward: its warps have less room */
};

struct epx_movers {
    int32_t senders, takers;
    int32_t phase; /* enum epx_phase */
    int32_t
        chunks;  /* where rows are added: of token numbers; a warp sends a slice of one at once */
    int32_t run; /* where not: tasks of senders in a run, which one of their warps does */
    int32_t rows_log2; /* a task has 2^rows_log2 short rows, or a slice of one row */
    int32_t warps;     /* of a block, where rows are moved as they are */
    struct epx_slices slices;
};

/* A line of the cache, and most bytes that a row takes beside its own where it is on its way in the
 * memory of a block, as far behind the start of a line as in memory. */
enum { EPX_LINE = 128, EPX_ROW_ENDS = 160 };

/* A bundle: the short rows that a warp of a dispatch moves at once, or one of a combine backward
 * sends. It has so many bytes, with what lies between rows, and places at most; a block of a
 * dispatch has so many warps then. */
enum { EPX_BUNDLE_BYTES = 5 * 1024, EPX_BUNDLE_PLACES = EPX_MAX_TOP_K, EPX_BUNDLE_WARPS = 16 };

/* Bytes from one short row to the next in the memory of a block. */
EPX_HD int64_t epx_bundle_pitch(int64_t row_bytes)
{
    return epx_round_up(row_bytes + EPX_ROW_ENDS, EPX_LINE);
}

/* Arguments of the kernels of a routing. */
struct epx_route_tokens {
    struct epx_device_comm comm;
    struct epx_ready_note note;
    struct epx_device_plan plan;
    struct epx_banks banks; /* their addresses alone */
    const void *ids;
    int32_t num_tokens;
    int32_t capacity; /* rows of this rank's receive buffer */
    int32_t *counts;  /* the user's [2 * L + 1], or NULL */
    int32_t halves;   /* of blocks that a routing in one launch may have; 0 = it has whole ones */
};

/* Arguments of dispatch, and of combine backward, which scales what arrives. */
struct epx_dispatch_rows {
    struct epx_device_comm comm;
    struct epx_ready_note note;
    struct epx_device_plan plan;
    struct epx_rounds rounds; /* used if a receive buffer cannot be stored into */
    int32_t num_tokens;
    EPX_Datatype datatype;
    struct epx_fields fields;  /* the kernels for several fields read them */
    struct epx_list_note list; /* several fields */
    int64_t row_bytes;         /* of all fields together */
    const char *rows;          /* [T] of the only field, as recv */
    const float *weights; /* [T][K] or NULL; combine backward: [capacity] or NULL, of the slots */
    const char *forward;  /* combine backward: [capacity] rows that combine was given, or NULL */
    char *recv;           /* [capacity] */
    float *recv_weights;  /* or NULL */
    struct epx_banks banks;
    struct epx_movers movers;
    int64_t zeroed_to;     /* rows that nothing arrives in are zeroed up to here; 0 = left alone */
    int32_t weights_width; /* recv_weights of a row */
};

/* Arguments of a small EPX_Route_dispatch; both parts have the same comm, note, plan and banks. */
struct epx_route_dispatch {
    struct epx_route_tokens routing;
    struct epx_dispatch_rows rows;
};

/* Arguments of combine, and of dispatch backward, which sends gradients of pair weights too. */
struct epx_combine_rows {
    struct epx_device_comm comm;
    struct epx_ready_note note;
    struct epx_device_plan plan;
    struct epx_rounds rounds;
    struct epx_banks banks;
    struct epx_movers movers;
    int32_t num_tokens;
    int32_t backward;
    EPX_Datatype datatype;
    int32_t wide;         /* sums travel as float32, for a datatype that is shorter */
    int64_t row_bytes;    /* of a sum that travels */
    const char *rows;     /* [capacity] */
    const float *weights; /* or NULL */
    char *sums;           /* [T] */
    float *grad_weights;  /* [T][K] or NULL; dispatch backward */
};

/* Arguments of announce_end, by which a host ends the communicator. The kernel reads rank,
 * num_ranks and control of comm; with --enable-jitter also state and jitter_seed. */
struct epx_announce_end {
    struct epx_device_comm comm;
    const char *reason; /* pinned, EPX_MAX_ERROR_STRING bytes */
    uint64_t *verdict;  /* pinned; the abort word that all ranks have then */
};

/* Arguments of agree_ranks, which comes before every operation by messages. */
struct epx_agree_ranks {
    struct epx_device_comm comm;
    struct epx_ready_note note;
    struct epx_outcome *routing; /* of the route, or NULL */
    int32_t stands;              /* whether the operation stands on the routing */
};

struct epx_alltoallv_rows {
    struct epx_device_comm comm;
    struct epx_ready_note note;
    char *const *stage; /* [R] */
    int64_t stage_bytes;
    int64_t row_bytes;
    const char *rows;
    int64_t send_rows; /* that fit between `rows` and the end of its allocation */
    const int64_t *sendcounts, *sdispls;
    char *recv;
    int64_t *recvcounts, *rdispls;
    int64_t recv_capacity;
    int64_t packed_rows;  /* so many rows for another rank, or fewer, go in packets */
    int64_t packet_words; /* of all packets of a source */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Launchers: EPX_SUCCESS, or EPX_ERR_CUDA with the error left to cudaGetLastError. */
int epx_launch_route_tokens(const struct epx_route_tokens *args, EPX_Stream stream);
int epx_launch_route_halves(const struct epx_route_tokens *args, /* comm.blocks are halves */
                            EPX_Stream stream);
int epx_launch_route_small(const struct epx_route_tokens *args, EPX_Stream stream);
int epx_launch_dispatch_rows(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_dispatch_packets(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_dispatch_small(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_dispatch_fields_small(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_route_dispatch_small(const struct epx_route_dispatch *args, EPX_Stream stream);
int epx_launch_route_dispatch_fields_small(const struct epx_route_dispatch *args,
                                           EPX_Stream stream);
int epx_launch_move_rows(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_scale_small(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_move_grads(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_combine_rows(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_combine_packets(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_combine_small(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_move_sums(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_alltoallv_rows(const struct epx_alltoallv_rows *args, EPX_Stream stream);
int epx_launch_announce_end(const struct epx_announce_end *args, EPX_Stream stream);
/* Launchers of operations by messages. */
int epx_launch_agree_ranks(const struct epx_agree_ranks *args, EPX_Stream stream);
int epx_launch_await_messages(const struct epx_device_comm *comm, EPX_Stream stream);
int epx_launch_count_tokens(const struct epx_route_tokens *args, EPX_Stream stream);
int epx_launch_list_node_rows(const struct epx_route_tokens *args, EPX_Stream stream);
int epx_launch_send_records(const struct epx_route_tokens *args, EPX_Stream stream);
int epx_launch_list_passed_rows(const struct epx_route_tokens *args, EPX_Stream stream);
int epx_launch_find_slots(const struct epx_route_tokens *args, EPX_Stream stream);
int epx_launch_pack_rows(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_pass_rows(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_unpack_rows(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_dispatch_rounds(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_pack_sums(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_pass_sums(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_unpack_sums(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_combine_rounds(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_alltoallv_messages(const struct epx_alltoallv_rows *args, EPX_Stream stream);
/* Loads every kernel: loading one later could wait for a kernel that waits. */
int epx_load_kernels(void);
/* Whether kernels that were loaded can begin while the kernel before them runs: whether their code,
 * not only the GPU, knows how to wait for it. */
int epx_kernels_begin_early(void);
#ifdef __cplusplus
}
#endif

#endif
