/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * connections.h - a socket to every other rank, over which frames go both ways: a length, a kind
 * and bytes. Frames of one rank arrive in the order in which it sent them.
 */
#ifndef EPX_CONTROL_CONNECTIONS_H
#define EPX_CONTROL_CONNECTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A frame that came, or that waits for room in its socket. */
struct epx_frame {
    struct epx_frame *next;
    int32_t rank; /* whom it is from, or for */
    uint32_t kind, bytes;
    uint32_t sent; /* of one that waits: so much of head and data has left */
    char data[];
};

struct epx_frames {
    struct epx_frame *first, **end; /* end: the link behind the last one */
};

/* How the other end is: a rank that says BYE leaves orderly, or says why it gives up; one whose
 * socket just closes is gone. */
enum epx_peer_state { EPX_PEER_HERE, EPX_PEER_LEFT, EPX_PEER_GONE };

struct epx_peer {
    int fd; /* -1 = none: this rank itself, or closed */
    enum epx_peer_state state;
    uint32_t head[2]; /* of the frame that is coming: kind, bytes */
    uint32_t head_came, data_came;
    struct epx_frame *coming;
    struct epx_frames out;
};

/* Why a rank gives up: an error of EPX. */
struct epx_reason {
    int32_t code;
    char message[EPX_MAX_ERROR_STRING];
};

enum { EPX_BYTES_A_READ = 2048 };

struct epx_connections {
    int rank, size;
    int epoll;
    struct { /* what was read from a rank, and is not taken yet */
        int rank;
        size_t at, end;
        char bytes[EPX_BYTES_A_READ];
    } read;
    struct epx_peer *peer; /* [size] */
    int gone; /* the first rank that is gone, -1 = none: others may have left because of it */
    struct epx_reason reason;             /* of the first rank that gave up; code 0 = none has */
    struct epx_connections *next, **link; /* in the list of those that a forked child closes */
    /* Takes a frame that came, and frees it when it is through with it. Returns 0 if it is none
     * that the rank may send. */
    int (*take)(void *owner, struct epx_frame *frame);
    void *owner;
};

enum { EPX_FRAME_BYE = 0 }; /* may have a reason; other kinds are the owner's */
enum { EPX_MOST_FRAME_BYTES = 1 << 30 };

/* Local: without a connection yet. */
int epx_connections_init(struct epx_connections *connections, int rank, int size);
/* Takes a socket that is connected to the rank, and does not block. */
int epx_connections_add(struct epx_connections *connections, int rank, int fd);
/* Sends a frame, of several parts, or keeps a copy of what the socket does not take now. Does
 * nothing for a rank that is not here any more. */
struct epx_part {
    const void *data;
    size_t bytes;
};
void epx_connections_send(struct epx_connections *connections, int rank, uint32_t kind,
                          struct epx_part part);
/* Receives what came and sends what waits; does not block. */
void epx_connections_pass(struct epx_connections *connections);
/* Whether anything waits for room in a socket. */
int epx_connections_hold(const struct epx_connections *connections);
/* Takes one that init left half-built. Says BYE before to those that are still here, with the
 * reason if its code is an error; just closes if the reason is NULL. */
void epx_connections_close(struct epx_connections *connections, const struct epx_reason *reason);
/* Says BYE to a rank, with the error for which this rank gives up, if its code is one. */
void epx_connections_tell(struct epx_connections *connections, int rank,
                          const struct epx_reason *reason);
/* Lets go what waits for room in sockets, for a moment. */
void epx_connections_flush(struct epx_connections *connections);

void epx_frames_append(struct epx_frames *frames, struct epx_frame *frame);
/* The first frame, which is taken out; NULL = there is none. */
struct epx_frame *epx_frames_take(struct epx_frames *frames);
void epx_frames_free(struct epx_frames *frames);

#endif
