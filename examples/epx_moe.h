/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_moe.h - a small mixture-of-experts layer on text: epx_moe.c runs it, epx_moe_options.c reads
 * its command line, epx_moe_report.c tells how it goes, epx_moe_layer.c is the layer on EPX,
 * epx_moe_text.c makes its tokens, epx_moe_model.c is its arithmetic, and epx_moe_serial.c checks
 * it. epx_moe_space.h is what differs between host and GPU.
 */
#ifndef EPX_MOE_H
#define EPX_MOE_H

#include <epx.h>

struct moe_options {
    const char *file;
    int num_experts; /* E */
    int top_k;       /* K */
    int hidden;      /* H, elements of a token row */
    int ffn;         /* F, elements of an expert's hidden layer */
    int max_tokens;  /* most tokens a rank has in a step */
    int steps;       /* 0 = one pass over the text, at most 16 */
    EPX_Layout layout;
    double capacity_factor; /* receive rows, in parts of an even load; 0 = the worst case */
    double threshold;       /* a choice less probable than this is left out */
    double rate;            /* learning rate */
    uint64_t seed;
    int help;   /* only print the options */
    int speaks; /* this is rank 0, which says what is wrong */
};

/* Every rank parses the same arguments; 0 if they are wrong, which rank 0 has said. */
int moe_options_parse(int argc, char **argv, struct moe_options *options);
void moe_options_usage(void);

/* Says what is wrong and ends the program. */
void moe_fail(const char *format, ...);

/* Memory, zeroed; ends the program if there is none. */
void *moe_alloc(int64_t count, size_t size);

/* Text */
struct moe_token {
    int64_t offset, length;
};

struct moe_text {
    unsigned char *bytes;
    int64_t num_bytes, num_tokens;
    struct moe_token *tokens;
};

/* Collective: rank 0 reads the file and all ranks get the text, or the same errno value. */
int moe_text_read(const char *file, struct moe_text *text);
void moe_text_free(struct moe_text *text);
int64_t moe_text_vocabulary(const struct moe_text *text);

/* Steps that each rank needs to go once through its part of the text, 1 at least. */
int64_t moe_text_batches(const struct moe_text *text, int num_ranks, int max_tokens);

/* The tokens of a rank in a step: *first is the index of the first one, the answer their number. */
int moe_text_batch(const struct moe_text *text, int rank, int num_ranks, int max_tokens,
                   int64_t step, int64_t *first);

/* The layer's input row of a token, and the row that the layer is to answer. */
void moe_text_embed(const struct moe_text *text, int64_t token, float *row, int hidden);
void moe_text_target(const struct moe_text *text, int64_t token, float *row, int hidden);

/* Model: the router, and the experts that this process owns */
struct moe_model {
    struct moe_options opt;
    int first_expert, num_local_experts;
    float *router;       /* [H][E] */
    float *experts;      /* [L][2*H*F]: first [H][F], then [F][H] */
    float *grad_router;  /* [H][E] */
    float *grad_experts; /* [L][2*H*F] */
    float *scratch;      /* the hidden layer of one row and its gradient, a row of logits */
};

struct moe_model *moe_model_create(const struct moe_options *opt, int first_expert,
                                   int num_local_experts);
void moe_model_free(struct moe_model *model);
int64_t moe_model_expert_size(const struct moe_model *model);

/* For each row: probabilities [E] of all experts, ids [K] and weights [K] of the chosen ones. */
void moe_router_forward(const struct moe_model *model, const float *x, float *probabilities,
                        int64_t *ids, float *weights);
/* Adds to grad_router and to grad_x. */
void moe_router_backward(struct moe_model *model, const float *x, const float *probabilities,
                         const int64_t *ids, const float *grad_weights, float *grad_x);

/* A slab of rows of one local expert. The backward computes the hidden layer again, writes grad_x
 * and adds to grad_experts. */
void moe_expert_forward(const struct moe_model *model, int expert, const float *x, float *y,
                        int64_t num_rows);
void moe_expert_backward(struct moe_model *model, int expert, const float *x, const float *grad_y,
                         float *grad_x, int64_t num_rows);

/* Gradient descent; the gradients are zero afterwards. */
void moe_model_update(struct moe_model *model, double rate);

/* Layer */
struct moe_batch {
    int num_tokens;       /* T */
    float *x, *target;    /* [T][H] */
    float *y, *grad_y;    /* [T][H] */
    float *grad_x;        /* [T][H] */
    float *probabilities; /* [T][E] */
    int64_t *ids;         /* [T][K] */
    float *weights;       /* [T][K] */
    float *grad_weights;  /* [T][K] */
};

enum moe_phase {
    MOE_ROUTER,
    MOE_ROUTE,
    MOE_DISPATCH,
    MOE_EXPERTS,
    MOE_COMBINE,
    MOE_COMBINE_BACKWARD,
    MOE_EXPERTS_BACKWARD,
    MOE_DISPATCH_BACKWARD,
    MOE_ROUTER_BACKWARD,
    MOE_NUM_PHASES
};

struct moe_layer {
    struct moe_options opt;
    int rank, num_ranks;
    EPX_Comm comm;
    EPX_Route route;
    EPX_Route_view view;
    struct moe_model *model;
    float *recv, *recv_weights;         /* rows that dispatch brings, and their weights */
    float *out;                         /* rows that the experts make of them */
    float *grad_out, *grad_out_weights; /* what combine backward brings */
    float *grad_recv, *grad_recv_weights;
    const struct moe_space *space;
    EPX_Stream stream;
    struct moe_batch batch; /* the step's, where the collectives read and write it */
    struct moe_host *host;  /* what the space keeps: one of them is NULL */
    struct moe_gpu *gpu;
    double seconds[MOE_NUM_PHASES];
    int64_t num_rows;             /* received in this step */
    const int32_t *expert_counts; /* [L] pairs of the local experts in this step */
    int64_t rows;                 /* received, all steps */
    int64_t *expert_rows;         /* [E] pairs of the local experts, all steps */
};

/* Collective. */
void moe_layer_create(const struct moe_options *opt, struct moe_layer *layer);
void moe_layer_free(struct moe_layer *layer);
/* Reads x and target; y and the gradients, of half the square of y - target, are on the host when
 * backward returns. */
void moe_layer_forward(struct moe_layer *layer, struct moe_batch *batch);
void moe_layer_backward(struct moe_layer *layer, struct moe_batch *batch);

/* Report: what rank 0 prints */
struct moe_progress {
    int64_t steps, pass; /* of this run, and of one pass over the text */
    int64_t tokens;      /* of all ranks and steps so far */
    double first_loss, loss, zero_loss;
    double begun, printed; /* times of MPI_Wtime */
};

/* The loss of this rank's tokens: half the square of y - target; and what it were if y were 0. */
void moe_report_loss(const struct moe_options *options, const struct moe_batch *batch, double *loss,
                     double *zero_loss);
void moe_report_text(const struct moe_options *options, const struct moe_text *text);
void moe_report_start(const struct moe_layer *layer, struct moe_progress *progress);
/* A line for a step; of many steps, one line a second at most. */
void moe_report_step(struct moe_progress *progress, int64_t step);
/* The loss at the end, and why there were no more steps. */
void moe_report_end(const struct moe_layer *layer, const struct moe_progress *progress);
/* Collective: rows of ranks and experts, and times. */
void moe_report_loads(const struct moe_layer *layer);
void moe_report_times(const struct moe_layer *layer);

/* Serial check: rank 0 computes every step of all ranks again, in double precision */
struct moe_check;

struct moe_check *moe_check_create(const struct moe_layer *layer, const struct moe_text *text);
void moe_check_free(struct moe_check *check);
/* Collective: after the backward of a step and before the update. loss is the sum of all ranks. */
void moe_check_step(struct moe_check *check, const struct moe_layer *layer,
                    const struct moe_batch *batch, int64_t step, double loss);
/* Follows moe_model_update, so that rank 0 has the parameters of all ranks. */
void moe_check_update(struct moe_check *check, double rate);
/* Prints the largest deviations on rank 0; collective, answers the number of errors. */
int64_t moe_check_report(const struct moe_check *check);

#endif
