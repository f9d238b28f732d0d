/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sum_rows.cuh - what one warp does to several rows: their sum into one. Row memory that peers
 * write is read by plain loads.
 */
#ifndef EPX_KERNELS_WARP_SUM_ROWS_CUH
#define EPX_KERNELS_WARP_SUM_ROWS_CUH

#include "kernels/warp/copy_row.cuh"
#include "kernels/warp/odd_rows.cuh"
#include "kernels/warp/pack_types.cuh"

/*
 * How many packs and rows a lane loads before it uses them: of fewer packs more rows. Sums need the
 * registers, so kernels that do nothing but add have `__launch_bounds__(..., 1)`: one block a
 * multiprocessor with more loads under way was faster than several blocks with fewer.
 */
enum { SUM_UNROLL = 4, SUM_ROWS = 2, MOST_SUM_ROWS = 4 };

/* How rows that are added are loaded. */
enum row_loads {
    ELEMENTS_IF_ODD, /* in packs if all rows are aligned, else an element at a time: least code */
    SHIFTED_IF_ODD   /* in packs that are shifted into place if not */
};

template <typename T, int N, bool WEIGHTED>
static __device__ __forceinline__ void add_pack(const pack<T, N> &data, float weight, bool is_first,
                                                typename T::sum total[N])
{
    typename T::sum term[N];

    widen_pack(data, term);
#pragma unroll
    for (int n = 0; n < N; n++) {
        term[n] = WEIGHTED ? mul((typename T::sum)weight, term[n]) : term[n];
        total[n] = is_first ? term[n] : add(total[n], term[n]);
    }
}

/* A lane's packs of rows that are aligned: first, first + 32, .... */
struct aligned_packs {
    int64_t first;

    template <typename Pack, typename T>
    __device__ __forceinline__ Pack load(const char *row, int u) const
    {
        return ((const Pack *)(const void *)row)[first + u * EPX_WARP];
    }

    template <typename T, int UNROLL, typename Pack>
    __device__ __forceinline__ Pack place(const char *, const Pack loaded[UNROLL], int u) const
    {
        return loaded[u];
    }

    template <typename To, int UNROLL, typename Pack>
    __device__ __forceinline__ void store(char *out, const Pack &pack, int u) const
    {
        ((Pack *)(void *)out)[first + u * EPX_WARP] = pack;
    }
};

/* aligned_packs up to a last one, which stands for all behind it: lanes that have none load and
 * store the last one too, the same bytes. */
struct bounded_packs {
    int32_t first, last;

    __device__ __forceinline__ struct bounded_packs behind(int packs) const
    {
        return {first + packs * EPX_WARP, last};
    }

    __device__ __forceinline__ int32_t number(int u) const
    {
        return first + u * EPX_WARP < last ? first + u * EPX_WARP : last;
    }

    template <typename Pack, typename T>
    __device__ __forceinline__ Pack load(const char *row, int u) const
    {
        return ((const Pack *)(const void *)row)[number(u)];
    }

    template <typename T, int UNROLL, typename Pack>
    __device__ __forceinline__ Pack place(const char *, const Pack loaded[UNROLL], int u) const
    {
        return loaded[u];
    }

    template <typename To, int UNROLL, typename Pack>
    __device__ __forceinline__ void store(char *out, const Pack &pack, int u) const
    {
        ((Pack *)(void *)out)[number(u)] = pack;
    }
};

/*
 * Adds ROWS rows from the r-th on to total, or, if `starts`, sets total to their sum. No load
 * depends on a condition, so that all are under way before the first sum: what a warp has under way
 * bounds its speed.
 */
template <typename T, int N, bool WEIGHTED, int ROWS, int UNROLL, typename Packs>
static __device__ __forceinline__ void add_some_rows(const struct row_list &list, int32_t r,
                                                     bool starts, const Packs &at,
                                                     typename T::sum total[UNROLL][N])
{
    typedef pack<T, N> Pack;
    Pack data[ROWS][UNROLL];

#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            data[i][u] = at.template load<Pack, T>(list.row[r + i], u);
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            add_pack<T, N, WEIGHTED>(at.template place<T, UNROLL>(list.row[r + i], data[i], u),
                                     WEIGHTED ? list.weight[r + i] : 1, i == 0 && starts, total[u]);
}

/* The sum of rows r to end - 1, at least one, ROWS at a time, of a lane's packs; or, unless
 * `starts`, adds them to total. */
template <typename T, int N, bool WEIGHTED, int UNROLL, int ROWS, typename Packs>
static __device__ __forceinline__ void add_run(const struct row_list &list, int32_t r, int32_t end,
                                               const Packs &at, typename T::sum total[UNROLL][N],
                                               bool starts = true)
{
    const int32_t begin = starts ? r : -1;

#pragma unroll 1
    for (; end - r >= ROWS; r += ROWS)
        add_some_rows<T, N, WEIGHTED, ROWS, UNROLL>(list, r, r == begin, at, total);
#pragma unroll 1
    for (; r < end; r++)
        add_some_rows<T, N, WEIGHTED, 1, UNROLL>(list, r, r == begin, at, total);
}

template <typename T, int N, int UNROLL, typename Packs>
static __device__ __forceinline__ void store_packs(const typename T::sum total[UNROLL][N],
                                                   const Packs &at, char *out)
{
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        pack<T, N> rounded;

        round_pack(total[u], rounded);
        at.template store<T, UNROLL>(out, rounded, u);
    }
}

template <typename T, typename To, int N, bool WEIGHTED, int UNROLL, int ROWS, typename Packs>
static __device__ __forceinline__ void sum_some_packs(const struct row_list &list, int32_t num,
                                                      const Packs &at, char *out)
{
    typename T::sum total[UNROLL][N];

    add_run<T, N, WEIGHTED, UNROLL, ROWS>(list, 0, num, at, total);
    store_packs<To, N, UNROLL>(total, at, out);
}

/*
 * out = round(w[0] * rows[0] + w[1] * rows[1] + ...), in this order, products and sums rounded;
 * WEIGHTED false: without products.
 */
template <typename T, typename To, int N, bool WEIGHTED, int ROWS>
static __device__ void sum_packs(const struct row_list &list, int32_t num, int64_t elements,
                                 char *out)
{
    int64_t packs = elements / N, first = lane_id();

#pragma unroll 1
    for (; first + (SUM_UNROLL - 1) * EPX_WARP < packs; first += EPX_WARP * SUM_UNROLL)
        sum_some_packs<T, To, N, WEIGHTED, SUM_UNROLL, SUM_ROWS>(list, num, aligned_packs{first},
                                                                 out);
#pragma unroll 1
    for (; first < packs; first += EPX_WARP)
        sum_some_packs<T, To, N, WEIGHTED, 1, ROWS>(list, num, aligned_packs{first}, out);
}

/* Elements in 16 bytes of the longer type. */
template <typename T, typename To>
static constexpr int PACKED = 16 / (int)(sizeof(T) > sizeof(To) ? sizeof(T) : sizeof(To));

/* sum_packs for rows of any alignment and number of elements. */
template <typename T, typename To, bool WEIGHTED, int UNROLL>
static __device__ void sum_odd_rows(const struct row_list &list, int32_t num, int64_t elements,
                                    char *out)
{
    const int N = PACKED<T, To>;
    for_odd_row<T, To, N, UNROLL>(
        elements, out,
        [&](const struct shifted_packs &at) {
            sum_some_packs<T, To, N, WEIGHTED, UNROLL, MOST_SUM_ROWS>(list, num, at, out);
        },
        [&](int64_t i) {
            sum_some_packs<T, To, 1, WEIGHTED, 1, MOST_SUM_ROWS>(list, num, aligned_packs{i}, out);
        });
}

/* The whole warp: whether so many elements can be read and written PACKED at a time. */
template <typename T, typename To>
static __device__ __forceinline__ bool are_packed(const struct row_list &list, int32_t num,
                                                  int64_t elements, const char *out)
{
    const uint32_t n = PACKED<T, To>;

    return ((list_misalignment(list, num) & (n * (uint32_t)sizeof(T) - 1)) |
            (misalignment(out) & (n * (uint32_t)sizeof(To) - 1)) |
            ((uint32_t)elements & (n - 1))) == 0;
}

/* The whole warp: the sum of rows of a type that adds, rounded to the type To; num = 0 gives zeros.
 * At the end of long rows, and of short ones, ROWS rows are loaded at once. */
template <typename T, typename To, enum row_loads LOADS = ELEMENTS_IF_ODD, int ROWS = SUM_ROWS>
static __device__ void sum_rows(const struct row_list &list, int32_t num, int weighted,
                                int64_t elements, char *out)
{
    const int N = PACKED<T, To>;
    bool packed = are_packed<T, To>(list, num, elements, out);

    if (num == 0)
        zero_row(out, elements * (int64_t)sizeof(To));
    else if (packed && weighted)
        sum_packs<T, To, N, true, ROWS>(list, num, elements, out);
    else if (packed)
        sum_packs<T, To, N, false, ROWS>(list, num, elements, out);
    else if (LOADS != ELEMENTS_IF_ODD)
        weighted ? sum_odd_rows<T, To, true, 1>(list, num, elements, out)
                 : sum_odd_rows<T, To, false, 1>(list, num, elements, out);
    else if (weighted)
        sum_packs<T, To, 1, true, ROWS>(list, num, elements, out);
    else
        sum_packs<T, To, 1, false, ROWS>(list, num, elements, out);
}

/* The number of the first row after the r-th from another node. */
static __device__ __forceinline__ int32_t end_of_node(const struct row_list &list, int32_t num,
                                                      int32_t r)
{
    const int32_t node = list.node[r];

    while (r < num && list.node[r] == node)
        r++;
    return r;
}

/* A slice of the biases of one token. */
struct bias_rows {
    const char *row[EPX_MAX_BIASES];
    int32_t num;
};

/* The parts of a slice of one token in the order of sums, and the node of their home. */
struct ordered_parts {
    const struct row_list &list;
    int32_t num, home;
};

/* Adds the nodes from the r-th part on; the sum of a node other than home is rounded. */
template <typename T, int N>
static __device__ __forceinline__ void add_nodes(const struct ordered_parts &parts, int32_t r,
                                                 const struct aligned_packs &at, bool starts,
                                                 typename T::sum total[N])
{
    typename T::sum own[1][N];

#pragma unroll 1
    for (int32_t end; r < parts.num; r = end, starts = false) {
        const bool rounds = parts.list.node[r] != parts.home;

        end = end_of_node(parts.list, parts.num, r);
        add_run<T, N, false, 1, SUM_ROWS>(parts.list, r, end, at, own);
#pragma unroll
        for (int n = 0; n < N; n++) {
            typename T::sum term = rounds ? T::load(T::store(own[0][n])) : own[0][n];

            total[n] = starts ? term : add(total[n], term);
        }
    }
}

/*
 * out = round(biases, then parts), at least one of them; the parts of the home's own node are added
 * to the biases one by one if they come first. A lane keeps two sums, so it does one pack at a
 * time.
 */
template <typename T, typename To, int N>
static __device__ void sum_packs_of_nodes(const struct bias_rows &from,
                                          const struct ordered_parts &parts, int64_t elements,
                                          char *out)
{
    const bool joins = from.num && parts.num && parts.list.node[0] == parts.home;
    const int32_t end = joins ? end_of_node(parts.list, parts.num, 0) : 0;

#pragma unroll 1
    for (int64_t first = lane_id(); first < elements / N; first += EPX_WARP) {
        const struct aligned_packs at = {first};
        typename T::sum total[1][N];

#pragma unroll 1
        for (int32_t b = 0; b < from.num; b++)
            add_pack<To, N, false>(at.template load<pack<To, N>, To>(from.row[b], 0), 1, b == 0,
                                   total[0]);
        if (end)
            add_run<T, N, false, 1, SUM_ROWS>(parts.list, 0, end, at, total, false);
        add_nodes<T, N>(parts, end, at, from.num == 0, total[0]);
        store_packs<To, N, 1>(total, at, out);
    }
}

/* The whole warp: the sum of biases and of parts that come from several nodes; of none it is 0. */
template <typename T, typename To>
static __device__ void sum_nodes(const struct bias_rows &from, const struct ordered_parts &parts,
                                 int64_t elements, char *out)
{
    const int N = PACKED<T, To>;
    bool packed = are_packed<T, To>(parts.list, parts.num, elements, out);

    for (int32_t b = 0; b < from.num; b++)
        packed = packed && (misalignment(from.row[b]) & (N * sizeof(To) - 1)) == 0;
    if (parts.num + from.num == 0)
        zero_row(out, elements * (int64_t)sizeof(To));
    else if (packed)
        sum_packs_of_nodes<T, To, N>(from, parts, elements, out);
    else
        sum_packs_of_nodes<T, To, 1>(from, parts, elements, out);
}

/* One kernel for each datatype that adds, from EPX_FLOAT16 on. */
#define KERNELS_OF_TYPES(kernel)                                                                   \
    {                                                                                              \
        kernel<float16>, kernel<bfloat16>, kernel<float32>, kernel<float64>                        \
    }
enum { NUM_ADDED_TYPES = 4 };

/* Kernels that sum: as above, then one for each type whose sums may travel as float32. */
#define SUM_KERNELS(kernel)                                                                        \
    {                                                                                              \
        kernel<float16>, kernel<bfloat16>, kernel<float32>, kernel<float64>, kernel<wide_float16>, \
            kernel<wide_bfloat16>                                                                  \
    }
enum { NUM_SUM_KERNELS = NUM_ADDED_TYPES + 2 };

#endif
