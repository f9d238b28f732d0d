/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_links.c - a rank whose message is not the one that is due ends the communicator of all: its
 * peers must not wait for each other in a collective that cannot go on. A rank that was away hears
 * of the end, whatever was sent to it before. A long message is fetched when it is offered, and one
 * without the communicator's key is ignored.
 */
#include <stdlib.h>
#include <string.h>

#include "coll/staged/staged.h"
#include "core/health/comm_end.h"
#include "core/progress.h"
#include "support/exchange.h"
#include "support/fault.h"
#include "support/operation.h"
#include "support/suite.h"
#include "transport/ucx/ucx_link.h"

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

static EPX_Comm open_comm_of_messages(void)
{
    return suite_comm("epx_transport", "ucx", "epx_ranks_per_node", "1", NULL);
}

/* Moves the messages on until those of all ranks are sent, but does not ask whether the collective
 * is over. */
static void beat_until_sent(const struct epx_transport *transport)
{
    const struct epx_liveness *liveness = &transport->liveness;
    char message[EPX_MAX_ERROR_STRING];
    double start = suite_seconds();
    int sent = 0;

    for (int late = 0; !sent && !late;) {
        EXPECT(!liveness->ops->beat(liveness->state, 0, message), "ended: %s", message);
        sent = !epx_links_in_flight(liveness->state);
        late = suite_seconds() - start > 10;
        MPI_Allreduce(MPI_IN_PLACE, &sent, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        MPI_Bcast(&late, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    EXPECT(sent, "messages wait for the receiver to ask for them");
}

/*
 * UCX fetches a long message only when the receiver asks. Were the receiver to ask after its own
 * message began to leave, the question would wait behind all of it in a TCP connection, and the two
 * directions would take turns.
 */
START_TEST(a_long_message_is_fetched_when_it_is_offered)
{
    enum { LONG_BYTES = 1 << 20 };
    EPX_Comm comm = open_comm_of_messages();
    const struct epx_transport *transport = comm->transport;
    const struct epx_liveness *liveness = &transport->liveness;
    size_t bytes = (size_t)suite_size * LONG_BYTES;
    char *out = calloc(1, bytes), *in = calloc(1, bytes), message[EPX_MAX_ERROR_STRING];
    int done = 0;

    ck_assert(out && in);
    memset(out, 'a' + suite_rank, bytes);
    EXPECT_CODE(transport->ops->messages->alltoall(transport->state, out, in, LONG_BYTES),
                EPX_SUCCESS);
    beat_until_sent(transport);
    SETTLE();
    while (!done) {
        liveness->ops->beat(liveness->state, 0, message);
        EXPECT_CODE(transport->ops->messages->done(transport->state, &done), EPX_SUCCESS);
    }
    for (int r = 0; r < suite_size; r++)
        for (size_t i = 0; i < LONG_BYTES; i++)
            if (in[(size_t)r * LONG_BYTES + i] != 'a' + r) {
                EXPECT(0, "byte %zu from rank %d is %d", i, r, in[(size_t)r * LONG_BYTES + i]);
                break;
            }
    SETTLE();
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    free(out);
    free(in);
}
END_TEST

/* Has the communicator listen until it hears of its end. */
static void listen_until_finished(EPX_Comm comm)
{
    double start = suite_seconds();

    epx_lock();
    while (!comm->finished && suite_seconds() - start < 10)
        epx_progress_comm(comm);
    epx_unlock();
}

/* Rank 0 is away while the others send it the first long message of the communicator, and give it
 * up. */
START_TEST(a_rank_that_was_away_hears_of_the_end)
{
    enum { LONG_BYTES = 1 << 20 };
    EPX_Comm comm = open_comm_of_messages();
    const struct epx_transport *transport = comm->transport;
    struct epx_links *links = transport->liveness.state;
    char *out = calloc((size_t)suite_size, LONG_BYTES),
         *in = calloc((size_t)suite_size, LONG_BYTES);

    ck_assert(out && in);
    if (suite_rank > 0) {
        EXPECT_CODE(transport->ops->messages->alltoall(transport->state, out, in, LONG_BYTES),
                    EPX_SUCCESS);
        epx_lock();
        epx_comm_give_up(comm, "given up");
        epx_unlock();
        EXPECT(!links->link[0].letters[EPX_LETTER_END].under_way, "the letter to rank 0 is held");
    }
    SETTLE();
    if (suite_rank == 0)
        listen_until_finished(comm);
    EXPECT(strcmp(comm->finish_message, "given up") == 0, "\"%s\" is the end",
           comm->finish_message);
    SETTLE();
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    free(out);
    free(in);
}
END_TEST

static ucp_ep_h connect_to(struct epx_links *links, struct epx_links *victim)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t *address;
    ucp_ep_h endpoint;
    size_t bytes;

    ck_assert(ucp_worker_get_address(victim->worker, &address, &bytes) == UCS_OK);
    params.address = address;
    ck_assert(ucp_ep_create(links->worker, &params, &endpoint) == UCS_OK);
    ucp_worker_release_address(victim->worker, address);
    return endpoint;
}

/* Moves what two communicators have under way for a second. */
static void beat_both(struct epx_links *one, struct epx_links *other)
{
    double start = suite_seconds();

    while (suite_seconds() - start < 1) {
        ucp_worker_progress(one->worker);
        ucp_worker_progress(other->worker);
    }
}

/* A stranger who can connect to a rank's worker, and has the key of another communicator. */
START_TEST(a_forged_letter_ends_nothing)
{
    ucp_request_param_t eager = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = UCP_AM_SEND_FLAG_EAGER};
    EPX_Comm comm = open_comm_of_messages(), stranger = open_comm_of_messages();
    struct epx_links *links = comm->transport->liveness.state;
    struct epx_links *other = stranger->transport->liveness.state;
    ucp_ep_h endpoint = connect_to(other, links);
    struct epx_letter_head head = {.key = other->key, .kind = EPX_LETTER_END, .sender = 0};
    struct epx_message_tag tag = {.key = other->key, .number = 9, .sender = 0};
    void *letter, *data;

    letter =
        ucp_am_send_nbx(endpoint, EPX_MESSAGE_LETTER, &head, sizeof(head), "forged", 6, &eager);
    data = ucp_am_send_nbx(endpoint, EPX_MESSAGE_DATA, &tag, sizeof(tag), "forged", 6, &eager);
    beat_both(links, other);
    for (int i = 0; i < 2; i++)
        if (UCS_PTR_IS_PTR(i ? letter : data))
            ucp_request_free(i ? letter : data);
    EXPECT(links->warned, "no warning");
    EXPECT(!links->ended && !links->lost, "the communicator ended: %s", links->message);
    SETTLE();
    layer_works(comm);
    layer_works(stranger);
    EXPECT_CODE(EPX_Comm_free(&stranger), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("links");
    TCase *tcase = tcase_create("links");

    tcase_add_test(tcase, a_wrong_message_ends_it_for_all);
    tcase_add_test(tcase, a_long_message_is_fetched_when_it_is_offered);
    tcase_add_test(tcase, a_rank_that_was_away_hears_of_the_end);
    tcase_add_test(tcase, a_forged_letter_ends_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
