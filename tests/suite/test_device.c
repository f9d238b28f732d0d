/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_device.c - what only device communicators promise: nothing waits for the GPU, streams and
 * their order, CUDA graphs, operations on several streams and communicators at once.
 */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/exchange.h"
#include "support/fault.h"
#include "support/gpu.h"
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

#define REPLAYS 1000
#define REPLAYS_IN_TURNS 100 /* by ranks that share a GPU, milliseconds each */
#define STREAMS 3

static EPX_Comm comm;

static void open_comm(void)
{
    comm = suite_comm("epx_window_bytes", "65536", NULL);
}

static void close_comm(void)
{
    suite_free_comm(&comm);
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
    int in_one_call; /* EPX_Route_dispatch: the routing has no request of its own */
    void *next_rows; /* the user's kernel makes combine's rows from these */
    cudaGraphExec_t graph;
};

static void prepare_scenario(struct step *step, const struct scenario *s, cudaStream_t stream,
                             EPX_Comm on)
{
    layer_open(&step->layer, s, on);
    SETTLE();
    step->layer.stream = stream;
    step->graph = NULL;
    step->in_one_call = 0;
    routing_prepare(&step->routing, &step->layer, s->seed);
    for (int v = 0; v < VERBS; v++)
        operation_prepare(&step->ops[v], &step->routing, (enum verb)v, (uint64_t)v);
    step->next_rows = space_alloc(step->ops[COMBINE].in.bytes);
}

static const EPX_Layout layouts[] = {EPX_EXPERT_MAJOR, EPX_RANK_MAJOR, EPX_EXPERT_SLAB};

static struct scenario scenario_of_variant(int variant)
{
    struct scenario s = scenario_small(variant % 2 ? EPX_FLOAT32 : EPX_BFLOAT16);

    s.layout = layouts[variant / 2 % 3];
    s.alignment = s.layout == EPX_EXPERT_MAJOR ? 4 : 1;
    s.memory = (enum memory)(variant % 3);
    s.row_bytes_known = variant % 2;
    s.tokens = TOKENS_FULL;
    s.seed += (uint64_t)variant;
    return s;
}

static void prepare_step(struct step *step, int variant, cudaStream_t stream, EPX_Comm on)
{
    const struct scenario s = scenario_of_variant(variant);

    prepare_scenario(step, &s, stream, on);
}

static void users_kernel(struct step *step)
{
    struct buffer *in = &step->ops[COMBINE].in;

    gpu_copy(in->address, step->next_rows, in->bytes, step->layer.stream);
    must(cudaGetLastError());
}

/* Moves combine's rows to where the user's kernel takes them from, and leaves noise in their
 * place. */
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
    if (step->in_one_call) {
        EXPECT_CODE(operation_route_call(&step->ops[DISPATCH]), EPX_SUCCESS);
    } else {
        EXPECT_CODE(routing_call(&step->routing), EPX_SUCCESS);
        EXPECT_CODE(operation_call(&step->ops[DISPATCH]), EPX_SUCCESS);
    }
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

static void wait_for_step(struct step *step)
{
    EXPECT_CODE(EPX_Wait(&step->routing.request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    for (int v = 0; v < VERBS; v++)
        EXPECT_CODE(EPX_Wait(&step->ops[v].request, MPI_STATUS_IGNORE), EPX_SUCCESS);
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

/* The host fills CUDA's queue of launches behind operations that wait for a late rank. The stream
 * is not CUDA's default one, so calls of other threads, which launch messages, go on meanwhile. */
START_TEST(launches_that_pile_up_stop_no_message)
{
    enum { LAUNCHES = 3000 };
    cudaStream_t stream = new_stream();
    double start = suite_seconds();
    char *words = space_alloc(32);
    struct step step;

    prepare_step(&step, 0, stream, comm);
    hide_rows(&step);
    while (suite_rank == suite_size - 1 && suite_seconds() - start < 0.3)
        continue;
    call_step(&step);
    for (int i = 0; i < LAUNCHES; i++)
        gpu_copy(words, words + 16, 16, stream);
    routing_finish(&step.routing);
    for (int v = 0; v < VERBS; v++)
        operation_finish(&step.ops[v]);
    must(cudaStreamSynchronize(stream));
    free_step(&step);
    space_free(words);
    must(cudaStreamDestroy(stream));
}
END_TEST

/* Calls a step while its stream is held up, makes a stream wait for the operations and copy a sum,
 * and checks that all came in this order. */
static void copy_behind(struct step *step, cudaStream_t later)
{
    struct buffer *out = &step->ops[COMBINE].out;
    unsigned char *copy = space_alloc(out->bytes), *image = malloc(out->bytes + 1);
    int *flag;

    must(cudaHostAlloc((void **)&flag, sizeof(*flag), cudaHostAllocDefault));
    hide_rows(step);
    *(volatile int *)flag = 1;
    gpu_hold(flag, step->layer.stream);
    call_step(step);
    enqueue_waits(step, later);
    gpu_copy(copy, out->address, out->bytes, later);
    *(volatile int *)flag = 0;
    must(cudaStreamSynchronize(later));
    space_get(image, copy, out->bytes);
    EXPECT(memcmp(image, out->expected, out->bytes) == 0, "copied before it was there");
    check_step(step);
    SETTLE();
    space_free(copy);
    free(image);
    must(cudaFreeHost(flag));
}

START_TEST(a_stream_that_waits_comes_after_the_operation)
{
    cudaStream_t stream = new_stream(), later = new_stream();
    struct step step;

    prepare_step(&step, _i % 4, stream, comm);
    step.in_one_call = _i / 4;
    copy_behind(&step, later);
    free_step(&step);
    must(cudaStreamDestroy(stream));
    must(cudaStreamDestroy(later));
}
END_TEST

/* With messages rounds are queued on a stream of the library's then. */
START_TEST(rounds_on_the_default_stream_keep_their_place)
{
    struct scenario s = scenario_of_variant(_i);
    struct step step;

    s.row_bytes_known = 0;
    s.count = 20001;
    prepare_scenario(&step, &s, NULL, comm);
    copy_behind(&step, NULL);
    free_step(&step);
}
END_TEST

START_TEST(a_capture_cannot_wait_for_a_request_outside)
{
    cudaStream_t stream = new_stream(), captured = new_stream();
    cudaGraph_t graph;
    struct step step;
    int *flag;

    must(cudaHostAlloc((void **)&flag, sizeof(*flag), cudaHostAllocDefault));
    prepare_step(&step, 0, stream, comm);
    *(volatile int *)flag = 1;
    gpu_hold(flag, stream);
    EXPECT_CODE(routing_call(&step.routing), EPX_SUCCESS);
    must(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed));
    EXPECT_CODE(EPX_Wait_enqueue(&step.routing.request, captured), EPX_ERR_REQUEST);
    must(cudaStreamEndCapture(captured, &graph));
    must(cudaGraphDestroy(graph));
    *(volatile int *)flag = 0;
    routing_finish(&step.routing);
    SETTLE();
    free_step(&step);
    must(cudaFreeHost(flag));
    must(cudaStreamDestroy(stream));
    must(cudaStreamDestroy(captured));
}
END_TEST

static void begin_capture(struct step *step, enum cudaStreamCaptureMode mode)
{
    must(cudaStreamBeginCapture(step->layer.stream, mode));
}

static void end_capture(struct step *step)
{
    cudaGraph_t graph;

    enqueue_waits(step, step->layer.stream);
    must(cudaStreamEndCapture(step->layer.stream, &graph));
    must(cudaGraphInstantiate(&step->graph, graph, 0));
    must(cudaGraphDestroy(graph));
    SETTLE();
}

static void capture_step(struct step *step)
{
    EPX_Request *request =
        step->in_one_call ? &step->ops[DISPATCH].request : &step->routing.request;
    int flag;

    begin_capture(step, cudaStreamCaptureModeThreadLocal);
    call_step(step);
    EXPECT_CODE(EPX_Wait(request, MPI_STATUS_IGNORE), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Test(request, &flag, MPI_STATUS_IGNORE), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Waitall(1, request, MPI_STATUSES_IGNORE), EPX_ERR_REQUEST);
    end_capture(step);
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

static struct scenario scenario_of_long_rows(void)
{
    struct scenario s = scenario_small(EPX_FLOAT32);

    s.tokens = TOKENS_FULL;
    s.max_tokens = 64;
    s.count = 1 << 12;
    s.row_bytes_known = 1;
    return s;
}

/* Makes a call for each of three steps in turn: two of them in captures, one outside. */
static void call_in_turns(struct step steps[3])
{
    for (int i = 0; i < 3; i++)
        EXPECT_CODE(routing_call(&steps[i].routing), EPX_SUCCESS);
    for (int v = 0; v < VERBS; v++)
        for (int i = 0; i < 3; i++) {
            if (v == COMBINE)
                users_kernel(&steps[i]);
            EXPECT_CODE(operation_call(&steps[i].ops[v]), EPX_SUCCESS);
        }
}

/* The last rank asks for more than any GPU has, the others for a little. */
START_TEST(too_much_memory_is_told_to_all)
{
    MPI_Aint bytes = suite_rank == suite_size - 1 ? (MPI_Aint)1 << 45 : 64;
    void *base = NULL;

    EXPECT_CODE(EPX_Alloc_mem(bytes, comm, &base), EPX_ERR_NO_MEM);
    EXPECT(base == NULL, "there is memory at %p", base);
    SETTLE();
    layer_works(comm);
}
END_TEST

/* Runs twice, so that the second captures find what the first ones left. */
START_TEST(captures_and_plain_calls_do_not_meet)
{
    struct scenario s = scenario_of_long_rows();
    struct step steps[3];

    for (int i = 0; i < 3; i++)
        prepare_scenario(&steps[i], &s, new_stream(), comm);
    for (uint64_t round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++)
            refill_step(&steps[i], 50 * round + (uint64_t)i);
        SETTLE();
        begin_capture(&steps[0], cudaStreamCaptureModeRelaxed); /* it ends before the other
                                                                 * capture */
        begin_capture(&steps[1], cudaStreamCaptureModeRelaxed);
        call_in_turns(steps);
        wait_for_step(&steps[2]);
        end_capture(&steps[0]);
        end_capture(&steps[1]);
        buffer_fetch(&steps[2].ops[COMBINE].in);
        check_step(&steps[2]);
        for (uint64_t i = 0; i < 6; i++)
            replay_step(&steps[i % 2], 50 * round + 10 + i);
        SETTLE();
        for (int i = 0; i < 2; i++) {
            must(cudaGraphExecDestroy(steps[i].graph));
            steps[i].graph = NULL;
        }
    }
    for (int i = 0; i < 3; i++) {
        cudaStream_t stream = steps[i].layer.stream;

        free_step(&steps[i]);
        must(cudaStreamDestroy(stream));
    }
}
END_TEST

static void expect_no_error(EPX_Comm on)
{
    int error = -1;

    EXPECT_CODE(EPX_Comm_get_async_error(on, &error), EPX_SUCCESS);
    EXPECT(error == EPX_SUCCESS, "error %d", error);
}

/* How the rows of a step whose graph is replayed go: as those of any alignment, in packets, with
 * flags, those of a combine that starts from biases and weights of the home ranks, by kernels that
 * stream, as no operation of so many choices is small, and by few blocks, which may take some of so
 * many rows when they have sent. */
enum { ANY_ROWS, PACKET_ROWS, FLAGGED_ROWS, HOME_ROWS, STREAMED_ROWS, MANY_ROWS, ROW_KINDS };
enum { ANY_CASES = 8, REPLAY_CASES = ANY_CASES + 2 * (ROW_KINDS - 1) };

/* Variants of two layouts for each kind. Slabs of many rows would be mostly room, and take long to
 * compare; rows of the rank-major layout have no weights of their own. */
static int variant_of_kind(int kind, int other)
{
    if (kind == HOME_ROWS)
        return 4 * other;
    return kind == MANY_ROWS ? 2 - other : (2 * kind + 3 * other) % 6;
}

static struct scenario scenario_of_replays(int variant, int kind)
{
    struct scenario s = scenario_of_variant(variant);

    if (kind != ANY_ROWS)
        s.count = kind == FLAGGED_ROWS ? 1536 : 136;
    if (kind == HOME_ROWS) {
        s.biases = 2;
        s.token_weighted = 1;
    }
    if (kind >= STREAMED_ROWS) {
        s.experts = 40;
        s.top_k = 34;
    }
    if (kind == MANY_ROWS) {
        s.max_tokens = 96;
        s.count = 24;
    }
    return s;
}

START_TEST(a_graph_routes_other_tokens_at_each_replay)
{
    const int more = _i - ANY_CASES, kind = more < 0 ? ANY_ROWS : PACKET_ROWS + more / 2;
    const struct scenario s =
        scenario_of_replays(more < 0 ? _i % 4 : variant_of_kind(kind, more % 2), kind);
    EPX_Comm few = suite_comm("epx_max_sms", "2", NULL), on = kind == MANY_ROWS ? few : comm;
    cudaStream_t stream = new_stream();
    int replays = space_shares_gpus() ? REPLAYS_IN_TURNS : REPLAYS;
    struct step step;

    prepare_scenario(&step, &s, stream, on);
    step.in_one_call = more < 0 ? _i / 4 : more % 2;
    capture_step(&step);
    for (int i = 0; i < replays; i++) {
        replay_step(&step, 100 + (uint64_t)i);
        if (i % 50 == 0)
            SETTLE();
    }
    expect_no_error(on);
    SETTLE();
    free_step(&step);
    must(cudaStreamDestroy(stream));
    EXPECT_CODE(EPX_Comm_free(&few), EPX_SUCCESS);
    SETTLE();
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
    expect_no_error(comm);
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
    step.in_one_call = _i;
    capture_step(&step);
    step.layer.s.routing = ROUTING_BAD;
    for (uint64_t seed = 1; error == EPX_SUCCESS && seed < 100; seed++) {
        int bad;

        replay_step(&step, seed);
        bad = step.routing.ref->rank[suite_rank].bad_ids > 0;
        EXPECT_CODE(EPX_Comm_get_async_error(comm, &error), EPX_SUCCESS);
        EXPECT(error == (bad ? EPX_ERR_ARG : EPX_SUCCESS), "error %d for %d bad ids", error, bad);
        if (bad)
            fault_message_has(comm, "in a replayed graph: expert id ");
        SETTLE();
        MPI_Allreduce(MPI_IN_PLACE, &error, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
    expect_no_error(comm);
    SETTLE();
    free_step(&step);
    must(cudaStreamDestroy(stream));
}
END_TEST

/* Captures a routing, a user's kernel that reads the view, and a dispatch. */
static void capture_reader(struct step *step, int64_t *rows_read)
{
    begin_capture(step, cudaStreamCaptureModeThreadLocal);
    EXPECT_CODE(routing_call(&step->routing), EPX_SUCCESS);
    gpu_copy(rows_read, step->layer.view.num_rows, sizeof(*rows_read), step->layer.stream);
    EXPECT_CODE(operation_call(&step->ops[DISPATCH]), EPX_SUCCESS);
    end_capture(step);
}

/* Replays with other ids; returns whether they overflow. */
static int replay_reader(struct step *step, const int64_t *rows_read, uint64_t seed)
{
    const struct ref *ref;
    int64_t rows = -1;
    int error = -1;

    routing_refill(&step->routing, seed);
    operation_refill(&step->ops[DISPATCH], seed);
    ref = step->routing.ref;
    must(cudaGraphLaunch(step->graph, step->layer.stream));
    must(cudaStreamSynchronize(step->layer.stream));
    space_get(&rows, rows_read, sizeof(rows));
    EXPECT(rows == ref->rank[suite_rank].num_rows, "the kernel behind read %lld rows, not %lld",
           (long long)rows, (long long)ref->rank[suite_rank].num_rows);
    routing_check(&step->routing);
    operation_check(&step->ops[DISPATCH]);
    EXPECT_CODE(EPX_Comm_get_async_error(comm, &error), EPX_SUCCESS);
    EXPECT(error == (ref->truncated ? EPX_ERR_TRUNCATE : EPX_SUCCESS), "error %d", error);
    return ref->truncated;
}

START_TEST(a_kernel_behind_an_overflow_finds_no_rows)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    cudaStream_t stream = new_stream();
    int64_t *rows_read = space_alloc(sizeof(*rows_read));
    int overflows = 0, replays = 20;
    struct step step;

    s.tokens = TOKENS_FULL;
    s.capacity_percent = 50;
    s.layout = layouts[_i];
    prepare_scenario(&step, &s, stream, comm);
    capture_reader(&step, rows_read);
    for (int i = 0; i < replays; i++) {
        overflows += replay_reader(&step, rows_read, 300 + (uint64_t)i);
        SETTLE();
    }
    EXPECT(overflows > 0 && overflows < replays, "%d of %d overflow", overflows, replays);
    SETTLE();
    space_free(rows_read);
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

/* Rows so many that every warp of the GPU moves several. */
static struct scenario scenario_of_many_rows(EPX_Datatype datatype)
{
    struct scenario s = scenario_small(datatype);

    s.max_tokens = 513;
    s.count = datatype == EPX_BFLOAT16 ? 35000 : 17000;
    s.alignment = 16;
    s.tokens = TOKENS_FULL;
    s.memory = MEMORY_WINDOW;
    s.row_bytes_known = 1;
    s.capacity_percent = 110;
    return s;
}

START_TEST(many_rows)
{
    struct scenario s = scenario_of_many_rows(_i < VERBS ? EPX_BFLOAT16 : EPX_FLOAT32);

    s.routing = _i % 2 ? ROUTING_SKEWED : ROUTING_HOLES;
    s.tokens = _i < VERBS ? TOKENS_FULL : TOKENS_UNEVEN;
    layer_run(&s, comm, (enum verb)(_i % VERBS), 1);
}
END_TEST

START_TEST(many_rows_in_a_graph)
{
    struct scenario s = scenario_of_many_rows(EPX_BFLOAT16);
    cudaStream_t stream = new_stream();
    struct step step;

    s.capacity_percent = 0;
    s.top_k = 2;
    prepare_scenario(&step, &s, stream, comm);
    capture_step(&step);
    for (uint64_t i = 1; i <= 2; i++)
        replay_step(&step, i);
    SETTLE();
    free_step(&step);
    must(cudaStreamDestroy(stream));
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
    EXPECT_CODE(EPX_Route_tokens(here, 2, layer.route, EPX_STREAM_NULL, &request), EPX_ERR_BUFFER);
    EXPECT(request == EPX_REQUEST_NULL, "a request was made");
    layer_close(&layer);
    layer_works(comm);
}
END_TEST

static EPX_Route any_route(EPX_Comm on)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route route = EPX_ROUTE_NULL;

    attr.num_experts = attr.top_k = attr.max_tokens = 8;
    EXPECT_CODE(EPX_Route_create(&attr, on, &route), EPX_SUCCESS);
    return route;
}

START_TEST(a_host_communicator_refuses_memory_of_the_gpu)
{
    EPX_Comm host = suite_comm("epx_memory", "system", "epx_transport", "mpi", NULL);
    EPX_Request request = EPX_REQUEST_NULL;
    EPX_Route route = any_route(host);
    void *there = space_alloc(512);
    int64_t here[64] = {0};

    EXPECT_CODE(EPX_Route_tokens(there, 8, route, EPX_STREAM_NULL, &request), EPX_ERR_BUFFER);
    fault_message_has(host, "expert_ids is in the memory of a GPU");
    EXPECT_CODE(EPX_Route_tokens(here, 8, route, EPX_STREAM_NULL, &request), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    space_free(there);
    EXPECT_CODE(EPX_Route_free(&route), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&host), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* The stream is of the current device, which is not the communicator's; it is refused each time. */
static void expect_stream_refused(struct step *step)
{
#if CUDART_VERSION >= 12080
    cudaStream_t own = step->layer.stream;

    step->layer.stream = new_stream();
    for (int i = 0; i < 2; i++)
        EXPECT_CODE(routing_call(&step->routing), EPX_ERR_ARG);
    must(cudaStreamDestroy(step->layer.stream));
    step->layer.stream = own;
#else
    (void)step;
#endif
}

/* With one GPU it is its own neighbour, and there is little to see. */
START_TEST(another_device_may_be_current)
{
    EPX_Stats stats = EPX_STATS_INIT;
    cudaStream_t stream = new_stream();
    int own, other, devices, current = -1;
    struct step step;
    EPX_Route route;
    void *base;

    prepare_step(&step, 0, stream, comm);
    must(cudaGetDevice(&own));
    must(cudaGetDeviceCount(&devices));
    other = (own + 1) % devices;
    must(cudaSetDevice(other));
    route = any_route(comm);
    EXPECT_CODE(EPX_Alloc_mem(1 << 20, comm, &base), EPX_SUCCESS);
    if (other != own)
        expect_stream_refused(&step);
    EXPECT_CODE(routing_call(&step.routing), EPX_SUCCESS);
    for (int v = 0; v < VERBS; v++)
        EXPECT_CODE(operation_call(&step.ops[v]), EPX_SUCCESS);
    wait_for_step(&step);
    if (other != own)
        expect_stream_refused(&step);
    EXPECT_CODE(EPX_Comm_get_stats(comm, &stats), EPX_SUCCESS);
    EXPECT_CODE(EPX_Free_mem(base, comm), EPX_SUCCESS);
    EXPECT_CODE(EPX_Route_free(&route), EPX_SUCCESS);
    must(cudaGetDevice(&current));
    EXPECT(current == other, "device %d is current, not %d", current, other);
    must(cudaSetDevice(own));
    check_step(&step);
    SETTLE();
    free_step(&step);
    must(cudaStreamDestroy(stream));
}
END_TEST

/* The ids of eight tokens that begin 64 bytes before a piece. */
static int route_before(const struct gpu_mapping *m, int piece, EPX_Route route,
                        EPX_Request *request)
{
    return EPX_Route_tokens(m->base + (size_t)piece * m->piece_bytes - 64, 8, route,
                            EPX_STREAM_NULL, request);
}

START_TEST(memory_in_pieces_is_asked_about)
{
    struct gpu_mapping m = {.num = 5,
                            .pieces = {GPU_OPEN, GPU_OPEN, GPU_CLOSED, GPU_OPEN, GPU_RESERVED}};
    EPX_Route route = any_route(comm);
    EPX_Request request = EPX_REQUEST_NULL;
    char none[512] = {0};
    int own;

    must(cudaGetDevice(&own));
    if (EXPECT(gpu_map(&m, own), "the device maps no memory in pieces")) {
        space_put(m.base + m.piece_bytes - 64, none, sizeof(none));
        EXPECT_CODE(route_before(&m, 1, route, &request), EPX_SUCCESS);
        EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
        EXPECT_CODE(route_before(&m, 2, route, &request), EPX_ERR_BUFFER);
        EXPECT_CODE(route_before(&m, 3, route, &request), EPX_ERR_BUFFER);
        EXPECT_CODE(route_before(&m, 4, route, &request), EPX_ERR_BUFFER);
        EXPECT_CODE(route_before(&m, 5, route, &request), EPX_ERR_BUFFER);
        gpu_unmap(&m);
    }
    SETTLE();
    EXPECT_CODE(EPX_Route_free(&route), EPX_SUCCESS);
    layer_works(comm);
}
END_TEST

/* The parts are of eight multiprocessors, the least of this generation. */
START_TEST(a_stream_with_a_part_of_the_gpu_must_do)
{
    const struct scenario s = scenario_of_replays(0, _i ? MANY_ROWS : ANY_ROWS);
    EPX_Comm large = suite_comm("epx_max_sms", "16", NULL);
    EPX_Comm small = suite_comm("epx_max_sms", "8", NULL);
    struct gpu_part part;
    struct step step;
    int own;

    must(cudaGetDevice(&own));
    if (!gpu_take_part(&part, own, 8) || part.sms >= 16) {
        if (suite_rank == 0)
            printf("no green contexts: nothing tried\n");
    } else {
        prepare_scenario(&step, &s, part.stream, large);
        EXPECT_CODE(routing_call(&step.routing), EPX_ERR_ARG);
        fault_message_has(large, "multiprocessors");
        SETTLE();
        free_step(&step);
        prepare_scenario(&step, &s, part.stream, small);
        hide_rows(&step);
        call_step(&step);
        routing_finish(&step.routing);
        for (int v = 0; v < VERBS; v++)
            operation_finish(&step.ops[v]);
        SETTLE();
        free_step(&step);
        gpu_give_part(&part);
    }
    EXPECT_CODE(EPX_Comm_free(&large), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&small), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* A part of the GPU with as many multiprocessors as a communicator has blocks that wait: halves of
 * blocks of a routing run two on each. Those of many experts have much to remember. */
START_TEST(a_large_routing_runs_on_a_part_of_the_gpu)
{
    const int experts[] = {64, 800};
    struct scenario s = scenario_small(EPX_BFLOAT16);
    struct gpu_part part;
    struct step step;
    int own;

    s.experts = experts[_i];
    s.max_tokens = 2048;
    s.tokens = TOKENS_FULL;
    must(cudaGetDevice(&own));
    if (!gpu_take_part(&part, own, 32) || part.sms >= 64) {
        if (suite_rank == 0)
            printf("no green contexts: nothing tried\n");
        return;
    }
    prepare_scenario(&step, &s, part.stream, comm);
    EXPECT_CODE(routing_call(&step.routing), EPX_SUCCESS);
    routing_finish(&step.routing);
    SETTLE();
    free_step(&step);
    gpu_give_part(&part);
}
END_TEST

struct capturer {
    pthread_barrier_t begun, over;
    int device;
    cudaError_t ended;
};

/* Captures in the strictest mode: a call that could spoil a capture spoils it from any thread. */
static void *capture_meanwhile(void *argument)
{
    struct capturer *capturer = argument;
    cudaStream_t stream;
    cudaGraph_t graph;

    must(cudaSetDevice(capturer->device));
    stream = new_stream();
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    pthread_barrier_wait(&capturer->begun);
    pthread_barrier_wait(&capturer->over);
    capturer->ended = cudaStreamEndCapture(stream, &graph);
    if (capturer->ended == cudaSuccess)
        must(cudaGraphDestroy(graph));
    must(cudaStreamDestroy(stream));
    return NULL;
}

static void look_for(double seconds)
{
    EPX_Stats stats = EPX_STATS_INIT;
    double start = suite_seconds();
    int error = -1;

    while (suite_seconds() - start < seconds) {
        EXPECT_CODE(EPX_Comm_get_async_error(comm, &error), EPX_SUCCESS);
        EXPECT(error == EPX_SUCCESS, "error %d", error);
    }
    EXPECT_CODE(EPX_Comm_get_stats(comm, &stats), EPX_SUCCESS);
}

START_TEST(a_capture_of_another_thread_is_left_alone)
{
    cudaStream_t stream = new_stream();
    struct capturer capturer = {.ended = cudaErrorUnknown};
    struct step step;
    pthread_t thread;

    prepare_step(&step, 0, stream, comm);
    must(cudaGetDevice(&capturer.device));
    pthread_barrier_init(&capturer.begun, NULL, 2);
    pthread_barrier_init(&capturer.over, NULL, 2);
    pthread_create(&thread, NULL, capture_meanwhile, &capturer);
    pthread_barrier_wait(&capturer.begun);
    if (suite_rank == 0)
        look_for(0.1); /* meanwhile the others poll for long */
    EXPECT_CODE(routing_call(&step.routing), EPX_SUCCESS);
    for (int v = 0; v < VERBS; v++)
        EXPECT_CODE(operation_call(&step.ops[v]), EPX_SUCCESS);
    wait_for_step(&step);
    look_for(0.05);
    pthread_barrier_wait(&capturer.over);
    pthread_join(thread, NULL);
    must(capturer.ended);
    pthread_barrier_destroy(&capturer.begun);
    pthread_barrier_destroy(&capturer.over);
    check_step(&step);
    SETTLE();
    free_step(&step);
    must(cudaStreamDestroy(stream));
}
END_TEST

static size_t free_bytes(void)
{
    size_t bytes = 0, total;

    SETTLE(); /* what a rank frees is given back when all have */
    must(cudaMemGetInfo(&bytes, &total));
    SETTLE();
    return bytes;
}

START_TEST(freed_memory_is_given_back)
{
    const MPI_Aint bytes = (MPI_Aint)1 << 28;
    size_t before = 0, during, after;
    void *base;

    for (int i = 0; i < 2; i++) { /* in the first turn NCCL allocates for itself, too */
        before = free_bytes();
        EXPECT_CODE(EPX_Alloc_mem(bytes, comm, &base), EPX_SUCCESS);
        during = free_bytes();
        EXPECT_CODE(EPX_Free_mem(base, comm), EPX_SUCCESS);
    }
    after = free_bytes();
    EXPECT(during + (size_t)bytes / 2 < after, "%zu bytes free with it, %zu then", during, after);
    EXPECT(before < after + (size_t)bytes / 2, "%zu bytes free before, %zu then", before, after);
    SETTLE();
}
END_TEST

static EPX_Comm hasty_comm(void)
{
    return suite_comm("epx_timeout_ms", "600", "epx_window_bytes", "65536", NULL);
}

static void expect_one_message(EPX_Comm ended, const char *part)
{
    char own[EPX_MAX_ERROR_STRING] = "", first[EPX_MAX_ERROR_STRING];
    int length;

    EXPECT_CODE(EPX_Comm_get_error_message(ended, own, &length), EPX_SUCCESS);
    memcpy(first, own, sizeof(first));
    MPI_Bcast(first, (int)sizeof(first), MPI_CHAR, 0, MPI_COMM_WORLD);
    EXPECT(strcmp(own, first) == 0, "\"%s\", on rank 0 \"%s\"", own, first);
    EXPECT(strstr(own, part) != NULL, "\"%s\" lacks \"%s\"", own, part);
}

static void exchange_in_vain(EPX_Comm on)
{
    struct exchange x = {.comm = on, .data = {5, EPX_BYTE, 16, 0}, .most_rows = 3};

    EXPECT_CODE(exchange_start(&x), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&x.request, MPI_STATUS_IGNORE), EPX_ERR_TIMEOUT);
    exchange_free(&x);
}

static void expect_to_hear(EPX_Comm on)
{
    double start = suite_seconds();
    int error = EPX_SUCCESS, again = -1;

    while (error == EPX_SUCCESS && suite_seconds() - start < 10)
        EXPECT_CODE(EPX_Comm_get_async_error(on, &error), EPX_SUCCESS);
    EXPECT(error == EPX_ERR_TIMEOUT, "error %d after %.1f s", error, suite_seconds() - start);
    EXPECT_CODE(EPX_Comm_get_async_error(on, &again), EPX_SUCCESS);
    EXPECT(again == EPX_SUCCESS, "error %d is told again", again);
}

START_TEST(an_idle_rank_hears_of_the_end)
{
    EPX_Comm hasty = hasty_comm();

    if (suite_size > 1) {
        if (suite_rank == 0)
            expect_to_hear(hasty);
        else
            exchange_in_vain(hasty);
        expect_one_message(hasty, "rank 0 ");
    }
    SETTLE();
    EXPECT_CODE(EPX_Comm_free(&hasty), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* The last rank waits in vain in MPI and gives up; the others, whose wait began later, hear of it
 * in their kernels. */
START_TEST(kernels_end_when_a_host_gives_up)
{
    EPX_Comm hasty = hasty_comm();
    double start = suite_seconds();
    void *base;

    if (suite_size > 1) {
        if (suite_rank == suite_size - 1) {
            EXPECT_CODE(EPX_Alloc_mem(64, hasty, &base), EPX_ERR_TIMEOUT);
        } else {
            while (suite_seconds() - start < 0.3)
                continue;
            exchange_in_vain(hasty);
        }
        EXPECT(suite_seconds() - start < 3, "took %.1f s", suite_seconds() - start);
        expect_one_message(hasty, "EPX_Alloc_mem: not all ");
    }
    SETTLE();
    EXPECT_CODE(EPX_Comm_free(&hasty), EPX_SUCCESS);
    SETTLE();
    layer_works(comm);
}
END_TEST

/* Every kind of kernels looks for the end first: the memory of other ranks is unmapped by then. */
START_TEST(a_graph_ends_at_once_behind_a_shrink)
{
    const struct scenario s = scenario_of_replays(variant_of_kind(_i, 0), _i);
    EPX_Comm old = suite_comm("epx_window_bytes", "65536", NULL), smaller = EPX_COMM_NULL;
    cudaStream_t stream = new_stream();
    struct step step;

    prepare_scenario(&step, &s, stream, old);
    step.in_one_call = _i % 2;
    capture_step(&step);
    replay_step(&step, 7);
    EXPECT_CODE(EPX_Comm_shrink(old, &smaller), EPX_SUCCESS);
    SETTLE();
    for (int i = 0; i < 3; i++)
        must(cudaGraphLaunch(step.graph, stream));
    must(cudaStreamSynchronize(stream));
    free_step(&step);
    must(cudaStreamDestroy(stream));
    EXPECT_CODE(EPX_Comm_free(&old), EPX_SUCCESS);
    layer_works(smaller);
    EXPECT_CODE(EPX_Comm_free(&smaller), EPX_SUCCESS);
    SETTLE();
}
END_TEST

static TCase *make_endings(void)
{
    TCase *tcase = tcase_create("endings");

    tcase_add_loop_test(tcase, a_graph_ends_at_once_behind_a_shrink, 0, ROW_KINDS);
    return tcase;
}

static Suite *make_suite(void)
{
    Suite *suite = suite_create("device");
    TCase *tcase = tcase_create("device");

    if (!space_is_device())
        suite_skip("for device memory alone");
    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_loop_test(tcase, no_call_waits_for_the_gpu, 0, 4);
    tcase_add_test(tcase, launches_that_pile_up_stop_no_message);
    tcase_add_loop_test(tcase, a_stream_that_waits_comes_after_the_operation, 0, 8);
    tcase_add_loop_test(tcase, rounds_on_the_default_stream_keep_their_place, 0, 2);
    tcase_add_loop_test(tcase, a_graph_routes_other_tokens_at_each_replay, 0, REPLAY_CASES);
    tcase_add_test(tcase, graphs_of_two_routes_take_turns_with_plain_calls);
    tcase_add_loop_test(tcase, an_error_in_a_replay_is_told_later, 0, 2);
    tcase_add_loop_test(tcase, a_kernel_behind_an_overflow_finds_no_rows, 0, 3);
    tcase_add_loop_test(tcase, operations_on_several_streams_do_not_disturb_each_other, 0, 4);
    tcase_add_loop_test(tcase, many_rows, 0, 2 * VERBS);
    tcase_add_test(tcase, many_rows_in_a_graph);
    tcase_add_test(tcase, memory_of_the_host_is_refused);
    tcase_add_test(tcase, a_host_communicator_refuses_memory_of_the_gpu);
    tcase_add_test(tcase, memory_in_pieces_is_asked_about);
    tcase_add_loop_test(tcase, a_stream_with_a_part_of_the_gpu_must_do, 0, 2);
    tcase_add_loop_test(tcase, a_large_routing_runs_on_a_part_of_the_gpu, 0, 2);
    tcase_add_test(tcase, too_much_memory_is_told_to_all);
    tcase_add_test(tcase, captures_and_plain_calls_do_not_meet);
    tcase_add_test(tcase, a_capture_cannot_wait_for_a_request_outside);
    tcase_add_test(tcase, another_device_may_be_current);
    tcase_add_test(tcase, a_capture_of_another_thread_is_left_alone);
    tcase_add_test(tcase, freed_memory_is_given_back);
    tcase_add_test(tcase, an_idle_rank_hears_of_the_end);
    tcase_add_test(tcase, kernels_end_when_a_host_gives_up);
    suite_add_tcase(suite, tcase);
    suite_add_tcase(suite, make_endings());
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
