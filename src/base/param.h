/* SPDX-License-Identifier: BSD-3-Clause */
/* param.h - the hints: one table of info keys, environment variables, defaults and help. */
#ifndef EPX_BASE_PARAM_H
#define EPX_BASE_PARAM_H

#include "base/status.h"

enum epx_memory_kind { EPX_MEMORY_AUTO, EPX_MEMORY_SYSTEM, EPX_MEMORY_CUDA };
/* What the sums of ranks and nodes are rounded to before they travel, in combine and dispatch
 * backward. */
enum epx_partials { EPX_PARTIALS_DATATYPE, EPX_PARTIALS_FLOAT32 };
/* The order in which the sums of ranks that have experts of a token are added: by rank, or by each
 * rank's last choice. */
enum epx_order { EPX_ORDER_RANK, EPX_ORDER_CHOICE };
/* Which operations have a kernel for each of their two phases. */
enum epx_split { EPX_SPLIT_LARGE, EPX_SPLIT_ALL, EPX_SPLIT_NONE };
enum epx_progress { EPX_PROGRESS_CALLS, EPX_PROGRESS_THREAD };
/* Who makes the control plane; auto: MPI, where it started the ranks. */
enum epx_control_maker { EPX_CONTROL_AUTO, EPX_CONTROL_MPI, EPX_CONTROL_SOCKETS };

#define EPX_TRANSPORT_NAME_MAX 16
#define EPX_PARAM_TEXT_MAX 48
#define EPX_PARAM_NAME_MAX 32

/* The values in force for one communicator. Lists are stored as the index of the word. */
struct epx_params {
    int64_t memory;    /* enum epx_memory_kind */
    int64_t transport; /* index into epx_param_transports */
    int64_t timeout_ms;
    int64_t warn_ms;
    int64_t max_sms;
    int64_t window_bytes;
    int64_t progress; /* enum epx_progress */
    int64_t ranks_per_node;
    int64_t combine_partials; /* enum epx_partials */
    int64_t combine_order;    /* enum epx_order */
    int64_t split_phases;     /* enum epx_split */
    int64_t control;          /* enum epx_control_maker */
    char interface[EPX_PARAM_TEXT_MAX];
    int64_t log; /* enum epx_log_level */
};

/* Multiprocessors that kernels which only wait may hold, by default as many as pay. */
enum { EPX_WAITING_SMS = 32 };

static inline int64_t epx_waiting_sms(const struct epx_params *params)
{
    return params->max_sms ? params->max_sms : EPX_WAITING_SMS;
}

struct epx_param {
    const char *name; /* info key; in capitals the environment variable */
    const char *default_value;
    const char *help;
    const char *const *words; /* the values of a list, NULL-terminated; NULL for a number or text */
    int64_t min, max;         /* bounds of a number, whose unit is in the name; equal for a text */
    size_t offset;            /* in struct epx_params */
    int per_rank;             /* may differ across ranks */
};

static inline int epx_param_is_text(const struct epx_param *param)
{
    return !param->words && param->min == param->max;
}

/* The table, ended by a NULL name. */
extern const struct epx_param epx_param_table[];
/* The words of epx_transport, "auto" first; transport/list.c defines them. */
extern const char *const epx_param_transports[];

/* Hints that a caller gave, zeroed before the first: the text of each hint of the table, and the
 * names of a few that are none. */
enum { EPX_MOST_HINTS = 32, EPX_HINT_MAX = 96, EPX_MOST_UNKNOWN = 4 };
struct epx_hints {
    int is_given[EPX_MOST_HINTS];
    char text[EPX_MOST_HINTS][EPX_HINT_MAX];
    int num_unknown;
    char unknown[EPX_MOST_UNKNOWN][EPX_PARAM_NAME_MAX];
};

/* Adds one to a struct epx_hints; keys that do not begin with epx_ are not meant for EPX. */
void epx_hints_add(void *hints, const char *key, const char *value);

/* What was given wins over environment wins over default. Local; hints may be NULL. */
int epx_params_read(const struct epx_hints *hints, struct epx_params *params);
/* Warns of keys and, once a process, of environment variables that are like hints and none. */
void epx_params_warn(const struct epx_hints *hints);

/* The value in force, as text. */
void epx_param_format(const struct epx_param *param, const struct epx_params *params, char *text,
                      size_t length);
int64_t epx_param_value(const struct epx_param *param, const struct epx_params *params);
/* The value of the hint epx_memory that stands for this memory. */
const char *epx_memory_name(enum epx_memory_kind memory);
/* Writes the environment variable of a hint: EPX_TIMEOUT_MS for epx_timeout_ms. */
void epx_param_variable(const struct epx_param *param, char *variable, size_t length);

#endif
