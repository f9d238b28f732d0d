/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_phases.c - operations that ranks which store into each other's memory send at the call and
 * take when somebody waits: what runs when, and who may wait how.
 */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "support/gpu.h"
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

static EPX_Comm comm;

static void open_comm(void)
{
    comm = suite_comm("epx_split_phases", "all", NULL);
}

static void close_comm(void)
{
    suite_free_comm(&comm);
}

/* Whether operations have two phases: between ranks that store into each other's memory, on a GPU
 * that can begin a kernel beside the one before it. */
static int has_phases(void)
{
    int device = 0, major = 0;

    must(cudaGetDevice(&device));
    must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    return suite_size > 1 && major >= 9 && suite_stores_on_devices();
}

/* A routed layer, and an operation of each verb, which was not called. Loops go over the verbs of a
 * layer that is not small, as it has more than EPX_SMALL_TOP_K choices, then over those of one that
 * is. */
struct work {
    struct layer layer;
    struct routing routing;
    struct operation ops[VERBS];
};

static struct scenario scenario_of(uint64_t seed, int small)
{
    enum { SMALL_TOP_K = 8, SMALL_PAIRS = 128 /* of all ranks, with --enable-jitter too */ };
    struct scenario s = scenario_small(EPX_BFLOAT16);

    s.max_tokens = small ? SMALL_PAIRS / SMALL_TOP_K / suite_size : 150;
    s.top_k = small ? SMALL_TOP_K : 40;
    s.experts = 60;
    s.count = 136;
    s.alignment = 16;
    s.tokens = TOKENS_FULL;
    s.memory = MEMORY_WINDOW;
    s.row_bytes_known = 1;
    s.seed += seed;
    return s;
}

static void prepare_scenario(struct work *work, const struct scenario *s, EPX_Comm on)
{
    layer_open(&work->layer, s, on);
    SETTLE();
    work->layer.stream = space_new_stream();
    routing_start(&work->routing, &work->layer, s->seed);
    routing_finish(&work->routing);
    for (int v = 0; v < VERBS; v++)
        operation_prepare(&work->ops[v], &work->routing, (enum verb)v, (uint64_t)v);
}

static void prepare(struct work *work, EPX_Comm on, uint64_t seed, int small)
{
    const struct scenario s = scenario_of(seed, small);

    prepare_scenario(work, &s, on);
}

static void clean_up(struct work *work)
{
    cudaStream_t stream = work->layer.stream;

    SETTLE();
    for (int v = 0; v < VERBS; v++)
        operation_free(&work->ops[v]);
    routing_free(&work->routing);
    layer_close(&work->layer);
    space_free_stream(stream);
    SETTLE();
}

static int has_all_bytes(const struct operation *op)
{
    unsigned char *image = malloc(op->out.bytes + 1);
    int all;

    space_get(image, op->out.address, op->out.bytes);
    all = memcmp(image, op->out.expected, op->out.bytes) == 0;
    free(image);
    return all;
}

START_TEST(not_all_is_taken_before_somebody_waits)
{
    struct work work;
    struct operation *op = &work.ops[_i % VERBS];

    prepare(&work, comm, 1, _i / VERBS);
    EXPECT_CODE(operation_call(op), EPX_SUCCESS);
    must(cudaStreamSynchronize(work.layer.stream));
    if (has_phases())
        EXPECT(!has_all_bytes(op), "it was taken at once");
    operation_finish(op);
    clean_up(&work);
}
END_TEST

/* Bytes of a sum's rows that are no longer what operation_prepare left there. */
static int64_t changed_bytes(const struct operation *op, const unsigned char *before)
{
    unsigned char *image = malloc(op->out.bytes + 1);
    int64_t changed = 0;

    space_get(image, op->out.address, op->out.bytes);
    for (size_t i = 0; i < op->out.bytes; i++)
        changed += image[i] != before[i];
    free(image);
    return changed;
}

/* Calls an operation whose sums are stored by receivers alone, and sees on any rank what has
 * been. */
static void see_who_takes(struct operation *op)
{
    unsigned char *before = malloc(op->out.bytes + 1);
    int64_t changed;

    space_get(before, op->out.address, op->out.bytes);
    EXPECT_CODE(operation_call(op), EPX_SUCCESS);
    must(cudaStreamSynchronize(op->routing->layer->stream));
    changed = changed_bytes(op, before);
    MPI_Allreduce(MPI_IN_PLACE, &changed, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (has_phases())
        EXPECT(changed > 0, "no rank has taken anything");
    operation_finish(op);
    free(before);
}

/* A block that has sent takes if all senders of all ranks have begun, which the last one to end on
 * any rank finds, in each operation anew. */
START_TEST(who_has_sent_takes)
{
    EPX_Comm other = suite_comm("epx_split_phases", "all", "epx_max_sms", "2", NULL);
    struct work work;

    prepare(&work, other, 15, 0);
    see_who_takes(&work.ops[COMBINE]);
    see_who_takes(&work.ops[DISPATCH_BACKWARD]);
    clean_up(&work);
    EXPECT_CODE(EPX_Comm_free(&other), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* By default small operations are done at the call, by the hint all are. */
START_TEST(all_is_taken_at_the_call)
{
    EPX_Comm other = _i < VERBS ? suite_comm("epx_split_phases", "none", NULL) : suite_comm(NULL);
    struct work work;
    struct operation *op = &work.ops[_i % VERBS];

    prepare(&work, other, 12, _i / VERBS);
    EXPECT_CODE(operation_call(op), EPX_SUCCESS);
    must(cudaStreamSynchronize(work.layer.stream));
    EXPECT(has_all_bytes(op), "it was not taken");
    operation_finish(op);
    clean_up(&work);
    EXPECT_CODE(EPX_Comm_free(&other), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* EPX_Route_dispatch: a call that routes and sends. */
START_TEST(a_routing_is_taken_with_its_rows)
{
    struct work work;
    struct operation *op = &work.ops[DISPATCH];

    prepare(&work, comm, 11, _i);
    EXPECT_CODE(operation_route_call(op), EPX_SUCCESS);
    must(cudaStreamSynchronize(work.layer.stream));
    if (has_phases())
        EXPECT(!has_all_bytes(op), "it was taken at once");
    operation_route_finish(op);
    clean_up(&work);
}
END_TEST

START_TEST(a_test_is_enough)
{
    struct work work;
    struct operation *op = &work.ops[_i % VERBS];
    int complete = 0;

    prepare(&work, comm, 2, _i / VERBS);
    EXPECT_CODE(operation_call(op), EPX_SUCCESS);
    EXPECT_CODE(EPX_Test(&op->request, &complete, MPI_STATUS_IGNORE), EPX_SUCCESS);
    must(cudaStreamSynchronize(work.layer.stream));
    EXPECT(has_all_bytes(op), "it was not taken");
    if (complete)
        operation_check(op);
    else
        operation_finish(op);
    clean_up(&work);
}
END_TEST

/* The user's kernels between the phases use the stream of the operation, then another. */
START_TEST(kernels_of_the_user_come_between)
{
    enum { KERNELS = 5, BYTES = 1 << 20 };
    cudaStream_t later = space_new_stream();
    struct work work;
    struct operation *op = &work.ops[_i % VERBS];
    char *from = space_alloc(BYTES), *to = space_alloc(BYTES);

    prepare(&work, comm, 3, _i / VERBS % 2);
    EXPECT_CODE(operation_call(op), EPX_SUCCESS);
    for (int i = 0; i < KERNELS; i++)
        gpu_copy(to, from, BYTES, _i < 2 * VERBS ? work.layer.stream : later);
    EXPECT_CODE(EPX_Wait_enqueue(&op->request, later), EPX_SUCCESS);
    must(cudaStreamSynchronize(later));
    operation_check(op);
    must(cudaStreamSynchronize(work.layer.stream));
    space_free(from);
    space_free(to);
    space_free_stream(later);
    clean_up(&work);
}
END_TEST

/* Calls of all verbs on two routes, in turns; each takes what the one before has left. */
START_TEST(the_next_operation_takes)
{
    struct work works[2];

    for (int i = 0; i < 2; i++)
        prepare(&works[i], comm, 4 + (uint64_t)i, _i);
    for (int v = 0; v < VERBS; v++)
        for (int i = 0; i < 2; i++)
            EXPECT_CODE(operation_call(&works[i].ops[v]), EPX_SUCCESS);
    for (int v = VERBS - 1; v >= 0; v--)
        for (int i = 0; i < 2; i++)
            operation_finish(&works[i].ops[v]);
    for (int i = 0; i < 2; i++)
        clean_up(&works[i]);
}
END_TEST

START_TEST(routings_and_free_calls_take)
{
    EPX_Comm other = suite_comm("epx_split_phases", "all", NULL);
    struct work work;

    prepare(&work, other, 6, _i);
    EXPECT_CODE(operation_call(&work.ops[DISPATCH]), EPX_SUCCESS);
    EXPECT_CODE(routing_call(&work.routing), EPX_SUCCESS);
    routing_finish(&work.routing);
    EXPECT_CODE(operation_call(&work.ops[COMBINE]), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&other), EPX_ERR_PENDING); /* there is a route */
    EXPECT(has_all_bytes(&work.ops[COMBINE]), "it was not taken");
    operation_finish(&work.ops[DISPATCH]);
    operation_finish(&work.ops[COMBINE]);
    clean_up(&work);
    EXPECT_CODE(EPX_Comm_free(&other), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* On one stream: the first rank calls both, all others the second one when the first is complete
 * everywhere. */
START_TEST(it_does_not_wait_for_operations_of_other_communicators)
{
    EPX_Comm other = suite_comm(NULL);
    cudaStream_t own;
    struct work works[2];

    prepare(&works[0], comm, 9, _i / VERBS);
    prepare(&works[1], other, 10, _i / VERBS);
    own = works[1].layer.stream;
    works[1].layer.stream = works[0].layer.stream;
    EXPECT_CODE(operation_call(&works[0].ops[_i % VERBS]), EPX_SUCCESS);
    if (suite_rank == 0)
        EXPECT_CODE(operation_call(&works[1].ops[_i % VERBS]), EPX_SUCCESS);
    operation_finish(&works[0].ops[_i % VERBS]);
    MPI_Barrier(MPI_COMM_WORLD);
    if (suite_rank > 0)
        EXPECT_CODE(operation_call(&works[1].ops[_i % VERBS]), EPX_SUCCESS);
    operation_finish(&works[1].ops[_i % VERBS]);
    works[1].layer.stream = own;
    for (int i = 0; i < 2; i++)
        clean_up(&works[i]);
    EXPECT_CODE(EPX_Comm_free(&other), EPX_SUCCESS);
    SETTLE();
}
END_TEST

static void capture(cudaStream_t stream, struct operation *op, int waits)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t run;

    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_CODE(operation_call(op), EPX_SUCCESS);
    if (waits)
        EXPECT_CODE(EPX_Wait_enqueue(&op->request, stream), EPX_SUCCESS);
    must(cudaStreamEndCapture(stream, &graph));
    if (waits) {
        must(cudaGraphInstantiate(&run, graph, 0));
        for (int i = 0; i < 3; i++)
            must(cudaGraphLaunch(run, stream));
        must(cudaStreamSynchronize(stream));
        must(cudaGraphExecDestroy(run));
    }
    must(cudaGraphDestroy(graph));
}

START_TEST(a_graph_has_both_phases)
{
    struct work work;

    prepare(&work, comm, 7, _i / VERBS);
    capture(work.layer.stream, &work.ops[_i % VERBS], 1);
    operation_check(&work.ops[_i % VERBS]);
    clean_up(&work);
}
END_TEST

/* Two such requests: the second is called after the capture of the first has ended. */
START_TEST(a_capture_that_ends_too_early_is_told)
{
    int code = has_phases() ? EPX_ERR_REQUEST : EPX_SUCCESS;
    struct work work;

    prepare(&work, comm, 8, _i);
    capture(work.layer.stream, &work.ops[DISPATCH], 0);
    EXPECT_CODE(EPX_Wait_enqueue(&work.ops[DISPATCH].request, work.layer.stream), code);
    capture(work.layer.stream, &work.ops[COMBINE], 0);
    EXPECT_CODE(operation_call(&work.ops[COMBINE_BACKWARD]), EPX_SUCCESS);
    operation_finish(&work.ops[COMBINE_BACKWARD]);
    EXPECT_CODE(EPX_Wait_enqueue(&work.ops[COMBINE].request, work.layer.stream), code);
    clean_up(&work);
    layer_works(comm);
}
END_TEST

/* Calls beside those of the verbs. */
enum { ROUTING = VERBS, ROUTE_DISPATCH, CALLS };

/* The kernels of a call and its wait. The graph is not launched. */
static struct gpu_kernels kernels_of(struct work *work, int call)
{
    cudaStream_t stream = work->layer.stream;
    EPX_Request *request = &work->ops[call == ROUTE_DISPATCH ? DISPATCH : call % VERBS].request;
    struct gpu_kernels kernels;
    cudaGraph_t graph = NULL;

    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    if (call == ROUTING) {
        request = &work->routing.request;
        EXPECT_CODE(routing_call(&work->routing), EPX_SUCCESS);
    } else if (call == ROUTE_DISPATCH) {
        EXPECT_CODE(operation_route_call(&work->ops[DISPATCH]), EPX_SUCCESS);
    } else {
        EXPECT_CODE(operation_call(&work->ops[call]), EPX_SUCCESS);
    }
    EXPECT_CODE(EPX_Wait_enqueue(request, stream), EPX_SUCCESS);
    must(cudaStreamEndCapture(stream, &graph));
    kernels = gpu_kernels_of(graph);
    must(cudaGraphDestroy(graph));
    return kernels;
}

/* Rows that go in packets, in flags, and rows of any alignment. */
static const int lengths[] = {136, 3584, 37};
enum { LENGTHS = (int)(sizeof(lengths) / sizeof(lengths[0])) };

/* The last of the lengths is followed by a layer that is not small. */
START_TEST(a_small_operation_is_one_kernel)
{
    const int call = _i % CALLS, which = _i / CALLS, small = which < LENGTHS;
    EPX_Comm other = suite_comm(NULL);
    struct scenario s = scenario_of(13, small);
    struct gpu_kernels kernels;
    struct work work;

    s.count = lengths[which % LENGTHS];
    prepare_scenario(&work, &s, other);
    kernels = kernels_of(&work, call);
    if (suite_stores_on_devices() && (small || call != ROUTING))
        EXPECT(small ? kernels.num == 1 : kernels.num > 1, "call %d of %d elements: %d kernels",
               call, s.count, kernels.num);
    clean_up(&work);
    EXPECT_CODE(EPX_Comm_free(&other), EPX_SUCCESS);
    SETTLE();
}
END_TEST

static const char *const bounds[] = {"2", "3", "7"};
enum { BOUNDS = (int)(sizeof(bounds) / sizeof(bounds[0])) };

START_TEST(no_kernel_has_more_blocks_than_the_hint_allows)
{
    const int call = _i % CALLS, small = _i / CALLS % 2;
    const char *bound = bounds[_i / CALLS / 2];
    EPX_Comm other = suite_comm("epx_max_sms", bound, NULL);
    struct gpu_kernels kernels;
    struct work work;

    prepare(&work, other, 14, small);
    kernels = kernels_of(&work, call);
    EXPECT(kernels.num > 0, "CUDA does not tell the kernels");
    EXPECT(kernels.most_blocks <= strtoul(bound, NULL, 10), "call %d, small %d: %u blocks of %s",
           call, small, kernels.most_blocks, bound);
    clean_up(&work);
    EXPECT_CODE(EPX_Comm_free(&other), EPX_SUCCESS);
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("phases");
    TCase *tcase = tcase_create("phases");

    if (!space_is_device())
        suite_skip("for device memory alone");
    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_loop_test(tcase, not_all_is_taken_before_somebody_waits, 0, 2 * VERBS);
    tcase_add_test(tcase, who_has_sent_takes);
    tcase_add_loop_test(tcase, all_is_taken_at_the_call, 0, 2 * VERBS);
    tcase_add_loop_test(tcase, a_routing_is_taken_with_its_rows, 0, 2);
    tcase_add_loop_test(tcase, a_test_is_enough, 0, 2 * VERBS);
    tcase_add_loop_test(tcase, kernels_of_the_user_come_between, 0, 4 * VERBS);
    tcase_add_loop_test(tcase, the_next_operation_takes, 0, 2);
    tcase_add_loop_test(tcase, routings_and_free_calls_take, 0, 2);
    tcase_add_loop_test(tcase, it_does_not_wait_for_operations_of_other_communicators, 0,
                        2 * VERBS);
    tcase_add_loop_test(tcase, a_graph_has_both_phases, 0, 2 * VERBS);
    tcase_add_loop_test(tcase, a_capture_that_ends_too_early_is_told, 0, 2);
    tcase_add_loop_test(tcase, a_small_operation_is_one_kernel, 0, (LENGTHS + 1) * CALLS);
    tcase_add_loop_test(tcase, no_kernel_has_more_blocks_than_the_hint_allows, 0,
                        2 * BOUNDS * CALLS);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
