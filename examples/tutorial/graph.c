/* SPDX-License-Identifier: BSD-3-Clause */
/* graph.c - a layer as a CUDA graph, replayed with other expert ids. */
#include <cuda_runtime.h>
#include <epx.h>
#include <stdio.h>

enum { TOKENS = 4, CHOICES = 2, HIDDEN = 4, EXPERTS = 8, REPLAYS = 3 };

/* Arrays in the memory of the GPU, for the life of the graph. */
struct layer {
    EPX_Comm comm;
    EPX_Route route;
    int64_t *ids;
    float *weights, *tokens, *sums, *rows, *row_weights;
};

static void *on_gpu(size_t bytes)
{
    void *memory = NULL;

    cudaMalloc(&memory, bytes);
    return memory;
}

static void open_layer(struct layer *l)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;

    attr.num_experts = EXPERTS;
    attr.top_k = CHOICES;
    attr.max_tokens = TOKENS;
    attr.max_row_bytes = HIDDEN * sizeof(float);
    EPX_Route_create(&attr, l->comm, &l->route);
    EPX_Route_get_view(l->route, &view);
    EPX_Alloc_mem(view.capacity * (MPI_Aint)sizeof(float) * HIDDEN,
                  l->comm, &l->rows);
    EPX_Alloc_mem(view.capacity * (MPI_Aint)sizeof(float), l->comm,
                  &l->row_weights);
    l->ids = on_gpu(sizeof(int64_t) * TOKENS * CHOICES);
    l->weights = on_gpu(sizeof(float) * TOKENS * CHOICES);
    l->tokens = on_gpu(sizeof(float) * TOKENS * HIDDEN);
    l->sums = on_gpu(sizeof(float) * TOKENS * HIDDEN);
}

/* Nothing runs yet: the graph gets the operations, in this order. */
static cudaGraphExec_t capture(struct layer *l, cudaStream_t stream)
{
    EPX_Request requests[3];
    cudaGraphExec_t ready = NULL;
    cudaGraph_t graph = NULL;

    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    EPX_Route_tokens(l->ids, TOKENS, l->route, stream, &requests[0]);
    EPX_Dispatch(l->tokens, l->weights, l->rows, l->row_weights, HIDDEN,
                 EPX_FLOAT32, l->route, stream, &requests[1]);
    EPX_Wait_enqueue(&requests[0], stream);
    EPX_Wait_enqueue(&requests[1], stream);
    /* The kernels of the experts go here. These experts do nothing. */
    EPX_Combine(l->rows, l->row_weights, l->sums, HIDDEN, EPX_FLOAT32,
                l->route, stream, &requests[2]);
    EPX_Wait_enqueue(&requests[2], stream);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiateWithFlags(&ready, graph, 0);
    cudaGraphDestroy(graph);
    return ready;
}

/* Writes new input where the graph reads it. */
static void fill(struct layer *l, int replay)
{
    float weights[TOKENS * CHOICES], tokens[TOKENS * HIDDEN];
    int64_t ids[TOKENS * CHOICES];

    for (int p = 0; p < TOKENS * CHOICES; p++) {
        ids[p] = (p + replay) % EXPERTS;
        weights[p] = .5f * (float)(replay + 1);
    }
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        tokens[i] = (float)i;
    cudaMemcpy(l->ids, ids, sizeof(ids), cudaMemcpyDefault);
    cudaMemcpy(l->weights, weights, sizeof(weights), cudaMemcpyDefault);
    cudaMemcpy(l->tokens, tokens, sizeof(tokens), cudaMemcpyDefault);
}

static void replay_all(struct layer *l, int rank)
{
    float first[HIDDEN];
    cudaGraphExec_t graph;
    cudaStream_t stream;
    int error = EPX_SUCCESS;

    cudaStreamCreate(&stream);
    graph = capture(l, stream);
    for (int replay = 0; replay < REPLAYS && !error; replay++) {
        fill(l, replay);
        cudaGraphLaunch(graph, stream); /* on all ranks */
        cudaStreamSynchronize(stream);
        EPX_Comm_get_async_error(l->comm, &error);
        cudaMemcpy(first, l->sums, sizeof(first), cudaMemcpyDefault);
        printf("rank %d, replay %d, token 0: %.1f %.1f\n", rank, replay,
               first[0], first[1]);
    }
    cudaGraphExecDestroy(graph);
    cudaStreamDestroy(stream);
}

int main(int argc, char **argv)
{
    struct layer l = {0};
    MPI_Info info;
    int rank, gpus = 1;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    cudaGetDeviceCount(&gpus);
    cudaSetDevice(rank % gpus); /* before the communicator is made */
    MPI_Info_create(&info);
    MPI_Info_set(info, "epx_memory", "cuda:device");
    EPX_Comm_create(MPI_COMM_WORLD, info, &l.comm);
    MPI_Info_free(&info);
    open_layer(&l);
    replay_all(&l, rank);
    cudaFree(l.sums);
    cudaFree(l.tokens);
    cudaFree(l.weights);
    cudaFree(l.ids);
    EPX_Free_mem(l.row_weights, l.comm);
    EPX_Free_mem(l.rows, l.comm);
    EPX_Route_free(&l.route);
    EPX_Comm_free(&l.comm);
    MPI_Finalize();
    return 0;
}
