/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_messages.c - blocks of collectives as active messages of UCX.
 *
 * A long message waits at its sender until the receiver asks for it. Every rank offers its own
 * messages of a collective, then asks for those of the others: for an offer that came before, at
 * once; for a later one, in the handler of the offer. So between two ranks the question of each
 * leaves before its data do, which the other asks for behind its own offer. Behind the data of a
 * TCP connection the question would wait until they have gone, and the two directions would take
 * turns.
 */
#include <string.h>

#include "transport/ucx/ucx_link.h"

/* So many bytes go without being asked for: the question and its answer take longer than a copy
 * from where UCX keeps what has come. */
enum { MOST_UNASKED_BYTES = 1 << 16 };

static void data_fetched(void *request, ucs_status_t status, size_t bytes, void *argument)
{
    struct epx_arrival *arrival = argument;

    (void)bytes;
    if (status == UCS_OK)
        arrival->state = EPX_ARRIVAL_FETCHED;
    else
        epx_link_report(arrival->link, status);
    ucp_request_free(request);
}

static void fetch(struct epx_arrival *arrival)
{
    struct epx_link *link = arrival->link;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .memory_type = UCS_MEMORY_TYPE_HOST, /* or UCX might ask CUDA */
        .cb.recv_am = data_fetched,
        .user_data = arrival,
    };
    void *request;

    arrival->state = EPX_ARRIVAL_FETCHING;
    request = ucp_am_recv_data_nbx(link->links->worker, arrival->data, link->due.data,
                                   arrival->bytes, &param);
    if (UCS_PTR_IS_ERR(request))
        epx_link_report(link, UCS_PTR_STATUS(request));
}

/* Whether the message that came is the one that is due; if not, loses the link to its sender. */
static int is_due(const struct epx_arrival *arrival)
{
    const struct epx_due *due = &arrival->link->due;
    int is = arrival->number == due->number && arrival->bytes == due->bytes;

    if (!is)
        epx_link_lose(arrival->link, "sent %zu bytes in collective %llu, not %zu in %llu",
                      arrival->bytes, (unsigned long long)arrival->number, due->bytes,
                      (unsigned long long)due->number);
    return is;
}

static ucs_status_t data_came(void *argument, const void *header, size_t header_bytes, void *data,
                              size_t bytes, const ucp_am_recv_param_t *param)
{
    struct epx_links *links = argument;
    struct epx_arrival *arrival;
    struct epx_message_tag tag;
    int stays = (param->recv_attr & (UCP_AM_RECV_ATTR_FLAG_DATA | UCP_AM_RECV_ATTR_FLAG_RNDV)) != 0;

    if (header_bytes != sizeof(tag))
        return UCS_OK;
    memcpy(&tag, header, sizeof(tag));
    if (!epx_links_know(links, &tag.key) || tag.sender < 0 || tag.sender >= links->comm->size)
        return UCS_OK;
    arrival = &links->link[tag.sender].arrivals[tag.number % 2];
    if (arrival->state != EPX_ARRIVAL_EMPTY || (bytes && !stays)) {
        epx_link_lose(arrival->link, "sent collective %llu out of turn",
                      (unsigned long long)tag.number);
        return UCS_OK;
    }
    arrival->state = EPX_ARRIVAL_HERE;
    arrival->number = tag.number;
    arrival->data = stays ? data : NULL;
    arrival->bytes = bytes;
    arrival->at_sender = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    if (arrival->at_sender && tag.number == arrival->link->due.number && is_due(arrival))
        fetch(arrival);
    return stays ? UCS_INPROGRESS : UCS_OK;
}

int epx_links_take_messages(struct epx_links *links)
{
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = EPX_MESSAGE_DATA,
        .flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA,
        .cb = data_came,
        .arg = links,
    };

    EPX_TRY_UCX(ucp_worker_set_am_recv_handler(links->worker, &handler));
    return EPX_SUCCESS;
}

static void data_sent(void *request, ucs_status_t status, void *argument)
{
    struct epx_link *link = argument;

    link->links->in_flight--;
    if (status != UCS_OK)
        epx_link_report(link, status);
    ucp_request_free(request);
}

void epx_links_send(struct epx_links *links, int rank, uint64_t number, const void *data,
                    size_t bytes)
{
    struct epx_link *link = &links->link[rank];
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = bytes <= MOST_UNASKED_BYTES ? UCP_AM_SEND_FLAG_EAGER : 0,
        .memory_type = UCS_MEMORY_TYPE_HOST, /* or UCX might ask CUDA */
        .cb.send = data_sent,
        .user_data = link,
    };
    void *request;

    link->tag = (struct epx_message_tag){links->key, number, links->comm->rank, 0};
    request = ucp_am_send_nbx(link->endpoint, EPX_MESSAGE_DATA, &link->tag, sizeof(link->tag), data,
                              bytes, &param);
    if (UCS_PTR_IS_ERR(request))
        epx_link_report(link, UCS_PTR_STATUS(request));
    links->in_flight += UCS_PTR_IS_PTR(request);
}

void epx_links_expect(struct epx_links *links, int rank, uint64_t number, void *data, size_t bytes)
{
    struct epx_link *link = &links->link[rank];
    struct epx_arrival *arrival = &link->arrivals[number % 2];

    link->due = (struct epx_due){number, data, bytes};
    if (arrival->state == EPX_ARRIVAL_HERE && arrival->at_sender && is_due(arrival))
        fetch(arrival);
}

int epx_links_receive(struct epx_links *links, int rank)
{
    const struct epx_due *due = &links->link[rank].due;
    struct epx_arrival *arrival = &links->link[rank].arrivals[due->number % 2];

    if (arrival->state == EPX_ARRIVAL_EMPTY || arrival->state == EPX_ARRIVAL_FETCHING ||
        !is_due(arrival))
        return 0;
    if (arrival->state == EPX_ARRIVAL_HERE && arrival->data) {
        memcpy(due->data, arrival->data, due->bytes);
        ucp_am_data_release(links->worker, arrival->data);
    }
    arrival->state = EPX_ARRIVAL_EMPTY;
    return 1;
}

void epx_links_forget(struct epx_links *links)
{
    for (int i = 0; i < 2 * links->comm->size; i++) {
        struct epx_arrival *arrival = &links->link[i / 2].arrivals[i % 2];

        if (arrival->state == EPX_ARRIVAL_HERE && arrival->data && !arrival->at_sender)
            ucp_am_data_release(links->worker, arrival->data);
        arrival->state = EPX_ARRIVAL_EMPTY;
    }
}

int epx_links_in_flight(const struct epx_links *links)
{
    return links->in_flight;
}
