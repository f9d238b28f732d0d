/* SPDX-License-Identifier: BSD-3-Clause */
/* knocking.c - ranks come to each other's doors, and let each other in. */
#define _GNU_SOURCE /* accept4 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/jitter.h"
#include "control/contact_parts.h"

enum { EVENTS_A_PASS = 64, PATIENCE_MS = 2000, REFUSALS = 2, KEEPALIVE_S = 10, PARTING_MS = 400 };

static const char confirmation = 'y';

static struct greeting greeting_for(const struct epx_contact *contact, int rank)
{
    struct greeting greeting = {.from = contact->group.rank, .to = rank};

    memcpy(greeting.magic, epx_contact_magic, sizeof(epx_contact_magic));
    memcpy(greeting.key, contact->cards[0].key, sizeof(greeting.key));
    return greeting;
}

/* Whether a greeting knows the key and is from one rank to this one. */
static int is_known(const struct epx_contact *contact, const struct greeting *greeting)
{
    const uint64_t *key = contact->cards[0].key;
    const uint64_t difference = (greeting->key[0] ^ key[0]) | (greeting->key[1] ^ key[1]);

    return memcmp(greeting->magic, epx_contact_magic, sizeof(epx_contact_magic)) == 0 &&
           !difference && greeting->to == contact->group.rank && greeting->from >= 0 &&
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
    if (!epx_contact_is_near(contact, rank))
        set_up_tcp(taken);
    return epx_connections_add(contact->connections, rank, taken);
}

int epx_contact_is_connected(const struct epx_contact *contact, int rank)
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

    epx_contact_close_socket(&knock->fd);
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
    epx_contact_close_socket(&knock->fd); /* it comes again, or is gone */
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
        !epx_contact_is_connected(contact, heard->from)) {
        answer = greeting_for(contact, heard->from);
        epx_jitter();
        if (send(visitor->fd, &answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT) ==
            (ssize_t)sizeof(answer))
            await_confirmation(contact, heard->from, &visitor->fd);
    } else if (visitor->came) {
        warn_of_stranger(contact);
    }
    epx_contact_close_socket(
        &visitor->fd); /* who said nothing only looked whether this rank is here */
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
            epx_contact_close_socket(&contact->visitors[i].fd);
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
            return epx_contact_fail("accept");
        if (fd < 0)
            return EPX_SUCCESS;
        *visitor = (struct visitor){.fd = fd, .until_ns = epx_deadline_in(PATIENCE_MS)};
        if (epx_contact_watch(contact, fd, NUM_DOORS + (int)(visitor - contact->visitors),
                              EPOLLIN) != 0)
            epx_contact_close_socket(&visitor->fd);
    }
    return EPX_SUCCESS;
}

/* Where a door of the rank is; returns the length. */
static socklen_t next_address(struct epx_contact *contact, int rank,
                              struct sockaddr_storage *system)
{
    const struct directions *told;
    struct knock *knock = &contact->knocks[rank];

    if (epx_contact_is_near(contact, rank)) {
        snprintf(contact->refusal, sizeof(contact->refusal), "on this machine");
        return epx_contact_unix_address(&contact->cards[rank], system);
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
    const int last =
        epx_contact_is_near(contact, rank) || knock->address + 1 == contact->directions[rank].num;

    epx_contact_close_socket(&knock->fd);
    knock->greeted = 0;
    knock->until_ns = epx_deadline_in(LOOK_MS);
    knock->refused += last && error == ECONNREFUSED;
    if (contact->gives_up)
        return EPX_SUCCESS;
    EPX_FAIL_IF(knock->refused == REFUSALS, EPX_ERR_TIMEOUT,
                "rank %d is gone: nobody listens at its door %s", rank, contact->refusal);
    EPX_FAIL_IF(error == EMFILE || error == ENFILE, EPX_ERR_NO_MEM,
                "no socket to rank %d: %s; raise the limit (ulimit -n)", rank, strerror(error));
    knock->address = last ? 0 : knock->address + 1;
    return EPX_SUCCESS;
}

/* The door is open: greets a lower rank; a higher one is there, and shall come itself. */
static int greet(struct epx_contact *contact, int rank)
{
    struct knock *knock = &contact->knocks[rank];
    const struct greeting greeting = greeting_for(contact, rank);

    if (rank > contact->group.rank) {
        epx_contact_close_socket(&knock->fd);
        knock->until_ns = epx_deadline_in(PATIENCE_MS);
        return EPX_SUCCESS;
    }
    if (send(knock->fd, &greeting, sizeof(greeting), MSG_NOSIGNAL | MSG_DONTWAIT) !=
        (ssize_t)sizeof(greeting))
        return turn_away(contact, rank, errno);
    knock->greeted = 1;
    return EPX_SUCCESS;
}

/* A door of this machine opens at once. */
static int begin_knock(struct epx_contact *contact, int rank)
{
    struct knock *knock = &contact->knocks[rank];
    struct sockaddr_storage system;
    socklen_t length = next_address(contact, rank, &system);
    int opens;

    knock->fd = epx_contact_socket(system.ss_family);
    knock->until_ns = epx_deadline_in(PATIENCE_MS);
    if (knock->fd < 0)
        return turn_away(contact, rank, errno);
    opens = connect(knock->fd, (struct sockaddr *)&system, length) == 0;
    if (!opens && errno != EINPROGRESS)
        return turn_away(contact, rank, errno);
    if (epx_contact_watch(contact, knock->fd, NUM_DOORS + VISITORS + rank,
                          opens ? EPOLLIN : EPOLLOUT | EPOLLIN) != 0)
        return turn_away(contact, rank, errno);
    return opens ? greet(contact, rank) : EPX_SUCCESS;
}

/* The door has opened, or will not. */
static int enter(struct epx_contact *contact, int rank)
{
    struct knock *knock = &contact->knocks[rank];
    struct epoll_event event = {.events = EPOLLIN,
                                .data = {.u32 = (uint32_t)(NUM_DOORS + VISITORS + rank)}};
    socklen_t length = sizeof(int);
    int error = 0;

    getsockopt(knock->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error)
        return turn_away(contact, rank, error);
    epoll_ctl(contact->epoll, EPOLL_CTL_MOD, knock->fd, &event);
    return greet(contact, rank);
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

    if (rank == contact->group.rank || epx_contact_is_connected(contact, rank) ||
        (knock->until_ns && !epx_deadline_is_over(knock->until_ns)))
        return EPX_SUCCESS;
    if (knock->fd >= 0 && (knock->answered || epx_contact_is_near(contact, rank)))
        return EPX_SUCCESS;
    if (knock->fd >= 0)
        EPX_TRY(turn_away(contact, rank, ETIMEDOUT));
    return begin_knock(contact, rank);
}

static int take_turns(struct epx_contact *contact)
{
    struct epoll_event events[EVENTS_A_PASS];
    int num = epoll_wait(contact->epoll, events, EVENTS_A_PASS, 0);

    for (int i = 0; i < num; i++)
        EPX_TRY(handle(contact, (int)events[i].data.u32));
    for (int r = 0; r < contact->group.size && num < EVENTS_A_PASS; r++)
        EPX_TRY(knock_on(contact, r));
    return EPX_SUCCESS;
}

int epx_contact_move(struct epx_contact *contact)
{
    EPX_TRY(take_turns(contact));
    epx_connections_pass(contact->connections);
    if (contact->connections->reason.code)
        return epx_fail_quietly(contact->connections->reason.code,
                                contact->connections->reason.message);
    EPX_FAIL_IF(contact->connections->gone >= 0, EPX_ERR_TIMEOUT,
                "rank %d ended, or gave up, while the ranks were connected",
                contact->connections->gone);
    return EPX_SUCCESS;
}

/* Tells the ranks that are connected by now; returns how many are still to come. */
static int tell_connected(struct epx_contact *contact, const struct epx_reason *reason)
{
    int missing = 0;

    for (int r = 0; r < contact->group.size; r++) {
        struct knock *knock = &contact->knocks[r];

        if (r == contact->group.rank || knock->told)
            continue;
        knock->told = epx_contact_is_connected(contact, r);
        if (knock->told)
            epx_connections_tell(contact->connections, r, reason);
        missing += !knock->told && !knock->refused;
    }
    return missing;
}

void epx_contact_take_leave(struct epx_contact *contact, const struct epx_reason *reason)
{
    const int64_t end = epx_deadline_in(PARTING_MS);

    contact->gives_up = 1;
    while (tell_connected(contact, reason) && !epx_deadline_is_over(end)) {
        if (take_turns(contact) != EPX_SUCCESS)
            break;
        sched_yield();
    }
    epx_connections_flush(contact->connections);
}

void epx_contact_close_all(struct epx_contact *contact)
{
    for (int i = 0; i < NUM_DOORS; i++)
        epx_contact_close_socket(&contact->door[i]);
    for (int i = 0; i < VISITORS; i++)
        epx_contact_close_socket(&contact->visitors[i].fd);
    for (int r = 0; contact->knocks && r < contact->group.size; r++)
        epx_contact_close_socket(&contact->knocks[r].fd);
}
