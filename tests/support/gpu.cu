/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu.cu - kernels of the tests, and what the driver alone makes. */
#include "support/gpu.h"

#include <cuda.h>
#include <stdlib.h>

static __global__ void hold(const volatile int *flag)
{
    while (*flag)
        __nanosleep(1000);
}

static __global__ void copy(char *to, const char *from, size_t bytes)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < bytes;
         i += (size_t)gridDim.x * blockDim.x)
        to[i] = from[i];
}

void gpu_hold(const volatile int *flag, EPX_Stream stream)
{
    hold<<<1, 1, 0, stream>>>(flag);
}

void gpu_copy(void *to, const void *from, size_t bytes, EPX_Stream stream)
{
    copy<<<64, 256, 0, stream>>>((char *)to, (const char *)from, bytes);
}

/* A call of the driver, in the form that it had in a version of CUDA; NULL if there is none. */
template <typename Call> static Call *find_call(const char *name, unsigned version)
{
    enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    void *call = NULL;
    cudaError_t error;

#if CUDART_VERSION >= 12050
    error = cudaGetDriverEntryPointByVersion(name, &call, version, cudaEnableDefault, &result);
#else
    (void)version;
    error = cudaGetDriverEntryPoint(name, &call, cudaEnableDefault, &result);
#endif
    if (error == cudaSuccess && result == cudaDriverEntryPointSuccess)
        return (Call *)call;
    cudaGetLastError();
    return NULL;
}

#define DRIVER(name, version, ...)                                                                 \
    (find_call<decltype(name)>(#name, version)                                                     \
         ? find_call<decltype(name)>(#name, version)(__VA_ARGS__)                                  \
         : CUDA_ERROR_NOT_FOUND)
enum {
    MAPPING_SINCE = 11070,
    NODES_SINCE = 12000,
    GREEN_SINCE = 12040,
    GREEN_STREAMS_SINCE = 12050
};

static bool add_kernel(struct gpu_kernels &kernels, cudaGraphNode_t node)
{
    CUDA_KERNEL_NODE_PARAMS params = {};

    if (DRIVER(cuGraphKernelNodeGetParams, NODES_SINCE, node, &params) != CUDA_SUCCESS)
        return false;
    kernels.num++;
    if (kernels.most_blocks < params.gridDimX)
        kernels.most_blocks = params.gridDimX;
    return true;
}

struct gpu_kernels gpu_kernels_of(cudaGraph_t graph)
{
    struct gpu_kernels kernels = {0, 0};
    size_t num = 0;
    bool ok = cudaGraphGetNodes(graph, NULL, &num) == cudaSuccess;
    cudaGraphNode_t *nodes = (cudaGraphNode_t *)malloc((num + 1) * sizeof(*nodes));

    ok = ok && cudaGraphGetNodes(graph, nodes, &num) == cudaSuccess;
    for (size_t i = 0; ok && i < num; i++) {
        enum cudaGraphNodeType type;

        ok = cudaGraphNodeGetType(nodes[i], &type) == cudaSuccess;
        if (ok && type == cudaGraphNodeTypeKernel)
            ok = add_kernel(kernels, nodes[i]);
    }
    free(nodes);
    return ok ? kernels : gpu_kernels{-1, 0};
}

static CUdeviceptr address_of(const struct gpu_mapping *m, int piece)
{
    return (CUdeviceptr)(uintptr_t)(m->base + (size_t)piece * m->piece_bytes);
}

static bool map_piece(struct gpu_mapping *m, int i, const CUmemAllocationProp &prop)
{
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    if (DRIVER(cuMemCreate, MAPPING_SINCE, &handle, m->piece_bytes, &prop, 0) != CUDA_SUCCESS)
        return false;
    m->handles[i] = handle;
    if (DRIVER(cuMemMap, MAPPING_SINCE, address_of(m, i), m->piece_bytes, 0, handle, 0) !=
        CUDA_SUCCESS)
        return false;
    return m->pieces[i] == GPU_CLOSED || DRIVER(cuMemSetAccess, MAPPING_SINCE, address_of(m, i),
                                                m->piece_bytes, &access, 1) == CUDA_SUCCESS;
}

int gpu_map(struct gpu_mapping *m, int ordinal)
{
    CUmemAllocationProp prop = {};
    CUdeviceptr base = 0;
    bool ok;

    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = ordinal;
    ok = DRIVER(cuMemGetAllocationGranularity, MAPPING_SINCE, &m->piece_bytes, &prop,
                CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
         DRIVER(cuMemAddressReserve, MAPPING_SINCE, &base, m->num * m->piece_bytes, 0, 0, 0) ==
             CUDA_SUCCESS;
    m->base = (char *)(uintptr_t)base;
    for (int i = 0; ok && i < m->num; i++)
        if (m->pieces[i] != GPU_RESERVED)
            ok = map_piece(m, i, prop);
    return ok;
}

void gpu_unmap(struct gpu_mapping *m)
{
    for (int i = 0; i < m->num; i++)
        if (m->pieces[i] != GPU_RESERVED) {
            DRIVER(cuMemUnmap, MAPPING_SINCE, address_of(m, i), m->piece_bytes);
            DRIVER(cuMemRelease, MAPPING_SINCE, m->handles[i]);
        }
    DRIVER(cuMemAddressFree, MAPPING_SINCE, address_of(m, 0), m->num * m->piece_bytes);
}

#if CUDA_VERSION >= 12050
int gpu_take_part(struct gpu_part *part, int ordinal, int sms)
{
    CUdevResource all = {}, taken = {}, rest = {};
    CUdevResourceDesc description;
    CUgreenCtx context;
    unsigned num = 1;
    CUdevice device;

    if (DRIVER(cuDeviceGet, MAPPING_SINCE, &device, ordinal) != CUDA_SUCCESS ||
        DRIVER(cuDeviceGetDevResource, GREEN_SINCE, device, &all, CU_DEV_RESOURCE_TYPE_SM) !=
            CUDA_SUCCESS ||
        DRIVER(cuDevSmResourceSplitByCount, GREEN_SINCE, &taken, &num, &all, &rest, 0,
               (unsigned)sms) != CUDA_SUCCESS ||
        DRIVER(cuDevResourceGenerateDesc, GREEN_SINCE, &description, &taken, 1) != CUDA_SUCCESS ||
        DRIVER(cuGreenCtxCreate, GREEN_SINCE, &context, description, device,
               CU_GREEN_CTX_DEFAULT_STREAM) != CUDA_SUCCESS)
        return 0;
    part->context = context;
    part->sms = (int)taken.sm.smCount;
    return DRIVER(cuGreenCtxStreamCreate, GREEN_STREAMS_SINCE, &part->stream, context,
                  CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS;
}

void gpu_give_part(struct gpu_part *part)
{
    cudaStreamDestroy(part->stream);
    DRIVER(cuGreenCtxDestroy, GREEN_SINCE, (CUgreenCtx)part->context);
}
#else
int gpu_take_part(struct gpu_part *part, int ordinal, int sms)
{
    (void)part;
    (void)ordinal;
    (void)sms;
    return 0;
}

void gpu_give_part(struct gpu_part *part)
{
    (void)part;
}
#endif
