/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tuning.h - the way of an operation on GPUs: which wire it takes, who sends and who takes, and in
 * what pieces. It is decided once, when the operation is called.
 * It needs no GPU: `epx_info --ways` asks for shapes that nobody has called.
 */
#ifndef EPX_COLL_TUNING_H
#define EPX_COLL_TUNING_H

#include "core/request.h"
#include "kernels/args/bank_args.h"
#include "kernels/args/mover_args.h"
#include "kernels/device_plan.h"

/* What a rank has of a GPU, and the ranks of each other's memory. */
struct epx_gpu {
    int32_t sms;          /* multiprocessors of the GPU */
    int32_t blocks;       /* of kernels that must run at once, as all of them wait for other ranks;
                             the same on all ranks */
    int32_t halves;       /* of such blocks, of which two fit where one does, that a routing in one
                             launch may have, 0 = none; the same on all ranks */
    int32_t most_senders; /* blocks that may store beside those that wait */
    int32_t movers;       /* blocks of a large operation, on this rank */
    int32_t senders;      /* how many of them send, if nothing speaks for more or fewer; the same on
                             all ranks */
    int32_t max_sms;      /* the hint epx_max_sms; 0 = no bound */
    int32_t has_banks;    /* 0 = ranks exchange messages */
    int64_t bank_bytes;   /* of one bank, on each rank */
    int64_t packets_at;   /* where rows in packets begin in a bank */
    int64_t stage_bytes;  /* of one stage, on each rank */
};

/* What becomes of rows. */
enum epx_flow {
    EPX_FLOW_NONE,  /* a routing moves none */
    EPX_FLOW_ROWS,  /* dispatch: from home to the ranks of the experts */
    EPX_FLOW_SUMS,  /* combine, dispatch backward: home, where they are added */
    EPX_FLOW_SCALED /* combine backward: as in a dispatch, each times its weight */
};

/* What decides about the way of an operation; all but the GPU and `stays` are the same on all
 * ranks. */
struct epx_shape {
    enum epx_flow flow; /* these four as epx_shape_set_verb sets them */
    int32_t routes;     /* ids go to all ranks, before the rows or with them */
    int32_t listed;     /* rows are those of a list of fields */
    int32_t has_words;  /* with a row go weights of its pairs, or their gradients */
    int32_t ranks;
    struct epx_plan_shape route;
    int32_t most_rows; /* of a token: one a rank that has any of its experts */
    int32_t fields;
    int32_t stays;          /* rows of rank-major layout that come straight into their slots */
    int32_t biased;         /* sums start from biases */
    int32_t given_weights;  /* rows are multiplied by weights that the home ranks give */
    EPX_Datatype datatype;  /* of a combine backward */
    int64_t call_bytes;     /* of a row as the call has it, all fields together */
    int64_t row_bytes;      /* of a row as it travels, all fields together */
    int64_t bank_row_bytes; /* that a row takes in a bank, each field from a multiple of 16 on */
    int64_t stage_bytes;    /* of the route's stage, its own or the communicator's */
    int32_t message_rows;   /* rows of a token that a stage takes where ranks exchange messages */
    int32_t tells_kept;     /* whether a word behind each sum tells a relay of its last choice */
};

enum epx_wire {
    EPX_WIRE_NONE,     /* a rank alone: no row leaves it */
    EPX_WIRE_PACKETS,  /* 12 bytes and a tag in one store, wires/packets.cuh */
    EPX_WIRE_FLAGS,    /* stores into a bank, then a flag a slice, wires/banks.cuh */
    EPX_WIRE_PROGRESS, /* stores to where rows go, then run words, wires/sender_progress.cuh */
    EPX_WIRE_STAGES,   /* stores into a stage, then all ranks tell all, protocol.cuh */
    EPX_WIRE_MESSAGES  /* stages that the transport exchanges, wires/message_rows.cuh */
};

struct epx_way {
    enum epx_wire wire;
    int32_t routes_small;     /* a routing, or the routing of the operation, is one launch of ids */
    struct epx_banks banks;   /* senders = 0: the operation is not small */
    struct epx_movers movers; /* of an operation that is not small */
    struct epx_rounds rounds; /* the same; of a small one only how rows are cut counts */
    int32_t in_rounds;        /* an operation that is not small goes round by round by stages */
};

/* Sets what an operation does. The second half of one is a dispatch, the first one a routing. */
void epx_shape_set_verb(struct epx_shape *shape, enum epx_verb verb);
/* Shares a GPU out: blocks, movers and most_senders of ranks of which so many share it, given what
 * the hint epx_max_sms leaves of its multiprocessors for blocks that wait. */
void epx_gpu_share(struct epx_gpu *gpu, int32_t sharers, int64_t waiting_sms);
/* Sets the sizes of stages and banks, for so many rows a token that come at once; with messages
 * there are no banks. */
void epx_gpu_set_sizes(struct epx_gpu *gpu, int64_t width, int64_t window_bytes, int messages);
/* Whether routings on a route are small; the same on all ranks. */
int epx_routes_small(const struct epx_gpu *gpu, const struct epx_plan_shape *route, int32_t ranks);
/* The way of an operation. Of EPX_Route_dispatch only where it is one launch, else the ways of its
 * two halves count, and banks.senders is 0. */
struct epx_way epx_way_of_shape(const struct epx_gpu *gpu, const struct epx_shape *shape);
const char *epx_wire_name(enum epx_wire wire);

#endif
