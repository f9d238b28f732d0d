/* SPDX-License-Identifier: BSD-3-Clause */
/* glue_comm.c - communicators for Python, from one of MPI or from ranks of MPI_COMM_WORLD. */
#include "glue.h"

#include <stdlib.h>
#include <string.h>

int epx_python_comm(int64_t number, struct epx_python_comm **comm)
{
    *comm = epx_python_table_get(&epx_python_comms, number);
    if (!*comm)
        return epx_python_fail_gone(EPX_ERR_COMM, "the communicator is closed");
    return EPX_SUCCESS;
}

/* What the hint or its variable says; if that is no such number, EPX_Comm_create tells of it. */
static int64_t timeout_of(const char *hints[])
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

/* Ranks of MPI_COMM_WORLD as a communicator of their own; collective over them alone. */
static int comm_of_ranks(const int ranks[], int num_ranks, int64_t timeout_ms, MPI_Comm *comm)
{
    MPI_Group world, group;
    int size, rc;

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < num_ranks; i++)
        if (ranks[i] < 0 || ranks[i] >= size)
            return epx_python_fail(EPX_ERR_ARG, "ranks[%d] is %d, MPI_COMM_WORLD has %d ranks", i,
                                   ranks[i], size);
    for (int i = 0; i < num_ranks; i++)
        for (int j = 0; j < i; j++)
            if (ranks[j] == ranks[i])
                return epx_python_fail(EPX_ERR_ARG, "ranks[%d] and ranks[%d] are both %d", j, i,
                                       ranks[i]);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, num_ranks, ranks, &group);
    MPI_Group_rank(group, &rc);
    if (rc == MPI_UNDEFINED)
        rc = epx_python_fail(EPX_ERR_ARG, "this rank is not one of the %d ranks", num_ranks);
    else
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
 * dispatch of few rows that is cut in two has no routing by then: so none is. */
static void keep_routings_whole(MPI_Info info)
{
    static const char key[] = "epx_split_phases";
    const char *variable = getenv("EPX_SPLIT_PHASES");
    char value[MPI_MAX_INFO_VAL + 1];
    int found;

    MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &found);
    if (strcmp(found ? value : variable ? variable : "", "all") == 0)
        MPI_Info_set(info, key, "large");
}

/* An info of pairs of key and value, which end with NULL. */
static MPI_Info info_of(const char *hints[])
{
    MPI_Info info;

    MPI_Info_create(&info);
    for (int i = 0; hints[i]; i += 2)
        MPI_Info_set(info, hints[i], hints[i + 1]);
    keep_routings_whole(info);
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

static int get_hint(EPX_Comm comm, const char *key, char value[MPI_MAX_INFO_VAL + 1])
{
    MPI_Info info;
    int found = 0;

    if (!*key || strlen(key) >= MPI_MAX_INFO_KEY)
        return 0;
    if (EPX_Comm_get_info(comm, &info) != EPX_SUCCESS)
        return 0;
    MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &found);
    MPI_Info_free(&info);
    return found;
}

static int add(EPX_Comm newcomm, MPI_Group group, int *number)
{
    struct epx_python_comm *comm = calloc(1, sizeof(*comm));
    char memory[MPI_MAX_INFO_VAL + 1] = "", timeout_ms[MPI_MAX_INFO_VAL + 1] = "";

    *number = comm ? epx_python_table_add(&epx_python_comms, comm) : -1;
    if (*number < 0) {
        free(comm);
        MPI_Group_free(&group);
        EPX_Comm_free(&newcomm);
        return epx_python_fail(EPX_ERR_NO_MEM, "no memory for a communicator");
    }
    comm->comm = newcomm;
    EPX_Comm_size(newcomm, &comm->size);
    get_hint(newcomm, "epx_memory", memory);
    comm->on_device = strncmp(memory, "cuda", 4) == 0;
    get_hint(newcomm, "epx_timeout_ms", timeout_ms);
    comm->timeout_ms = atoll(timeout_ms);
    comm->group = group;
    comm->agreement = MPI_COMM_NULL;
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
        EPX_PYTHON_TRY(comm_of_ranks(ranks, num_ranks, timeout_of(hints), &comm));
    if (comm == MPI_COMM_NULL)
        return epx_python_fail(EPX_ERR_COMM, "the communicator of MPI is MPI_COMM_NULL");
    rc = create(comm, hints, &newcomm);
    if (rc == EPX_SUCCESS)
        MPI_Comm_group(comm, &group);
    if (num_ranks > 0)
        MPI_Comm_free(&comm);
    return rc == EPX_SUCCESS ? add(newcomm, group, number) : rc;
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
int epx_python_comm_hint(int number, const char *key, char value[MPI_MAX_INFO_VAL + 1])
{
    struct epx_python_comm *comm;

    EPX_PYTHON_TRY(epx_python_comm(number, &comm));
    if (!get_hint(comm->comm, key, value))
        value[0] = '\0';
    return EPX_SUCCESS;
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
