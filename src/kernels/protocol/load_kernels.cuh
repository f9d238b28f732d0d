/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * load_kernels.cuh - kernels are loaded when a communicator is made: to load one when it is first
 * launched could wait for another that waits. The file of a kernel says so below its launcher:
 *
 *     static const struct epx_loaded loaded(kernel);
 */
#ifndef EPX_KERNELS_PROTOCOL_LOAD_KERNELS_CUH
#define EPX_KERNELS_PROTOCOL_LOAD_KERNELS_CUH

/* An entry in the list of all kernels: one kernel, or one for each datatype, and how much dynamic
 * shared memory its blocks may have. Of a kernel that `shares` several blocks must fit on a
 * multiprocessor: it prefers shared memory to the L1 cache. */
struct epx_loaded {
    template <typename... A>
    explicit epx_loaded(void (*kernel)(A...), int shared_bytes = 0, bool shares_ = false)
        : epx_loaded((const void *const *)&kernel, 1, shared_bytes)
    {
        shares = shares_;
    }
    template <typename K, int N>
    explicit epx_loaded(K *const (&kernels)[N], int shared_bytes = 0)
        : epx_loaded((const void *const *)kernels, N, shared_bytes)
    {
    }
    const void *kernels[6]; /* the others are NULL */
    int shared_bytes;
    bool shares = false;
    const struct epx_loaded *next;

  private:
    epx_loaded(const void *const *kernels, int num, int shared_bytes);
};

#endif
