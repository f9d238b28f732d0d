/* SPDX-License-Identifier: BSD-3-Clause */
/* graphs.c - captures of streams, and the graphs that they make. */
#include "emulation/streams/graphs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "emulation/streams/works.h"

struct node {
    struct work *work;
    int *behind, num_behind; /* nodes before it */
    int is_done, is_needed;
};

struct graph {
    unsigned long long id;
    int references;
    struct node *nodes;
    int num;
    const struct work *launch; /* that runs it */
    /* while it is captured */
    cudaStream_t origin;
    int is_ended, is_invalid;
    enum cudaStreamCaptureMode mode;
    pthread_t thread;
    struct graph *next; /* that is captured too */
};

static struct graph *captures;
static _Thread_local enum cudaStreamCaptureMode own_mode = cudaStreamCaptureModeGlobal;

static int *copy_numbers(const int *numbers, int num)
{
    int *copy = works_memory((size_t)num * sizeof(*copy));

    if (num)
        memcpy(copy, numbers, (size_t)num * sizeof(*copy));
    return copy;
}

static void set_tails(cudaStream_t stream, const int *tails, int num)
{
    int *copy = copy_numbers(tails, num);

    free(stream->tails);
    stream->tails = copy;
    stream->num_tails = num;
}

/* The capture that the stream is in. One that has ended is left. */
static struct graph *capture_of(cudaStream_t stream)
{
    if (stream->capture && stream->capture->is_ended) {
        graph_forget(stream->capture);
        stream->capture = NULL;
    }
    return stream->capture;
}

static void add_node(struct graph *graph, cudaStream_t stream, struct work *work)
{
    int number = graph->num;

    graph->nodes = realloc(graph->nodes, (size_t)(number + 1) * sizeof(*graph->nodes));
    if (!graph->nodes)
        abort();
    graph->nodes[graph->num++] =
        (struct node){.work = work,
                      .behind = copy_numbers(stream->tails, stream->num_tails),
                      .num_behind = stream->num_tails};
    set_tails(stream, &number, 1);
}

cudaError_t graph_queue(cudaStream_t stream, struct work *work)
{
    struct graph *capture = capture_of(stream);

    if (!capture) {
        streams_queue(stream, work);
        return cudaSuccess;
    }
    if (capture->is_invalid) {
        work->release(work);
        return cudaErrorStreamCaptureInvalidated;
    }
    add_node(capture, stream, work);
    return cudaSuccess;
}

cudaError_t graph_begin(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    static unsigned long long last_id;
    struct graph *graph;

    if (capture_of(stream))
        return cudaErrorIllegalState;
    graph = works_memory(sizeof(*graph));
    graph->id = ++last_id;
    graph->references = 1;
    graph->origin = stream;
    graph->mode = mode;
    graph->thread = pthread_self();
    graph->next = captures;
    captures = graph;
    stream->capture = graph_keep(graph);
    set_tails(stream, NULL, 0);
    return cudaSuccess;
}

static void need(struct graph *graph, const int *numbers, int num)
{
    for (int i = 0; i < num; i++) {
        struct node *node = &graph->nodes[numbers[i]];

        if (node->is_needed)
            continue;
        node->is_needed = 1;
        need(graph, node->behind, node->num_behind);
    }
}

/* Whether the stream that began the capture comes behind all of its nodes. */
static int is_joined(struct graph *graph)
{
    need(graph, graph->origin->tails, graph->origin->num_tails);
    for (int i = 0; i < graph->num; i++)
        if (!graph->nodes[i].is_needed)
            return 0;
    return 1;
}

cudaError_t graph_end(cudaStream_t stream, struct graph **result)
{
    struct graph *graph = capture_of(stream), **link = &captures;
    cudaError_t error = cudaSuccess;

    if (!graph)
        return cudaErrorIllegalState;
    if (graph->origin != stream)
        return cudaErrorStreamCaptureUnmatched;
    while (*link != graph)
        link = &(*link)->next;
    *link = graph->next;
    if (graph->is_invalid)
        error = cudaErrorStreamCaptureInvalidated;
    else if (!is_joined(graph))
        error = cudaErrorStreamCaptureUnjoined;
    graph->is_ended = 1;
    *result = error == cudaSuccess ? graph : NULL;
    if (error != cudaSuccess)
        graph_forget(graph);
    capture_of(stream);
    return error;
}

enum cudaStreamCaptureStatus graph_status(cudaStream_t stream, unsigned long long *id)
{
    const struct graph *capture = capture_of(stream);

    *id = capture ? capture->id : 0;
    if (!capture)
        return cudaStreamCaptureStatusNone;
    return capture->is_invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

cudaError_t graph_record(cudaEvent_t event, cudaStream_t stream)
{
    struct graph *capture = capture_of(stream);

    graph_forget(event->capture);
    event->capture = NULL;
    if (!capture) {
        streams_queue(stream, works_record(event));
        return cudaSuccess;
    }
    if (capture->is_invalid)
        return cudaErrorStreamCaptureInvalidated;
    event->capture = graph_keep(capture);
    free(event->tails);
    event->tails = copy_numbers(stream->tails, stream->num_tails);
    event->num_tails = stream->num_tails;
    return cudaSuccess;
}

static cudaError_t invalidate(struct graph *capture, cudaError_t error)
{
    if (capture)
        capture->is_invalid = 1;
    return error;
}

static void add_tails(cudaStream_t stream, const int *tails, int num)
{
    int all = stream->num_tails + num, *both = works_memory((size_t)all * sizeof(*both));

    for (int i = 0; i < all; i++)
        both[i] = i < num ? tails[i] : stream->tails[i - num];
    free(stream->tails);
    stream->tails = both;
    stream->num_tails = all;
}

cudaError_t graph_wait(cudaStream_t stream, cudaEvent_t event)
{
    struct graph *capture = capture_of(stream);

    if (capture && capture->is_invalid)
        return cudaErrorStreamCaptureInvalidated;
    if (event->capture && event->capture->is_ended)
        return invalidate(capture, cudaErrorCapturedEvent);
    if (capture && !event->capture)
        return invalidate(capture, cudaErrorStreamCaptureIsolation);
    if (capture && event->capture != capture)
        return invalidate(capture, cudaErrorStreamCaptureMerge);
    if (!event->capture) {
        streams_queue(stream, works_wait_event(event));
        return cudaSuccess;
    }
    if (!capture) {
        stream->capture = graph_keep(event->capture);
        set_tails(stream, event->tails, event->num_tails);
    } else {
        add_tails(stream, event->tails, event->num_tails);
    }
    return cudaSuccess;
}

cudaError_t graph_refuse(cudaStream_t stream)
{
    struct graph *capture = capture_of(stream);

    return capture ? invalidate(capture, cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t graph_refuse_all(void)
{
    if (own_mode == cudaStreamCaptureModeRelaxed)
        return cudaSuccess;
    for (struct graph *capture = captures; capture; capture = capture->next) {
        int is_own = pthread_equal(capture->thread, pthread_self());

        if (capture->mode == cudaStreamCaptureModeRelaxed ||
            (!is_own && (capture->mode == cudaStreamCaptureModeThreadLocal ||
                         own_mode == cudaStreamCaptureModeThreadLocal)))
            continue;
        return invalidate(capture, cudaErrorStreamCaptureUnsupported);
    }
    return cudaSuccess;
}

void graph_exchange_mode(enum cudaStreamCaptureMode *mode)
{
    enum cudaStreamCaptureMode before = own_mode;

    own_mode = *mode;
    *mode = before;
}

struct graph *graph_keep(struct graph *graph)
{
    graph->references++;
    return graph;
}

void graph_forget(struct graph *graph)
{
    if (!graph || --graph->references)
        return;
    for (int i = 0; i < graph->num; i++) {
        graph->nodes[i].work->release(graph->nodes[i].work);
        free(graph->nodes[i].behind);
    }
    free(graph->nodes);
    free(graph);
}

struct launch {
    struct work work;
    struct graph *graph;
};

/* Whether all nodes before it are done. If all but one are, it may overtake that one. */
static int may_run(const struct graph *graph, const struct node *node)
{
    const struct node *before = NULL;

    for (int i = 0; i < node->num_behind; i++) {
        const struct node *other = &graph->nodes[node->behind[i]];

        if (other->is_done || other == before)
            continue;
        if (before)
            return 0;
        before = other;
    }
    if (before)
        works_overtake(before->work, node->work);
    return !before;
}

static int step_graph(struct work *work)
{
    struct graph *graph = ((struct launch *)(void *)work)->graph;
    int all = 1;

    if (graph->launch && graph->launch != work)
        return 0;
    for (int i = 0; !graph->launch && i < graph->num; i++)
        graph->nodes[i].is_done = 0;
    graph->launch = work;
    for (int i = 0; i < graph->num; i++) {
        struct node *node = &graph->nodes[i];

        if (!node->is_done && may_run(graph, node))
            node->is_done = node->work->step(node->work);
        all &= node->is_done;
    }
    if (all)
        graph->launch = NULL;
    return all;
}

static void release_graph(struct work *work)
{
    graph_forget(((struct launch *)(void *)work)->graph);
    free(work);
}

struct work *graph_work(struct graph *graph)
{
    struct launch *launch = works_memory(sizeof(*launch));

    launch->work.step = step_graph;
    launch->work.release = release_graph;
    launch->graph = graph_keep(graph);
    return &launch->work;
}

int graph_num_nodes(const struct graph *graph)
{
    return graph->num;
}

const struct work *graph_node(const struct graph *graph, int i)
{
    return graph->nodes[i].work;
}
