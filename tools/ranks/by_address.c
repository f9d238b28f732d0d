/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * by_address.c - the first contact of ranks that have an address in their environment.
 *
 * Rank 0 listens; every other rank comes, says which protocol it speaks, to which job it belongs
 * and who it is, and hears whether it is welcome. Rank 0 then gathers and hands out. All that is
 * received has a length that was agreed on before, and every wait has an end.
 */
#define _GNU_SOURCE /* accept4 */
#include "ranks/by_address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PROTOCOL = 1, GREETING_MS = 2000, NAP_MS = 20, MOST_RANKS = 1 << 16 };
enum { PATIENCE_MS = 60000, MOST_PATIENCE_MS = 1 << 30 };
enum verdict { WELCOME, OTHER_JOB, OTHER_VERSION, OTHER_RANK };

static const char magic[8] = "EPX adr";

/* What a rank says when it comes, and what it hears. */
struct greeting {
    char magic[8];
    uint64_t job;
    int32_t protocol, rank, verdict, padding;
};

/* Goes before the bytes of an allgather. */
struct head {
    uint64_t call, bytes;
};

struct by_address {
    const char *program, *host;
    char port[12]; /* that rank 0 listens at */
    uint64_t job;
    uint64_t calls;
    int rank, size, patience_ms;
    int *line; /* [size] of rank 0; else [1] to rank 0 */
};

static int complain(const struct by_address *ranks, const char *format, ...)
{
    char text[512];
    va_list values;

    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    fprintf(stderr, "%s: rank %d: %s\n", ranks->program, ranks->rank, text);
    return 0;
}

static int is_set(const char *name)
{
    const char *value = getenv(name);

    return value && *value;
}

int by_address_is_wanted(void)
{
    static const char *const wanted[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
    static const char *const launchers[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                            "SLURM_PROCID"};

    for (int i = 0; i < 4; i++)
        if (!is_set(wanted[i]))
            return 0;
    for (int i = 0; i < 4; i++)
        if (is_set(launchers[i]) && !is_set("TORCHELASTIC_RUN_ID"))
            return 0;
    return 1;
}

/* FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv */
static uint64_t add_text(uint64_t hash, const char *text)
{
    for (; text && *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
    return (hash ^ 0xff) * 0x100000001b3;
}

/* Tells jobs apart that use one address, one after the other. */
static uint64_t job_number(void)
{
    static const char *const names[] = {"WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
                                        "TORCHELASTIC_RESTART_COUNT"};
    uint64_t hash = 0xcbf29ce484222325;

    for (int i = 0; i < 4; i++)
        hash = add_text(hash, getenv(names[i]));
    return hash;
}

/* Reads a variable that is a number from `least` to `most`; 0 if it is none. */
static int read_number(struct by_address *ranks, const char *name, int range[2], int *number)
{
    char *end;
    long value = strtol(getenv(name), &end, 10);

    if (*end || value < range[0] || value > range[1])
        return complain(ranks, "%s is \"%s\", want %d to %d", name, getenv(name), range[0],
                        range[1]);
    *number = (int)value;
    return 1;
}

static int read_environment(struct by_address *ranks)
{
    int port, sizes[2] = {1, MOST_RANKS}, numbers[2] = {0, 0}, ports[2] = {1, 65535};
    int times[2] = {0, MOST_PATIENCE_MS};

    if (!read_number(ranks, "WORLD_SIZE", sizes, &ranks->size))
        return 0;
    numbers[1] = ranks->size - 1;
    if (!read_number(ranks, "RANK", numbers, &ranks->rank) ||
        !read_number(ranks, "MASTER_PORT", ports, &port))
        return 0;
    snprintf(ranks->port, sizeof(ranks->port), "%d", port < 65535 ? port + 1 : port - 1);
    ranks->patience_ms = PATIENCE_MS;
    if (is_set("EPX_TIMEOUT_MS") &&
        !read_number(ranks, "EPX_TIMEOUT_MS", times, &ranks->patience_ms))
        return 0;
    if (!ranks->patience_ms)
        ranks->patience_ms = MOST_PATIENCE_MS;
    ranks->host = getenv("MASTER_ADDR");
    ranks->job = job_number();
    return 1;
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void bound(int fd, int ms)
{
    const struct timeval time = {ms / 1000, ms % 1000 * 1000};
    const int on = 1;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* Return 1 if all bytes went, or came, before the bound. */
static int send_all(int fd, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = send(fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL);

        if (n <= 0)
            return 0;
        done += (size_t)n;
    }
    return 1;
}

static int receive_all(int fd, void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = recv(fd, (char *)data + done, bytes - done, 0);

        if (n <= 0)
            return 0;
        done += (size_t)n;
    }
    return 1;
}

static struct greeting greeting_of(const struct by_address *ranks, int rank)
{
    struct greeting greeting = {.job = ranks->job, .protocol = PROTOCOL, .rank = rank};

    memcpy(greeting.magic, magic, sizeof(magic));
    return greeting;
}

/* The addresses of MASTER_ADDR, or of all interfaces; NULL if there are none. */
static struct addrinfo *look_up(const struct by_address *ranks, const char *host)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    int error = getaddrinfo(host, ranks->port, &hints, &list);

    if (error)
        complain(ranks, "MASTER_ADDR is \"%s\": %s", host ? host : "", gai_strerror(error));
    return error ? NULL : list;
}

/* Returns a socket that listens at one of the addresses of a host, or -1 with errno set. */
static int listen_at(const struct by_address *ranks, const char *host)
{
    struct addrinfo *list = look_up(ranks, host);
    const int on = 1;
    int fd = -1;

    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, ranks->size) != 0) {
            int error = errno;

            close(fd);
            fd = -1;
            errno = error;
        }
    }
    if (list)
        freeaddrinfo(list);
    return fd;
}

/* The rank of somebody who came and may stay; -1 = he may not. */
static int welcome(const struct by_address *ranks, int fd)
{
    struct greeting heard, answer = greeting_of(ranks, 0);

    bound(fd, GREETING_MS);
    if (!receive_all(fd, &heard, sizeof(heard)) || memcmp(heard.magic, magic, sizeof(magic)) != 0)
        return -1;
    if (heard.protocol != PROTOCOL)
        answer.verdict = OTHER_VERSION;
    else if (heard.job != ranks->job)
        answer.verdict = OTHER_JOB;
    else if (heard.rank < 1 || heard.rank >= ranks->size || ranks->line[heard.rank] >= 0)
        answer.verdict = OTHER_RANK;
    if (!send_all(fd, &answer, sizeof(answer)) || answer.verdict != WELCOME)
        return -1;
    bound(fd, ranks->patience_ms);
    return heard.rank;
}

static int count_missing(const struct by_address *ranks, int *first)
{
    int missing = 0;

    for (int r = ranks->size - 1; r > 0; r--)
        if (ranks->line[r] < 0) {
            missing++;
            *first = r;
        }
    return missing;
}

/* Rank 0 lets the others in. */
static int gather_ranks(struct by_address *ranks, int door)
{
    const int64_t end = now_ms() + ranks->patience_ms;
    int missing, first = 0;

    while ((missing = count_missing(ranks, &first))) {
        struct pollfd wait = {.fd = door, .events = POLLIN};
        int fd, rank;

        if (now_ms() >= end)
            return complain(ranks,
                            "%d of %d ranks did not come to port %s within %d ms, rank %d is one",
                            missing, ranks->size, ranks->port, ranks->patience_ms, first);
        if (poll(&wait, 1, NAP_MS) <= 0)
            continue;
        fd = accept4(door, NULL, NULL, SOCK_CLOEXEC);
        rank = fd < 0 ? -1 : welcome(ranks, fd);
        if (rank >= 0)
            ranks->line[rank] = fd;
        else if (fd >= 0)
            close(fd);
    }
    return 1;
}

static int serve(struct by_address *ranks)
{
    int door = listen_at(ranks, ranks->host), gathered;

    if (door < 0 && errno == EADDRNOTAVAIL) /* the address is not this machine's own */
        door = listen_at(ranks, NULL);
    if (door < 0)
        return complain(ranks, "cannot listen at port %s, the one beside MASTER_PORT: %s",
                        ranks->port, strerror(errno));
    gathered = gather_ranks(ranks, door);
    close(door);
    return gathered;
}

/* Returns a socket that is connected with one of the addresses, or -1 with errno set. */
static int connect_to(const struct addrinfo *list, int patience_ms)
{
    int fd = -1;

    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        bound(fd, patience_ms);
        if (connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            int error = errno;

            close(fd);
            fd = -1;
            errno = error;
        }
    }
    return fd;
}

static int introduce(struct by_address *ranks, int fd)
{
    static const char *const why[] = {
        [OTHER_JOB] = "there is rank 0 of another job: give each its own MASTER_PORT",
        [OTHER_VERSION] = "rank 0 has another version of EPX",
        [OTHER_RANK] = "another process has this RANK",
    };
    const struct greeting greeting = greeting_of(ranks, ranks->rank);
    struct greeting answer;

    if (!send_all(fd, &greeting, sizeof(greeting)) || !receive_all(fd, &answer, sizeof(answer)) ||
        memcmp(answer.magic, magic, sizeof(magic)) != 0 || answer.verdict < WELCOME ||
        answer.verdict > OTHER_RANK)
        return complain(ranks, "who listens at %s, port %s, is not rank 0 of EPX", ranks->host,
                        ranks->port);
    if (answer.verdict != WELCOME)
        return complain(ranks, "%s, port %s: %s", ranks->host, ranks->port, why[answer.verdict]);
    return 1;
}

/* Rank 0 may come later. */
static int come(struct by_address *ranks)
{
    const struct timespec nap = {0, NAP_MS * 1000000};
    const int64_t end = now_ms() + ranks->patience_ms;
    struct addrinfo *list = look_up(ranks, ranks->host);
    int fd = -1;

    if (!list)
        return 0;
    while ((fd = connect_to(list, ranks->patience_ms)) < 0 && now_ms() < end)
        nanosleep(&nap, NULL);
    freeaddrinfo(list);
    if (fd < 0)
        return complain(ranks, "rank 0 is not to be reached at %s, port %s, within %d ms: %s",
                        ranks->host, ranks->port, ranks->patience_ms, strerror(errno));
    ranks->line[0] = fd;
    return introduce(ranks, fd);
}

struct by_address *by_address_open(const char *program)
{
    struct by_address *ranks = calloc(1, sizeof(*ranks));

    if (!ranks)
        return NULL;
    ranks->program = program;
    if (!read_environment(ranks) || !(ranks->line = malloc((size_t)ranks->size * sizeof(int)))) {
        by_address_close(ranks);
        return NULL;
    }
    for (int r = 0; r < ranks->size; r++)
        ranks->line[r] = -1;
    if (ranks->rank ? !come(ranks) : !serve(ranks)) {
        by_address_close(ranks);
        return NULL;
    }
    return ranks;
}

int by_address_rank(const struct by_address *ranks)
{
    return ranks->rank;
}

int by_address_size(const struct by_address *ranks)
{
    return ranks->size;
}

/* Receives what the rank at the other end of the line gives to this call. */
static int receive_part(const struct by_address *ranks, int rank, void *data, struct head wanted)
{
    const int fd = ranks->line[rank];
    struct head head;

    if (!receive_all(fd, &head, sizeof(head)))
        return complain(ranks, "rank %d has ended, or was silent for %d ms", rank,
                        ranks->patience_ms);
    if (head.call != wanted.call || head.bytes != wanted.bytes)
        return complain(ranks, "rank %d gives %llu bytes to gathering %llu, want %llu to %llu",
                        rank, (unsigned long long)head.bytes, (unsigned long long)head.call,
                        (unsigned long long)wanted.bytes, (unsigned long long)wanted.call);
    return receive_all(fd, data, (size_t)head.bytes) ||
           complain(ranks, "rank %d has ended, or was silent for %d ms", rank, ranks->patience_ms);
}

static int send_part(const struct by_address *ranks, int rank, const void *data, struct head head)
{
    const int fd = ranks->line[rank];

    return (send_all(fd, &head, sizeof(head)) && send_all(fd, data, (size_t)head.bytes)) ||
           complain(ranks, "rank %d has ended, or takes nothing for %d ms", rank,
                    ranks->patience_ms);
}

static int gather_and_hand_out(struct by_address *ranks, const void *own, char *all, size_t bytes)
{
    const struct head part = {ranks->calls, bytes};
    const struct head whole = {ranks->calls, bytes * (size_t)ranks->size};

    memmove(all, own, bytes);
    for (int r = 1; r < ranks->size; r++)
        if (!receive_part(ranks, r, all + (size_t)r * bytes, part))
            return 0;
    for (int r = 1; r < ranks->size; r++)
        if (!send_part(ranks, r, all, whole))
            return 0;
    return 1;
}

int by_address_allgather(const void *own, void *all, size_t bytes, void *by_address)
{
    struct by_address *ranks = by_address;

    ranks->calls++;
    if (ranks->rank == 0)
        return !gather_and_hand_out(ranks, own, all, bytes);
    return !send_part(ranks, 0, own, (struct head){ranks->calls, bytes}) ||
           !receive_part(ranks, 0, all, (struct head){ranks->calls, bytes * (size_t)ranks->size});
}

void by_address_close(struct by_address *ranks)
{
    if (!ranks)
        return;
    for (int r = 0; ranks->line && r < (ranks->rank ? 1 : ranks->size); r++)
        if (ranks->line[r] >= 0)
            close(ranks->line[r]);
    free(ranks->line);
    free(ranks);
}
