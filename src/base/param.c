/* SPDX-License-Identifier: BSD-3-Clause */
/* param.c - the hints: one table of info keys, environment variables, defaults and help. */
#include "base/param.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"

extern char **environ;

static const char *const memory_words[] = {"auto", "system", "cuda:device", NULL};
static const char *const progress_words[] = {"calls", "thread", NULL};
static const char *const partials_words[] = {"datatype", "float32", NULL};
static const char *const order_words[] = {"rank", "choice", NULL};
static const char *const split_words[] = {"large", "all", "none", NULL};
static const char *const control_words[] = {"auto", "mpi", "sockets", NULL};
static const char *const log_words[] = {"error", "warn", "info", "debug", NULL};

#define FIELD(name) offsetof(struct epx_params, name)

/* epx_hints.7 and epx_info print this table: keep name, default and help on the lines they are on,
 * where hints.awk finds them. */
const struct epx_param epx_param_table[] = {
    {"epx_memory", "auto",
     "Memory space of the buffers: auto takes cuda:device only if every rank has a current CUDA "
     "context.",
     memory_words, 0, 0, FIELD(memory), 0},
    {"epx_transport", "auto",
     "Transport: auto takes the first usable one for the memory space, in the order listed.",
     epx_param_transports, 0, 0, FIELD(transport), 0},
    {"epx_timeout_ms", "300000",
     "Milliseconds that a wait lasts before the rank waited for is given up; 0 waits for ever.",
     NULL, 0, INT32_MAX, FIELD(timeout_ms), 0},
    {"epx_warn_ms", "10000",
     "Milliseconds after which a wait says once which rank it waits for; 0 never says it.", NULL, 0,
     INT32_MAX, FIELD(warn_ms), 1},
    {"epx_max_sms", "0",
     "Most streaming multiprocessors that kernels of one communicator hold; 0 = as many as pay.",
     NULL, 0, 1024, FIELD(max_sms), 0},
    {"epx_window_bytes", "4194304",
     "Most bytes of each stage between user buffers and the wire, on each rank.", NULL, 65536,
     (int64_t)1 << 30, FIELD(window_bytes), 0},
    {"epx_progress", "calls",
     "Who progresses operations on host memory: EPX calls, or a thread of the communicator (shm,"
     " ucx). On device memory the thread only looks which ranks are gone, where sockets are the"
     " control plane.",
     progress_words, 0, 0, FIELD(progress), 0},
    {"epx_ranks_per_node", "0",
     "Pretend nodes of this many consecutive ranks; 0 asks MPI which ranks share a node.", NULL, 0,
     INT32_MAX, FIELD(ranks_per_node), 0},
    {"epx_combine_partials", "datatype",
     "What combine and dispatch backward round sums of ranks and nodes to before they travel.",
     partials_words, 0, 0, FIELD(combine_partials), 0},
    {"epx_combine_order", "rank",
     "How combine and dispatch backward order the sums of ranks: by rank, or by last choice.",
     order_words, 0, 0, FIELD(combine_order), 0},
    {"epx_split_phases", "large",
     "Which operations of lsa and ipc are sent at the call and taken when somebody waits for them.",
     split_words, 0, 0, FIELD(split_phases), 1},
    {"epx_control", "auto",
     "What ranks agree by: auto takes mpi where MPI started them, else sockets.", control_words, 0,
     0, FIELD(control), 0},
    {"epx_interface", "all", "Network interface, by name or address, of sockets between machines.",
     NULL, 0, 0, FIELD(interface), 1},
    {"epx_log", "warn",
     "Messages on standard error, up to this level; one setting a process, the latest wins.",
     log_words, 0, 0, FIELD(log), 1},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0},
};

const char *epx_memory_name(enum epx_memory_kind memory)
{
    return memory_words[memory];
}

void epx_param_variable(const struct epx_param *param, char *variable, size_t length)
{
    size_t i;

    for (i = 0; i + 1 < length && param->name[i]; i++)
        variable[i] = (char)toupper((unsigned char)param->name[i]);
    variable[i] = '\0';
}

int64_t epx_param_value(const struct epx_param *param, const struct epx_params *params)
{
    int64_t value;

    memcpy(&value, (const char *)params + param->offset, sizeof(value));
    return value;
}

void epx_param_format(const struct epx_param *param, const struct epx_params *params, char *text,
                      size_t length)
{
    int64_t value;

    if (epx_param_is_text(param)) {
        snprintf(text, length, "%s", (const char *)params + param->offset);
        return;
    }
    value = epx_param_value(param, params);
    if (param->words)
        snprintf(text, length, "%s", param->words[value]);
    else
        snprintf(text, length, "%lld", (long long)value);
}

static int parse_word(const struct epx_param *param, const char *text, int64_t *value)
{
    char list[128] = "", meant[EPX_MEANT_MAX];

    for (int i = 0; param->words[i]; i++) {
        if (strcmp(text, param->words[i]) == 0) {
            *value = i;
            return EPX_SUCCESS;
        }
        if (i)
            strncat(list, ", ", sizeof(list) - strlen(list) - 1);
        strncat(list, param->words[i], sizeof(list) - strlen(list) - 1);
    }
    epx_write_meant(text, strlen(text), param->words, meant);
    return epx_fail(EPX_ERR_INFO, "hint %s is \"%.64s\", not one of %s%s", param->name, text, list,
                    meant);
}

static int parse_number(const struct epx_param *param, const char *text, int64_t *value)
{
    char *end;
    long long number;

    errno = 0;
    number = strtoll(text, &end, 10);
    EPX_FAIL_IF(end == text || *end || errno || number < param->min || number > param->max,
                EPX_ERR_INFO, "hint %s is \"%.64s\", not a number from %lld to %lld", param->name,
                text, (long long)param->min, (long long)param->max);
    *value = number;
    return EPX_SUCCESS;
}

static int parse(const struct epx_param *param, const char *text, void *value)
{
    if (epx_param_is_text(param)) {
        EPX_FAIL_IF(strlen(text) >= EPX_PARAM_TEXT_MAX, EPX_ERR_INFO,
                    "hint %s is \"%.64s\", of more than %d characters", param->name, text,
                    EPX_PARAM_TEXT_MAX - 1);
        memcpy(value, text, strlen(text) + 1);
        return EPX_SUCCESS;
    }
    return param->words ? parse_word(param, text, value) : parse_number(param, text, value);
}

/* given: the text from the caller, NULL = none. */
static int read_param(const struct epx_param *param, const char *given, void *value)
{
    char variable[64];
    const char *env;

    EPX_TRY(parse(param, param->default_value, value)); /* stays if the text is invalid */
    if (given)
        return parse(param, given, value);
    epx_param_variable(param, variable, sizeof(variable));
    env = getenv(variable);
    return parse(param, env && *env ? env : param->default_value, value);
}

static const struct epx_param *find_param(const char *name, size_t length)
{
    for (const struct epx_param *p = epx_param_table; p->name; p++) {
        size_t i = 0;

        while (i < length && p->name[i] == tolower((unsigned char)name[i]))
            i++;
        if (i == length && p->name[i] == '\0')
            return p;
    }
    return NULL;
}

/* Variables that are no hints: the file of a trace, and what CMake looks for a package named EPX
 * by. */
static int is_no_hint(const char *variable, size_t length)
{
    static const char *const others[] = {"EPX_TRACE", "EPX_DIR", "EPX_ROOT"};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strlen(others[i]) == length && strncmp(variable, others[i], length) == 0)
            return 1;
    return 0;
}

/* Writes the hint that was meant by the name of a variable or of a key, as that is written. */
static void find_meant(const char *name, size_t length, int is_variable, char *meant)
{
    char variables[EPX_MOST_HINTS][EPX_PARAM_NAME_MAX];
    const char *names[EPX_MOST_HINTS + 1] = {NULL};

    for (int i = 0; i < EPX_MOST_HINTS && epx_param_table[i].name; i++) {
        epx_param_variable(&epx_param_table[i], variables[i], sizeof(variables[i]));
        names[i] = is_variable ? variables[i] : epx_param_table[i].name;
    }
    epx_write_meant(name, length, names, meant);
}

static void warn_of_unknown_variables(void)
{
    char meant[EPX_MEANT_MAX];

    for (char **entry = environ; *entry; entry++) {
        size_t length = strcspn(*entry, "=");

        if (strncmp(*entry, "EPX_", 4) != 0 || find_param(*entry, length) ||
            is_no_hint(*entry, length))
            continue;
        find_meant(*entry, length, 1, meant);
        EPX_LOG_WARN("environment variable %.*s is not a hint of EPX, see epx_hints(7)%s",
                     (int)length, *entry, meant);
    }
}

static void warn_of_unknown_keys(const struct epx_hints *hints)
{
    char meant[EPX_MEANT_MAX];

    for (int i = 0; i < hints->num_unknown; i++) {
        find_meant(hints->unknown[i], strlen(hints->unknown[i]), 0, meant);
        EPX_LOG_WARN("info key %s is not a hint of EPX, see epx_hints(7)%s", hints->unknown[i],
                     meant);
    }
}

void epx_params_warn(const struct epx_hints *hints)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, warn_of_unknown_variables);
    if (hints)
        warn_of_unknown_keys(hints);
}

void epx_hints_add(void *all, const char *key, const char *value)
{
    struct epx_hints *hints = all;
    const struct epx_param *param = find_param(key, strlen(key));

    if (param) {
        const size_t at = (size_t)(param - epx_param_table);

        hints->is_given[at] = 1;
        snprintf(hints->text[at], sizeof(hints->text[at]), "%s", value);
    } else if (strncmp(key, "epx_", 4) == 0 && hints->num_unknown < EPX_MOST_UNKNOWN) {
        snprintf(hints->unknown[hints->num_unknown++], EPX_PARAM_NAME_MAX, "%s", key);
    }
}

int epx_params_read(const struct epx_hints *hints, struct epx_params *params)
{
    int first = EPX_SUCCESS;

    for (int i = 0; epx_param_table[i].name; i++) {
        const char *given = hints && hints->is_given[i] ? hints->text[i] : NULL;
        int rc = read_param(&epx_param_table[i], given, (char *)params + epx_param_table[i].offset);

        first = first == EPX_SUCCESS ? rc : first;
    }
    EPX_TRY(first);
    epx_log_set_level((enum epx_log_level)params->log);
    return EPX_SUCCESS;
}
