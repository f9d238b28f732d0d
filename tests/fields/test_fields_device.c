/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_fields_device.c - dispatches of several fields in CUDA graphs, where ranks store into each
 * other's memory: a small one is one kernel.
 */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "fields/fields.h"
#include "support/gpu.h"
#include "support/suite.h"

enum { REPLAYS = 5 };

static EPX_Comm comm;

static void open_comm(void)
{
    comm = suite_comm("epx_window_bytes", "65536", NULL);
}

static void close_comm(void)
{
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

static int capture(struct fields *fields, int routes, cudaGraphExec_t *exec)
{
    cudaStream_t stream = fields->routing->layer->stream;
    cudaGraph_t graph;
    int kernels;

    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_CODE(fields_call(fields, routes), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait_enqueue(&fields->request, stream), EPX_SUCCESS);
    must(cudaStreamEndCapture(stream, &graph));
    kernels = gpu_kernels_of(graph).num;
    must(cudaGraphInstantiate(exec, graph, 0));
    must(cudaGraphDestroy(graph));
    SETTLE();
    return kernels;
}

/* Overwrites what an operation before left in a buffer; the same is expected again. */
static void spoil(struct buffer *buffer)
{
    unsigned char *expected;

    if (!buffer->bytes)
        return;
    expected = malloc(buffer->bytes);
    memcpy(expected, buffer->expected, buffer->bytes);
    buffer_reset(buffer);
    memcpy(buffer->expected, expected, buffer->bytes);
    free(expected);
}

static void replay(struct fields *fields, cudaGraphExec_t exec)
{
    cudaStream_t stream = fields->routing->layer->stream;

    for (int f = 0; f < fields->num; f++)
        spoil(&fields->out[f]);
    spoil(&fields->out_weights);
    must(cudaGraphLaunch(exec, stream));
    must(cudaStreamSynchronize(stream));
    fields_check(fields);
    routing_check(fields->routing);
    SETTLE();
}

/* Lists of which all ranks' rows fit in a bank, and the last, of which they do not. */
static const struct field_kind lists[][EPX_MAX_FIELDS] = {
    {{EPX_FLOAT8_E4M3, 37, MEMORY_WINDOW}, {EPX_FLOAT32, 3, MEMORY_MALLOC}},
    {{EPX_FLOAT8_E4M3, 1024, MEMORY_WINDOW}, {EPX_FLOAT32, 8, MEMORY_WINDOW}},
    {{EPX_BYTE, 64, MEMORY_MIXED}, {EPX_BYTE, 0, MEMORY_WINDOW}, {EPX_FLOAT64, 2, MEMORY_MALLOC}},
    {{EPX_BYTE, 5, MEMORY_WINDOW},
     {EPX_FLOAT64, 1, MEMORY_WINDOW},
     {EPX_FLOAT32, 500, MEMORY_MIXED},
     {EPX_BFLOAT16, 3, MEMORY_WINDOW}},
    {{EPX_BYTE, 8191, MEMORY_WINDOW}, {EPX_BFLOAT16, 40001, MEMORY_WINDOW}},
};

enum { NUM_LISTS = (int)(sizeof(lists) / sizeof(lists[0])), NUM_LAYOUTS = 3 };

static void open_layer(struct layer *layer, int list, EPX_Layout layout)
{
    struct scenario s = scenario_small(EPX_BYTE);

    s.layout = layout;
    s.alignment = layout == EPX_EXPERT_MAJOR ? 4 : 1;
    s.tokens = TOKENS_FULL;
    s.max_tokens = 6;
    s.top_k = 2;
    s.zero_unused = list % 2;
    layer_open(layer, &s, comm);
    must(cudaStreamCreateWithFlags((cudaStream_t *)&layer->stream, cudaStreamNonBlocking));
    SETTLE();
}

/* By the test's number: the list, the layout, and whether the call routes. */
START_TEST(a_small_list_is_one_kernel)
{
    const EPX_Layout layouts[NUM_LAYOUTS] = {EPX_EXPERT_MAJOR, EPX_RANK_MAJOR, EPX_EXPERT_SLAB};
    int routes = _i % 2, list = _i / 2 % NUM_LISTS, num = 0, kernels;
    cudaGraphExec_t exec;
    struct routing routing;
    struct fields fields;
    struct layer layer;

    while (num < EPX_MAX_FIELDS && lists[list][num].datatype)
        num++;
    open_layer(&layer, list, layouts[_i / 2 / NUM_LISTS]);
    EXPECT_CODE(routing_start(&routing, &layer, 1), EPX_SUCCESS);
    routing_finish(&routing);
    fields_prepare(&fields, &routing, lists[list], num, 2);
    kernels = capture(&fields, routes, &exec);
    EXPECT(list == NUM_LISTS - 1 ? kernels > 1 : kernels == 1, "%d kernels for list %d, routes %d",
           kernels, list, routes);
    for (int i = 0; i < REPLAYS; i++)
        replay(&fields, exec);
    must(cudaGraphExecDestroy(exec));
    must(cudaStreamDestroy(layer.stream));
    fields_free(&fields);
    routing_free(&routing);
    layer_close(&layer);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("fields_device");
    TCase *tcase = tcase_create("fields_device");

    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_loop_test(tcase, a_small_list_is_one_kernel, 0, 2 * NUM_LISTS * NUM_LAYOUTS);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
