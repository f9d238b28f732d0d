/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * connections.c - frames over sockets that do not block.
 *
 * A peer goes from HERE to LEFT when its BYE has come, else to GONE when its socket ends: then all
 * that it sent before has been read, as the end of a stream comes behind its data. What cannot be
 * written any more is dropped; the end is learnt by reading.
 */
#include "control/connections.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/jitter.h"
#include "base/memory.h"

enum { EVENTS_A_PASS = 64, PARTING_MS = 1000 };
enum { HEAD_BYTES = 2 * sizeof(uint32_t) };

/* All connections of the process: a forked child must not keep them open, or the other ranks would
 * not learn of its parent's end. */
static struct epx_connections *all;
static pthread_mutex_t all_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t all_once = PTHREAD_ONCE_INIT;

static void lock_all(void)
{
    pthread_mutex_lock(&all_mutex);
}

static void unlock_all(void)
{
    pthread_mutex_unlock(&all_mutex);
}

static void close_all_in_child(void)
{
    for (struct epx_connections *c = all; c; c = c->next) {
        for (int r = 0; r < c->size; r++)
            if (c->peer[r].fd >= 0)
                close(c->peer[r].fd);
        if (c->epoll >= 0)
            close(c->epoll);
    }
    all = NULL; /* a child of the child has other files under these numbers */
    unlock_all();
}

static void watch_forks(void)
{
    pthread_atfork(lock_all, unlock_all, close_all_in_child);
}

static void enlist(struct epx_connections *connections)
{
    pthread_once(&all_once, watch_forks);
    lock_all();
    connections->next = all;
    connections->link = &all;
    if (all)
        all->link = &connections->next;
    all = connections;
    unlock_all();
}

static void unlist(struct epx_connections *connections)
{
    lock_all();
    if (connections->link) {
        *connections->link = connections->next;
        if (connections->next)
            connections->next->link = connections->link;
    }
    unlock_all();
}

void epx_frames_append(struct epx_frames *frames, struct epx_frame *frame)
{
    frame->next = NULL;
    if (!frames->first)
        frames->end = &frames->first;
    *frames->end = frame;
    frames->end = &frame->next;
}

struct epx_frame *epx_frames_take(struct epx_frames *frames)
{
    struct epx_frame *frame = frames->first;

    if (frame)
        frames->first = frame->next;
    return frame;
}

void epx_frames_free(struct epx_frames *frames)
{
    struct epx_frame *frame;

    while ((frame = epx_frames_take(frames)))
        free(frame);
}

static struct epx_frame *new_frame(int rank, uint32_t kind, size_t bytes)
{
    struct epx_frame *frame = malloc(sizeof(*frame) + bytes);

    if (!frame)
        return NULL;
    memset(frame, 0, sizeof(*frame));
    frame->rank = rank;
    frame->kind = kind;
    frame->bytes = (uint32_t)bytes;
    return frame;
}

int epx_connections_init(struct epx_connections *connections, int rank, int size)
{
    connections->rank = rank;
    connections->size = size;
    connections->gone = -1;
    connections->peer = epx_memory_zeroed((size_t)size, sizeof(*connections->peer));
    EPX_FAIL_IF(!connections->peer, EPX_ERR_NO_MEM, "no memory for connections to %d ranks", size);
    for (int r = 0; r < size; r++)
        connections->peer[r].fd = -1;
    connections->epoll = epoll_create1(EPOLL_CLOEXEC);
    enlist(connections);
    EPX_FAIL_IF(connections->epoll < 0, EPX_ERR_NO_MEM, "epoll_create1: %s", strerror(errno));
    return EPX_SUCCESS;
}

/* Asks to be told when the socket has something to read, or room too. */
static int watch(const struct epx_connections *connections, int rank, int operation, uint32_t what)
{
    struct epoll_event event = {.events = what, .data = {.u32 = (uint32_t)rank}};

    return epoll_ctl(connections->epoll, operation, connections->peer[rank].fd, &event);
}

int epx_connections_add(struct epx_connections *connections, int rank, int fd)
{
    connections->peer[rank].fd = fd;
    EPX_FAIL_IF(watch(connections, rank, EPOLL_CTL_ADD, EPOLLIN) != 0, EPX_ERR_NO_MEM,
                "epoll_ctl: %s", strerror(errno));
    return EPX_SUCCESS;
}

static void end_peer(struct epx_connections *connections, struct epx_peer *peer)
{
    close(peer->fd);
    peer->fd = -1;
    free(peer->coming);
    peer->coming = NULL;
    epx_frames_free(&peer->out);
    if (peer->state != EPX_PEER_HERE)
        return;
    peer->state = EPX_PEER_GONE;
    if (connections->gone < 0)
        connections->gone = (int)(peer - connections->peer);
}

/* What of a frame has not left yet, as one or two pieces. */
static int rest_of(const uint32_t *head, struct epx_part part, size_t sent, struct iovec *pieces)
{
    int num = 0;

    if (sent < HEAD_BYTES) {
        pieces[num++] = (struct iovec){(char *)(uintptr_t)head + sent, HEAD_BYTES - sent};
        sent = HEAD_BYTES;
    }
    if (sent - HEAD_BYTES < part.bytes)
        pieces[num++] = (struct iovec){(char *)(uintptr_t)part.data + (sent - HEAD_BYTES),
                                       part.bytes - (sent - HEAD_BYTES)};
    return num;
}

/* Writes on from `sent`; returns how much has left then: all of it if the socket has ended, which
 * is learnt by reading. */
static size_t write_frame(const struct epx_peer *peer, uint32_t kind, struct epx_part part,
                          size_t sent)
{
    const uint32_t head[2] = {kind, (uint32_t)part.bytes};
    const size_t all_bytes = HEAD_BYTES + part.bytes;

    while (sent < all_bytes) {
        struct iovec pieces[2];
        struct msghdr message = {.msg_iov = pieces};
        ssize_t written;

        message.msg_iovlen = (size_t)rest_of(head, part, sent, pieces);
        written = sendmsg(peer->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (written >= 0)
            sent += (size_t)written;
        else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)
            return sent;
        else if (errno != EINTR)
            return all_bytes;
    }
    return sent;
}

/* Without memory for what the socket does not take the frame is lost, and all behind it: the
 * connection ends. */
static void keep_rest(struct epx_connections *connections, int rank, uint32_t kind,
                      struct epx_part part, size_t sent)
{
    struct epx_peer *peer = &connections->peer[rank];
    struct epx_frame *frame = new_frame(rank, kind, part.bytes);

    if (!frame) {
        end_peer(connections, peer);
        return;
    }
    if (part.bytes)
        memcpy(frame->data, part.data, part.bytes);
    frame->sent = (uint32_t)sent;
    if (!peer->out.first)
        watch(connections, rank, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
    epx_frames_append(&peer->out, frame);
}

void epx_connections_send(struct epx_connections *connections, int rank, uint32_t kind,
                          struct epx_part part)
{
    const struct epx_peer *peer = &connections->peer[rank];
    size_t sent = 0;

    if (peer->fd < 0)
        return;
    epx_jitter();
    if (!peer->out.first)
        sent = write_frame(peer, kind, part, 0);
    if (sent < HEAD_BYTES + part.bytes)
        keep_rest(connections, rank, kind, part, sent);
}

static void write_on(struct epx_connections *connections, int rank)
{
    struct epx_peer *peer = &connections->peer[rank];
    struct epx_frame *frame;

    while ((frame = peer->out.first)) {
        const struct epx_part part = {frame->data, frame->bytes};

        frame->sent = (uint32_t)write_frame(peer, frame->kind, part, frame->sent);
        if (frame->sent < HEAD_BYTES + frame->bytes)
            return;
        free(epx_frames_take(&peer->out));
    }
    watch(connections, rank, EPOLL_CTL_MOD, EPOLLIN);
}

static void take_reason(struct epx_reason *reason, const struct epx_frame *frame)
{
    if (frame->bytes != sizeof(*reason))
        return;
    memcpy(reason, frame->data, sizeof(*reason));
    reason->message[sizeof(reason->message) - 1] = '\0';
    if (reason->code <= EPX_SUCCESS || reason->code >= EPX_ERR_LASTCODE)
        reason->code = EPX_ERR_TIMEOUT;
}

/* Hands over a frame that is whole; returns 0 if the rank may not send it. */
static int deliver(struct epx_connections *connections, struct epx_peer *peer)
{
    struct epx_frame *frame = peer->coming;

    peer->coming = NULL;
    peer->head_came = peer->data_came = 0;
    if (frame->kind != EPX_FRAME_BYE)
        return connections->take(connections->owner, frame);
    peer->state = EPX_PEER_LEFT;
    if (frame->bytes && !connections->reason.code)
        take_reason(&connections->reason, frame);
    free(frame);
    return 1;
}

/* Receives up to `bytes` bytes; returns how many, 0 if none are there now, -1 at the end. */
static ssize_t receive(const struct epx_peer *peer, void *to, size_t bytes)
{
    ssize_t num;

    do
        num = recv(peer->fd, to, bytes, MSG_DONTWAIT);
    while (num < 0 && errno == EINTR);
    if (num > 0)
        return num;
    return num < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -1;
}

/* Takes out of what was read; returns how much, `most` at the most. */
static uint32_t take_out(struct epx_connections *connections, void *to, uint32_t most)
{
    const size_t there = connections->read.end - connections->read.at;
    const uint32_t num = there < most ? (uint32_t)there : most;

    memcpy(to, connections->read.bytes + connections->read.at, num);
    connections->read.at += num;
    return num;
}

/* Takes one frame, or what there is of it. Returns 1; -1 if the rank may not send it; 0 without
 * memory for it: then it is tried again in the next pass. */
static int take_some(struct epx_connections *connections, struct epx_peer *peer)
{
    if (peer->head_came < HEAD_BYTES)
        peer->head_came += take_out(connections, (char *)peer->head + peer->head_came,
                                    HEAD_BYTES - peer->head_came);
    if (peer->head_came < HEAD_BYTES)
        return 1;
    if (peer->head[1] > EPX_MOST_FRAME_BYTES)
        return -1;
    if (!peer->coming)
        peer->coming = new_frame((int)(peer - connections->peer), peer->head[0], peer->head[1]);
    if (!peer->coming)
        return 0;
    if (peer->data_came < peer->head[1])
        peer->data_came += take_out(connections, peer->coming->data + peer->data_came,
                                    peer->head[1] - peer->data_came);
    return peer->data_came == peer->head[1] && !deliver(connections, peer) ? -1 : 1;
}

/* Takes all that was read, or as much as there is memory for; returns as take_some does. */
static int take_read(struct epx_connections *connections)
{
    struct epx_peer *peer = &connections->peer[connections->read.rank];
    int taken = 1;

    while (taken > 0 && connections->read.at < connections->read.end)
        taken = take_some(connections, peer);
    if (taken < 0) {
        connections->read.at = connections->read.end;
        end_peer(connections, peer);
    }
    return taken;
}

/* Reads the rest of a long frame straight to where it belongs. Returns as receive does. */
static ssize_t read_long(struct epx_connections *connections, struct epx_peer *peer)
{
    ssize_t num =
        receive(peer, peer->coming->data + peer->data_came, peer->head[1] - peer->data_came);

    peer->data_came += num > 0 ? (uint32_t)num : 0;
    return num > 0 && peer->data_came == peer->head[1] && !deliver(connections, peer) ? -1 : num;
}

/* Returns 1 if there may be more, -1 at the end. */
static int read_some(struct epx_connections *connections, int rank)
{
    struct epx_peer *peer = &connections->peer[rank];
    ssize_t num;

    if (peer->coming && peer->head[1] - peer->data_came > EPX_BYTES_A_READ) {
        num = read_long(connections, peer);
        return num > 0 ? 1 : (int)num;
    }
    num = receive(peer, connections->read.bytes, EPX_BYTES_A_READ);
    if (num <= 0)
        return (int)num;
    connections->read.rank = rank;
    connections->read.at = 0;
    connections->read.end = (size_t)num;
    return take_read(connections) > 0 && num == EPX_BYTES_A_READ;
}

static void read_peer(struct epx_connections *connections, int rank)
{
    int more;

    do
        more = read_some(connections, rank);
    while (more > 0);
    if (more < 0)
        end_peer(connections, &connections->peer[rank]);
}

static int has_untaken(const struct epx_connections *connections)
{
    return connections->read.at < connections->read.end;
}

void epx_connections_pass(struct epx_connections *connections)
{
    struct epoll_event events[EVENTS_A_PASS];
    int num;

    if (has_untaken(connections))
        take_read(connections);
    num = epoll_wait(connections->epoll, events, EVENTS_A_PASS, 0);
    for (int i = 0; i < num; i++) {
        int rank = (int)events[i].data.u32;

        if (events[i].events & EPOLLOUT)
            write_on(connections, rank);
        if (events[i].events & ~(uint32_t)EPOLLOUT && connections->peer[rank].fd >= 0 &&
            !has_untaken(connections))
            read_peer(connections, rank);
    }
}

int epx_connections_hold(const struct epx_connections *connections)
{
    for (int r = 0; r < connections->size; r++)
        if (connections->peer[r].out.first)
            return 1;
    return 0;
}

void epx_connections_flush(struct epx_connections *connections)
{
    const int64_t end = epx_deadline_in(PARTING_MS);

    while (epx_connections_hold(connections) && !epx_deadline_is_over(end)) {
        epx_connections_pass(connections);
        sched_yield();
    }
}

void epx_connections_tell(struct epx_connections *connections, int rank,
                          const struct epx_reason *reason)
{
    const struct epx_part part = {reason, reason->code ? sizeof(*reason) : 0};

    epx_connections_send(connections, rank, EPX_FRAME_BYE, part);
}

/* Reads what came, so that the system does not answer it by a reset, which could overtake what this
 * rank sent. */
static void close_socket(int fd)
{
    char bytes[EPX_BYTES_A_READ];

    shutdown(fd, SHUT_WR);
    while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
    }
    close(fd);
}

void epx_connections_close(struct epx_connections *connections, const struct epx_reason *reason)
{
    if (!connections->peer) /* init failed, or was not called */
        return;
    for (int r = 0; reason && r < connections->size; r++)
        epx_connections_tell(connections, r, reason);
    if (reason)
        epx_connections_flush(connections);
    unlist(connections);
    for (int r = 0; r < connections->size; r++) {
        struct epx_peer *peer = &connections->peer[r];

        if (peer->fd >= 0)
            close_socket(peer->fd);
        free(peer->coming);
        epx_frames_free(&peer->out);
    }
    if (connections->epoll >= 0)
        close(connections->epoll);
    free(connections->peer);
    connections->peer = NULL;
}
