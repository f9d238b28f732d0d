/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ptx.cuh - instructions that CUDA C++ has no words for: loads, stores, sums and fences by their
 * scope, copies ahead and in bulk, and the clock. tests/emulation/include has the same for kernels
 * on the host.
 */
#ifndef EPX_KERNELS_WARP_PTX_CUH
#define EPX_KERNELS_WARP_PTX_CUH

#include <stdint.h>

#ifdef __CUDACC__

static __device__ __forceinline__ uint64_t load_acquire_sys(const uint64_t *p)
{
    uint64_t value;

    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
    return value;
}

static __device__ __forceinline__ uint64_t load_relaxed_sys(const uint64_t *p)
{
    uint64_t value;

    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
    return value;
}

static __device__ __forceinline__ uint64_t load_acquire_gpu(const uint64_t *p)
{
    uint64_t value;

    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
    return value;
}

static __device__ __forceinline__ void store_relaxed_sys(uint64_t *p, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

/* A word that carries its own tag: it tells of nothing but itself, and needs no fence. */
static __device__ __forceinline__ void store_word_sys(uint64_t *p, uint64_t value)
{
    store_relaxed_sys(p, value);
}

/* Two words in one instruction; each of them is atomic. */
static __device__ __forceinline__ void load_two_relaxed_sys(const uint64_t *p, uint64_t &low,
                                                            uint64_t &high)
{
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(low), "=l"(high)
                 : "l"(p)
                 : "memory");
}

static __device__ __forceinline__ void store_two_relaxed_sys(uint64_t *p, uint64_t low,
                                                             uint64_t high)
{
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(low), "l"(high)
                 : "memory");
}

/* Two words, 16 bytes from a multiple of 16 on, that are one access: a load sees both of a store or
 * neither. PTX has a word for it since CUDA 12.4; before, a vector of two words is stored and
 * loaded, which GPUs do in one access too. */
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1204
static __device__ __forceinline__ void load_packet_sys(const void *p, uint64_t &low, uint64_t &high)
{
    asm volatile("{\n\t"
                 ".reg .b128 both;\n\t"
                 "ld.relaxed.sys.global.b128 both, [%2];\n\t"
                 "mov.b128 {%0, %1}, both;\n\t"
                 "}"
                 : "=l"(low), "=l"(high)
                 : "l"(p)
                 : "memory");
}

static __device__ __forceinline__ void store_packet_sys(void *p, uint64_t low, uint64_t high)
{
    asm volatile("{\n\t"
                 ".reg .b128 both;\n\t"
                 "mov.b128 both, {%1, %2};\n\t"
                 "st.relaxed.sys.global.b128 [%0], both;\n\t"
                 "}" ::"l"(p),
                 "l"(low), "l"(high)
                 : "memory");
}
#else
static __device__ __forceinline__ void load_packet_sys(const void *p, uint64_t &low, uint64_t &high)
{
    load_two_relaxed_sys((const uint64_t *)p, low, high);
}

static __device__ __forceinline__ void store_packet_sys(void *p, uint64_t low, uint64_t high)
{
    store_two_relaxed_sys((uint64_t *)p, low, high);
}
#endif

/* 16 bytes to a multiple of 16 in one instruction. A compiler that has their parts in registers may
 * store each part by itself. */
static __device__ __forceinline__ void store_quad(void *p, uint4 quad)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)),
                 "r"(quad.x), "r"(quad.y), "r"(quad.z), "r"(quad.w)
                 : "memory");
}

static __device__ __forceinline__ void add_relaxed_sys(uint64_t *p, uint64_t value)
{
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

static __device__ __forceinline__ void add_release_gpu(uint64_t *p, uint64_t value)
{
    asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

static __device__ __forceinline__ uint64_t fetch_add_acq_rel_gpu(uint64_t *p, uint64_t value)
{
    uint64_t before;

    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(p), "l"(value)
                 : "memory");
    return before;
}

static __device__ __forceinline__ void fence_sys()
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

/* The halves of that fence: before a store that tells of others, and behind a load that was told.
 * The latter does not wait for what the multiprocessor has stored. */
#if __CUDACC_VER_MAJOR__ >= 13
static __device__ __forceinline__ void fence_release_sys()
{
    asm volatile("fence.release.sys;" ::: "memory");
}

static __device__ __forceinline__ void fence_acquire_sys()
{
    asm volatile("fence.acquire.sys;" ::: "memory");
}
#else
static __device__ __forceinline__ void fence_release_sys()
{
    fence_sys();
}

static __device__ __forceinline__ void fence_acquire_sys()
{
    fence_sys();
}
#endif

static __device__ __forceinline__ uint64_t global_timer_ns()
{
    uint64_t now;

    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

/*
 * Copies ahead, of 8 or 16 bytes from memory into that of the block, are made while the thread goes
 * on. It waits for them in groups, in their order. 16 bytes at a time they do not go through the
 * cache of the multiprocessor. GPUs before sm_80 copy at once.
 */
template <int BYTES> static __device__ __forceinline__ void copy_ahead(void *to, const void *from)
{
#if __CUDA_ARCH__ >= 800
    const uint32_t here = (uint32_t)__cvta_generic_to_shared(to);

    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(here),
                     "l"(__cvta_generic_to_global(from))
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(here),
                     "l"(__cvta_generic_to_global(from)), "n"(BYTES)
                     : "memory");
#else
    memcpy(__builtin_assume_aligned(to, BYTES), __builtin_assume_aligned(from, BYTES), BYTES);
#endif
}

/* The copies since the last call are a group. */
static __device__ __forceinline__ void end_copies_ahead()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until this thread's copies are there, but for those of the last PENDING groups. */
template <int PENDING> static __device__ __forceinline__ void await_copies_ahead()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

/*
 * Bulk copies, of multiples of 16 bytes between addresses that are such multiples, are made by the
 * GPU itself while the thread goes on. A load counts the bytes that came at a barrier word in
 * shared memory, which a wait tells by the parity of its phase. Stores are waited for in groups by
 * the thread that made them: until they have read what they store, or until it is in memory.
 */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define HAS_BULK_COPIES 1
#else
#define HAS_BULK_COPIES 0
#endif

/* What the stream has behind this kernel may begin when all its blocks have called this, or ended,
 * if it was launched so that it may. */
static __device__ __forceinline__ void let_next_kernel_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Waits until the kernel that the stream has before this one has ended, and shows what it wrote. */
static __device__ __forceinline__ void await_kernel_before()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#if HAS_BULK_COPIES

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* One thread, before the block's next barrier; a phase ends by one arrival and the bytes told. */
static __device__ __forceinline__ void init_bulk_barrier(uint64_t *barrier)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier))
                 : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void load_bulk(void *to, const void *from, uint32_t bytes,
                                                 uint64_t *barrier)
{
    asm volatile(
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(shared_address(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}

/* One thread, behind all that load for the phase: all its loads are under way. */
static __device__ __forceinline__ void arrive_at_bulk_barrier(uint64_t *barrier)
{
    asm volatile("{\n\t"
                 ".reg .b64 state;\n\t"
                 "mbarrier.arrive.shared::cta.b64 state, [%0];\n\t"
                 "}" ::"r"(shared_address(barrier))
                 : "memory");
}

static __device__ __forceinline__ bool bulk_phase_has_ended(uint64_t *barrier, uint32_t parity)
{
    uint32_t ended;

    asm volatile("{\n\t"
                 ".reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t"
                 "}"
                 : "=r"(ended)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
    return ended;
}

static __device__ __forceinline__ void store_bulk(void *to, const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                     __cvta_generic_to_global(to)),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

/* The stores since the last call are a group. */
static __device__ __forceinline__ void end_bulk_group()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until all groups but the last PENDING have read what they store. */
template <int PENDING> static __device__ __forceinline__ void await_bulk_reads()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

/* Waits until what all groups but the last PENDING store is in memory. */
template <int PENDING> static __device__ __forceinline__ void await_bulk_stores()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory");
}

/* Between accesses by threads and bulk copies of the same global memory, here or on another GPU, in
 * both directions. It waits for no store; the fence for all memory does (MEMBAR.GPU, sm_90). */
static __device__ __forceinline__ void fence_bulk_copies()
{
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

/* As fence_bulk_copies, for shared memory. */
static __device__ __forceinline__ void fence_bulk_copies_here()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif

#endif

#endif
