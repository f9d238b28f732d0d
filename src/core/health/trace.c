/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace.c - with the variable EPX_TRACE: a file that tells of all ranks when each operation began,
 * got on, waited and ended, as Perfetto reads it.
 *
 * A rank is a process of the trace, each of its communicators a thread with its operations. The
 * waits of a communicator are a track for each rank that is waited for: at a time there is one wait
 * for a rank, and waits for several overlap. An operation is drawn from the end of the one before
 * it on, as only one at a time gets on. Events are kept in memory until a communicator or the
 * process ends.
 *
 * Beginnings and ends are events of their own, in the order of time. Viewers keep times as double,
 * which has not all nanoseconds: a begin with a duration may end after what it is within, and
 * Perfetto leaves such an event out.
 */
#include "core/health/trace.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/machine_key.h"
#include "base/status.h"
#include "core/health/trace_file.h"

enum { EVENTS_A_BLOCK = 1024, MOST_BLOCKS = 1024 };

/* The start of 2026. Readers keep microseconds as double: counted from 1970 on they lose digits. */
enum { EPOCH_S = 1767225600 };

enum kind { OPERATION, WAIT };

struct event {
    enum kind kind;
    int comm; /* its number */
    int rank; /* that was waited for; by the kernels of an operation longest, -1 = none */
    struct epx_traced_operation operation;
    int64_t from_ns, to_ns;
    int64_t kernels_ns; /* how long kernels waited for that rank */
};

struct block {
    struct event event[EVENTS_A_BLOCK];
    struct block *next;
};

static struct {
    char name[PATH_MAX]; /* of the file; empty = there is no trace */
    int64_t ahead_ns;    /* of the time since EPOCH_S before epx_now_ns */
    uint32_t process;    /* its number in the trace */
    int rank, num_comms;
    struct block *first, *last;
    int num_blocks, num_in_last;
    unsigned long long dropped;
} trace;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_file(void)
{
    const char *name = getenv("EPX_TRACE");
    struct timespec time;
    struct utsname machine;

    if (!name || !*name || strlen(name) >= sizeof(trace.name) || uname(&machine) != 0)
        return;
    clock_gettime(CLOCK_REALTIME, &time);
    trace.ahead_ns = ((int64_t)time.tv_sec - EPOCH_S) * 1000000000 + time.tv_nsec - epx_now_ns();
    trace.process =
        (uint32_t)(((uint64_t)epx_machine_key(machine.nodename) * 31 + (uint64_t)getpid()) * 31 +
                   (uint64_t)time.tv_nsec) &
        INT32_MAX;
    trace.rank = -1;
    snprintf(trace.name, sizeof(trace.name), "%s", name);
    epx_trace_file_begin();
}

void epx_trace_begin(void)
{
    pthread_once(&once, find_file);
}

void epx_trace_comm(struct epx_traced *traced, int rank, int size)
{
    if (!*trace.name)
        return;
    if (trace.rank < 0)
        trace.rank = rank;
    traced->number = ++trace.num_comms;
    traced->rank = rank;
    traced->size = size;
    traced->seen_ns = calloc((size_t)size, sizeof(*traced->seen_ns));
}

int64_t epx_trace_time(void)
{
    return *trace.name ? epx_now_ns() : 0;
}

/* Returns 0 if there may be no more, or no memory for them. */
static int add_block(void)
{
    struct block *block = trace.num_blocks < MOST_BLOCKS ? calloc(1, sizeof(*block)) : NULL;

    if (!block)
        return 0;
    if (trace.last)
        trace.last->next = block;
    else
        trace.first = block;
    trace.last = block;
    trace.num_blocks++;
    trace.num_in_last = 0;
    return 1;
}

/* Room for one event; NULL = it is left out, which the file tells. */
static struct event *add(enum kind kind, const struct epx_traced *traced, int rank)
{
    struct event *event;

    if ((!trace.last || trace.num_in_last == EVENTS_A_BLOCK) && !add_block()) {
        trace.dropped++;
        return NULL;
    }
    event = &trace.last->event[trace.num_in_last++];
    event->kind = kind;
    event->comm = traced->number;
    event->rank = rank;
    return event;
}

/* The rank that the kernels of an operation have waited for longest. */
static void find_late(struct epx_traced *traced, const uint64_t *kernels_ns, struct event *event)
{
    for (int r = 0; traced->seen_ns && r < traced->size; r++) {
        int64_t waited_ns = (int64_t)(kernels_ns[r] - traced->seen_ns[r]);

        if (waited_ns > event->kernels_ns) {
            event->kernels_ns = waited_ns;
            event->rank = r;
        }
        traced->seen_ns[r] = kernels_ns[r];
    }
}

void epx_trace_end(struct epx_traced *traced, const struct epx_traced_operation *operation,
                   const uint64_t *kernels_ns)
{
    const int64_t last_ns = traced->last_ns;
    struct event *event = traced->number ? add(OPERATION, traced, -1) : NULL;

    if (!event)
        return;
    event->operation = *operation;
    event->from_ns = operation->called_ns > last_ns ? operation->called_ns : last_ns;
    event->to_ns = traced->last_ns = epx_now_ns();
    if (kernels_ns)
        find_late(traced, kernels_ns, event);
}

void epx_trace_wait(const struct epx_traced *traced, int rank, int64_t from_ns, int64_t to_ns)
{
    struct event *event;

    if (!traced || !traced->number || to_ns == from_ns || !(event = add(WAIT, traced, rank)))
        return;
    event->from_ns = from_ns;
    event->to_ns = to_ns;
}

/* A time in microseconds, as the format wants it. */
static void print_us(FILE *to, const char *name, int64_t ns)
{
    fprintf(to, ",\"%s\":%lld.%03d", name, (long long)(ns / 1000), (int)(ns % 1000));
}

/* What all events of a thread have; name NULL = the event ends what began last. */
static void print_head(FILE *to, const char *name, const char *kind, int thread, int64_t ns)
{
    fprintf(to, "{\"ph\":\"%s\",\"pid\":%u,\"tid\":%d", kind, trace.process, thread);
    print_us(to, "ts", ns + trace.ahead_ns);
    if (name)
        fprintf(to, ",\"name\":\"%s\"", name);
}

static void print_phase(FILE *to, const struct event *event, const char *name, int64_t from_ns,
                        int64_t to_ns)
{
    print_head(to, name, "B", event->comm, from_ns);
    fprintf(to, "},\n");
    print_head(to, NULL, "E", event->comm, to_ns);
    fprintf(to, "},\n");
}

static void print_operation(FILE *to, const struct event *event)
{
    const struct epx_traced_operation *operation = &event->operation;

    print_head(to, operation->name, "B", event->comm, event->from_ns);
    fprintf(to, ",\"args\":{\"number\":%llu,\"error\":%d", (unsigned long long)operation->epoch,
            operation->error);
    print_us(to, "queued_us", event->from_ns - operation->called_ns);
    if (event->rank >= 0) {
        fprintf(to, ",\"waited_for\":%d", event->rank);
        print_us(to, "waited_us", event->kernels_ns);
    }
    fprintf(to, "}},\n");
    if (operation->agreed_ns) {
        print_phase(to, event, "ready words", event->from_ns, operation->agreed_ns);
        print_phase(to, event, "rows", operation->agreed_ns, event->to_ns);
    }
    print_head(to, NULL, "E", event->comm, event->to_ns);
    fprintf(to, "},\n");
}

/* The track is that of this process with this number. */
static void print_wait(FILE *to, const struct event *event)
{
    const int64_t times[] = {event->from_ns, event->to_ns};
    char name[32];

    snprintf(name, sizeof(name), "wait for rank %d", event->rank);
    for (int i = 0; i < 2; i++) {
        print_head(to, name, i ? "e" : "b", event->comm, times[i]);
        fprintf(to, ",\"cat\":\"communicator %d\",\"id2\":{\"local\":\"%d.%d\"}", event->comm,
                event->comm, event->rank);
        fprintf(to, ",\"args\":{\"rank\":%d}},\n", event->rank);
    }
}

static void print_name(FILE *to, const char *kind, int thread, const char *name, int number)
{
    fprintf(to,
            "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%u,\"tid\":%d,\"args\":{\"name\":\"%s %d\"}},\n",
            kind, trace.process, thread, name, number);
}

static void print_names(FILE *to)
{
    print_name(to, "process_name", 0, "rank", trace.rank);
    fprintf(to,
            "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%u,\"tid\":0,"
            "\"args\":{\"sort_index\":%d}},\n",
            trace.process, trace.rank);
    for (int c = 1; c <= trace.num_comms; c++)
        print_name(to, "thread_name", c, "operations of communicator", c);
}

static void print_list(FILE *to, const char *name, const uint64_t *list, int num)
{
    fprintf(to, ",\"%s\":[", name);
    for (int i = 0; i < num; i++)
        fprintf(to, "%s%llu", i ? "," : "", (unsigned long long)list[i]);
    fprintf(to, "]");
}

/* A communicator that ends. */
struct ending {
    const struct epx_traced *traced;
    const uint64_t *ns, *operations;
};

/* One line with what EPX_Comm_get_waits tells at the end; epx_info reads such lines. */
static void print_waits(FILE *to, const struct ending *ending)
{
    const struct epx_traced *traced = ending->traced;

    print_head(to, "EPX waits", "i", traced->number, epx_now_ns());
    fprintf(to, ",\"s\":\"t\",\"args\":{\"communicator\":%d,\"rank\":%d,\"size\":%d",
            traced->number, traced->rank, traced->size);
    print_list(to, "ns", ending->ns, traced->size);
    print_list(to, "operations", ending->operations, traced->size);
    fprintf(to, "}},\n");
}

static void print_block(FILE *to, const struct block *block)
{
    int num = block->next ? EVENTS_A_BLOCK : trace.num_in_last;

    for (int i = 0; i < num; i++)
        if (block->event[i].kind == WAIT)
            print_wait(to, &block->event[i]);
        else
            print_operation(to, &block->event[i]);
}

static void print_events(FILE *to, void *ending)
{
    print_names(to);
    for (const struct block *block = trace.first; block; block = block->next)
        print_block(to, block);
    if (ending)
        print_waits(to, ending);
    if (trace.dropped)
        fprintf(to,
                "{\"name\":\"events left out: %llu\",\"ph\":\"i\",\"s\":\"p\",\"pid\":%u,"
                "\"tid\":0,\"ts\":%lld},\n",
                trace.dropped, trace.process, (long long)(epx_now_ns() + trace.ahead_ns) / 1000);
}

static void free_blocks(void)
{
    struct block *next;

    for (struct block *block = trace.first; block; block = next) {
        next = block->next;
        free(block);
    }
    trace.first = trace.last = NULL;
    trace.num_blocks = 0;
    trace.dropped = 0;
}

void epx_trace_forget(void)
{
    if (!*trace.name)
        return;
    free_blocks();
    trace.num_in_last = trace.num_comms = 0;
    find_file();
}

static void write_file(struct ending *ending)
{
    int error = epx_trace_file_append(trace.name, print_events, ending);

    if (error)
        EPX_LOG_WARN("EPX_TRACE: %s: %s", trace.name, strerror(error));
    free_blocks();
}

void epx_trace_close(struct epx_traced *traced, const uint64_t *ns, const uint64_t *operations)
{
    struct ending ending = {traced, ns, operations};

    if (!traced->number)
        return;
    write_file(&ending);
    free(traced->seen_ns);
    *traced = (struct epx_traced){0};
}

/* At exit: what communicators that were never freed have left. */
__attribute__((destructor)) static void write_rest(void)
{
    if (trace.first)
        write_file(NULL);
}
