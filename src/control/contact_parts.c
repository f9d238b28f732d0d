/* SPDX-License-Identifier: BSD-3-Clause */
/* contact_parts.c - what those need who open doors (cards.c) and those who knock (knocking.c). */
#include "control/contact_parts.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/un.h>

const char epx_contact_magic[8] = "EPX ctl";

int epx_contact_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

socklen_t epx_contact_unix_address(const struct card *card, struct sockaddr_storage *system)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "epx-%016llx-%d",
                          (unsigned long long)card->door, card->rank);

    memset(system, 0, sizeof(*system));
    memcpy(system, &address, sizeof(address));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

int epx_contact_fail(const char *call)
{
    return epx_fail(errno == EMFILE || errno == ENFILE ? EPX_ERR_NO_MEM : EPX_ERR_TRANSPORT,
                    "%s for the control plane: %s%s", call, strerror(errno),
                    errno == EMFILE ? "; raise the limit (ulimit -n)" : "");
}

int epx_contact_watch(const struct epx_contact *contact, int fd, int number, uint32_t what)
{
    struct epoll_event event = {.events = what, .data = {.u32 = (uint32_t)number}};

    return epoll_ctl(contact->epoll, EPOLL_CTL_ADD, fd, &event);
}

int epx_contact_is_near(const struct epx_contact *contact, int rank)
{
    return contact->cards[rank].machine == contact->cards[contact->group.rank].machine;
}
