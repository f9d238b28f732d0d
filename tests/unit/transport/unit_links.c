/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_links.c - a rank whose message is not the one that is due ends the communicator of all: its
 * peers must not wait for each other in a collective that cannot go on.
 */
#include <string.h>

#include "coll/staged/staged.h"
#include "support/exchange.h"
#include "support/fault.h"
#include "support/suite.h"

static struct epx_message_ops broken;
static const struct epx_message_ops *real;

/* Sends the ready words too short, so that only their first bytes come. */
static int send_short(void *state, const void *send, void *recv, int bytes)
{
    return real->allgather(state, send, recv, bytes - 8);
}

/* Pretended nodes of one rank: between them all blocks are messages. */
static EPX_Comm open_comm(void)
{
    EPX_Comm comm = suite_comm("epx_transport", "ucx", "epx_ranks_per_node", "1", "epx_timeout_ms",
                               "30000", NULL);

    real = comm->transport->ops->messages;
    broken = *real;
    broken.allgather = send_short;
    if (suite_rank == suite_size - 1)
        comm->transport->staged->messages = &broken;
    fault_watch(comm);
    return comm;
}

START_TEST(a_wrong_message_ends_it_for_all)
{
    EPX_Comm comm = open_comm();
    struct exchange exchange = {.comm = comm, .data = {3, EPX_BYTE, 16, 0}, .most_rows = 2};
    double start = suite_seconds();
    char message[EPX_MAX_ERROR_STRING];
    int length;

    EXPECT_CODE(exchange_start(&exchange), EPX_SUCCESS);
    EXPECT_FAULT(comm, EPX_Wait(&exchange.request, MPI_STATUS_IGNORE), EPX_ERR_TIMEOUT);
    EXPECT(suite_seconds() - start < 10, "took %.1f s", suite_seconds() - start);
    EXPECT_CODE(EPX_Comm_get_error_message(comm, message, &length), EPX_SUCCESS);
    EXPECT(strstr(message, " bytes in collective 1, not "), "\"%s\" is another error", message);
    SETTLE();
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    exchange_free(&exchange);
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("links");
    TCase *tcase = tcase_create("links");

    tcase_add_test(tcase, a_wrong_message_ends_it_for_all);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
