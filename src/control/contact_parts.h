/* SPDX-License-Identifier: BSD-3-Clause */
/* contact_parts.h - what a contact is, for those files that make one. */
#ifndef EPX_CONTROL_CONTACT_PARTS_H
#define EPX_CONTROL_CONTACT_PARTS_H

#include <sys/socket.h>
#include <unistd.h>

#include "control/addresses.h"
#include "control/contact.h"

enum { VISITORS = 32, MESSAGE_BYTES = 160, LOOK_MS = 200 };
enum door { UNIX_DOOR, TCP_DOOR, NUM_DOORS };

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
    int told;         /* why this rank gives up */
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
    int gives_up;
    char refusal[EPX_ADDRESS_TEXT + 64];
};

static inline void epx_contact_close_socket(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* contact_parts.c */
extern const char epx_contact_magic[8];
int epx_contact_socket(int family);
socklen_t epx_contact_unix_address(const struct card *card, struct sockaddr_storage *system);
/* Says which call failed, and why. */
int epx_contact_fail(const char *call);
/* Watched events are told by a number: doors first, then visitors, then knocks by rank. */
int epx_contact_watch(const struct epx_contact *contact, int fd, int number, uint32_t what);
/* Whether `rank` is on this rank's machine. */
int epx_contact_is_near(const struct epx_contact *contact, int rank);

/* knocking.c */
int epx_contact_is_connected(const struct epx_contact *contact, int rank);
/* Takes what is to be taken now; does not block. */
int epx_contact_move(struct epx_contact *contact);
/* Tells all that are connected, or come within a moment, why this rank gives up. */
void epx_contact_take_leave(struct epx_contact *contact, const struct epx_reason *reason);
/* So that those who wait for this rank notice. */
void epx_contact_close_all(struct epx_contact *contact);

#endif
