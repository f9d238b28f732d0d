/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer_kernels.cu - what a user writes around messages: a stable counting sort of the pairs, a row
 * for each pair packed in that order, blocks brought into the order of experts and back, and
 * weighted sums. Rows are moved in the widest words that divide them.
 */
#include "epx_perf/peer/peer_kernels.h"

#include "epx_perf/space/perf_must.h"

enum { ROW_THREADS = 256, SCAN_THREADS = 1024, MOST_BLOCKS = 65535, RUN_BLOCKS = 8 };

/* Sets chunks[c][e] to the pairs of expert e in chunk c. */
static __global__ void __launch_bounds__(ROW_THREADS)
    count_chunks(const __grid_constant__ struct perf_sort a)
{
    extern __shared__ int counts[];
    int64_t first = (int64_t)blockIdx.x * PERF_CHUNK_PAIRS;
    int64_t last = first + PERF_CHUNK_PAIRS < a.pairs ? first + PERF_CHUNK_PAIRS : a.pairs;

    for (int e = (int)threadIdx.x; e < a.experts; e += ROW_THREADS)
        counts[e] = 0;
    __syncthreads();
    for (int64_t i = first + threadIdx.x; i < last; i += ROW_THREADS)
        if (a.ids[i] >= 0)
            atomicAdd(&counts[a.ids[i]], 1);
    __syncthreads();
    for (int e = (int)threadIdx.x; e < a.experts; e += ROW_THREADS)
        a.chunks[(int64_t)blockIdx.x * a.experts + e] = counts[e];
}

/* Returns the pairs of expert e, and sets chunks[c][e] to its pairs in the chunks before c. */
static __device__ int sum_chunks(const struct perf_sort &a, int e)
{
    int total = 0;

#pragma unroll 8
    for (int c = 0; c < a.num_chunks; c++) {
        int *chunk = &a.chunks[(int64_t)c * a.experts + e];
        int count = *chunk;

        *chunk = total;
        total += count;
    }
    return total;
}

static __device__ void set_count(const struct perf_sort &a, int e, int count)
{
    int owner = (int)(((int64_t)(e + 1) * a.size - 1) / a.experts);
    int j = e - (int)((int64_t)owner * a.experts / a.size);

    a.counts_out[(int64_t)owner * a.most_local + j] = count;
}

/* Returns the sum over all threads before this one, and the sum over the block in *total. */
static __device__ int scan_block(int mine, int *total)
{
    __shared__ int warp_sums[32];
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, sum = mine, before = 0, all = 0;

    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_up_sync(0xffffffff, sum, d);

        sum += lane >= d ? other : 0;
    }
    if (lane == 31)
        warp_sums[warp] = sum;
    __syncthreads();
    for (int w = 0; w < SCAN_THREADS / 32; w++) {
        before += w < warp ? warp_sums[w] : 0;
        all += warp_sums[w];
    }
    __syncthreads();
    *total = all;
    return before + sum - mine;
}

/* Works out, with one block, the total of each expert and where its pairs begin. */
static __global__ void __launch_bounds__(SCAN_THREADS)
    offset_experts(const __grid_constant__ struct perf_sort a)
{
    int begin = 0;

    for (int base = 0; base < a.experts; base += SCAN_THREADS) {
        int e = base + (int)threadIdx.x, mine = 0, before, total;

        if (e < a.experts)
            mine = sum_chunks(a, e);
        before = scan_block(mine, &total);
        if (e < a.experts) {
            set_count(a, e, mine);
            a.first[e] = begin + before;
        }
        begin += total;
    }
}

/* Gives each pair its place, with a warp for each chunk; lanes tell the pairs of one expert among
 * 32 apart. */
static __global__ void __launch_bounds__(32) place_pairs(const __grid_constant__ struct perf_sort a)
{
    extern __shared__ int next[];
    int64_t first = (int64_t)blockIdx.x * PERF_CHUNK_PAIRS;
    unsigned before = (1u << threadIdx.x) - 1;

    for (int e = (int)threadIdx.x; e < a.experts; e += 32)
        next[e] = a.first[e] + a.chunks[(int64_t)blockIdx.x * a.experts + e];
    __syncwarp();
    for (int64_t i = first + threadIdx.x; i - threadIdx.x < first + PERF_CHUNK_PAIRS; i += 32) {
        int64_t id = i < a.pairs ? a.ids[i] : -1;
        unsigned same = __match_any_sync(0xffffffff, (int)id);
        int base = id >= 0 ? next[id] : 0;

        __syncwarp();
        if (id >= 0 && (same & before) == 0)
            next[id] = base + __popc(same);
        if (i < a.pairs)
            a.place[i] = id < 0 ? -1 : base + __popc(same & before);
        __syncwarp();
    }
}

/* Packs rows, with a block for each token, which is read once. */
template <typename Word>
static __global__ void __launch_bounds__(ROW_THREADS)
    pack_rows(const __grid_constant__ struct perf_home_rows a)
{
    int64_t words = a.row_bytes / (int64_t)sizeof(Word);

    for (int t = (int)blockIdx.x; t < a.num_tokens; t += (int)gridDim.x) {
        const Word *token = (const Word *)(a.tokens + t * a.row_bytes);
        const int64_t *place = a.place + (int64_t)t * a.top_k;

        for (int64_t w = threadIdx.x; w < words; w += ROW_THREADS) {
            Word word = token[w];

            for (int k = 0; k < a.top_k; k++)
                if (place[k] >= 0)
                    ((Word *)(a.packed + place[k] * a.row_bytes))[w] = word;
        }
    }
}

/* Moves runs of rows, with a column of blocks for each run. */
template <typename Word>
static __global__ void __launch_bounds__(ROW_THREADS)
    group_rows(const __grid_constant__ struct perf_group a)
{
    struct perf_expert_rows run = a.runs[blockIdx.x];
    int64_t words = a.row_bytes / (int64_t)sizeof(Word);

    for (int64_t i = blockIdx.y; i < run.num; i += gridDim.y) {
        Word *row = (Word *)(a.grouped + (run.place + i) * a.row_bytes);
        Word *block = (Word *)(a.blocks + (run.block + i) * a.row_bytes);
        const Word *from = a.back ? row : block;
        Word *to = a.back ? block : row;

        for (int64_t w = threadIdx.x; w < words; w += ROW_THREADS)
            to[w] = from[w];
    }
}

struct bfloat16 {
    typedef uint16_t type;
    typedef float sum;
    static __device__ float load(uint16_t x)
    {
        return __uint_as_float((unsigned)x << 16);
    }
    static __device__ uint16_t store(float x)
    {
        unsigned bits = __float_as_uint(x);

        return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
};

template <typename T> struct number {
    typedef T type;
    typedef T sum;
    static __device__ T load(T x)
    {
        return x;
    }
    static __device__ T store(T x)
    {
        return x;
    }
};

template <typename T, int N> struct alignas(sizeof(T) * N) vector {
    T x[N];
};

/* Sums rows, with a block for each token, whose rows came back in packed order. */
template <typename E, int N>
static __global__ void __launch_bounds__(ROW_THREADS)
    sum_rows(const __grid_constant__ struct perf_home_rows a)
{
    typedef vector<typename E::type, N> words;
    int64_t num = a.row_bytes / (int64_t)sizeof(words);

    for (int t = (int)blockIdx.x; t < a.num_tokens; t += (int)gridDim.x) {
        const int64_t *place = a.place + (int64_t)t * a.top_k;
        const float *weights = a.weights + (int64_t)t * a.top_k;
        words *to = (words *)(a.tokens + t * a.row_bytes);

        for (int64_t w = threadIdx.x; w < num; w += ROW_THREADS) {
            typename E::sum sum[N] = {};
            words out;

            for (int k = 0; k < a.top_k; k++) {
                if (place[k] < 0)
                    continue;
                words in = ((const words *)(a.packed + place[k] * a.row_bytes))[w];

                for (int i = 0; i < N; i++)
                    sum[i] += (typename E::sum)weights[k] * E::load(in.x[i]);
            }
            for (int i = 0; i < N; i++)
                out.x[i] = E::store(sum[i]);
            to[w] = out;
        }
    }
}

static unsigned blocks_for(int num_tokens)
{
    const int most = MOST_BLOCKS;

    return (unsigned)(num_tokens < most ? num_tokens : most);
}

void perf_launch_sort(const struct perf_sort *sort, cudaStream_t stream)
{
    unsigned chunks = (unsigned)sort->num_chunks;
    size_t shared = (size_t)sort->experts * sizeof(int);

    if (chunks)
        count_chunks<<<chunks, ROW_THREADS, shared, stream>>>(*sort);
    offset_experts<<<1, SCAN_THREADS, 0, stream>>>(*sort);
    if (chunks)
        place_pairs<<<chunks, 32, shared, stream>>>(*sort);
    perf_must(cudaGetLastError(), "sort");
}

void perf_launch_pack(const struct perf_home_rows *rows, cudaStream_t stream)
{
    unsigned blocks = blocks_for(rows->num_tokens);

    if (blocks == 0)
        return;
    if (rows->row_bytes % 16 == 0)
        pack_rows<uint4><<<blocks, ROW_THREADS, 0, stream>>>(*rows);
    else if (rows->row_bytes % 4 == 0)
        pack_rows<unsigned><<<blocks, ROW_THREADS, 0, stream>>>(*rows);
    else
        pack_rows<char><<<blocks, ROW_THREADS, 0, stream>>>(*rows);
    perf_must(cudaGetLastError(), "pack_rows");
}

void perf_launch_group(const struct perf_group *group, cudaStream_t stream)
{
    dim3 blocks((unsigned)group->num_runs, RUN_BLOCKS);

    if (group->num_runs == 0)
        return;
    if (group->row_bytes % 16 == 0)
        group_rows<uint4><<<blocks, ROW_THREADS, 0, stream>>>(*group);
    else if (group->row_bytes % 4 == 0)
        group_rows<unsigned><<<blocks, ROW_THREADS, 0, stream>>>(*group);
    else
        group_rows<char><<<blocks, ROW_THREADS, 0, stream>>>(*group);
    perf_must(cudaGetLastError(), "group_rows");
}

template <typename E> static void sum_any(const struct perf_home_rows &rows, cudaStream_t stream)
{
    const int wide = 16 / sizeof(typename E::type);
    unsigned blocks = blocks_for(rows.num_tokens);

    if (rows.row_bytes % 16 == 0)
        sum_rows<E, wide><<<blocks, ROW_THREADS, 0, stream>>>(rows);
    else
        sum_rows<E, 1><<<blocks, ROW_THREADS, 0, stream>>>(rows);
}

void perf_launch_sum(const struct perf_home_rows *rows, EPX_Datatype datatype, cudaStream_t stream)
{
    if (rows->num_tokens == 0)
        return;
    if (datatype == EPX_BFLOAT16)
        sum_any<bfloat16>(*rows, stream);
    else if (datatype == EPX_FLOAT32)
        sum_any<number<float>>(*rows, stream);
    else
        sum_any<number<double>>(*rows, stream);
    perf_must(cudaGetLastError(), "sum_rows");
}
