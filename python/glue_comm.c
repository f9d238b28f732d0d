/* SPDX-License-Identifier: BSD-3-Clause */
/* glue_comm.c - communicators for Python: from one of MPI, from ranks of MPI_COMM_WORLD, or from
 * ranks that something else started. */
#include "glue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPLIT_PHASES "epx_split_phases"

/* What the hint or its variable says; if that is no such number, EPX_Comm_create tells of it. */
int64_t epx_python_timeout_ms(const char *hints[])
{
    enum { DEFAULT_MS = 300000 }; /* epx_hints(7) */
    const char *variable = getenv("EPX_TIMEOUT_MS"), *text = variable ? variable : "";
    char *end;
    long long timeout_ms;

    for (int i = 0; hints[i]; i += 2)
        if (strcmp(hints[i], "epx_timeout_ms") == 0)
            text = hints[i + 1];
    timeout_ms = strtoll(text, &end, 10);
    return end == text || *end || timeout_ms < 0 || timeout_ms > INT32_MAX ? DEFAULT_MS
                                                                           : timeout_ms;
}

/* MPI ends the job where a key or a value is too long or empty. */
static int check_hints(const char *hints[])
{
    for (int i = 0; hints[i]; i += 2) {
        if (strlen(hints[i]) >= MPI_MAX_INFO_KEY)
            return epx_python_fail(EPX_ERR_INFO, "EPX has no hint %.64s; epx_hints(7) lists them",
                                   hints[i]);
        if (!*hints[i + 1] || strlen(hints[i + 1]) >= MPI_MAX_INFO_VAL)
            return epx_python_fail(EPX_ERR_INFO, "the value of %s has %zu characters, want 1 to %d",
                                   hints[i], strlen(hints[i + 1]), MPI_MAX_INFO_VAL - 1);
    }
    return EPX_SUCCESS;
}

/* Dispatch has the stream copy what the routing shows behind its call, before anybody waits. A
 * dispatch of few rows that is cut in two has no routing by then: so none is. Where the hint or its
 * variable wants all cut, this is the value that EPX gets instead; else NULL. */
static const char *split_phases(const char *hints[])
{
    const char *variable = getenv("EPX_SPLIT_PHASES"), *wanted = variable ? variable : "";

    for (int i = 0; hints[i]; i += 2)
        if (strcmp(hints[i], SPLIT_PHASES) == 0)
            wanted = hints[i + 1];
    return strcmp(wanted, "all") == 0 ? "large" : NULL;
}

/* The hints that EPX gets; to be freed by the caller. NULL without memory. */
static const char **edit_hints(const char *hints[])
{
    const char *split = split_phases(hints), **edited;
    size_t num = 0, n = 0;

    while (hints[num])
        num++;
    edited = calloc(num + 3, sizeof(*edited));
    for (size_t i = 0; edited && i < num; i += 2) {
        if (split && strcmp(hints[i], SPLIT_PHASES) == 0)
            continue;
        edited[n++] = hints[i];
        edited[n++] = hints[i + 1];
    }
    if (edited && split) {
        edited[n++] = SPLIT_PHASES;
        edited[n++] = split;
    }
    if (!edited)
        epx_python_fail(EPX_ERR_NO_MEM, "no memory for %zu hints", num / 2);
    return edited;
}

static void free_ranks(struct epx_python_ranks *ranks)
{
    if (ranks)
        epx_python_mpi()->free_ranks(ranks);
}

static int add(EPX_Comm newcomm, struct epx_python_ranks *ranks, EPX_Allgather_function *allgather,
               int *number)
{
    struct epx_python_comm *comm = calloc(1, sizeof(*comm));
    char memory[EPX_MAX_HINT_STRING], timeout_ms[EPX_MAX_HINT_STRING];
    int length;

    *number = comm ? epx_python_table_add(&epx_python_comms, comm) : -1;
    if (*number < 0) {
        free(comm);
        free_ranks(ranks);
        EPX_Comm_free(&newcomm);
        return epx_python_fail(EPX_ERR_NO_MEM, "no memory for a communicator");
    }
    comm->comm = newcomm;
    EPX_Comm_size(newcomm, &comm->size);
    EPX_Comm_get_hint(newcomm, "epx_memory", memory, &length);
    comm->on_device = strncmp(memory, "cuda", 4) == 0;
    EPX_Comm_get_hint(newcomm, "epx_timeout_ms", timeout_ms, &length);
    comm->timeout_ms = atoll(timeout_ms);
    comm->ranks = ranks;
    comm->allgather = allgather;
    if (!comm->on_device || epx_python_device_context(&comm->context) == EPX_SUCCESS)
        return EPX_SUCCESS;
    epx_python_comm_free(*number);
    return EPX_ERR_CUDA;
}

int epx_python_comm_create(int fortran, const int ranks[], int num_ranks, const char *hints[],
                           int *number)
{
    const struct epx_python_origin origin = {fortran, ranks, num_ranks,
                                             epx_python_timeout_ms(hints)};
    struct epx_python_ranks *kept = NULL;
    EPX_Comm newcomm = EPX_COMM_NULL;
    const char **edited;
    int rc;

    EPX_PYTHON_TRY(check_hints(hints));
    edited = edit_hints(hints);
    if (!edited)
        return EPX_ERR_NO_MEM;
    rc = epx_python_mpi()->create(&origin, edited, &newcomm, &kept);
    free(edited);
    return rc == EPX_SUCCESS ? add(newcomm, kept, NULL, number) : rc;
}

enum { HINT_BYTES = MPI_MAX_INFO_KEY + MPI_MAX_INFO_VAL + 1 };

/* Hands the pairs on as NAME=VALUE. */
static int create_from(const EPX_Bootstrap *bootstrap, const char *const hints[], EPX_Comm *newcomm)
{
    size_t num_words = 0;
    char(*texts)[HINT_BYTES];
    const char **list;
    int rc = EPX_ERR_NO_MEM;

    while (hints[num_words])
        num_words++;
    texts = malloc((num_words / 2 + 1) * sizeof(*texts));
    list = calloc(num_words / 2 + 1, sizeof(*list));
    if (texts && list) {
        for (size_t i = 0; i < num_words / 2; i++) {
            snprintf(texts[i], HINT_BYTES, "%s=%s", hints[2 * i], hints[2 * i + 1]);
            list[i] = texts[i];
        }
        rc = EPX_Comm_create_from(bootstrap, list, newcomm);
        if (rc != EPX_SUCCESS)
            epx_python_fail_alone(rc);
    } else {
        epx_python_fail(rc, "no memory for %zu hints", num_words / 2);
    }
    free(texts);
    free(list);
    return rc;
}

/* allgather is called until the communicator is freed: also to agree on that. */
int epx_python_comm_create_from(int rank, int size, EPX_Allgather_function *allgather,
                                const char *hints[], int *number)
{
    EPX_Bootstrap bootstrap = EPX_BOOTSTRAP_INIT;
    EPX_Comm newcomm = EPX_COMM_NULL;
    const char **edited;
    int rc;

    epx_python_note_forks();
    EPX_PYTHON_TRY(check_hints(hints));
    bootstrap.rank = rank;
    bootstrap.num_ranks = size;
    bootstrap.allgather = allgather;
    edited = edit_hints(hints);
    if (!edited)
        return EPX_ERR_NO_MEM;
    rc = create_from(&bootstrap, edited, &newcomm);
    free(edited);
    return rc == EPX_SUCCESS ? add(newcomm, NULL, allgather, number) : rc;
}

/* Makes a communicator of the ranks that live; the old one stays to be freed. */
int epx_python_comm_shrink(int number, int *newnumber)
{
    struct epx_python_comm *comm;
    EPX_Comm newcomm = EPX_COMM_NULL;
    int size = 0;

    EPX_PYTHON_TRY(epx_python_comm(number, &comm));
    EPX_PYTHON_TRY(epx_python_check(comm, EPX_Comm_shrink(comm->comm, &newcomm)));
    EPX_Comm_size(newcomm, &size);
    if (size < comm->size)
        epx_python_note_lost();
    return add(newcomm, NULL, NULL, newnumber);
}

int epx_python_comm_free(int number)
{
    struct epx_python_comm *comm;
    int rc;

    EPX_PYTHON_TRY(epx_python_comm(number, &comm));
    rc = EPX_Comm_free(&comm->comm);
    if (comm->comm != EPX_COMM_NULL)
        return epx_python_check(comm, rc);
    epx_python_table_remove(&epx_python_comms, number);
    epx_python_pool_leave(number);
    free_ranks(comm->ranks);
    free(comm);
    return rc == EPX_SUCCESS ? rc : epx_python_fail_alone(rc);
}

int epx_python_comm_place(int number, int *rank, int *size)
{
    struct epx_python_comm *comm;

    EPX_PYTHON_TRY(epx_python_comm(number, &comm));
    *size = comm->size;
    return epx_python_check(comm, EPX_Comm_rank(comm->comm, rank));
}

int epx_python_comm_ranks(int number, int *parent_ranks)
{
    struct epx_python_comm *comm;

    EPX_PYTHON_TRY(epx_python_comm(number, &comm));
    return epx_python_check(comm, EPX_Comm_get_ranks(comm->comm, parent_ranks));
}

/* Value of a hint in force; empty if EPX does not know it. */
int epx_python_comm_hint(int number, const char *key, char value[EPX_MAX_HINT_STRING])
{
    struct epx_python_comm *comm;
    int length;

    EPX_PYTHON_TRY(epx_python_comm(number, &comm));
    return epx_python_check(comm, EPX_Comm_get_hint(comm->comm, key, value, &length));
}

/* The first error since the last check that no call returned. */
int epx_python_comm_check(int number)
{
    struct epx_python_comm *comm;
    int code = EPX_SUCCESS;

    EPX_PYTHON_TRY(epx_python_comm(number, &comm));
    EPX_PYTHON_TRY(epx_python_check(comm, EPX_Comm_get_async_error(comm->comm, &code)));
    return epx_python_check(comm, code);
}

int epx_python_comm_stats(int number, uint64_t counters[10])
{
    struct epx_python_comm *comm;
    EPX_Stats stats = EPX_STATS_INIT;

    EPX_PYTHON_TRY(epx_python_comm(number, &comm));
    EPX_PYTHON_TRY(epx_python_check(comm, EPX_Comm_get_stats(comm->comm, &stats)));
    memcpy(counters, &stats.calls, 10 * sizeof(*counters));
    return EPX_SUCCESS;
}

int epx_python_comm_waits(int number, uint64_t *ns, uint64_t *operations)
{
    struct epx_python_comm *comm;
    EPX_Waits waits = EPX_WAITS_INIT;

    EPX_PYTHON_TRY(epx_python_comm(number, &comm));
    waits.ns = ns;
    waits.operations = operations;
    return epx_python_check(comm, EPX_Comm_get_waits(comm->comm, &waits));
}
