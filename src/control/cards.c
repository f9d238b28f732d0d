/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cards.c - how ranks come to be connected: they tell each other where to knock (knocking.c).
 *
 * Each rank has a door: a socket that listens, a Unix socket for ranks of the same machine (in
 * Linux's abstract namespace, so that nothing is left behind), another one for TCP if there are
 * several machines. By allgathers each tells the others where its doors are, and rank 0 a key that
 * it has drawn. Then each rank knocks at the door of every lower rank, says the key and who it is,
 * hears the same from there, and confirms that it heard: only now both are connected, so that a
 * rank may leave at any time before and knock again, at another address. Who does not know the key
 * is sent away, and until he has said it has one of a few places of fixed size. A rank at whose
 * door nobody listens is gone: doors are closed only when all ranks have come. A higher rank that
 * does not come is looked for at its door. A rank that gives up says why to those that it is
 * connected with, and they pass it on: so a rank is asked for twice before it counts as gone, for
 * it may have given up for another's sake.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/utsname.h>

#include "base/clock.h"
#include "base/machine_key.h"
#include "base/memory.h"
#include "control/contact_parts.h"

enum { PROTOCOL = 1 };

static int listen_at(struct epx_contact *contact, enum door door,
                     const struct sockaddr_storage *address, socklen_t length)
{
    const int off = 0;
    int fd = contact->door[door] = epx_contact_socket(address->ss_family);

    if (fd < 0)
        return epx_contact_fail("socket");
    if (address->ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, (const struct sockaddr *)address, length) != 0)
        return epx_contact_fail("bind");
    if (listen(fd, contact->group.size) != 0)
        return epx_contact_fail("listen");
    return epx_contact_watch(contact, fd, (int)door, EPOLLIN) != 0 ? epx_contact_fail("epoll_ctl")
                                                                   : EPX_SUCCESS;
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
        return epx_contact_fail("epoll_create1");
    EPX_FAIL_IF(getentropy(card->key, sizeof(card->key)) != 0 ||
                    getentropy(&card->door, sizeof(card->door)) != 0,
                EPX_ERR_TRANSPORT, "getentropy: %s", strerror(errno));
    EPX_FAIL_IF(uname(&machine) != 0, EPX_ERR_TRANSPORT, "uname: %s", strerror(errno));
    card->machine = epx_machine_key(machine.nodename);
    length = epx_contact_unix_address(card, &address);
    return listen_at(contact, UNIX_DOOR, &address, length);
}

static int check_card(const struct epx_contact *contact, int rank)
{
    const struct card *card = &contact->cards[rank];

    EPX_FAIL_IF(memcmp(card->magic, epx_contact_magic, sizeof(epx_contact_magic)) != 0 ||
                    card->rank != rank,
                EPX_ERR_ARG, "allgather gave for rank %d what that rank did not give", rank);
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

    memcpy(card->magic, epx_contact_magic, sizeof(epx_contact_magic));
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
        return epx_contact_fail("getsockname");
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
        return epx_contact_fail("getifaddrs");
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
        epx_contact_close_socket(&contact->door[TCP_DOOR]);
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

int epx_contact_done(void *state, int *done, int *awaited)
{
    struct epx_contact *contact = state;

    contact->result = epx_contact_move(contact);
    *done = contact->result != EPX_SUCCESS || !contact->num_missing;
    for (int r = 0; !*done && r < contact->group.size; r++)
        if (r != contact->group.rank && !epx_contact_is_connected(contact, r)) {
            *awaited = r;
            break;
        }
    if (contact->result != EPX_SUCCESS)
        epx_contact_give_up(contact, contact->result, epx_status_message());
    return EPX_SUCCESS;
}

void epx_contact_give_up(struct epx_contact *contact, int code, const char *message)
{
    struct epx_reason reason = {.code = code};

    snprintf(reason.message, sizeof(reason.message), "%s", message);
    epx_contact_take_leave(contact, &reason);
    epx_contact_close_all(contact);
    epx_connections_close(contact->connections, NULL);
    epx_fail_quietly(code, reason.message);
}

int epx_contact_result(const struct epx_contact *contact)
{
    return contact->result;
}

void epx_contact_free(struct epx_contact *contact)
{
    if (!contact)
        return;
    epx_contact_close_all(contact);
    epx_contact_close_socket(&contact->epoll);
    free(contact->cards);
    free(contact->directions);
    free(contact->knocks);
    free(contact);
}
