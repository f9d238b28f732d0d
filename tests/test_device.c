/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_device.c - what only device communicators promise: nothing waits for the GPU, streams and
 * their order, CUDA graphs, operations on several streams and communicators at once.
 */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "exchange.h"
#include "gpu.h"
#include "operation.h"
#include "space.h"
#include "suite.h"

#define REPLAYS 1000
#define STREAMS 3

static EPX_Comm comm;

static void open_comm(void)
{
    comm = suite_comm("epx_window_bytes", "65536", NULL);
}

static void close_comm(void)
{
    EPX_Stats stats = EPX_STATS_INIT;

    EXPECT_CODE(EPX_Comm_get_stats(comm, &stats), EPX_SUCCESS);
    EXPECT(stats.host_syncs == 0, "%llu host syncs", (unsigned long long)stats.host_syncs);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

static void must(cudaError_t error)
{
    EXPECT(error == cudaSuccess, "%s", cudaGetErrorString(error));
}

static cudaStream_t new_stream(void)
{
    cudaStream_t stream = NULL;

    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

/* A route with one operation of each verb, on one stream. */
struct step {
    struct layer layer;
    struct routing routing;
    struct operation ops[VERBS];
    void *next_rows; /* what the user's kernel makes the rows that combine is given */
    cudaGraphExec_t graph;
};

static void prepare_step(struct step *step, int variant, cudaStream_t stream, EPX_Comm on)
{
    struct scenario s = scenario_small(variant % 2 ? EPX_FLOAT32 : EPX_BFLOAT16);

    s.layout = variant / 2 % 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.alignment = s.layout == EPX_EXPERT_MAJOR ? 4 : 1;
    s.memory = (enum memory)(variant % 3);
    s.row_bytes_known = variant % 2;
    s.tokens = TOKENS_FULL;
    s.seed += (uint64_t)variant;
    layer_open(&step->layer, &s, on);
    SETTLE();
    step->layer.stream = stream;
    step->graph = NULL;
    routing_prepare(&step->routing, &step->layer, s.seed);
    for (int v = 0; v < VERBS; v++)
        operation_prepare(&step->ops[v], &step->routing, (enum verb)v, (uint64_t)v);
    step->next_rows = space_alloc(step->ops[COMBINE].in.bytes);
}

static void users_kernel(struct step *step)
{
    struct buffer *in = &step->ops[COMBINE].in;

    gpu_copy(in->address, step->next_rows, in->bytes, step->layer.stream);
    must(cudaGetLastError());
}

/* The rows wait where the user's kernel takes them from. */
static void hide_rows(struct step *step)
{
    struct buffer *in = &step->ops[COMBINE].in;
    unsigned char *noise = malloc(in->bytes + 1);

    memset(noise, 0xa5, in->bytes);
    space_put(step->next_rows, in->data, in->bytes);
    space_put(in->address, noise, in->bytes);
    free(noise);
}

static void call_step(struct step *step)
{
    EXPECT_CODE(routing_call(&step->routing), EPX_SUCCESS);
    EXPECT_CODE(operation_call(&step->ops[DISPATCH]), EPX_SUCCESS);
    users_kernel(step);
    EXPECT_CODE(operation_call(&step->ops[COMBINE]), EPX_SUCCESS);
    EXPECT_CODE(operation_call(&step->ops[COMBINE_BACKWARD]), EPX_SUCCESS);
    EXPECT_CODE(operation_call(&step->ops[DISPATCH_BACKWARD]), EPX_SUCCESS);
}

static void enqueue_waits(struct step *step, cudaStream_t stream)
{
    EXPECT_CODE(EPX_Wait_enqueue(&step->routing.request, stream), EPX_SUCCESS);
    for (int v = 0; v < VERBS; v++)
        EXPECT_CODE(EPX_Wait_enqueue(&step->ops[v].request, stream), EPX_SUCCESS);
}

static void check_step(struct step *step)
{
    routing_check(&step->routing);
    for (int v = 0; v < VERBS; v++)
        operation_check(&step->ops[v]);
}

static void free_step(struct step *step)
{
    if (step->graph)
        must(cudaGraphExecDestroy(step->graph));
    for (int v = 0; v < VERBS; v++)
        operation_free(&step->ops[v]);
    space_free(step->next_rows);
    routing_free(&step->routing);
    layer_close(&step->layer);
    SETTLE();
}

START_TEST(no_call_waits_for_the_gpu)
{
    cudaStream_t stream = new_stream();
    struct step step;
    int *flag, complete = -1;

    must(cudaHostAlloc((void **)&flag, sizeof(*flag), cudaHostAllocDefault));
    prepare_step(&step, _i, stream, comm);
    hide_rows(&step);
    *(volatile int *)flag = 1;
    gpu_hold(flag, stream);
    call_step(&step);
    EXPECT_CODE(EPX_Test(&step.routing.request, &complete, MPI_STATUS_IGNORE), EPX_SUCCESS);
    EXPECT(complete == 0, "complete before its stream");
    EXPECT(cudaStreamQuery(stream) == cudaErrorNotReady, "the stream was not held");
    *(volatile int *)flag = 0;
    routing_finish(&step.routing);
    for (int v = 0; v < VERBS; v++)
        operation_finish(&step.ops[v]);
    SETTLE();
    free_step(&step);
    must(cudaFreeHost(flag));
    must(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(a_stream_that_waits_comes_after_the_operation)
{
    cudaStream_t stream = new_stream(), later = new_stream();
    unsigned char *copy, *image;
    struct buffer *out;
    struct step step;
    int *flag;

    must(cudaHostAlloc((void **)&flag, sizeof(*flag), cudaHostAllocDefault));
    prepare_step(&step, _i, stream, comm);
    hide_rows(&step);
    out = &step.ops[COMBINE].out;
    copy = space_alloc(out->bytes);
    image = malloc(out->bytes + 1);
    *(volatile int *)flag = 1;
    gpu_hold(flag, stream);
    call_step(&step);
    enqueue_waits(&step, later);
    gpu_copy(copy, out->address, out->bytes, later);
    *(volatile int *)flag = 0;
    must(cudaStreamSynchronize(later));
    space_get(image, copy, out->bytes);
    EXPECT(memcmp(image, out->expected, out->bytes) == 0, "copied before it was there");
    check_step(&step);
    SETTLE();
    space_free(copy);
    free(image);
    free_step(&step);
    must(cudaFreeHost(flag));
    must(cudaStreamDestroy(stream));
    must(cudaStreamDestroy(later));
}
END_TEST

static void capture_step(struct step *step)
{
    cudaStream_t stream = step->layer.stream;
    EPX_Request *request = &step->routing.request;
    cudaGraph_t graph;
    int flag;

    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    call_step(step);
    EXPECT_CODE(EPX_Wait(request, MPI_STATUS_IGNORE), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Test(request, &flag, MPI_STATUS_IGNORE), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Waitall(1, request, MPI_STATUSES_IGNORE), EPX_ERR_REQUEST);
    enqueue_waits(step, stream);
    must(cudaStreamEndCapture(stream, &graph));
    must(cudaGraphInstantiate(&step->graph, graph, 0));
    must(cudaGraphDestroy(graph));
    SETTLE();
}

static void refill_step(struct step *step, uint64_t seed)
{
    routing_refill(&step->routing, seed);
    for (int v = 0; v < VERBS; v++)
        operation_refill(&step->ops[v], seed + (uint64_t)v);
    hide_rows(step);
}

static void replay_step(struct step *step, uint64_t seed)
{
    refill_step(step, seed);
    must(cudaGraphLaunch(step->graph, step->layer.stream));
    must(cudaStreamSynchronize(step->layer.stream));
    buffer_fetch(&step->ops[COMBINE].in);
    check_step(step);
}

static void expect_no_error(void)
{
    int error = -1;

    EXPECT_CODE(EPX_Comm_get_async_error(comm, &error), EPX_SUCCESS);
    EXPECT(error == EPX_SUCCESS, "error %d", error);
}

START_TEST(a_graph_routes_other_tokens_at_each_replay)
{
    cudaStream_t stream = new_stream();
    struct step step;

    prepare_step(&step, _i, stream, comm);
    capture_step(&step);
    for (int i = 0; i < REPLAYS; i++) {
        replay_step(&step, 100 + (uint64_t)i);
        if (i % 50 == 0)
            SETTLE();
    }
    expect_no_error();
    SETTLE();
    free_step(&step);
    must(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(graphs_of_two_routes_take_turns_with_plain_calls)
{
    cudaStream_t stream = new_stream();
    struct step steps[2];

    for (int i = 0; i < 2; i++) {
        prepare_step(&steps[i], i, stream, comm);
        capture_step(&steps[i]);
    }
    for (int i = 0; i < 40; i++) {
        replay_step(&steps[i % 2], (uint64_t)i);
        replay_step(&steps[1 - i / 2 % 2], (uint64_t)i + 7000);
        SETTLE();
        if (i % 10 == 0)
            layer_works(comm);
    }
    expect_no_error();
    SETTLE();
    for (int i = 0; i < 2; i++)
        free_step(&steps[i]);
    must(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(an_error_in_a_replay_is_told_later)
{
    cudaStream_t stream = new_stream();
    struct step step;
    int error = EPX_SUCCESS;

    prepare_step(&step, 0, stream, comm);
    capture_step(&step);
    step.layer.s.routing = ROUTING_BAD;
    for (uint64_t seed = 1; error == EPX_SUCCESS && seed < 100; seed++) {
        int bad;

        replay_step(&step, seed);
        bad = step.routing.ref->rank[suite_rank].bad_ids > 0;
        EXPECT_CODE(EPX_Comm_get_async_error(comm, &error), EPX_SUCCESS);
        EXPECT(error == (bad ? EPX_ERR_ARG : EPX_SUCCESS), "error %d for %d bad ids", error, bad);
        SETTLE();
        MPI_Allreduce(MPI_IN_PLACE, &error, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
    expect_no_error();
    SETTLE();
    free_step(&step);
    must(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(operations_on_several_streams_do_not_disturb_each_other)
{
    EPX_Comm other = suite_comm(NULL);
    struct step steps[STREAMS];
    cudaStream_t streams[STREAMS];

    for (int i = 0; i < STREAMS; i++) {
        streams[i] = new_stream();
        prepare_step(&steps[i], _i + i, streams[i], i % 2 ? other : comm);
        hide_rows(&steps[i]);
    }
    for (int i = 0; i < STREAMS; i++)
        call_step(&steps[i]);
    for (int i = STREAMS - 1; i >= 0; i--) {
        routing_finish(&steps[i].routing);
        for (int v = VERBS - 1; v >= 0; v--)
            operation_finish(&steps[i].ops[v]);
    }
    SETTLE();
    for (int i = 0; i < STREAMS; i++) {
        free_step(&steps[i]);
        must(cudaStreamDestroy(streams[i]));
    }
    EXPECT_CODE(EPX_Comm_free(&other), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* So much that the whole GPU moves it, in several chunks of tokens. */
START_TEST(many_rows_go_in_chunks)
{
    struct scenario s = scenario_small(_i < VERBS ? EPX_BFLOAT16 : EPX_FLOAT32);

    s.max_tokens = 513;
    s.count = _i < VERBS ? 35000 : 17000;
    s.alignment = 16;
    s.routing = _i % 2 ? ROUTING_SKEWED : ROUTING_HOLES;
    s.tokens = _i < VERBS ? TOKENS_FULL : TOKENS_UNEVEN;
    s.memory = MEMORY_WINDOW;
    s.row_bytes_known = 1;
    s.capacity_percent = 110;
    layer_run(&s, comm, (enum verb)(_i % VERBS), 1);
}
END_TEST

START_TEST(memory_of_the_host_is_refused)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    float here[64] = {0};
    EPX_Request request = EPX_REQUEST_NULL;
    struct layer layer;

    layer_open(&layer, &s, comm);
    SETTLE();
    EXPECT_CODE(EPX_Route_tokens(here, 2, layer.route, EPX_STREAM_NULL, &request),
                EPX_ERR_BUFFER);
    EXPECT(request == EPX_REQUEST_NULL, "a request was made");
    layer_close(&layer);
    layer_works(comm);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("device");
    TCase *tcase = tcase_create("device");

    if (!space_is_device())
        suite_skip("for device memory alone");
    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_loop_test(tcase, no_call_waits_for_the_gpu, 0, 4);
    tcase_add_loop_test(tcase, a_stream_that_waits_comes_after_the_operation, 0, 4);
    tcase_add_loop_test(tcase, a_graph_routes_other_tokens_at_each_replay, 0, 4);
    tcase_add_test(tcase, graphs_of_two_routes_take_turns_with_plain_calls);
    tcase_add_test(tcase, an_error_in_a_replay_is_told_later);
    tcase_add_loop_test(tcase, operations_on_several_streams_do_not_disturb_each_other, 0, 4);
    tcase_add_loop_test(tcase, many_rows_go_in_chunks, 0, 2 * VERBS);
    tcase_add_test(tcase, memory_of_the_host_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
