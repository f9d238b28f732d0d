/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_persistent_device.c - persistent exchanges on a GPU: starts in CUDA graphs, and that no call
 * waits for the GPU.
 */
#include <cuda_runtime_api.h>
#include <string.h>

#include "support/exchange.h"
#include "support/gpu.h"
#include "support/operation.h"
#include "support/suite.h"

enum { REPLAYS = 6 };

static EPX_Comm comm;

static void open_comm(void)
{
    comm = suite_comm("epx_window_bytes", "65536", NULL);
}

static void close_comm(void)
{
    suite_free_comm(&comm);
}

/* neighbors: NULL = among all ranks. */
static struct exchange new_exchange(struct neighbors *neighbors, uint64_t seed, int fixed)
{
    struct exchange x = {.comm = comm, .neighbors = neighbors, .data = {seed, EPX_FLOAT32, 300, 0}};

    x.most_rows = 12;
    x.memory = (enum memory)(seed % 3);
    x.count_seed = fixed ? seed : 0;
    must(cudaStreamCreateWithFlags(&x.stream, cudaStreamNonBlocking));
    EXPECT_CODE(exchange_init(&x, fixed ? EPX_FIXED_COUNTS : 0), EPX_SUCCESS);
    must(cudaStreamSynchronize(x.stream));
    SETTLE();
    return x;
}

/* Other rows, and counts where they are not fixed; there the arrays lose them. */
static void fill(struct exchange *x)
{
    struct buffer *arrays[] = {&x->sendcounts, &x->sdispls};

    x->data.seed += 1000;
    if (!x->count_seed) {
        exchange_fill(x);
        return;
    }
    exchange_fill_rows(x);
    for (int i = 0; i < 2; i++) {
        memset(arrays[i]->data, 0xff, arrays[i]->bytes);
        buffer_freeze(arrays[i]);
    }
}

static void expect_captured(struct exchange *x)
{
    EPX_Request before = x->request;
    int flag;

    EXPECT_CODE(EPX_Wait(&x->request, MPI_STATUS_IGNORE), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Test(&x->request, &flag, MPI_STATUS_IGNORE), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Waitall(1, &x->request, MPI_STATUSES_IGNORE), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Start(&x->request), EPX_ERR_REQUEST);
    EXPECT_CODE(EPX_Request_free(&x->request), EPX_ERR_REQUEST);
    EXPECT(x->request == before, "request is another one");
}

/* Starts twice in one capture. */
static cudaGraphExec_t capture(struct exchange *x)
{
    cudaGraphExec_t exec;
    cudaGraph_t graph;

    must(cudaStreamBeginCapture(x->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 2; i++) {
        EXPECT_CODE(EPX_Start(&x->request), EPX_SUCCESS);
        expect_captured(x);
        EXPECT_CODE(EPX_Wait_enqueue(&x->request, x->stream), EPX_SUCCESS);
        EXPECT_CODE(EPX_Wait(&x->request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    }
    must(cudaStreamEndCapture(x->stream, &graph));
    must(cudaGraphInstantiate(&exec, graph, 0));
    must(cudaGraphDestroy(graph));
    SETTLE();
    return exec;
}

static void end(struct exchange *x)
{
    EXPECT_CODE(EPX_Request_free(&x->request), EPX_SUCCESS);
    SETTLE();
    must(cudaStreamDestroy(x->stream));
    exchange_free(x);
    SETTLE();
}

START_TEST(a_start_in_a_capture_belongs_to_the_graph)
{
    struct neighbors n = {SHAPE_RANDOM, 20 + (uint64_t)_i, EPX_GRAPH_NULL};
    struct exchange x;
    cudaGraphExec_t exec;

    EXPECT_CODE(neighbors_open(&n, comm), EPX_SUCCESS);
    x = new_exchange(_i < 4 ? NULL : &n, 20 + (uint64_t)_i, _i % 2);
    exec = capture(&x);
    for (int i = 0; i < REPLAYS; i++) {
        fill(&x);
        must(cudaGraphLaunch(exec, x.stream));
        must(cudaStreamSynchronize(x.stream));
        exchange_check(&x);
        fill(&x);
        EXPECT_CODE(EPX_Start(&x.request), EPX_SUCCESS);
        exchange_wait(&x);
        SETTLE();
    }
    must(cudaGraphExecDestroy(exec));
    end(&x);
    neighbors_close(&n);
}
END_TEST

START_TEST(fixed_counts_are_not_read_in_a_capture)
{
    struct exchange x = new_exchange(NULL, 30, 0);
    EPX_Request fixed = EPX_REQUEST_NULL, other = EPX_REQUEST_NULL;
    cudaGraph_t graph;

    must(cudaStreamBeginCapture(x.stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_CODE(EPX_Alltoallv_init(x.send.address, x.sendcounts.address, x.sdispls.address,
                                   x.recv.address, x.recvcounts.address, x.rdispls.address,
                                   x.recv_capacity, x.data.count, x.data.datatype, comm, x.stream,
                                   EPX_FIXED_COUNTS, &fixed),
                EPX_ERR_ARG);
    EXPECT_CODE(EPX_Alltoallv_init(x.send.address, x.sendcounts.address, x.sdispls.address,
                                   x.recv.address, x.recvcounts.address, x.rdispls.address,
                                   x.recv_capacity, x.data.count, x.data.datatype, comm, x.stream,
                                   0, &other),
                EPX_SUCCESS);
    must(cudaStreamEndCapture(x.stream, &graph));
    must(cudaGraphDestroy(graph));
    EXPECT(fixed == EPX_REQUEST_NULL, "a call that failed made a request");
    EXPECT_CODE(EPX_Request_free(&other), EPX_SUCCESS);
    SETTLE();
    end(&x);
}
END_TEST

/* The stream is held while operations are started one after the other and the request is freed. */
START_TEST(no_call_waits_for_the_gpu)
{
    struct neighbors n = {SHAPE_RING, 40, EPX_GRAPH_NULL};
    struct exchange x, next;
    cudaStream_t stream;
    int *flag;

    EXPECT_CODE(neighbors_open(&n, comm), EPX_SUCCESS);
    x = new_exchange(_i < 2 ? NULL : &n, 40 + (uint64_t)_i, _i % 2);
    stream = x.stream;

    must(cudaHostAlloc((void **)&flag, sizeof(*flag), cudaHostAllocDefault));
    *(volatile int *)flag = 1;
    gpu_hold(flag, stream);
    for (int i = 0; i < 3; i++) {
        EXPECT_CODE(EPX_Start(&x.request), EPX_SUCCESS);
        EXPECT_CODE(EPX_Wait_enqueue(&x.request, stream), EPX_SUCCESS);
    }
    EXPECT_CODE(EPX_Request_free(&x.request), EPX_SUCCESS);
    EXPECT(cudaStreamQuery(stream) == cudaErrorNotReady, "the stream was not held");
    *(volatile int *)flag = 0;
    must(cudaStreamSynchronize(stream));
    exchange_check(&x);
    SETTLE();
    next = new_exchange(x.neighbors, 50, 1);
    fill(&next);
    EXPECT_CODE(EPX_Start(&next.request), EPX_SUCCESS);
    exchange_wait(&next);
    end(&next);
    must(cudaFreeHost(flag));
    must(cudaStreamDestroy(stream));
    exchange_free(&x);
    neighbors_close(&n);
    layer_works(comm);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("persistent_device");
    TCase *tcase = tcase_create("persistent_device");

    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_loop_test(tcase, a_start_in_a_capture_belongs_to_the_graph, 0, 8);
    tcase_add_test(tcase, fixed_counts_are_not_read_in_a_capture);
    tcase_add_loop_test(tcase, no_call_waits_for_the_gpu, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
