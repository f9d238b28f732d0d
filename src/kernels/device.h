/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.h - what kernels on device memory are given: the communicator, the plan of a route and
 * the arguments of each launcher. device.cuh explains the protocol between the ranks' kernels.
 */
#ifndef EPX_KERNELS_DEVICE_H
#define EPX_KERNELS_DEVICE_H

#include "element.h"
#include "layout.h"
#include "ring.h"

enum {
    EPX_READY_WORDS = 16,     /* of one rank about one operation */
    EPX_WAITING_THREADS = 512, /* of a block that may wait for other ranks */
    EPX_WARP = 32
};

/* The words of a ready note, 32 bits each; the first five are compared across ranks. */
enum epx_ready_word {
    EPX_READY_VERB,
    EPX_READY_ROUTE,    /* id, -1 = none */
    EPX_READY_ROW_LOW,  /* bytes of a row */
    EPX_READY_ROW_HIGH,
    EPX_READY_DATATYPE, /* where rows are added */
    EPX_READY_WEIGHTS,  /* enum of ready.h */
    EPX_READY_SEGMENT,  /* of the receive buffer; -1 = it cannot be stored into */
    EPX_READY_OFFSET_LOW,
    EPX_READY_OFFSET_HIGH,
    EPX_READY_CAPACITY_LOW, /* alltoallv: rows of the receive buffer */
    EPX_READY_CAPACITY_HIGH,
    EPX_READY_ERROR         /* of the routing that the operation stands on; added by the kernel */
};

enum { EPX_READY_COMPARED = EPX_READY_WEIGHTS, EPX_MOST_DEVICE_RANKS = 128 };

struct epx_ready_note {
    uint32_t word[EPX_READY_WORDS];
};

/* How an operation ended; the meaning of the values depends on what. */
enum epx_outcome_what {
    EPX_OUTCOME_FINE,
    EPX_OUTCOME_SILENT,      /* rank did not answer; a = verb */
    EPX_OUTCOME_DIFFERS,     /* word `a` of rank differs from rank 0's: b here is 0's, c its own */
    EPX_OUTCOME_WEIGHTS,     /* weights are NULL on rank but not on rank a */
    EPX_OUTCOME_SHORT,       /* rank needs a rows, its capacity is b */
    EPX_OUTCOME_BAD_ID,      /* token a, choice b, value c; rank holds how many, at most INT_MAX */
    EPX_OUTCOME_BAD_COUNT,   /* alltoallv: sendcounts[rank] is a, sdispls[rank] is b */
    EPX_OUTCOME_NO_ROWS,     /* alltoallv: sendcounts[rank] is a, but there is no buffer */
    EPX_OUTCOME_ROUTING      /* the routing failed on rank */
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
 * word is written last: number << 32 | rows; or number << 32 | EPX_COMPLETION_DETAILS if the rest
 * was written before it. Most operations write the word alone, for which they need no fence.
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

/*
 * What other ranks write into this rank's control window. device.cuh says who writes what when.
 *   uint64 abort                        0; or who is silent: verb << 32 | rank + 1; or whose host
 *                                       gave up, with EPX_ABORT_BY_HOST in place of the verb
 *   uint64 arrived[R]                   with messages: the last exchange that came from each
 *   uint64 credited[R]
 *   uint64 ready[2][R][EPX_READY_WORDS] epoch << 32 | word
 *   uint64 counts[2][R][R][2]           alltoallv: tag << 32 | half of a count, low half first
 *   uint64 packets[2][R][P]             alltoallv: tag << 32 | four bytes of the rows of source R
 *   char reason[EPX_MAX_ERROR_STRING]   written by its owner's host before it gives up
 */
enum { EPX_ABORT_BY_HOST = -1 };
enum { EPX_CONTROL_HEADER = 16 }; /* words before arrived */

EPX_HD uint64_t *epx_control_arrived(char *control, int32_t source)
{
    return (uint64_t *)(void *)control + EPX_CONTROL_HEADER + source;
}

EPX_HD uint64_t *epx_control_credited(char *control, int32_t num_ranks, int32_t source)
{
    return epx_control_arrived(control, num_ranks) + source;
}

EPX_HD uint64_t *epx_control_ready(char *control, int32_t num_ranks, uint32_t epoch,
                                   int32_t source)
{
    return epx_control_credited(control, num_ranks, num_ranks) +
           ((int64_t)(epoch & 1) * num_ranks + source) * EPX_READY_WORDS;
}

EPX_HD uint64_t *epx_control_counts(char *control, int32_t num_ranks, uint32_t epoch,
                                    int32_t source)
{
    return epx_control_ready(control, num_ranks, 0, 2 * num_ranks) +
           ((int64_t)(epoch & 1) * num_ranks + source) * num_ranks * 2;
}

/* Rows of so few bytes go to a rank in packets. A multiple of 16. */
enum { EPX_MOST_PACKED_BYTES = 1 << 18, EPX_PACKED_BYTES = 1 << 20 };

EPX_HD int32_t epx_most_packed(int32_t num_ranks)
{
    int32_t share = EPX_PACKED_BYTES / num_ranks / 16 * 16;

    return share < EPX_MOST_PACKED_BYTES ? share : EPX_MOST_PACKED_BYTES;
}

EPX_HD int64_t epx_packet_words(int32_t num_ranks)
{
    return (int64_t)num_ranks * (epx_most_packed(num_ranks) / 4);
}

/* Of bank 0; bank_words is epx_packet_words(num_ranks). */
EPX_HD uint64_t *epx_control_packets(char *control, int32_t num_ranks, int64_t bank_words,
                                     int32_t source)
{
    return epx_control_counts(control, num_ranks, 0, 2 * num_ranks) +
           bank_words / num_ranks * source;
}

EPX_HD size_t epx_control_words(int32_t num_ranks)
{
    size_t ranks = (size_t)num_ranks, packets = (size_t)epx_packet_words(num_ranks);

    return EPX_CONTROL_HEADER + 2 * ranks + 2 * ranks * EPX_READY_WORDS + 4 * ranks * ranks +
           2 * packets;
}

EPX_HD char *epx_control_reason(char *control, int32_t num_ranks)
{
    return control + epx_control_words(num_ranks) * sizeof(uint64_t);
}

EPX_HD size_t epx_control_bytes(int32_t num_ranks)
{
    return epx_control_words(num_ranks) * sizeof(uint64_t) + EPX_MAX_ERROR_STRING;
}

/* Exchanges of messages; times are of the device's clock. */
struct epx_device_exchanges {
    uint64_t num;       /* posted so far */
    uint64_t posted_ns; /* when the last was */
    uint64_t waited_ns; /* from the posts to the arrivals, as kernels saw them; the sum */
    uint64_t least_ns;  /* of one of them, 0 = none has arrived */
};

/* Private device memory of a communicator. Written by the kernels of one operation at a time. */
struct epx_device_state {
    uint64_t epoch;    /* operations begun and ended */
    uint64_t arrivals; /* that each source has posted in all of them */
    uint64_t credits;  /* likewise */
    uint64_t barrier;  /* blocks that have come to a barrier, in all kernels */
    uint64_t rounds;   /* of the operation under way, as what follows */
    uint64_t credit_rounds;
    uint64_t ended;    /* blocks of the kernel under way that failed << 32 | that have ended; the
                          last sets it to 0 */
    int32_t weighted;
    int32_t deferred;  /* rows are stored by the next kernel, on the whole device */
    struct epx_outcome outcome;
    struct epx_device_stats stats;
    struct epx_device_exchanges exchanges;
};

/* By value in the arguments of every kernel. */
struct epx_device_comm {
    int32_t rank, num_ranks;
    int32_t blocks;      /* of the kernels that wait; the same on all ranks */
    uint64_t timeout_ns; /* 0 = for ever */
    struct epx_device_state *state;
    char *const *control;  /* [R] */
    char *own_control;     /* this rank's of them */
    char *const *segments; /* [segments][R] windows of EPX_Alloc_mem */
    const int32_t *node;   /* [R] of each rank; NULL = all are on one */
    const int32_t *place;  /* [R] of each rank by (node, rank); likewise */
    struct epx_completion *completion;    /* pinned; of this operation */
    uint32_t number;
    int32_t captured; /* the completion is shared by all that was captured: errors alone */
    int32_t verb;
    char *ring;           /* pinned; NULL where ranks store into each other's memory */
    const uint64_t *released; /* the last exchange in the ring that is complete */
    uint64_t jitter_seed; /* --enable-jitter */
};

/*
 * Rows of long tables go through a stage in rounds: `tokens` tokens and one segment at a time.
 * At the receiver the row of (source, token) lies at [source][token - first token], that of
 * combine at [token - first token][place]; a row takes `pitch` bytes. In messages rows come in the
 * order of records: the i-th of the round from or for a rank lies at [rank][i]; with relays
 * message_rows.cuh tells where.
 */
struct epx_rounds {
    int32_t tokens;
    int32_t width; /* rows a token */
    int64_t pitch;
    struct epx_segments cut;
    int64_t num; /* rounds */
};

/*
 * A record on the wire and at the receiver: 16 bytes, then 8 for each pair, K of them rounded up
 * to an even number. The sender knows a pair by its index among its own pairs of that expert; the
 * receiver, once it has all counts, puts the slot there.
 */
struct epx_wire_record {
    int32_t token;
    int32_t place;     /* among the token's ranks, in rank order */
    int32_t num_pairs; /* sent; the receiver keeps the first of them that have room */
    int32_t num_slots; /* set by the receiver: pairs kept (rank-major: 1 if the row is) */
};

struct epx_wire_pair {
    int32_t slot;          /* sent: index among the sender's pairs of the expert */
    uint32_t expert_choice; /* local expert << 8 | choice */
};

enum { EPX_MOST_DEVICE_EXPERTS = 1 << 24 }; /* of all ranks */

EPX_HD int64_t epx_wire_record_bytes(int32_t top_k)
{
    return 16 + 8 * epx_round_up(top_k, 2);
}

/* What a routing keeps of a pair, read and written at once. */
struct epx_device_pair {
    int32_t expert;     /* -1 = none: the rest means nothing */
    int32_t index;      /* among this rank's pairs of the expert */
    int32_t row;        /* number of the row of (token, rank) */
    int32_t lead_place; /* first choice of the row << 8 | place of the row, in rank order */
};

/*
 * Where nodes have several ranks and exchange messages a row crosses to another node once, to its
 * home's relay there, which passes it on; sums come back likewise. A node row is a (token, node);
 * its number is its place among its home's rows for that node, in token order, dropped ones too.
 * What is numbered so is kept as numbers: rows before << 1 | whether there is one. node_rows.h has
 * the relays, and the entries that tell them of their node rows: those follow a home's records.
 */
struct epx_device_nodes {
    int32_t num_nodes;       /* 0 = all rows go straight to their ranks */
    int32_t own, size;       /* this rank's node and how many ranks it has */
    int32_t num_served;      /* homes of other nodes that this rank is a relay for */
    int32_t num_far;         /* ranks of other nodes */
    int32_t shares, width;   /* rows of a token that a stage takes: in shares, and with those that
                                are passed on; the same on all ranks */
    const int32_t *relay;    /* [N] of this rank on each node */
    const int32_t *ranks;    /* [size] */
    const int32_t *far;      /* [num_far] homes of other nodes, by who serves them */
    const int32_t *served;   /* [num_served] a part of it */
    const int32_t *server;   /* [R] who serves a home on this node; itself if it is here */
    const int32_t *index;    /* [R] place of each rank in its node */
    const int32_t *serves;   /* [R] place among the served, -1 = it is not */
    const int32_t *home_share, *relay_share; /* [R] share of a rank in the stages, -1 = none */
    int32_t *token_row;      /* [N][max_tokens] numbers of this home's node rows */
    int32_t *passed;         /* [num_served][max_tokens][size] of a node row for each rank here */
};

/* Device memory of one route. */
struct epx_device_plan {
    int32_t num_experts, top_k, max_tokens;
    int32_t first_expert, num_local;
    int32_t alignment, index_bits;
    int32_t rank_major, drops;
    int32_t most_rows; /* rows of a token: min(K, R) */
    int64_t record_bytes;
    int64_t record_share; /* bytes of all records from a source, and of its entries */
    struct epx_device_nodes nodes;

    const int32_t *owner;      /* [E] */
    const int64_t *capacities; /* [R] */

    /* windows: tables of R addresses */
    char *const *counts;  /* at each rank int32[R][E + R + N]: pairs of experts, rows of ranks, and
                             of other nodes where they are relayed */
    char *const *records; /* at each rank [R][max_tokens] records, with entries */
    char *const *weights; /* at each rank float[R][max_tokens][K]: of source ranks' pairs; the
                             first max_tokens * K take the gradients of this rank's own pairs */
    char *const *stage;
    int64_t stage_bytes;

    /* with messages: records[r] of another rank is memory here, from where they are sent */
    char *outgoing, *incoming; /* stages of stage_bytes; NULL else */
    char *outgoing_records;    /* [R][max_tokens] by the rank that they are for */
    int32_t *token_row;        /* [max_tokens][most_rows] number of the row among its rank's */

    /* home side */
    struct epx_device_pair *pairs; /* [max_tokens][K] */
    int32_t *pair_rank;  /* [max_tokens][K] where the pair travels to, -1 = it does not */
    int32_t *slots;      /* [max_tokens][K] */
    int32_t *token_num;  /* [max_tokens] rows of a token */
    int32_t *token_rank; /* [max_tokens][most_rows] in rank order */
    int32_t *token_slot; /* likewise: the first slot there, -1 = dropped */
    int32_t *send_rows;  /* [R] rows kept */

    /* expert side */
    int32_t *recv_rows; /* [R] rows kept */
    int64_t *base;      /* [E] first slot of this rank's pairs of each expert, if many */
    int64_t *from;      /* [L][R] first slot of each source's pairs, if many; rank-major [R] */
    int32_t *block_counts; /* [blocks][E + R] */
    int32_t *warp_counts;  /* [blocks][3][E + R], used where shared memory is too small */

    /* what the view shows */
    int32_t *expert_counts, *rank_counts;
    int32_t *row_expert_ids, *row_tokens, *row_ranks;
    int64_t *expert_offsets, *num_rows, *required_rows;

    struct epx_outcome *outcome; /* of the routing: operations on it end likewise */
    uint64_t *bad;               /* [2] how many bad ids, and the first: inverted pair index */
    int64_t *dropped;
};

EPX_HD struct epx_wire_record *epx_wire_record_at(const struct epx_device_plan *plan,
                                                  char *records, int32_t source, int64_t row)
{
    return (struct epx_wire_record *)(void *)(records + source * plan->record_share +
                                              row * plan->record_bytes);
}

/* Of one source in the count matrix. */
EPX_HD int32_t epx_num_counts(const struct epx_device_plan *plan, int32_t num_ranks)
{
    return plan->num_experts + num_ranks + plan->nodes.num_nodes;
}

EPX_HD struct epx_wire_pair *epx_wire_pairs(struct epx_wire_record *record)
{
    return (struct epx_wire_pair *)(void *)(record + 1);
}

/* A row is cut into slices, a warp each, where there are fewer rows than warps. */
struct epx_slices {
    int32_t num;
    int64_t bytes; /* of each but the last */
};

enum { EPX_LEAST_SLICE_BYTES = 2048, EPX_SLICE_QUANTUM = 512 };

EPX_HD struct epx_slices epx_slices_of(int64_t row_bytes, int64_t rows, int64_t warps)
{
    struct epx_slices slices;
    int64_t most = (row_bytes + EPX_LEAST_SLICE_BYTES - 1) / EPX_LEAST_SLICE_BYTES;
    int64_t wanted = rows ? warps / rows : warps;

    wanted = wanted < most ? wanted : most;
    slices.bytes = epx_round_up(wanted > 1 ? (row_bytes + wanted - 1) / wanted : row_bytes,
                                EPX_SLICE_QUANTUM);
    slices.num = slices.bytes ? (int32_t)((row_bytes + slices.bytes - 1) / slices.bytes) : 1;
    return slices;
}

/*
 * Where rows are many dispatch goes in chunks of tokens, so that a chunk is spread while the next
 * is stored. Each chunk is a round of arrivals.
 */
struct epx_chunk {
    int32_t number, num; /* of num */
    int64_t first_token, end_token;
};

EPX_HD struct epx_chunk epx_chunk_of(int32_t number, int32_t num, int32_t max_tokens)
{
    struct epx_chunk chunk;

    chunk.number = number;
    chunk.num = num;
    chunk.first_token = (int64_t)max_tokens * number / num;
    chunk.end_token = (int64_t)max_tokens * (number + 1) / num;
    return chunk;
}

/* The arguments of the kernels. */
struct epx_route_tokens {
    struct epx_device_comm comm;
    struct epx_ready_note note;
    struct epx_device_plan plan;
    const void *ids;
    int32_t num_tokens;
};

/* Dispatch, and combine backward, which scales what arrives. */
struct epx_dispatch_rows {
    struct epx_device_comm comm;
    struct epx_ready_note note;
    struct epx_device_plan plan;
    struct epx_rounds rounds; /* used if a receive buffer cannot be stored into */
    int32_t chunks;           /* 0 = all by the blocks that wait; so it is if a stage is used */
    int32_t num_tokens;
    EPX_Datatype datatype;
    int64_t row_bytes;
    const char *rows;     /* [T] */
    const float *weights; /* [T][K] or NULL; combine backward: [capacity] or NULL, of the slots */
    const char *forward;  /* combine backward: [capacity] rows that combine was given, or NULL */
    char *recv;           /* [capacity] */
    float *recv_weights;  /* or NULL */
};

/* Combine, and dispatch backward, whose weights are those of pairs and travel. */
struct epx_combine_rows {
    struct epx_device_comm comm;
    struct epx_ready_note note;
    struct epx_device_plan plan;
    struct epx_rounds rounds;
    int32_t deferred; /* store_sums stores; there is one round then */
    int32_t num_tokens;
    int32_t backward;
    EPX_Datatype datatype;
    int64_t row_bytes;
    const char *rows;     /* [capacity] */
    const float *weights; /* or NULL */
    char *sums;           /* [T] */
    float *grad_weights;  /* [T][K] or NULL; dispatch backward */
};

/* The end that a host announces. Of comm it takes rank, num_ranks and control; for --enable-jitter
 * state and jitter_seed. */
struct epx_announce_end {
    struct epx_device_comm comm;
    const char *reason; /* pinned, EPX_MAX_ERROR_STRING bytes */
    uint64_t *verdict;  /* pinned; the abort word that all ranks have then */
};

/* What comes before an operation by messages. */
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
    const int64_t *sendcounts, *sdispls;
    char *recv;
    int64_t *recvcounts, *rdispls;
    int64_t recv_capacity;
    int64_t packed_rows; /* so many rows for a rank, or fewer, go in packets */
    int64_t bank_words;  /* of all packets of an operation */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Launchers: EPX_SUCCESS, or EPX_ERR_CUDA with the error left to cudaGetLastError. */
int epx_launch_route_tokens(const struct epx_route_tokens *args, EPX_Stream stream);
int epx_launch_dispatch_rows(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_store_rows(const struct epx_dispatch_rows *args, struct epx_chunk chunk,
                          EPX_Stream stream);
int epx_launch_spread_rows(const struct epx_dispatch_rows *args, struct epx_chunk chunk,
                           EPX_Stream stream);
int epx_launch_scale_rows(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_combine_rows(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_store_sums(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_sum_ranks(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_alltoallv_rows(const struct epx_alltoallv_rows *args, EPX_Stream stream);
int epx_launch_await_rows(const struct epx_device_comm *comm, struct epx_chunk chunk,
                          EPX_Stream stream);
int epx_launch_announce_end(const struct epx_announce_end *args, EPX_Stream stream);
/* With messages. */
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
/* Load every kernel now: loading one later could wait for a kernel that waits. */
int epx_load_kernels(void);
int epx_load_route_tokens(void);
int epx_load_dispatch_rows(void);
int epx_load_store_rows(void);
int epx_load_spread_rows(void);
int epx_load_scale_rows(void);
int epx_load_combine_rows(void);
int epx_load_store_sums(void);
int epx_load_sum_ranks(void);
int epx_load_await_rows(void);
int epx_load_alltoallv_rows(void);
int epx_load_announce_end(void);
int epx_load_agree_ranks(void);
int epx_load_await_messages(void);
int epx_load_count_tokens(void);
int epx_load_list_node_rows(void);
int epx_load_send_records(void);
int epx_load_list_passed_rows(void);
int epx_load_find_slots(void);
int epx_load_pack_rows(void);
int epx_load_pass_rows(void);
int epx_load_unpack_rows(void);
int epx_load_dispatch_rounds(void);
int epx_load_pack_sums(void);
int epx_load_pass_sums(void);
int epx_load_unpack_sums(void);
int epx_load_combine_rounds(void);
int epx_load_alltoallv_messages(void);
#ifdef __cplusplus
}
#endif

#endif
