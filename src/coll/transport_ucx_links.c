/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport_ucx_links.c - a UCX worker of a communicator with an endpoint to every other rank.
 * Whoever calls holds the lock, or has the communicator alone because it is being made or freed.
 */
#include "transport_ucx_links.h"

#include <ucp/api/ucp.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agree.h"
#include "progress.h"

/*
 * Life and death, by letters. At creation every rank greets every other one, which also makes the
 * connections. An ASK is answered with the rank's position, an END ends the communicator here as
 * well, a BYE says that the rank has freed it: what its endpoint reports later is no error.
 *
 * Ranks of other machines are reached by endpoints that report a lost peer. UCX offers that only
 * by its network transports, so within a machine endpoints do not: there silence alone tells.
 */
enum letter_kind { LETTER_HELLO, LETTER_ASK, LETTER_ANSWER, LETTER_END, LETTER_BYE, NUM_LETTERS };
enum message_id { MESSAGE_DATA, MESSAGE_LETTER };

#define GREETING_NS 10000000000LL
#define LETTERS_NS 20000000LL
#define PARTING_NS 1000000000LL

struct letter {
    int32_t kind, sender;
    uint64_t position;
};

/* A letter of a kind is not sent again while the last is under way: it would say the same. */
struct outgoing {
    struct letter letter;
    int under_way;
};

/* What a message of data carries; fixed while it is under way. */
struct tag {
    uint64_t number;
    int32_t sender, unused;
};

/*
 * A message that came, for the collective of its number or the next one: EMPTY -> HERE when UCX
 * hands it over, -> FETCHING -> FETCHED if its bytes are still at the sender, -> EMPTY when taken.
 */
enum arrival_state { ARRIVAL_EMPTY, ARRIVAL_HERE, ARRIVAL_FETCHING, ARRIVAL_FETCHED };

struct arrival {
    enum arrival_state state;
    uint64_t number;
    void *data; /* UCX's; NULL = an empty message */
    size_t bytes;
    int at_sender;
    struct link *link;
};

struct link {
    struct epx_links *links;
    int rank;
    ucp_ep_h endpoint; /* NULL to this rank itself */
    int reports;
    ucp_rkey_h key;
    struct tag tag;
    struct arrival arrivals[2]; /* of odd and of even numbers */
    struct outgoing letters[NUM_LETTERS];
    int greeted, answered, left;
    uint64_t position;
};

struct epx_links {
    struct epx_comm *comm;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_mem_h memory;
    struct link *link; /* [R] */
    char *exchange;    /* what MPI reads and writes */
    int in_flight;     /* messages of data that UCX still reads */
    uint64_t position;
    int ended, lost; /* by a letter; by an endpoint, and the peers do not know it yet */
    char message[EPX_MAX_ERROR_STRING], sent_message[EPX_MAX_ERROR_STRING];
};

static int fail_ucx(ucs_status_t status, const char *call)
{
    int code = status == UCS_ERR_NO_MEMORY ? EPX_ERR_NO_MEM : EPX_ERR_TRANSPORT;

    return epx_fail(code, "%s: %s", call, ucs_status_string(status));
}

#define TRY_UCX(call)                                                                         \
    do {                                                                                      \
        ucs_status_t status_ = (call);                                                        \
        if (status_ != UCS_OK)                                                                \
            return fail_ucx(status_, #call);                                                  \
    } while (0)

int epx_links_usable(char *why)
{
    unsigned major, minor, patch;

    ucp_get_version(&major, &minor, &patch);
    if (UCP_VERSION(major, minor) >= UCP_API_VERSION)
        return 1;
    snprintf(why, EPX_WHY_MAX, "libucp is version %u.%u, EPX was built with %d.%d", major, minor,
             UCP_API_MAJOR, UCP_API_MINOR);
    return 0;
}

/* The first bad news counts; what a rank that has left does is none. */
static void lose(struct link *link, ucs_status_t status)
{
    struct epx_links *links = link->links;

    if (link->left || links->lost || links->ended)
        return;
    links->lost = 1;
    snprintf(links->message, sizeof(links->message), "rank %d is lost: %s", link->rank,
             ucs_status_string(status));
}

static void endpoint_failed(void *argument, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)endpoint;
    lose(argument, status);
}

static void letter_sent(void *request, ucs_status_t status, void *argument)
{
    struct outgoing *outgoing = argument;

    (void)status; /* a rank that cannot be reached is lost or silent */
    outgoing->under_way = 0;
    ucp_request_free(request);
}

static void send_letter(struct link *link, enum letter_kind kind, const char *message)
{
    struct epx_links *links = link->links;
    struct outgoing *outgoing = &link->letters[kind];
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = letter_sent,
        .user_data = outgoing,
    };
    void *request;

    if (!link->endpoint || outgoing->under_way)
        return;
    outgoing->letter = (struct letter){kind, links->comm->rank, links->position};
    outgoing->under_way = 1;
    request = ucp_am_send_nbx(link->endpoint, MESSAGE_LETTER, &outgoing->letter,
                              sizeof(outgoing->letter), message, strlen(message), &param);
    if (!UCS_PTR_IS_PTR(request))
        outgoing->under_way = 0;
}

static void send_to_others(struct epx_links *links, enum letter_kind kind, const char *message)
{
    for (int r = 0; r < links->comm->size; r++)
        send_letter(&links->link[r], kind, message);
}

static int letters_under_way(const struct epx_links *links)
{
    int num = 0;

    for (int r = 0; r < links->comm->size; r++)
        for (int kind = 0; kind < NUM_LETTERS; kind++)
            num += links->link[r].letters[kind].under_way;
    return num;
}

/* Gives letters a chance to leave this process: nobody may progress the worker afterwards. */
static void post_letters(struct epx_links *links, int64_t bound_ns)
{
    int64_t start = epx_now_ns();
    unsigned moved;

    do
        moved = ucp_worker_progress(links->worker);
    while ((moved || letters_under_way(links)) && epx_now_ns() - start < bound_ns);
}

static void read_end(struct epx_links *links, const void *text, size_t bytes)
{
    size_t most = sizeof(links->message) - 1;

    if (links->ended)
        return;
    bytes = bytes < most ? bytes : most;
    memcpy(links->message, text, bytes);
    links->message[bytes] = '\0';
    links->ended = 1;
}

static ucs_status_t letter_came(void *argument, const void *header, size_t header_bytes,
                                void *data, size_t bytes, const ucp_am_recv_param_t *param)
{
    struct epx_links *links = argument;
    struct letter letter;
    struct link *link;

    (void)param;
    if (header_bytes != sizeof(letter))
        return UCS_OK;
    memcpy(&letter, header, sizeof(letter));
    if (letter.sender < 0 || letter.sender >= links->comm->size)
        return UCS_OK;
    link = &links->link[letter.sender];
    switch (letter.kind) {
    case LETTER_HELLO: link->greeted = 1; break;
    case LETTER_ASK: send_letter(link, LETTER_ANSWER, ""); break;
    case LETTER_ANSWER:
        link->answered = 1;
        link->position = letter.position;
        break;
    case LETTER_END: read_end(links, data, bytes); break;
    case LETTER_BYE: link->left = 1; break;
    default: break;
    }
    return UCS_OK;
}

static ucs_status_t data_came(void *argument, const void *header, size_t header_bytes, void *data,
                              size_t bytes, const ucp_am_recv_param_t *param)
{
    struct epx_links *links = argument;
    struct arrival *arrival;
    struct tag tag;
    int stays = (param->recv_attr & (UCP_AM_RECV_ATTR_FLAG_DATA | UCP_AM_RECV_ATTR_FLAG_RNDV)) != 0;

    if (header_bytes != sizeof(tag))
        return UCS_OK;
    memcpy(&tag, header, sizeof(tag));
    if (tag.sender < 0 || tag.sender >= links->comm->size)
        return UCS_OK;
    arrival = &links->link[tag.sender].arrivals[tag.number % 2];
    if (arrival->state != ARRIVAL_EMPTY || (bytes && !stays)) {
        lose(&links->link[tag.sender], UCS_ERR_INVALID_PARAM);
        return UCS_OK;
    }
    arrival->state = ARRIVAL_HERE;
    arrival->number = tag.number;
    arrival->data = stays ? data : NULL;
    arrival->bytes = bytes;
    arrival->at_sender = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    return stays ? UCS_INPROGRESS : UCS_OK;
}

static void data_sent(void *request, ucs_status_t status, void *argument)
{
    struct link *link = argument;

    link->links->in_flight--;
    if (status != UCS_OK)
        lose(link, status);
    ucp_request_free(request);
}

int epx_links_send(struct epx_links *links, int rank, uint64_t number, const void *data,
                   size_t bytes)
{
    struct link *link = &links->link[rank];
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = data_sent,
        .user_data = link,
    };
    void *request;

    link->tag = (struct tag){.number = number, .sender = links->comm->rank};
    request = ucp_am_send_nbx(link->endpoint, MESSAGE_DATA, &link->tag, sizeof(link->tag), data,
                              bytes, &param);
    if (UCS_PTR_IS_ERR(request))
        lose(link, UCS_PTR_STATUS(request));
    links->in_flight += UCS_PTR_IS_PTR(request);
    return EPX_SUCCESS;
}

static void data_fetched(void *request, ucs_status_t status, size_t bytes, void *argument)
{
    struct arrival *arrival = argument;

    (void)bytes;
    if (status == UCS_OK)
        arrival->state = ARRIVAL_FETCHED;
    else
        lose(arrival->link, status);
    ucp_request_free(request);
}

static void fetch(struct epx_links *links, struct arrival *arrival, void *to)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv_am = data_fetched,
        .user_data = arrival,
    };
    void *request;

    arrival->state = ARRIVAL_FETCHING;
    request = ucp_am_recv_data_nbx(links->worker, arrival->data, to, arrival->bytes, &param);
    if (UCS_PTR_IS_ERR(request))
        lose(arrival->link, UCS_PTR_STATUS(request));
}

int epx_links_receive(struct epx_links *links, int rank, uint64_t number, void *data,
                      size_t bytes, int *done)
{
    struct arrival *arrival = &links->link[rank].arrivals[number % 2];

    *done = 0;
    if (arrival->state == ARRIVAL_EMPTY)
        return EPX_SUCCESS;
    EPX_FAIL_IF(arrival->number != number || arrival->bytes != bytes, EPX_ERR_INTERN,
                "rank %d sent %zu bytes in collective %llu, not %zu in %llu", rank, arrival->bytes,
                (unsigned long long)arrival->number, bytes, (unsigned long long)number);
    if (arrival->state == ARRIVAL_HERE && arrival->at_sender)
        fetch(links, arrival, data);
    if (arrival->state == ARRIVAL_FETCHING)
        return EPX_SUCCESS;
    if (arrival->state == ARRIVAL_HERE && arrival->data) {
        memcpy(data, arrival->data, bytes);
        ucp_am_data_release(links->worker, arrival->data);
    }
    arrival->state = ARRIVAL_EMPTY;
    *done = 1;
    return EPX_SUCCESS;
}

int epx_links_in_flight(const struct epx_links *links)
{
    return links->in_flight;
}

int epx_links_beat(struct epx_links *links, uint64_t position, char *message)
{
    links->position = position;
    ucp_worker_progress(links->worker);
    if (!links->ended && !links->lost)
        return 0;
    snprintf(message, EPX_MAX_ERROR_STRING, "%s", links->message);
    if (!links->ended)
        epx_links_announce(links, message);
    return 1;
}

void epx_links_probe(struct epx_links *links)
{
    for (int r = 0; r < links->comm->size; r++)
        links->link[r].answered = 0;
    send_to_others(links, LETTER_ASK, "");
}

int epx_links_answered(struct epx_links *links, int rank, uint64_t *position)
{
    *position = links->link[rank].position;
    return links->link[rank].answered;
}

void epx_links_announce(struct epx_links *links, const char *message)
{
    snprintf(links->sent_message, sizeof(links->sent_message), "%s", message);
    send_to_others(links, LETTER_END, links->sent_message);
    post_letters(links, LETTERS_NS);
}

/*
 * A connection that is reset during a put over TCP would abort the process. The option had its name
 * without TCP until UCX 1.16; a name that is unknown is taken, and warned of later, before 1.20.1.
 */
static void forbid_puts(ucp_config_t *config)
{
    unsigned major, minor, patch;

    ucp_get_version(&major, &minor, &patch);
    if (UCP_VERSION(major, minor) <= UCP_VERSION(1, 16) ||
        ucp_config_modify(config, "TCP_PUT_ENABLE", "n") != UCS_OK)
        ucp_config_modify(config, "PUT_ENABLE", "n");
}

static int make_context(struct epx_links *links)
{
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                      UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_RMA,
        .estimated_num_eps = (size_t)links->comm->size,
        .name = "epx",
    };
    ucp_config_t *config;
    ucs_status_t status;

    TRY_UCX(ucp_config_read(NULL, NULL, &config));
    if (links->comm->real_nodes > 1)
        forbid_puts(config);
    status = ucp_init(&params, config, &links->context);
    ucp_config_release(config);
    return status == UCS_OK ? EPX_SUCCESS : fail_ucx(status, "ucp_init");
}

static int make_worker(struct epx_links *links)
{
    ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
        .flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK, /* letters to dead ranks */
    };
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = MESSAGE_LETTER,
        .cb = letter_came,
        .arg = links,
    };

    TRY_UCX(ucp_worker_create(links->context, &params, &links->worker));
    TRY_UCX(ucp_worker_set_am_recv_handler(links->worker, &handler));
    handler.id = MESSAGE_DATA;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA;
    handler.cb = data_came;
    TRY_UCX(ucp_worker_set_am_recv_handler(links->worker, &handler));
    return EPX_SUCCESS;
}

static int connect_rank(struct epx_links *links, int rank, const ucp_address_t *address)
{
    const int *machine = links->comm->real_node;
    struct link *link = &links->link[rank];
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_handler = {.cb = endpoint_failed, .arg = link},
    };

    link->reports = machine[rank] != machine[links->comm->rank];
    params.err_mode = link->reports ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
    TRY_UCX(ucp_ep_create(links->worker, &params, &link->endpoint));
    return EPX_SUCCESS;
}

/* Every rank's bytes, one after the other at *stride. Collective, agreed, if own is there. */
static int gather(struct epx_links *links, const void *own, size_t own_bytes, size_t *stride)
{
    struct epx_comm *comm = links->comm;
    size_t ranks = (size_t)comm->size;
    int64_t most;
    int rc = EPX_SUCCESS;

    EPX_TRY(epx_comm_max(comm, (int64_t)own_bytes, &most));
    *stride = ((size_t)most + EPX_LINE_BYTES - 1) / EPX_LINE_BYTES * EPX_LINE_BYTES;
    free(links->exchange);
    links->exchange = epx_memory_zeroed(ranks + 1, *stride);
    if (!links->exchange)
        rc = epx_fail(EPX_ERR_NO_MEM, "no memory for the addresses of %zu ranks", ranks);
    EPX_TRY(epx_comm_agree(comm, rc));
    memcpy(links->exchange + ranks * *stride, own, own_bytes);
    return epx_comm_allgather_bytes(comm, links->exchange + ranks * *stride, (int)*stride,
                                    links->exchange);
}

static int connect_all(struct epx_links *links)
{
    ucp_address_t *own = NULL;
    size_t bytes = 0, stride;
    ucs_status_t status = ucp_worker_get_address(links->worker, &own, &bytes);
    int rc = status == UCS_OK ? EPX_SUCCESS : fail_ucx(status, "ucp_worker_get_address");

    rc = epx_comm_agree(links->comm, rc);
    if (rc == EPX_SUCCESS)
        rc = gather(links, own, bytes, &stride);
    if (own)
        ucp_worker_release_address(links->worker, own);
    EPX_TRY(rc);
    for (int r = 0; rc == EPX_SUCCESS && r < links->comm->size; r++)
        if (r != links->comm->rank)
            rc = connect_rank(links, r, (void *)(links->exchange + (size_t)r * stride));
    return epx_comm_agree(links->comm, rc);
}

/* A rank that has not greeted, or was not greeted; -1 if there is none. */
static int ungreeted(const struct epx_links *links)
{
    for (int r = 0; r < links->comm->size; r++) {
        const struct link *link = &links->link[r];

        if (link->endpoint && (!link->greeted || link->letters[LETTER_HELLO].under_way))
            return r;
    }
    return -1;
}

/* After it no rank waits for another to make a connection. */
static int greet(struct epx_links *links)
{
    int64_t start = epx_now_ns(), bound = links->comm->params.timeout_ms * 500000;
    int idle = 0;

    bound = bound && bound < GREETING_NS ? bound : GREETING_NS;
    send_to_others(links, LETTER_HELLO, "");
    while (ungreeted(links) >= 0) {
        int moved = (int)ucp_worker_progress(links->worker);

        epx_lock();
        moved |= epx_progress();
        epx_unlock();
        EPX_FAIL_IF(links->lost, EPX_ERR_TRANSPORT, "%s", links->message);
        EPX_FAIL_IF(epx_now_ns() - start > bound, EPX_ERR_TRANSPORT,
                    "no word from rank %d over UCX within %lld ms", ungreeted(links),
                    (long long)(bound / 1000000));
        idle = moved ? 0 : idle + 1;
        epx_progress_pause(idle);
    }
    return EPX_SUCCESS;
}

static int init(struct epx_links *links)
{
    EPX_TRY(make_context(links));
    return make_worker(links);
}

int epx_links_create(struct epx_comm *comm, struct epx_links **result)
{
    struct epx_links *links = epx_memory_zeroed(1, sizeof(*links));
    int rc = EPX_SUCCESS;

    *result = links;
    if (links) {
        links->comm = comm;
        links->link = epx_memory_zeroed((size_t)comm->size, sizeof(*links->link));
    }
    if (!links || !links->link)
        rc = epx_fail(EPX_ERR_NO_MEM, "no memory for %d endpoints", comm->size);
    for (int r = 0; rc == EPX_SUCCESS && r < comm->size; r++) {
        struct link *link = &links->link[r];

        link->links = links;
        link->rank = r;
        link->arrivals[0].link = link->arrivals[1].link = link;
    }
    EPX_TRY(epx_comm_agree(comm, rc == EPX_SUCCESS ? init(links) : rc));
    EPX_TRY(connect_all(links));
    return epx_comm_agree(comm, greet(links));
}

/* Peers that are still in the last collective would take the closed connection for an error. */
static void part(struct epx_links *links)
{
    for (int r = 0; r < links->comm->size; r++)
        if (links->link[r].endpoint)
            send_letter(&links->link[r], LETTER_BYE, "");
    post_letters(links, PARTING_NS);
}

static void close_endpoint(struct epx_links *links, struct link *link)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
    };
    ucp_ep_h endpoint = link->endpoint;
    int64_t start = epx_now_ns();
    void *request;

    if (link->key)
        ucp_rkey_destroy(link->key);
    if (!endpoint || !link->reports)
        return; /* the worker's end closes it */
    link->left = 1;
    link->endpoint = NULL;
    request = ucp_ep_close_nbx(endpoint, &param);
    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS &&
           epx_now_ns() - start < PARTING_NS)
        ucp_worker_progress(links->worker);
    if (UCS_PTR_IS_PTR(request))
        ucp_request_free(request);
}

void epx_links_free(struct epx_links *links)
{
    if (!links)
        return;
    if (links->worker && links->link)
        part(links);
    for (int r = 0; links->link && r < links->comm->size; r++)
        close_endpoint(links, &links->link[r]);
    if (links->memory)
        ucp_mem_unmap(links->context, links->memory);
    if (links->worker)
        ucp_worker_destroy(links->worker);
    if (links->context)
        ucp_cleanup(links->context);
    free(links->exchange);
    free(links->link);
    free(links);
}

/* What a rank tells of its memory, followed by UCX's key to it. */
struct offer {
    uint64_t address;
    char key[];
};

static int allocate(struct epx_links *links, size_t bytes, char **own)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .length = bytes + EPX_PAGE_BYTES,
        .flags = UCP_MEM_MAP_ALLOCATE,
    };
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    uintptr_t first;

    TRY_UCX(ucp_mem_map(links->context, &params, &links->memory));
    TRY_UCX(ucp_mem_query(links->memory, &attr));
    first = ((uintptr_t)attr.address + EPX_PAGE_BYTES - 1) / EPX_PAGE_BYTES * EPX_PAGE_BYTES;
    *own = (char *)attr.address + (first - (uintptr_t)attr.address);
    memset(*own, 0, bytes);
    return EPX_SUCCESS;
}

/* Tells the others where this rank's memory is, and hears where theirs is. */
static int exchange_offers(struct epx_links *links, const char *own, size_t *stride)
{
    void *key = NULL;
    size_t key_bytes = 0;
    ucs_status_t status = ucp_rkey_pack(links->context, links->memory, &key, &key_bytes);
    struct offer *offer =
        status == UCS_OK ? epx_memory_zeroed(1, sizeof(*offer) + key_bytes) : NULL;
    int rc = EPX_SUCCESS;

    if (status != UCS_OK)
        rc = fail_ucx(status, "ucp_rkey_pack");
    else if (!offer)
        rc = epx_fail(EPX_ERR_NO_MEM, "no memory for a key of %zu bytes", key_bytes);
    rc = epx_comm_agree(links->comm, rc);
    if (rc == EPX_SUCCESS) {
        offer->address = (uintptr_t)own;
        memcpy(offer->key, key, key_bytes);
        rc = gather(links, offer, sizeof(*offer) + key_bytes, stride);
    }
    if (key)
        ucp_rkey_buffer_release(key);
    free(offer);
    return rc;
}

/* MPI is through with it. */
static void end_exchange(struct epx_links *links)
{
    free(links->exchange);
    links->exchange = NULL;
}

static int may_store(const struct epx_comm *comm, int rank)
{
    return comm->real_node[rank] == comm->real_node[comm->rank] &&
           comm->node[rank] == comm->node[comm->rank];
}

static char *map(struct link *link, const struct offer *offer)
{
    void *address = NULL;

    if (ucp_ep_rkey_unpack(link->endpoint, offer->key, &link->key) != UCS_OK)
        link->key = NULL;
    else if (ucp_rkey_ptr(link->key, offer->address, &address) != UCS_OK)
        address = NULL;
    return address;
}

/* All ranks map the memory of their nodes' other ranks, or none does. */
int epx_links_share(struct epx_links *links, size_t bytes, char **own, char **address)
{
    struct epx_comm *comm = links->comm;
    size_t stride;
    int64_t failures = 0, anywhere;

    EPX_TRY(epx_comm_agree(comm, allocate(links, bytes, own)));
    EPX_TRY(exchange_offers(links, *own, &stride));
    for (int r = 0; r < comm->size; r++) {
        const char *offer = links->exchange + (size_t)r * stride;

        if (r == comm->rank || !may_store(comm, r))
            continue;
        address[r] = map(&links->link[r], (const struct offer *)(const void *)offer);
        failures += !address[r];
    }
    end_exchange(links);
    EPX_TRY(epx_comm_max(comm, failures, &anywhere));
    for (int r = 0; anywhere && r < comm->size; r++)
        address[r] = NULL;
    if (anywhere)
        EPX_LOG_INFO("UCX does not map memory of the same node here: messages instead");
    return EPX_SUCCESS;
}
