/* SPDX-License-Identifier: BSD-3-Clause */
/* ranks.c - what ranks tell each other, whoever started them. */
#include "ranks/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/machine_key.h"
#include "ranks/by_address.h"
#include "ranks/ranks_maker.h"

static const struct ranks_maker *maker;
static const char *program;
static int own_rank, num_ranks;

void ranks_start(const char *name, int *argc, char ***argv)
{
    program = name;
    maker = by_address_is_wanted() ? &ranks_maker_epx : &ranks_maker_mpi;
    if (maker->start(name, argc, argv, &own_rank, &num_ranks))
        exit(EXIT_FAILURE);
}

void ranks_finish(void)
{
    maker->finish();
}

void ranks_failed(void)
{
    maker->end_job();
    exit(EXIT_FAILURE);
}

void ranks_must(int rc)
{
    char message[EPX_MAX_ERROR_STRING] = "";
    int length;

    if (rc == EPX_SUCCESS)
        return;
    EPX_Get_error_message(message, &length);
    fprintf(stderr, "%s: rank %d: %s\n", program, own_rank, message);
    ranks_failed();
}

int ranks_own(void)
{
    return own_rank;
}

int ranks_num(void)
{
    return num_ranks;
}

int ranks_by_mpi(void)
{
    return maker == &ranks_maker_mpi;
}

/* Bytes of all ranks, which the caller frees. */
static void *gather(const void *own, size_t bytes)
{
    void *all = malloc((size_t)num_ranks * (bytes ? bytes : 1));

    if (!all) {
        fprintf(stderr, "%s: no memory for %zu bytes of each rank\n", program, bytes);
        ranks_failed();
    }
    maker->allgather(own, all, bytes);
    return all;
}

int ranks_on_machine(void)
{
    struct utsname machine = {.nodename = ""};
    int64_t own, *all;
    int before = 0;

    uname(&machine);
    own = epx_machine_key(machine.nodename);
    all = gather(&own, sizeof(own));
    for (int r = 0; r < own_rank; r++)
        before += all[r] == own;
    free(all);
    return before;
}

void ranks_barrier(void)
{
    maker->barrier();
}

void ranks_allgather(const void *own, void *all, size_t bytes)
{
    maker->allgather(own, all, bytes);
}

void ranks_bcast(void *data, size_t bytes)
{
    void *all = gather(data, bytes);

    memcpy(data, all, bytes);
    free(all);
}

void ranks_alltoall(const void *to, void *from, size_t bytes)
{
    maker->alltoall(to, from, bytes);
}

void ranks_max(double *values, int num)
{
    double *all = gather(values, (size_t)num * sizeof(*values));

    for (int64_t i = 0; i < (int64_t)num * num_ranks; i++)
        if (all[i] > values[i % num])
            values[i % num] = all[i];
    free(all);
}

void ranks_sum(int64_t *values, int num)
{
    int64_t *all = gather(values, (size_t)num * sizeof(*values));

    memset(values, 0, (size_t)num * sizeof(*values));
    for (int64_t i = 0; i < (int64_t)num * num_ranks; i++)
        values[i % num] += all[i];
    free(all);
}

int64_t ranks_most(int64_t value)
{
    int64_t *all = gather(&value, sizeof(value)), most = value;

    for (int r = 0; r < num_ranks; r++)
        most = all[r] > most ? all[r] : most;
    free(all);
    return most;
}

int64_t ranks_least(int64_t value)
{
    return -ranks_most(-value);
}

EPX_Comm ranks_create_comm(const char *const hints[])
{
    EPX_Comm comm = EPX_COMM_NULL;

    return maker->create_comm(hints, &comm) == EPX_SUCCESS ? comm : EPX_COMM_NULL;
}
