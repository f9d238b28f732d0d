/* SPDX-License-Identifier: BSD-3-Clause */
/* glue_comm.c - communicators for Python: from one of MPI, from ranks of MPI_COMM_WORLD, or from
 * ranks that something else started. */
#include "glue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPLIT_PHASES "epx_split_phases"

int epx_python_comm(int64_t number, struct epx_python_comm **comm)
{
    *comm = epx_python_table_get(&epx_python_comms, number);
    if (!*comm)
        return epx_python_fail_gone(EPX_ERR_COMM, "the communicator is closed");
    return EPX_SUCCESS;
}

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

/* Different ranks of MPI_COMM_WORLD, of which this is one, as a communicator of their own;
 * collective over them alone. */
static int comm_of_ranks(const int ranks[], int num_ranks, int64_t timeout_ms, MPI_Comm *comm)
{
    MPI_Group world, group;
    int rc;

    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, num_ranks, ranks, &group);
    rc = epx_python_group_comm(group, EPX_PYTHON_FOR_EPX, timeout_ms, comm);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    return rc;
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

/* An info of pairs of key and value, which end with NULL. */
static MPI_Info info_of(const char *hints[])
{
    const char *split = split_phases(hints);
    MPI_Info info;

    MPI_Info_create(&info);
    for (int i = 0; hints[i]; i += 2)
        MPI_Info_set(info, hints[i], hints[i + 1]);
    if (split)
        MPI_Info_set(info, SPLIT_PHASES, split);
    return info;
}

/* The text of an error that left no communicator. */
static int fail_alone(int code)
{
    char text[EPX_MAX_ERROR_STRING];
    int length;

    EPX_Get_error_message(text, &length);
    return epx_python_fail(code, "%s", text);
}

/* The communicator inherits MPI_ERRORS_RETURN: an error is an exception, and ends no job. */
static int create(MPI_Comm comm, const char *hints[], EPX_Comm *newcomm)
{
    MPI_Info info = info_of(hints);
    MPI_Errhandler handler;
    int rc;

    MPI_Comm_get_errhandler(comm, &handler);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    rc = EPX_Comm_create(comm, info, newcomm);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler);
    MPI_Info_free(&info);
    return rc == EPX_SUCCESS ? rc : fail_alone(rc);
}

static int add(EPX_Comm newcomm, MPI_Group group, EPX_Allgather_function *allgather, int *number)
{
    struct epx_python_comm *comm = calloc(1, sizeof(*comm));
    char memory[EPX_MAX_HINT_STRING], timeout_ms[EPX_MAX_HINT_STRING];
    int length;

    *number = comm ? epx_python_table_add(&epx_python_comms, comm) : -1;
    if (*number < 0) {
        free(comm);
        if (group != MPI_GROUP_NULL)
            MPI_Group_free(&group);
        EPX_Comm_free(&newcomm);
        return epx_python_fail(EPX_ERR_NO_MEM, "no memory for a communicator");
    }
    comm->comm = newcomm;
    EPX_Comm_size(newcomm, &comm->size);
    EPX_Comm_get_hint(newcomm, "epx_memory", memory, &length);
    comm->on_device = strncmp(memory, "cuda", 4) == 0;
    EPX_Comm_get_hint(newcomm, "epx_timeout_ms", timeout_ms, &length);
    comm->timeout_ms = atoll(timeout_ms);
    comm->group = group;
    comm->agreement = MPI_COMM_NULL;
    comm->allgather = allgather;
    if (!comm->on_device || epx_python_device_context(&comm->context) == EPX_SUCCESS)
        return EPX_SUCCESS;
    epx_python_comm_free(*number);
    return EPX_ERR_CUDA;
}

int epx_python_comm_create(int fortran, const int ranks[], int num_ranks, const char *hints[],
                           int *number)
{
    MPI_Comm comm = num_ranks > 0 ? MPI_COMM_NULL : MPI_Comm_f2c((MPI_Fint)fortran);
    MPI_Group group = MPI_GROUP_NULL;
    EPX_Comm newcomm = EPX_COMM_NULL;
    int rc;

    EPX_PYTHON_TRY(check_hints(hints));
    if (num_ranks > 0)
        EPX_PYTHON_TRY(comm_of_ranks(ranks, num_ranks, epx_python_timeout_ms(hints), &comm));
    if (comm == MPI_COMM_NULL)
        return epx_python_fail(EPX_ERR_COMM, "the communicator of MPI is MPI_COMM_NULL");
    rc = create(comm, hints, &newcomm);
    if (rc == EPX_SUCCESS)
        MPI_Comm_group(comm, &group);
    /* After a time-out a duplication of comm may be under way: if comm is freed then, MPI_Finalize
     * of Open MPI 4.1 writes into memory that it has freed. */
    if (num_ranks > 0 && rc != EPX_ERR_TIMEOUT)
        MPI_Comm_free(&comm);
    return rc == EPX_SUCCESS ? add(newcomm, group, NULL, number) : rc;
}

enum { HINT_BYTES = MPI_MAX_INFO_KEY + MPI_MAX_INFO_VAL + 1 };

/* Hands the pairs on as NAME=VALUE. */
static int create_from(const EPX_Bootstrap *bootstrap, const char *hints[], EPX_Comm *newcomm)
{
    const char *split = split_phases(hints);
    size_t num_hints = 0, n = 0;
    char(*texts)[HINT_BYTES];
    const char **list;
    int rc;

    while (hints[num_hints])
        num_hints++;
    texts = malloc((num_hints / 2 + 1) * sizeof(*texts));
    list = calloc(num_hints / 2 + 2, sizeof(*list));
    if (!texts || !list) {
        free(texts);
        free(list);
        return epx_python_fail(EPX_ERR_NO_MEM, "no memory for %zu hints", num_hints / 2);
    }
    for (size_t i = 0; i < num_hints; i += 2) {
        if (split && strcmp(hints[i], SPLIT_PHASES) == 0)
            continue;
        snprintf(texts[n], HINT_BYTES, "%s=%s", hints[i], hints[i + 1]);
        list[n] = texts[n];
        n++;
    }
    if (split)
        list[n] = SPLIT_PHASES "=large";
    rc = EPX_Comm_create_from(bootstrap, list, newcomm);
    free(texts);
    free(list);
    return rc == EPX_SUCCESS ? rc : fail_alone(rc);
}

/* allgather is called until the communicator is freed: also to agree on that. */
int epx_python_comm_create_from(int rank, int size, EPX_Allgather_function *allgather,
                                const char *hints[], int *number)
{
    EPX_Bootstrap bootstrap = EPX_BOOTSTRAP_INIT;
    EPX_Comm newcomm = EPX_COMM_NULL;

    epx_python_note_forks();
    EPX_PYTHON_TRY(check_hints(hints));
    bootstrap.rank = rank;
    bootstrap.num_ranks = size;
    bootstrap.allgather = allgather;
    EPX_PYTHON_TRY(create_from(&bootstrap, hints, &newcomm));
    return add(newcomm, MPI_GROUP_NULL, allgather, number);
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
    if (comm->group != MPI_GROUP_NULL)
        MPI_Group_free(&comm->group);
    if (comm->agreement != MPI_COMM_NULL)
        MPI_Comm_free(&comm->agreement);
    free(comm);
    return rc == EPX_SUCCESS ? rc : fail_alone(rc);
}

int epx_python_comm_place(int number, int *rank, int *size)
{
    struct epx_python_comm *comm;

    EPX_PYTHON_TRY(epx_python_comm(number, &comm));
    *size = comm->size;
    return epx_python_check(comm, EPX_Comm_rank(comm->comm, rank));
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
