/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_letters.c - any bytes as what the sockets of other ranks bring while a rank shrinks: it must
 * come to an end, with an error or with a group that can be one. `make fuzz' links it with
 * libFuzzer; fuzz_replay.c runs it over tests/fuzz/letters.
 *
 * An input has the number of ranks, this rank, and in turn for each other rank so many bytes, which
 * that sends before its socket ends.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/control_sockets.h"
#include "core/health/survivors.h"
#include "fuzz/fuzz.h"

enum { MOST_RANKS = 5, TIMEOUT_MS = 2, GATHERS = 3 };

struct input {
    const uint8_t *bytes;
    size_t left;
};

#define REQUIRE(condition) require(condition, #condition, __LINE__)
static void require(int condition, const char *text, int line)
{
    if (condition)
        return;
    fprintf(stderr, "fuzz_letters.c:%d: %s does not hold\n", line, text);
    abort();
}

static size_t take_byte(struct input *input)
{
    if (!input->left)
        return 0;
    input->left--;
    return *input->bytes++;
}

/* The rank sends its part of the input, and ends. */
static void connect_rank(struct epx_sockets *sockets, int rank, struct input *input)
{
    size_t bytes = take_byte(input);
    int ends[2];

    bytes |= take_byte(input) << 8;
    bytes = bytes < input->left ? bytes : input->left;
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    REQUIRE(epx_connections_add(epx_sockets_connections(sockets), rank, ends[0]) == EPX_SUCCESS);
    REQUIRE(send(ends[1], input->bytes, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    input->bytes += bytes;
    input->left -= bytes;
    close(ends[1]);
}

static void check_group(const struct epx_comm *comm, const struct epx_survivors_group *group)
{
    REQUIRE(group->num >= 1 && group->num <= comm->size);
    REQUIRE(group->own >= 0 && group->own < group->num);
    REQUIRE(group->ranks[group->own] == comm->rank);
    for (int i = 0; i < group->num; i++) {
        REQUIRE(group->ranks[i] >= 0 && group->ranks[i] < comm->size);
        REQUIRE(i == 0 || group->ranks[i] > group->ranks[i - 1]);
    }
}

static void gather(struct epx_comm *comm, const struct epx_survivors_group *group)
{
    const int64_t own = 0x1122334455667788;
    int rc = EPX_SUCCESS;

    for (int i = 0; i < GATHERS && rc == EPX_SUCCESS; i++) {
        int64_t *all = calloc((size_t)group->num, sizeof(own));

        REQUIRE(all != NULL);
        rc = epx_survivors_allgather(&own, all, sizeof(own), comm);
        REQUIRE(rc == EPX_SUCCESS || rc == EPX_ERR_TIMEOUT);
        REQUIRE(rc != EPX_SUCCESS || all[group->own] == own);
        free(all);
    }
}

static void shrink(struct epx_comm *comm)
{
    struct epx_survivors_group group;

    for (int i = 0; i < 2; i++) {
        const int rc = epx_survivors_find(comm, &group);

        REQUIRE(rc == EPX_SUCCESS || rc == EPX_ERR_TIMEOUT);
        if (rc != EPX_SUCCESS)
            continue;
        check_group(comm, &group);
        gather(comm, &group);
        epx_survivors_leave_others(comm);
    }
    epx_survivors_free(comm->survivors);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct input input = {bytes, size};
    struct epx_comm comm = {.size = 2 + (int)(take_byte(&input) % (MOST_RANKS - 1))};
    struct epx_sockets *sockets;

    comm.rank = (int)(take_byte(&input) % (size_t)comm.size);
    comm.params.timeout_ms = TIMEOUT_MS;
    REQUIRE(epx_sockets_create(comm.rank, comm.size, &sockets) == EPX_SUCCESS);
    for (int r = 0; r < comm.size; r++)
        if (r != comm.rank)
            connect_rank(sockets, r, &input);
    comm.control = (struct epx_control){&epx_control_sockets, sockets};
    shrink(&comm);
    epx_sockets_free(sockets);
    return 0;
}
