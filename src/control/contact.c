/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * contact.c - how ranks come to be connected.
 *
 * Each rank has a door: a socket that listens, a Unix socket for ranks of the same machine (in
 * Linux's abstract namespace, so that nothing is left behind), another one for TCP if there are
 * several machines. By allgathers each tells the others where its doors are, and rank 0 a key that
 * it has drawn. Then each rank knocks at the door of every lower rank, says the key and who it is,
 * hears the same from there, and confirms that it heard: only now both are connected, so that a rank
 * may leave at any time before and knock again, at another address. Who does not know the key is
 * sent away, and until he has said it has one of a few places of fixed size. A rank at whose door nobody listens is gone: doors are
 * closed only when all ranks have come. A higher rank that does not come is looked for at its door.
 * A rank that gives up says why to those that it is connected with, and they pass it on: so a rank
 * is asked for twice before it counts as gone, for it may have given up for another's sake.
 */
#define _GNU_SOURCE /* accept4 */
#include "control/contact.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/jitter.h"
#include "base/machine_key.h"
#include "base/memory.h"
#include "control/addresses.h"

enum { PROTOCOL = 1, VISITORS = 32, EVENTS_A_PASS = 64, MESSAGE_BYTES = 160 };
enum { PATIENCE_MS = 2000, LOOK_MS = 200, REFUSALS = 2, KEEPALIVE_S = 10 };
enum door { UNIX_DOOR, TCP_DOOR, NUM_DOORS };

static const char magic[8] = "EPX ctl", confirmation = 'y';

/* What a rank tells of itself, in the first allgather. */
struct card {
    char magic[8];
    int32_t protocol, rank, size, code;
    int64_t machine;
    uint64_t key[2]; /* that of rank 0 counts */
    uint64_t door;   /* the number in the name of its Unix door */
    char message[MESSAGE_BYTES];
};

/* Where its TCP door is, in the second. */
struct directions {
    int32_t code, num;
    struct epx_address address[EPX_MOST_ADDRESSES];
    char message[MESSAGE_BYTES];
};

/* The first that goes over a connection, each way. */
struct greeting {
    char magic[8];
    uint64_t key[2];
    int32_t from, to;
};

/* A connection that is being made, with any rank; or one that only looks whether a higher rank is
 * there. */
struct knock {
    int fd;           /* -1 = none now */
    int address;      /* which of the rank's, next */
    int greeted;      /* this rank's greeting is sent */
    int answered;     /* the greeting of a higher rank, which has yet to confirm */
    int refused;      /* how often nobody listened at any address */
    int64_t until_ns; /* then the next address is tried; without fd: not before */
};

/* Somebody who came to a door and has yet to say the key. */
struct visitor {
    int fd; /* -1 = free */
    int64_t until_ns;
    size_t came;
    struct greeting greeting;
};

struct epx_contact {
    struct epx_contact_group group;
    struct epx_connections *connections;
    struct card *cards;            /* [size] */
    struct directions *directions; /* [size], if there are several machines */
    struct knock *knocks;          /* [size] */
    struct visitor visitors[VISITORS];
    int door[NUM_DOORS]; /* -1 = none */
    int epoll;
    struct card card; /* this rank's own */
    int num_missing;
    int result;
    int warned;
    char refusal[EPX_ADDRESS_TEXT + 64];
};

static void close_socket(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int new_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static socklen_t unix_address(const struct card *card, struct sockaddr_storage *system)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "epx-%016llx-%d",
                          (unsigned long long)card->door, card->rank);

    memset(system, 0, sizeof(*system));
    memcpy(system, &address, sizeof(address));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int fail_door(const char *call)
{
    return epx_fail(errno == EMFILE || errno == ENFILE ? EPX_ERR_NO_MEM : EPX_ERR_TRANSPORT,
                    "%s for the control plane: %s%s", call, strerror(errno),
                    errno == EMFILE ? "; raise the limit (ulimit -n)" : "");
}

/* Watched events are told by a number: doors first, then visitors, then knocks by rank. */
static int watch(const struct epx_contact *contact, int fd, int number, uint32_t what)
{
    struct epoll_event event = {.events = what, .data = {.u32 = (uint32_t)number}};

    return epoll_ctl(contact->epoll, EPOLL_CTL_ADD, fd, &event);
}

static int listen_at(struct epx_contact *contact, enum door door,
                     const struct sockaddr_storage *address, socklen_t length)
{
    const int off = 0;
    int fd = contact->door[door] = new_socket(address->ss_family);

    if (fd < 0)
        return fail_door("socket");
    if (address->ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, (const struct sockaddr *)address, length) != 0)
        return fail_door("bind");
    if (listen(fd, contact->group.size) != 0)
        return fail_door("listen");
    return watch(contact, fd, (int)door, EPOLLIN) != 0 ? fail_door("epoll_ctl") : EPX_SUCCESS;
}

static int init(struct epx_contact *contact)
{
    const size_t ranks = (size_t)contact->group.size;

    contact->card.rank = contact->group.rank;
    contact->cards = epx_memory_zeroed(ranks, sizeof(*contact->cards));
    contact->directions = epx_memory_zeroed(ranks, sizeof(*contact->directions));
    contact->knocks = epx_memory_zeroed(ranks, sizeof(*contact->knocks));
    EPX_FAIL_IF(!contact->cards || !contact->directions || !contact->knocks, EPX_ERR_NO_MEM,
                "no memory for contact with %zu ranks", ranks);
    for (size_t r = 0; r < ranks; r++)
        contact->knocks[r].fd = -1;
    return EPX_SUCCESS;
}

static int open_first_door(struct epx_contact *contact)
{
    struct card *card = &contact->card;
    struct sockaddr_storage address;
    struct utsname machine;
    socklen_t length;

    contact->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (contact->epoll < 0)
        return fail_door("epoll_create1");
    EPX_FAIL_IF(getentropy(card->key, sizeof(card->key)) != 0 ||
                    getentropy(&card->door, sizeof(card->door)) != 0,
                EPX_ERR_TRANSPORT, "getentropy: %s", strerror(errno));
    EPX_FAIL_IF(uname(&machine) != 0, EPX_ERR_TRANSPORT, "uname: %s", strerror(errno));
    card->machine = epx_machine_key(machine.nodename);
    length = unix_address(card, &address);
    return listen_at(contact, UNIX_DOOR, &address, length);
}

static int check_card(const struct epx_contact *contact, int rank)
{
    const struct card *card = &contact->cards[rank];

    EPX_FAIL_IF(memcmp(card->magic, magic, sizeof(magic)) != 0 || card->rank != rank, EPX_ERR_ARG,
                "allgather gave for rank %d what that rank did not give", rank);
    EPX_FAIL_IF(
        card->protocol != PROTOCOL, EPX_ERR_ARG,
        "rank %d has another version of EPX: its control plane is of version %d, this one's "
        "is %d",
        rank, card->protocol, PROTOCOL);
    EPX_FAIL_IF(card->size != contact->group.size, EPX_ERR_ARG,
                "num_ranks differs across ranks: %d here, %d on rank %d", contact->group.size,
                card->size, rank);
    return EPX_SUCCESS;
}

static int gather(const struct epx_contact *contact, const void *own, void *all, size_t bytes)
{
    const struct epx_contact_group *group = &contact->group;
    int error = group->allgather(own, all, bytes, group->arg);

    if (error && group->is_own)
        return error;
    EPX_FAIL_IF(error, EPX_ERR_ARG, "allgather of the first contact returned %d", error);
    EPX_FAIL_IF(memcmp((const char *)all + (size_t)group->rank * bytes, own, bytes) != 0,
                EPX_ERR_ARG, "allgather gave for rank %d what that rank did not give", group->rank);
    return EPX_SUCCESS;
}

/* Every rank tells what it has come to; each fails if one does, with the error of the lowest. */
static int exchange_cards(struct epx_contact *contact, int rc)
{
    struct card *card = &contact->card;

    memcpy(card->magic, magic, sizeof(magic));
    card->protocol = PROTOCOL;
    card->size = contact->group.size;
    card->code = rc;
    snprintf(card->message, sizeof(card->message), "%.*s", MESSAGE_BYTES - 1,
             rc ? epx_status_message() : "");
    EPX_TRY(gather(contact, card, contact->cards, sizeof(*card)));
    for (int r = 0; r < contact->group.size; r++)
        EPX_TRY(check_card(contact, r));
    for (int r = 0; r < contact->group.size; r++)
        if (contact->cards[r].code != EPX_SUCCESS)
            return epx_fail_quietly(contact->cards[r].code, contact->cards[r].message);
    return EPX_SUCCESS;
}

static int has_machines(const struct epx_contact *contact)
{
    for (int r = 1; r < contact->group.size; r++)
        if (contact->cards[r].machine != contact->cards[0].machine)
            return 1;
    return 0;
}

/* The port that the system gave. */
static int find_port(const struct epx_contact *contact, uint16_t *port)
{
    struct sockaddr_storage system;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    socklen_t length = sizeof(system);

    memset(&system, 0, sizeof(system));
    if (getsockname(contact->door[TCP_DOOR], (struct sockaddr *)&system, &length) != 0)
        return fail_door("getsockname");
    memcpy(&v4, &system, sizeof(v4));
    memcpy(&v6, &system, sizeof(v6));
    *port = ntohs(system.ss_family == AF_INET6 ? v6.sin6_port : v4.sin_port);
    return EPX_SUCCESS;
}

/* Listens at all interfaces, or at the one that was named. */
static int open_tcp_door(struct epx_contact *contact, const char *interface, struct directions *own)
{
    const int is_named = strcmp(interface, "all") != 0;
    struct epx_address any = {.is_v6 = 1};
    struct sockaddr_storage system;
    socklen_t length;
    uint16_t port = 0;
    int rc;

    own->num = epx_addresses_list(interface, own->address);
    if (own->num < 0)
        return fail_door("getifaddrs");
    EPX_FAIL_IF(!own->num, EPX_ERR_TRANSPORT,
                "no network interface is up that others could reach (epx_interface is %s)",
                interface);
    if (is_named) {
        own->num = 1;
        any = own->address[0];
    }
    length = epx_address_to_system(&any, &system);
    rc = listen_at(contact, TCP_DOOR, &system, length);
    if (rc != EPX_SUCCESS && !is_named) { /* where there is no IPv6 */
        close_socket(&contact->door[TCP_DOOR]);
        any.is_v6 = 0;
        length = epx_address_to_system(&any, &system);
        rc = listen_at(contact, TCP_DOOR, &system, length);
    }
    EPX_TRY(rc);
    EPX_TRY(find_port(contact, &port));
    for (int i = 0; i < own->num; i++)
        own->address[i].port = port;
    return EPX_SUCCESS;
}

static int exchange_directions(struct epx_contact *contact, const char *interface)
{
    struct directions own;
    int rc;

    memset(&own, 0, sizeof(own));
    own.code = rc = open_tcp_door(contact, interface, &own);
    snprintf(own.message, sizeof(own.message), "%.*s", MESSAGE_BYTES - 1,
             rc ? epx_status_message() : "");
    EPX_TRY(gather(contact, &own, contact->directions, sizeof(own)));
    for (int r = 0; r < contact->group.size; r++) {
        const struct directions *told = &contact->directions[r];

        if (told->code != EPX_SUCCESS)
            return epx_fail_quietly(told->code, told->message);
        EPX_FAIL_IF(told->num < 1 || told->num > EPX_MOST_ADDRESSES, EPX_ERR_ARG,
                    "allgather gave for rank %d what that rank did not give", r);
    }
    return EPX_SUCCESS;
}

/* Whether `rank` is on this rank's machine. */
static int is_near(const struct epx_contact *contact, int rank)
{
    return contact->cards[rank].machine == contact->cards[contact->group.rank].machine;
}

int epx_contact_tell(struct epx_contact *contact, const char *interface, int own_rc)
{
    EPX_TRY(exchange_cards(contact, own_rc));
    if (has_machines(contact))
        EPX_TRY(exchange_directions(contact, interface));
    contact->num_missing = contact->group.size - 1;
    for (int r = contact->group.rank + 1; r < contact->group.size; r++)
        contact->knocks[r].until_ns = epx_deadline_in(LOOK_MS);
    return EPX_SUCCESS;
}

int epx_contact_open(const struct epx_contact_group *group, struct epx_connections *connections,
                     struct epx_contact **result)
{
    struct epx_contact *contact = epx_memory_zeroed(1, sizeof(*contact));
    int rc;

    EPX_FAIL_IF(!contact, EPX_ERR_NO_MEM, "no memory for contact with %d ranks", group->size);
    contact->group = *group;
    contact->connections = connections;
    contact->epoll = contact->door[UNIX_DOOR] = contact->door[TCP_DOOR] = -1;
    for (int i = 0; i < VISITORS; i++)
        contact->visitors[i].fd = -1;
    rc = init(contact);
    if (rc != EPX_SUCCESS) {
        epx_contact_free(contact);
        return rc;
    }
    *result = contact;
    return open_first_door(contact);
}

static struct greeting greeting_for(const struct epx_contact *contact, int rank)
{
    struct greeting greeting = {.from = contact->group.rank, .to = rank};

    memcpy(greeting.magic, magic, sizeof(magic));
    memcpy(greeting.key, contact->cards[0].key, sizeof(greeting.key));
    return greeting;
}

/* Whether a greeting knows the key and is from one rank to this one. */
static int is_known(const struct epx_contact *contact, const struct greeting *greeting)
{
    const uint64_t *key = contact->cards[0].key;
    const uint64_t difference = (greeting->key[0] ^ key[0]) | (greeting->key[1] ^ key[1]);

    return memcmp(greeting->magic, magic, sizeof(magic)) == 0 && !difference &&
           greeting->to == contact->group.rank && greeting->from >= 0 &&
           greeting->from < contact->group.size && greeting->from != contact->group.rank;
}

static void warn_of_stranger(struct epx_contact *contact)
{
    if (contact->warned)
        return;
    contact->warned = 1;
    EPX_LOG_WARN("somebody who does not know the communicator's key connected to the control plane "
                 "and was sent away, as are others like him");
}

/* Notices a network that is cut while nothing is sent, and sends short frames at once. */
static void set_up_tcp(int fd)
{
    const int on = 1, seconds = KEEPALIVE_S;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
}

/* Both ends know each other. */
static int connect_peer(struct epx_contact *contact, int rank, int *fd)
{
    const int taken = *fd;

    epoll_ctl(contact->epoll, EPOLL_CTL_DEL, taken, NULL);
    *fd = -1;
    contact->num_missing--;
    if (!is_near(contact, rank))
        set_up_tcp(taken);
    return epx_connections_add(contact->connections, rank, taken);
}

static int is_connected(const struct epx_contact *contact, int rank)
{
    const struct epx_peer *peer = &contact->connections->peer[rank];

    return peer->fd >= 0 || peer->state != EPX_PEER_HERE;
}

/* Keeps the connection of a higher rank that has heard the answer, or is about to. It takes the
 * place of one that the rank has left. */
static void await_confirmation(struct epx_contact *contact, int rank, int *fd)
{
    struct knock *knock = &contact->knocks[rank];
    struct epoll_event event = {.events = EPOLLIN,
                                .data = {.u32 = (uint32_t)(NUM_DOORS + VISITORS + rank)}};

    close_socket(&knock->fd);
    knock->fd = *fd;
    *fd = -1;
    knock->answered = 1;
    epoll_ctl(contact->epoll, EPOLL_CTL_MOD, knock->fd, &event);
}

static int hear_confirmation(struct epx_contact *contact, int rank)
{
    struct knock *knock = &contact->knocks[rank];
    char heard = 0;
    ssize_t num = recv(knock->fd, &heard, sizeof(heard), MSG_DONTWAIT);

    if (num < 0 && (errno == EAGAIN || errno == EINTR))
        return EPX_SUCCESS;
    if (num == 1 && heard == confirmation)
        return connect_peer(contact, rank, &knock->fd);
    close_socket(&knock->fd); /* it comes again, or is gone */
    knock->answered = 0;
    knock->until_ns = epx_deadline_in(LOOK_MS);
    return EPX_SUCCESS;
}

/* Answers a visitor who has said who he is. */
static int hear_visitor(struct epx_contact *contact, struct visitor *visitor)
{
    ssize_t num = recv(visitor->fd, (char *)&visitor->greeting + visitor->came,
                       sizeof(visitor->greeting) - visitor->came, MSG_DONTWAIT);
    const struct greeting *heard = &visitor->greeting;
    struct greeting answer;

    if (num < 0 && (errno == EAGAIN || errno == EINTR))
        return EPX_SUCCESS;
    visitor->came += num > 0 ? (size_t)num : 0;
    if (num > 0 && visitor->came < sizeof(visitor->greeting))
        return EPX_SUCCESS;
    if (num > 0 && is_known(contact, heard) && heard->from > contact->group.rank &&
        !is_connected(contact, heard->from)) {
        answer = greeting_for(contact, heard->from);
        epx_jitter();
        if (send(visitor->fd, &answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT) ==
            (ssize_t)sizeof(answer))
            await_confirmation(contact, heard->from, &visitor->fd);
    } else if (visitor->came) {
        warn_of_stranger(contact);
    }
    close_socket(&visitor->fd); /* who said nothing only looked whether this rank is here */
    return EPX_SUCCESS;
}

/* A free place; else that of somebody who has been silent for long; NULL = there is none. */
static struct visitor *find_place(struct epx_contact *contact)
{
    for (int i = 0; i < VISITORS; i++)
        if (contact->visitors[i].fd < 0)
            return &contact->visitors[i];
    for (int i = 0; i < VISITORS; i++)
        if (epx_deadline_is_over(contact->visitors[i].until_ns)) {
            close_socket(&contact->visitors[i].fd);
            return &contact->visitors[i];
        }
    return NULL;
}

static int open_door(struct epx_contact *contact, enum door door)
{
    struct visitor *visitor;

    while ((visitor = find_place(contact))) {
        int fd = accept4(contact->door[door], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0 && (errno == EMFILE || errno == ENFILE))
            return fail_door("accept");
        if (fd < 0)
            return EPX_SUCCESS;
        *visitor = (struct visitor){.fd = fd, .until_ns = epx_deadline_in(PATIENCE_MS)};
        if (watch(contact, fd, NUM_DOORS + (int)(visitor - contact->visitors), EPOLLIN) != 0)
            close_socket(&visitor->fd);
    }
    return EPX_SUCCESS;
}

/* Where a door of the rank is; returns the length. */
static socklen_t next_address(struct epx_contact *contact, int rank,
                              struct sockaddr_storage *system)
{
    const struct directions *told;
    struct knock *knock = &contact->knocks[rank];

    if (is_near(contact, rank)) {
        snprintf(contact->refusal, sizeof(contact->refusal), "on this machine");
        return unix_address(&contact->cards[rank], system);
    }
    told = &contact->directions[rank];
    knock->address %= told->num;
    epx_address_format(&told->address[knock->address], contact->refusal);
    return epx_address_to_system(&told->address[knock->address], system);
}

/* Nobody opens. A rank that refuses at all of its addresses again is gone; others are tried on. */
static int turn_away(struct epx_contact *contact, int rank, int error)
{
    struct knock *knock = &contact->knocks[rank];
    const int last = is_near(contact, rank) || knock->address + 1 == contact->directions[rank].num;

    close_socket(&knock->fd);
    knock->greeted = 0;
    knock->until_ns = epx_deadline_in(LOOK_MS);
    knock->refused += last && error == ECONNREFUSED;
    EPX_FAIL_IF(knock->refused == REFUSALS, EPX_ERR_TIMEOUT,
                "rank %d is gone: nobody listens at its door %s", rank, contact->refusal);
    EPX_FAIL_IF(error == EMFILE || error == ENFILE, EPX_ERR_NO_MEM,
                "no socket to rank %d: %s; raise the limit (ulimit -n)", rank, strerror(error));
    knock->address = last ? 0 : knock->address + 1;
    return EPX_SUCCESS;
}

static int begin_knock(struct epx_contact *contact, int rank)
{
    struct knock *knock = &contact->knocks[rank];
    struct sockaddr_storage system;
    socklen_t length = next_address(contact, rank, &system);

    knock->fd = new_socket(system.ss_family);
    knock->until_ns = epx_deadline_in(PATIENCE_MS);
    if (knock->fd < 0)
        return turn_away(contact, rank, errno);
    if (connect(knock->fd, (struct sockaddr *)&system, length) != 0 && errno != EINPROGRESS)
        return turn_away(contact, rank, errno);
    if (watch(contact, knock->fd, NUM_DOORS + VISITORS + rank, EPOLLOUT | EPOLLIN) != 0)
        return turn_away(contact, rank, errno);
    return EPX_SUCCESS;
}

/* The door has opened: greets a lower rank; a higher one is there, and shall come itself. */
static int enter(struct epx_contact *contact, int rank)
{
    struct knock *knock = &contact->knocks[rank];
    const struct greeting greeting = greeting_for(contact, rank);
    struct epoll_event event = {.events = EPOLLIN,
                                .data = {.u32 = (uint32_t)(NUM_DOORS + VISITORS + rank)}};
    socklen_t length = sizeof(int);
    int error = 0;

    getsockopt(knock->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error)
        return turn_away(contact, rank, error);
    if (rank > contact->group.rank) {
        close_socket(&knock->fd);
        knock->until_ns = epx_deadline_in(PATIENCE_MS);
        return EPX_SUCCESS;
    }
    if (send(knock->fd, &greeting, sizeof(greeting), MSG_NOSIGNAL | MSG_DONTWAIT) !=
        (ssize_t)sizeof(greeting))
        return turn_away(contact, rank, errno);
    knock->greeted = 1;
    epoll_ctl(contact->epoll, EPOLL_CTL_MOD, knock->fd, &event);
    return EPX_SUCCESS;
}

static int hear_answer(struct epx_contact *contact, int rank)
{
    struct knock *knock = &contact->knocks[rank];
    struct greeting answer;
    ssize_t num = recv(knock->fd, &answer, sizeof(answer), MSG_DONTWAIT | MSG_PEEK);

    if (num < 0 && (errno == EAGAIN || errno == EINTR))
        return EPX_SUCCESS;
    if (num > 0 && num < (ssize_t)sizeof(answer))
        return EPX_SUCCESS;
    if (num != (ssize_t)sizeof(answer) || !is_known(contact, &answer) || answer.from != rank)
        return turn_away(contact, rank, ECONNRESET); /* somebody else, or a rank that failed */
    recv(knock->fd, &answer, sizeof(answer), MSG_DONTWAIT);
    epx_jitter();
    if (send(knock->fd, &confirmation, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
        return turn_away(contact, rank, ECONNRESET);
    return connect_peer(contact, rank, &knock->fd);
}

static int handle(struct epx_contact *contact, int number)
{
    if (number < NUM_DOORS)
        return open_door(contact, (enum door)number);
    number -= NUM_DOORS;
    if (number < VISITORS)
        return contact->visitors[number].fd < 0 ? EPX_SUCCESS
                                                : hear_visitor(contact, &contact->visitors[number]);
    number -= VISITORS;
    if (contact->knocks[number].fd < 0)
        return EPX_SUCCESS;
    if (contact->knocks[number].answered)
        return hear_confirmation(contact, number);
    return contact->knocks[number].greeted ? hear_answer(contact, number) : enter(contact, number);
}

/* Begins what is due: knocks at lower ranks, looks for higher ones, the next address of a rank that
 * did not open. A door of this machine is certainly the rank's. */
static int knock_on(struct epx_contact *contact, int rank)
{
    struct knock *knock = &contact->knocks[rank];

    if (rank == contact->group.rank || is_connected(contact, rank) ||
        (knock->until_ns && !epx_deadline_is_over(knock->until_ns)))
        return EPX_SUCCESS;
    if (knock->fd >= 0 && (knock->answered || is_near(contact, rank)))
        return EPX_SUCCESS;
    if (knock->fd >= 0)
        EPX_TRY(turn_away(contact, rank, ETIMEDOUT));
    return begin_knock(contact, rank);
}

static int move(struct epx_contact *contact)
{
    struct epoll_event events[EVENTS_A_PASS];
    int num = epoll_wait(contact->epoll, events, EVENTS_A_PASS, 0);

    for (int i = 0; i < num; i++)
        EPX_TRY(handle(contact, (int)events[i].data.u32));
    for (int r = 0; r < contact->group.size && num < EVENTS_A_PASS; r++)
        EPX_TRY(knock_on(contact, r));
    epx_connections_pass(contact->connections);
    if (contact->connections->reason.code)
        return epx_fail_quietly(contact->connections->reason.code,
                                contact->connections->reason.message);
    EPX_FAIL_IF(contact->connections->gone >= 0, EPX_ERR_TIMEOUT,
                "rank %d ended, or gave up, while the ranks were connected",
                contact->connections->gone);
    return EPX_SUCCESS;
}

/* So that those who wait for this rank notice. */
static void close_all(struct epx_contact *contact)
{
    for (int i = 0; i < NUM_DOORS; i++)
        close_socket(&contact->door[i]);
    for (int i = 0; i < VISITORS; i++)
        close_socket(&contact->visitors[i].fd);
    for (int r = 0; contact->knocks && r < contact->group.size; r++)
        close_socket(&contact->knocks[r].fd);
}

int epx_contact_done(void *state, int *done, int *awaited)
{
    struct epx_contact *contact = state;

    contact->result = move(contact);
    *done = contact->result != EPX_SUCCESS || !contact->num_missing;
    for (int r = 0; !*done && r < contact->group.size; r++)
        if (r != contact->group.rank && !is_connected(contact, r)) {
            *awaited = r;
            break;
        }
    if (contact->result != EPX_SUCCESS)
        epx_contact_give_up(contact, contact->result, epx_status_message());
    return EPX_SUCCESS;
}

void epx_contact_give_up(struct epx_contact *contact, int code, const char *message)
{
    close_all(contact);
    epx_connections_give_up(contact->connections, code, message);
}

int epx_contact_result(const struct epx_contact *contact)
{
    return contact->result;
}

void epx_contact_free(struct epx_contact *contact)
{
    if (!contact)
        return;
    close_all(contact);
    close_socket(&contact->epoll);
    free(contact->cards);
    free(contact->directions);
    free(contact->knocks);
    free(contact);
}
