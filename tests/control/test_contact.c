/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_contact.c - what goes wrong while ranks that MPI did not start come to be connected, and
 * afterwards. Ranks that live are told soon, by the name of the rank that is to blame; whoever
 * knows no key does no harm. The last rank of a scene is the one that does something wrong.
 */
#define _GNU_SOURCE /* unshare */
#include <epx.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "control/scenes.h"

enum { STRANGERS = 40, STOP_TIMEOUT_MS = 1500 };

/* Where these stand in a card, as contact_parts.h has it. */
enum { PROTOCOL_AT = 8, SIZE_AT = 16 };

static char earlier[MAX_RANKS * MOST_BYTES]; /* what the first allgather gave */

/* Adds one to a number in the card of rank 0. */
static void change_card(void *all, size_t at)
{
    int32_t number;

    memcpy(&number, (char *)all + at, sizeof(number));
    number++;
    memcpy((char *)all + at, &number, sizeof(number));
}

static void swap_cards(char *all, size_t bytes)
{
    char card[MOST_BYTES];

    memcpy(card, all, bytes);
    memcpy(all, all + bytes, bytes);
    memcpy(all + bytes, card, bytes);
}

/* Gives all but this rank the cards of the first creation. */
static void remember(const struct group *group, char *all, size_t bytes)
{
    if (group->calls == 1)
        memcpy(earlier, all, bytes * (size_t)group->size);
    else
        memcpy(all, earlier, bytes * (size_t)group->rank);
}

/* What a rank gets that has a fault. */
static void falsify(const struct group *group, const void *own, char *all, size_t bytes)
{
    const size_t before = (size_t)group->rank * bytes;

    if (has_fault(group, "gathers zeros"))
        memset(all, 0, bytes * (size_t)group->size);
    if (has_fault(group, "gathers its own"))
        memcpy(all, own, bytes);
    if (has_fault(group, "gathers noise"))
        for (size_t i = 0; i < before; i++)
            all[i] = (char)(97 * i + 13);
    if (has_fault(group, "swaps cards"))
        swap_cards(all, bytes);
    if (has_fault(group, "finds another version"))
        change_card(all, PROTOCOL_AT);
    if (has_fault(group, "finds another size"))
        change_card(all, SIZE_AT);
    if (has_fault(group, "remembers"))
        remember(group, all, bytes);
}

static int gather(const void *own, void *all, size_t bytes, void *arg)
{
    struct group *group = arg;
    int error;

    if (has_fault(group, "dies before"))
        raise(SIGKILL);
    if (has_fault(group, "stops before"))
        raise(SIGSTOP);
    error = scene_gather(own, all, bytes, group);
    if (error)
        return error;
    if (has_fault(group, "dies after"))
        raise(SIGKILL);
    if (has_fault(group, "exits after"))
        _exit(0);
    if (has_fault(group, "stops after"))
        raise(SIGSTOP);
    if (has_fault(group, "fails"))
        return 77;
    falsify(group, own, all, bytes);
    return 0;
}

static int create(struct group *group, int timeout_ms, const char *hint, EPX_Comm *comm)
{
    char bound[64];
    const char *const hints[] = {bound, "epx_window_bytes=65536", hint, NULL};

    snprintf(bound, sizeof(bound), "epx_timeout_ms=%d", timeout_ms);
    return scene_create(group, gather, hints, comm);
}

/* The message of this thread, or of a communicator, has a part. */
static void expect_message(const struct group *group, EPX_Comm comm, const char *part)
{
    char message[EPX_MAX_ERROR_STRING] = "";
    int length;

    if (comm)
        EPX_Comm_get_error_message(comm, message, &length);
    else
        EPX_Get_error_message(message, &length);
    EXPECT(group, strstr(message, part), "\"%s\" has no \"%s\"", message, part);
}

/* As the last rank is to blame. */
static void expect_last_named(const struct group *group, EPX_Comm comm)
{
    char name[32];

    snprintf(name, sizeof(name), "rank %d ", group->size - 1);
    expect_message(group, comm, name);
}

static int is_last(const struct group *group)
{
    return group->rank == group->size - 1;
}

static void fall(const struct group *group)
{
    if (has_fault(group, "has a child") && fork() == 0) {
        nap_ms(3 * SOON_MS);
        _exit(0);
    }
    if (has_fault(group, "exits"))
        _exit(0);
    raise(SIGKILL);
}

/* A rank ends; it may have a child, which must not keep its sockets open. */
static void a_rank_ends(struct group *group)
{
    EPX_Comm comm = EPX_COMM_NULL;
    double start;
    int rc;

    if (!EXPECT(group, create(group, TIMEOUT_MS, NULL, &comm) == EPX_SUCCESS, "not created"))
        return;
    EXPECT(group, scene_exchange(group, comm, MPI_STATUS_IGNORE) == EPX_SUCCESS, "no exchange");
    if (is_last(group))
        fall(group);
    start = now_ms();
    rc = scene_exchange(group, comm, MPI_STATUS_IGNORE);
    EXPECT(group, rc == EPX_ERR_TIMEOUT, "error %d", rc);
    EXPECT(group, now_ms() - start < 2 * SOON_MS, "after %.0f ms", now_ms() - start);
    expect_message(group, comm, "rank 2 is gone");
    EXPECT(group, EPX_Comm_free(&comm) == EPX_SUCCESS, "not freed");
}

/* What the last rank did ends the creation on all that live, before anybody's time-out. */
static void creation_fails_soon(struct group *group)
{
    EPX_Comm comm = EPX_COMM_NULL;
    double start = now_ms();
    int rc;

    scene_patience_ms = SOON_MS;
    rc = create(group, TIMEOUT_MS, NULL, &comm);
    EXPECT(group, rc == EPX_ERR_TIMEOUT || rc == EPX_ERR_ARG, "error %d", rc);
    EXPECT(group, comm == EPX_COMM_NULL, "a communicator");
    EXPECT(group, now_ms() - start < 3 * SOON_MS, "after %.0f ms", now_ms() - start);
    if (rc == EPX_ERR_TIMEOUT && !is_last(group))
        expect_last_named(group, comm);
    if (has_fault(group, "finds another version"))
        expect_message(group, comm, "another version of EPX");
    if (has_fault(group, "finds another size"))
        expect_message(group, comm, "num_ranks differs");
}

/* The first creation is good; in the second one the last rank gets the cards of the first. */
static void cards_of_an_earlier_job_are_refused(struct group *group)
{
    EPX_Comm comm = EPX_COMM_NULL;

    EXPECT(group, create(group, TIMEOUT_MS, NULL, &comm) == EPX_SUCCESS, "not created");
    creation_fails_soon(group);
    EXPECT(group, scene_exchange(group, comm, MPI_STATUS_IGNORE) == EPX_SUCCESS, "no exchange");
    EPX_Comm_free(&comm);
}

/* A rank stops: the others find out by the time-out alone. */
static void a_stopped_rank_is_named(struct group *group)
{
    EPX_Comm comm = EPX_COMM_NULL;
    double start = now_ms();
    int rc = create(group, STOP_TIMEOUT_MS, NULL, &comm);

    EXPECT(group, rc == EPX_ERR_TIMEOUT, "error %d", rc);
    EXPECT(group, now_ms() - start < 3 * STOP_TIMEOUT_MS, "after %.0f ms", now_ms() - start);
    expect_last_named(group, comm);
}

/* A child sends this rank a signal so many microseconds later. */
static void expect_blow(int blow, int us)
{
    const struct timespec nap = {us / 1000000, us % 1000000 * 1000};
    const pid_t rank = getpid();

    if (fork())
        return;
    nanosleep(&nap, NULL);
    kill(rank, blow);
    _exit(0);
}

/* The last rank is killed or stopped at any time of the creation, or a little later: `number`
 * microseconds after its beginning. */
static void a_blow_is_noticed(struct group *group)
{
    const int stops = strcmp(group->scene->fault, "is stopped") == 0;
    const int timeout_ms = stops ? STOP_TIMEOUT_MS : TIMEOUT_MS;
    const double start = now_ms();
    EPX_Comm comm = EPX_COMM_NULL;
    int rc;

    scene_patience_ms = SOON_MS;
    if (is_last(group))
        expect_blow(stops ? SIGSTOP : SIGKILL, group->scene->number);
    rc = create(group, timeout_ms, NULL, &comm);
    while (rc == EPX_SUCCESS && now_ms() - start < TIMEOUT_MS)
        rc = scene_exchange(group, comm, MPI_STATUS_IGNORE);
    EXPECT(group, rc == EPX_ERR_TIMEOUT || (rc == EPX_ERR_ARG && !comm), "error %d", rc);
    EXPECT(group, now_ms() - start < (stops ? 4 * STOP_TIMEOUT_MS : 4 * SOON_MS), "after %.0f ms",
           now_ms() - start);
    if (rc == EPX_ERR_TIMEOUT)
        expect_last_named(group, comm);
    if (comm)
        EPX_Comm_free(&comm);
}

/* The last rank may open so many files more than it has: all ranks have a communicator, or none. */
static void too_few_files_are_told_to_all(struct group *group)
{
    struct group results = {scene_boards[1], group->rank, group->size, 0, "", group->scene};
    int rc, all[MAX_RANKS] = {0}, next = open("/dev/null", O_RDONLY);
    const double start = now_ms();
    EPX_Comm comm = EPX_COMM_NULL;
    struct rlimit limit;

    close(next);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = (rlim_t)(next + group->scene->number);
    if (is_last(group))
        setrlimit(RLIMIT_NOFILE, &limit);
    rc = create(group, TIMEOUT_MS, NULL, &comm);
    EXPECT(group, now_ms() - start < 3 * SOON_MS, "after %.0f ms", now_ms() - start);
    EXPECT(group, !rc || rc == EPX_ERR_NO_MEM || rc == EPX_ERR_TIMEOUT, "error %d", rc);
    EXPECT(group, !is_last(group) || rc != EPX_ERR_TIMEOUT, "another rank is to blame");
    EXPECT(group, scene_gather(&rc, all, sizeof(rc), &results) == 0, "a rank is missing");
    for (int r = 0; r < group->size; r++)
        EXPECT(group, !all[r] == !rc, "error %d on rank %d, %d here", all[r], r, rc);
    EXPECT(group, rc || group->scene->number > 2, "%d files are enough", group->scene->number);
    if (comm)
        EPX_Comm_free(&comm);
}

/* What a stranger says: nothing, no greeting, half of one, one with another key. */
static size_t make_speech(int kind, char speech[256])
{
    static const size_t bytes[] = {0, 256, 20, 32};

    memset(speech, 'x', 256);
    if (kind > 1)
        memcpy(speech, "EPX ctl", 8);
    if (kind > 2)
        memcpy(speech + 24, (const int32_t[2]){2, 0}, 8);
    return bytes[kind];
}

/* Connects to every door of EPX on this machine. */
static void knock_everywhere(const struct group *group)
{
    FILE *sockets = fopen("/proc/net/unix", "r");
    char line[512], speech[256];
    int fds[STRANGERS], num = 0, doors = 0;

    while (sockets && fgets(line, sizeof(line), sockets)) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        char *name = strstr(line, "@epx-");
        socklen_t length;

        if (!name)
            continue;
        doors++;
        name[strcspn(name, "\n")] = '\0';
        memcpy(address.sun_path + 1, name + 1, strlen(name + 1));
        length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
        for (int i = 0; i < 12 && num < STRANGERS; i++) {
            const size_t bytes = make_speech(i % 4, speech);
            int fd = fds[num++] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

            if (connect(fd, (struct sockaddr *)&address, length) == 0)
                (void)!send(fd, speech, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
    EXPECT(group, doors > 0, "no doors");
    if (sockets)
        fclose(sockets);
    nap_ms(200);
    for (int i = 0; i < num; i++)
        close(fds[i]);
}

/* The last rank knocks at the others' doors from its allgather, before it goes on. */
static int gather_and_knock(const void *own, void *all, size_t bytes, void *arg)
{
    struct group *group = arg;
    int error = scene_gather(own, all, bytes, group);

    if (is_last(group))
        knock_everywhere(group);
    return error;
}

static void strangers_do_no_harm(struct group *group)
{
    const char *const hints[] = {NULL};
    EPX_Comm comm = EPX_COMM_NULL;

    EXPECT(group, scene_create(group, gather_and_knock, hints, &comm) == EPX_SUCCESS,
           "not created");
    EXPECT(group, scene_exchange(group, comm, MPI_STATUS_IGNORE) == EPX_SUCCESS, "no exchange");
    EPX_Comm_free(&comm);
}

#ifdef EPX_HAVE_UCX
/* Takes a host name of this rank's own, as if it were on another machine; 0 without the right. */
static int move_out(const struct group *group)
{
    char name[32];

    snprintf(name, sizeof(name), "epx-host-%d", group->rank);
    return unshare(CLONE_NEWUTS) == 0 && sethostname(name, strlen(name)) == 0;
}

static int has_ipv6(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    int has = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;

    if (fd >= 0)
        close(fd);
    return has;
}

/* Creates a communicator of ranks that take each other for ranks of other machines. */
static int create_apart(struct group *group, const char *interface, EPX_Comm *comm)
{
    const char *const hints[] = {"epx_timeout_ms=20000", "epx_window_bytes=65536", interface,
                                 "epx_transport=ucx", NULL};

    return scene_create(group, gather, hints, comm);
}

static void machines_meet(struct group *group, const char *interface)
{
    EPX_Comm comm = EPX_COMM_NULL;

    if (!move_out(group) || (strstr(interface, "::") && !has_ipv6())) {
        if (group->rank == 0)
            printf("%s: left out, this machine does not allow it\n", interface);
        return;
    }
    if (!EXPECT(group, create_apart(group, interface, &comm) == EPX_SUCCESS, "%s", interface))
        return;
    EXPECT(group, scene_exchange(group, comm, MPI_STATUS_IGNORE) == EPX_SUCCESS, "no exchange");
    EXPECT(group, EPX_Comm_free(&comm) == EPX_SUCCESS, "not freed");
}

static void machines_meet_by_any(struct group *group)
{
    machines_meet(group, "epx_interface=all");
}

static void machines_meet_by_name(struct group *group)
{
    machines_meet(group, "epx_interface=lo");
}

static void machines_meet_by_ipv4(struct group *group)
{
    machines_meet(group, "epx_interface=127.0.0.1");
}

static void machines_meet_by_ipv6(struct group *group)
{
    machines_meet(group, "epx_interface=::1");
}

/* The others are told what the last rank could not do. */
static void a_missing_interface_is_named(struct group *group)
{
    EPX_Comm comm = EPX_COMM_NULL;
    int rc;

    if (!move_out(group))
        return;
    rc = create_apart(group, is_last(group) ? "epx_interface=none7" : "epx_interface=lo", &comm);
    EXPECT(group, rc == EPX_ERR_TRANSPORT, "error %d", rc);
    expect_message(group, comm, "epx_interface is none7");
}
#endif

#define KILLED(us)                                                                                 \
    {                                                                                              \
        "a rank that is killed after " #us " us is noticed", 3, a_blow_is_noticed, "is killed", 1, \
            us                                                                                     \
    }
#define STOPPED(us)                                                                                \
    {                                                                                              \
        "a rank that is stopped after " #us " us is noticed", 3, a_blow_is_noticed, "is stopped",  \
            1, us                                                                                  \
    }
#define FILES(num)                                                                                 \
    {                                                                                              \
        "all are told of " #num " files", 3, too_few_files_are_told_to_all, "", 0, num             \
    }

static const struct scene scenes[] = {
    {"a killed rank is named at once", 3, a_rank_ends, "", 1, 0},
    {"a killed rank with a child is named at once", 3, a_rank_ends, "has a child", 1, 0},
    {"a rank that exits is named at once", 3, a_rank_ends, "exits", 1, 0},
    {"a rank that dies before the allgather ends it", 3, creation_fails_soon, "dies before", 1, 0},
    {"a rank that stops before the allgather ends it", 3, creation_fails_soon, "stops before", 1,
     0},
    {"a rank that dies after the allgather is noticed", 3, creation_fails_soon, "dies after", 1, 0},
    {"a rank that exits after the allgather is noticed", 3, creation_fails_soon, "exits after", 1,
     0},
    {"a rank that dies as the only other one is noticed", 2, creation_fails_soon, "dies after", 1,
     0},
    {"an allgather that fails ends it for all", 3, creation_fails_soon, "fails", 0, 0},
    {"zeros are refused", 3, creation_fails_soon, "gathers zeros", 0, 0},
    {"the own card for all is refused", 2, creation_fails_soon, "gathers its own", 0, 0},
    {"noise is refused", 3, creation_fails_soon, "gathers noise", 0, 0},
    {"swapped cards are refused", 3, creation_fails_soon, "swaps cards", 0, 0},
    {"another version is refused", 3, creation_fails_soon, "finds another version", 0, 0},
    {"another size is refused", 3, creation_fails_soon, "finds another size", 0, 0},
    {"cards of an earlier job are refused", 3, cards_of_an_earlier_job_are_refused, "remembers", 0,
     0},
    {"a stopped rank is named", 3, a_stopped_rank_is_named, "stops after", 1, 0},
    {"a stopped rank of eight is named", 8, a_stopped_rank_is_named, "stops after", 1, 0},
    {"strangers do no harm", 3, strangers_do_no_harm, "", 0, 0},
#ifdef EPX_HAVE_UCX
    {"machines meet by any interface", 3, machines_meet_by_any, "", 0, 0},
    {"machines meet by the name of one", 3, machines_meet_by_name, "", 0, 0},
    {"machines meet by IPv4", 3, machines_meet_by_ipv4, "", 0, 0},
    {"machines meet by IPv6", 3, machines_meet_by_ipv6, "", 0, 0},
    {"a missing interface is named", 3, a_missing_interface_is_named, "", 0, 0},
#endif
    KILLED(0),
    KILLED(200),
    KILLED(1000),
    KILLED(3000),
    KILLED(6000),
    KILLED(20000),
    KILLED(50000),
    STOPPED(0),
    STOPPED(1000),
    STOPPED(3000),
    STOPPED(6000),
    STOPPED(50000),
    FILES(0),
    FILES(1),
    FILES(2),
    FILES(3),
    FILES(4),
    FILES(5),
    FILES(6),
    FILES(7),
    FILES(8),
    FILES(10),
    FILES(12),
};

int main(int argc, char **argv)
{
    return scene_play(scenes, sizeof(scenes) / sizeof(scenes[0]), argc < 2 ? NULL : argv[1]);
}
