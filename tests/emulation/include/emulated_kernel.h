/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emulated_kernel.h - CUDA C++ for a host compiler, as far as EPX uses it: the nvcc of this folder
 * includes it before every file. kernel_source.awk does what a header cannot.
 */
#ifndef EMULATED_KERNEL_H
#define EMULATED_KERNEL_H

#include <cuda_runtime.h>
#include <limits.h>
#include <math.h>
#include <new>
#include <stdlib.h>
#include <string.h>
#include <tuple>
#include <type_traits>

#include "emulation/include/emulated_ptx.h"
#include "emulation/include/emulation.h"

#define __CUDACC__ 1

#undef __shared__ /* kernel_source.awk looks for it */
#undef __launch_bounds__
#undef __align__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

#define threadIdx (emulated_here->thread)
#define blockIdx (emulated_here->block)
#define blockDim (emulated_here->threads)
#define gridDim (emulated_here->blocks)

/* kernel<<<...>>>(...) has become kernel->*emulated_grid{...}(...). */
struct emulated_grid {
    emulated_kernel launch = {};

    explicit emulated_grid(dim3 blocks, dim3 threads, size_t shared_bytes = 0,
                           cudaStream_t stream = nullptr,
                           const char *launcher = __builtin_FUNCTION())
    {
        launch.blocks = blocks;
        launch.threads = threads;
        launch.shared_bytes = shared_bytes;
        launch.stream = stream;
        launch.launcher = launcher;
    }

    template <typename... A> struct call {
        emulated_kernel launch;
        std::tuple<const A &...> arguments;
    };

    template <typename... A> call<A...> operator()(const A &...arguments) const
    {
        return {launch, std::tuple<const A &...>(arguments...)};
    }
};

template <typename... P> struct emulated_arguments {
    void (*kernel)(P...);
    std::tuple<std::remove_cv_t<P>...> values;

    static void run(void *given)
    {
        emulated_arguments *arguments = (emulated_arguments *)given;

        std::apply(arguments->kernel, arguments->values);
    }
};

/* What a call of the kernel would convert; NULL has lost its type on the way here. */
template <typename P, typename A> static inline P emulated_converted(const A &argument)
{
    if constexpr (std::is_pointer<P>::value && std::is_integral<A>::value)
        return nullptr;
    else
        return argument;
}

template <typename... P, typename... A>
static inline void operator->*(void (*kernel)(P...), const emulated_grid::call<A...> &call)
{
    emulated_kernel launch = call.launch;

    launch.kernel = (const void *)kernel;
    launch.call = emulated_arguments<P...>::run;
    launch.release = free;
    launch.arguments = malloc(sizeof(emulated_arguments<P...>));
    std::apply(
        [&](const A &...arguments) {
            new (launch.arguments) emulated_arguments<P...>{
                kernel, {emulated_converted<std::remove_cv_t<P>>(arguments)...}};
        },
        call.arguments);
    emulated_launch(&launch);
}

/* A launch with attributes, of which the emulation knows one. */
template <typename... P, typename... A>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...),
                                             const A &...arguments)
{
    const auto &[blocks, threads, shared_bytes, stream, attributes, num] = *config;
    emulated_grid grid(blocks, threads, shared_bytes, stream);

    for (unsigned i = 0; i < num; i++)
        if (attributes[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
            grid.launch.overtakes = attributes[i].val.programmaticStreamSerializationAllowed;
    kernel->*grid(arguments...);
    return cudaPeekAtLastError();
}

static inline void __syncthreads()
{
    emulated_sync(EMULATED_SYNC, 0);
}

static inline int __syncthreads_and(int yes)
{
    return emulated_sync(EMULATED_SYNC_AND, yes == 0) == 0;
}

static inline int __syncthreads_or(int yes)
{
    return emulated_sync(EMULATED_SYNC_OR, yes != 0) != 0;
}

static inline int __syncthreads_count(int yes)
{
    return emulated_sync(EMULATED_SYNC_COUNT, yes != 0);
}

static inline void __syncwarp(uint32_t mask = ~0u)
{
    emulated_meet(EMULATED_SYNC, mask, 0);
}

static inline unsigned emulated_lane()
{
    return threadIdx.x % EMULATED_WARP;
}

template <typename T> static inline uint64_t emulated_bits(T value)
{
    uint64_t bits = 0;

    static_assert(sizeof(T) <= sizeof(bits), "values of lanes have at most eight bytes");
    memcpy(&bits, &value, sizeof(T));
    return bits;
}

/* A lane that is not there gives a pattern: what CUDA gives is undefined. */
template <typename T> static inline T emulated_shuffle(uint32_t mask, T value, unsigned lane)
{
    const emulated_lanes *lanes = emulated_meet(EMULATED_SHUFFLE, mask, emulated_bits(value));

    if (lanes->present >> lane & 1)
        memcpy(&value, &lanes->value[lane], sizeof(T));
    else
        memset(&value, 0xa5, sizeof(T));
    return value;
}

template <typename T> static inline T __shfl_sync(uint32_t mask, T value, int lane)
{
    return emulated_shuffle(mask, value, (unsigned)lane % EMULATED_WARP);
}

template <typename T> static inline T __shfl_up_sync(uint32_t mask, T value, unsigned by)
{
    unsigned lane = emulated_lane();

    return emulated_shuffle(mask, value, lane >= by ? lane - by : lane);
}

template <typename T> static inline T __shfl_down_sync(uint32_t mask, T value, unsigned by)
{
    unsigned lane = emulated_lane();

    return emulated_shuffle(mask, value, lane + by < EMULATED_WARP ? lane + by : lane);
}

template <typename T> static inline T __shfl_xor_sync(uint32_t mask, T value, int by)
{
    return emulated_shuffle(mask, value, emulated_lane() ^ (unsigned)by);
}

static inline uint32_t emulated_vote(uint32_t mask, bool yes)
{
    const emulated_lanes *lanes = emulated_meet(EMULATED_VOTE, mask, yes);
    uint32_t votes = 0;

    for (unsigned lane = 0; lane < EMULATED_WARP; lane++)
        if (lanes->present >> lane & 1)
            votes |= (uint32_t)lanes->value[lane] << lane;
    return votes & mask;
}

static inline uint32_t __ballot_sync(uint32_t mask, int yes)
{
    return emulated_vote(mask, yes != 0);
}

static inline int __any_sync(uint32_t mask, int yes)
{
    return emulated_vote(mask, yes != 0) != 0;
}

static inline int __all_sync(uint32_t mask, int yes)
{
    return emulated_vote(mask, yes == 0) == 0;
}

template <typename T> static inline uint32_t __match_any_sync(uint32_t mask, T value)
{
    const emulated_lanes *lanes = emulated_meet(EMULATED_MATCH, mask, emulated_bits(value));
    uint32_t same = 0;

    for (unsigned lane = 0; lane < EMULATED_WARP; lane++)
        if (lanes->present >> lane & 1)
            same |= (uint32_t)(lanes->value[lane] == emulated_bits(value)) << lane;
    return same & mask;
}

template <typename T, typename Fold>
static inline T emulated_reduce(uint32_t mask, T value, Fold fold)
{
    const emulated_lanes *lanes = emulated_meet(EMULATED_REDUCE, mask, emulated_bits(value));
    bool first = true;
    T result = value;

    for (unsigned lane = 0; lane < EMULATED_WARP; lane++) {
        if (!(lanes->present & mask & 1u << lane))
            continue;
        T other;
        memcpy(&other, &lanes->value[lane], sizeof(T));
        result = first ? other : fold(result, other);
        first = false;
    }
    return result;
}

static inline unsigned __reduce_add_sync(uint32_t mask, unsigned value)
{
    return emulated_reduce(mask, value, [](unsigned a, unsigned b) { return a + b; });
}

static inline int __reduce_add_sync(uint32_t mask, int value)
{
    return (int)__reduce_add_sync(mask, (unsigned)value);
}

static inline unsigned __reduce_or_sync(uint32_t mask, unsigned value)
{
    return emulated_reduce(mask, value, [](unsigned a, unsigned b) { return a | b; });
}

template <typename T> static inline T __reduce_max_sync(uint32_t mask, T value)
{
    return emulated_reduce(mask, value, [](T a, T b) { return a > b ? a : b; });
}

template <typename T> static inline T __reduce_min_sync(uint32_t mask, T value)
{
    return emulated_reduce(mask, value, [](T a, T b) { return a < b ? a : b; });
}

/* Atomics on shared memory, the device or the system. */
template <typename T> using emulated_same = typename std::common_type<T>::type;

template <typename T> static inline T atomicAdd(T *p, emulated_same<T> value)
{
    emulated_step();
    return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);
}

template <typename T> static inline T atomicOr(T *p, emulated_same<T> value)
{
    emulated_step();
    return __atomic_fetch_or(p, value, __ATOMIC_RELAXED);
}

template <typename T>
static inline T atomicCAS_system(T *p, emulated_same<T> expected, emulated_same<T> value)
{
    emulated_step();
    __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

template <typename T> static inline T atomicExch(T *p, emulated_same<T> value)
{
    emulated_step();
    return __atomic_exchange_n(p, value, __ATOMIC_RELAXED);
}

template <typename T> static inline T atomicMax(T *p, emulated_same<T> value)
{
    T before = __atomic_load_n(p, __ATOMIC_RELAXED);

    emulated_step();
    while (before < value && !__atomic_compare_exchange_n(p, &before, value, false,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return before;
}

template <typename T> static inline T atomicMin(T *p, emulated_same<T> value)
{
    T before = __atomic_load_n(p, __ATOMIC_RELAXED);

    emulated_step();
    while (before > value && !__atomic_compare_exchange_n(p, &before, value, false,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return before;
}

static inline void __nanosleep(unsigned)
{
    emulated_spin();
}

static inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}

static inline int __ffsll(long long bits)
{
    return __builtin_ffsll(bits);
}

static inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}

static inline int __popcll(unsigned long long bits)
{
    return __builtin_popcountll(bits);
}

static inline int __clz(int bits)
{
    return bits ? __builtin_clz((unsigned)bits) : 32;
}

static inline unsigned __vcmpeq2(unsigned a, unsigned b)
{
    unsigned same = a ^ b;

    return (same & 0xffffu ? 0u : 0xffffu) | (same >> 16 ? 0u : 0xffff0000u);
}

static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}

static inline float __uint_as_float(unsigned bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline unsigned __float_as_uint(float value)
{
    return (unsigned)emulated_bits(value);
}

template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}

#endif
