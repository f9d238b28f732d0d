/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_liveness.c - letters as active messages of UCX, and what is done when a link is lost.
 *
 * At creation every rank greets every other one, which also makes the connections. A HELLO wants to
 * be answered, so UCX asks the peer for the name that its endpoint has there. Else UCX would ask
 * before the first long message, and hold back all that follows, letters too, until the peer
 * answers: a peer that is away then would never hear the END.
 *
 * Endpoints to ranks of other machines report a lost peer. Only the network transports of UCX can,
 * so endpoints within a machine report nothing: there silence alone tells.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/pause.h"
#include "core/progress.h"
#include "transport/ucx/ucx_link.h"

enum { GREETING_MS = 10000, HEARING_MS = 50, LETTERS_MS = 20, PARTING_MS = 1000 };

static void letter_sent(void *request, ucs_status_t status, void *argument)
{
    struct epx_outgoing *outgoing = argument;

    (void)status; /* a rank that cannot be reached is lost or silent */
    outgoing->under_way = 0;
    ucp_request_free(request);
}

static void send_letter(struct epx_link *link, enum epx_ucx_letter kind, const char *message)
{
    struct epx_outgoing *outgoing = &link->letters[kind];
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_EAGER | (kind == EPX_LETTER_HELLO ? UCP_AM_SEND_FLAG_REPLY : 0),
        .cb.send = letter_sent,
        .user_data = outgoing,
    };
    void *request;

    if (!link->endpoint || outgoing->under_way)
        return;
    outgoing->head = (struct epx_letter_head){link->links->key, (int32_t)kind,
                                              link->links->comm->rank, link->links->position};
    outgoing->under_way = 1;
    request = ucp_am_send_nbx(link->endpoint, EPX_MESSAGE_LETTER, &outgoing->head,
                              sizeof(outgoing->head), message, strlen(message), &param);
    if (!UCS_PTR_IS_PTR(request))
        outgoing->under_way = 0;
}

static void send_to_others(struct epx_links *links, enum epx_ucx_letter kind, const char *message)
{
    for (int r = 0; r < links->comm->size; r++)
        send_letter(&links->link[r], kind, message);
}

static int heard(const struct epx_link *link, enum epx_ucx_letter kind)
{
    return (link->heard >> kind) & 1;
}

static void read_end(struct epx_links *links, const char *text, size_t bytes)
{
    if (links->ended)
        return;
    snprintf(links->message, sizeof(links->message), "%.*s", (int)bytes, text);
    links->ended = 1;
}

int epx_links_know(struct epx_links *links, const struct epx_key *key)
{
    uint64_t difference = 0;

    for (int i = 0; i < 2; i++)
        difference |= links->key.words[i] ^ key->words[i];
    if (difference && !links->warned) {
        links->warned = 1;
        EPX_LOG_WARN("a message without the communicator's key came over UCX and is ignored, as "
                     "are others like it");
    }
    return !difference;
}

static ucs_status_t letter_came(void *argument, const void *header, size_t header_bytes, void *data,
                                size_t bytes, const ucp_am_recv_param_t *param)
{
    struct epx_links *links = argument;
    struct epx_letter_head head;
    struct epx_link *link;

    (void)param;
    if (header_bytes != sizeof(head))
        return UCS_OK;
    memcpy(&head, header, sizeof(head));
    if (!epx_links_know(links, &head.key) || head.sender < 0 || head.sender >= links->comm->size ||
        head.kind < 0 || head.kind >= EPX_NUM_LETTERS)
        return UCS_OK;
    link = &links->link[head.sender];
    link->heard |= 1U << head.kind;
    if (head.kind == EPX_LETTER_ASK)
        send_letter(link, EPX_LETTER_ANSWER, "");
    else if (head.kind == EPX_LETTER_ANSWER)
        link->position = head.position;
    else if (head.kind == EPX_LETTER_END)
        read_end(links, data, bytes);
    return UCS_OK;
}

int epx_links_take_letters(struct epx_links *links)
{
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = EPX_MESSAGE_LETTER,
        .cb = letter_came,
        .arg = links,
    };

    EPX_TRY_UCX(ucp_worker_set_am_recv_handler(links->worker, &handler));
    return EPX_SUCCESS;
}

static int letters_under_way(const struct epx_links *links)
{
    int num = 0;

    for (int r = 0; r < links->comm->size; r++)
        for (int kind = 0; kind < EPX_NUM_LETTERS; kind++)
            num += links->link[r].letters[kind].under_way;
    return num;
}

/* Gives letters a chance to leave this process, as perhaps nobody will progress the worker
 * afterwards. */
static void post_letters(struct epx_links *links, int64_t bound_ms)
{
    int64_t end = epx_deadline_in(bound_ms);
    unsigned moved;

    do
        moved = ucp_worker_progress(links->worker);
    while ((moved || letters_under_way(links)) && !epx_deadline_is_over(end));
}

/* A rank whose HELLO has not come, or to which this rank's HELLO is still under way; -1 = none. */
static int ungreeted(const struct epx_links *links)
{
    for (int r = 0; r < links->comm->size; r++) {
        const struct epx_link *link = &links->link[r];

        if (link->endpoint &&
            (!heard(link, EPX_LETTER_HELLO) || link->letters[EPX_LETTER_HELLO].under_way))
            return r;
    }
    return -1;
}

int epx_links_greet(struct epx_links *links)
{
    int64_t bound_ms = epx_shorter_ms(GREETING_MS, (links->comm->params.timeout_ms + 1) / 2);
    int64_t end = epx_deadline_in(bound_ms);
    int idle = 0;

    send_to_others(links, EPX_LETTER_HELLO, "");
    while (ungreeted(links) >= 0) {
        int moved = (int)ucp_worker_progress(links->worker);

        epx_lock();
        moved |= epx_progress();
        epx_unlock();
        EPX_FAIL_IF(links->lost, EPX_ERR_TRANSPORT, "%s", links->message);
        EPX_FAIL_IF(epx_deadline_is_over(end), EPX_ERR_TRANSPORT,
                    "no word from rank %d over UCX within %lld ms", ungreeted(links),
                    (long long)bound_ms);
        idle = moved ? 0 : idle + 1;
        epx_pause(idle);
    }
    return EPX_SUCCESS;
}

void epx_links_part(struct epx_links *links)
{
    send_to_others(links, EPX_LETTER_BYE, "");
    post_letters(links, PARTING_MS);
}

void epx_link_lose(struct epx_link *link, const char *format, ...)
{
    struct epx_links *links = link->links;
    char what[EPX_MAX_ERROR_STRING / 2];
    va_list values;

    if (links->lost || links->ended)
        return;
    va_start(values, format);
    vsnprintf(what, sizeof(what), format, values);
    va_end(values);
    links->lost = 1;
    snprintf(links->message, sizeof(links->message), "rank %d %s", link->rank, what);
}

void epx_link_report(struct epx_link *link, ucs_status_t status)
{
    if (!link->closed && !heard(link, EPX_LETTER_BYE))
        epx_link_lose(link, "is lost: %s", ucs_status_string(status));
}

/*
 * Before a lost link ends the communicator, gives an END from another rank a moment to come. A rank
 * that left because the communicator had ended breaks its links too, perhaps before its letters
 * were read here, and its END has the true reason.
 */
static void hear_others(struct epx_links *links)
{
    int64_t end = epx_deadline_in(HEARING_MS);

    while (!links->ended && !epx_deadline_is_over(end))
        ucp_worker_progress(links->worker);
}

static void announce(void *state, char *message)
{
    struct epx_links *links = state;

    snprintf(links->sent_message, sizeof(links->sent_message), "%s", message);
    send_to_others(links, EPX_LETTER_END, links->sent_message);
    post_letters(links, LETTERS_MS);
}

static int beat(void *state, uint64_t position, char *message)
{
    struct epx_links *links = state;

    links->position = position;
    ucp_worker_progress(links->worker);
    if (!links->ended && !links->lost)
        return 0;
    hear_others(links);
    snprintf(message, EPX_MAX_ERROR_STRING, "%s", links->message);
    if (!links->ended)
        announce(links, message);
    return 1;
}

static void probe(void *state)
{
    struct epx_links *links = state;

    for (int r = 0; r < links->comm->size; r++)
        links->link[r].heard &= ~(1U << EPX_LETTER_ANSWER);
    send_to_others(links, EPX_LETTER_ASK, "");
}

static int answered(void *state, int rank, uint64_t *position)
{
    const struct epx_links *links = state;

    *position = links->link[rank].position;
    return heard(&links->link[rank], EPX_LETTER_ANSWER);
}

const struct epx_liveness_ops epx_links_liveness = {
    .beat = beat,
    .probe = probe,
    .answered = answered,
    .announce = announce,
};
