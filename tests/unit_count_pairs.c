/* SPDX-License-Identifier: BSD-3-Clause */
/* unit_count_pairs.c - the kernel count_pairs and its host twin on the same ids, every word. */
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/host/host_kernels.h"
#include "suite.h"

typedef int launcher(const struct epx_count_pairs *args, EPX_Stream stream);

static launcher *count_pairs_device;

struct sizes {
    int32_t tokens, top_k, experts, ranks, bits;
    int one_expert; /* every id is the same */
    int bad;        /* some ids are out of range */
};

static const struct sizes all_sizes[] = {
    {0, 1, 1, 1, 64, 0, 0},     {1, 1, 1, 1, 32, 0, 0},      {100, 8, 64, 4, 64, 0, 0},
    {8192, 8, 256, 8, 32, 0, 0}, {4096, 64, 512, 72, 64, 0, 0}, {1000, 4, 7, 3, 32, 0, 1},
    {5000, 2, 3, 8, 64, 1, 0},  {300000, 2, 160, 16, 32, 0, 1},
};

static int64_t pick_id(const struct sizes *s)
{
    if (s->one_expert)
        return s->experts - 1;
    if (s->bad && rand() % 50 == 0)
        return rand() % 2 ? s->experts + rand() % 9 : -2 - rand() % 9;
    return rand() % (s->experts + 1) - 1;
}

static void fill_ids(const struct sizes *s, void *ids)
{
    for (int64_t i = 0; i < (int64_t)s->tokens * s->top_k; i++) {
        int64_t id = pick_id(s);

        if (s->bits == 32)
            ((int32_t *)ids)[i] = (int32_t)id;
        else
            ((int64_t *)ids)[i] = id;
    }
}

static void *take(size_t bytes)
{
    void *memory = calloc(1, bytes ? bytes : 1);

    ck_assert_ptr_nonnull(memory);
    return memory;
}

static void *to_device(const void *from, size_t bytes)
{
    void *memory;

    ck_assert_int_eq(cudaMalloc(&memory, bytes ? bytes : 1), cudaSuccess);
    ck_assert_int_eq(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    return memory;
}

static void to_host(void *to, const void *from, size_t bytes)
{
    ck_assert_int_eq(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
}

/* Runs the kernel on copies of the host twin's arguments; dirty memory must not matter. */
static void count_on_device(const struct epx_count_pairs *host, size_t id_bytes, int32_t *experts,
                            int32_t *counts, struct epx_bad_id *bad)
{
    size_t pair_bytes = (size_t)host->num_tokens * (size_t)host->top_k * sizeof(*experts);
    size_t count_bytes = epx_count_words(host->shape) * sizeof(*counts);
    struct epx_count_pairs device = *host;

    device.ids = to_device(host->ids, id_bytes);
    device.owner = to_device(host->owner, (size_t)host->shape.num_experts * sizeof(*host->owner));
    device.experts = to_device(experts, pair_bytes);
    device.counts = to_device(counts, count_bytes);
    device.bad = to_device(bad, sizeof(*bad));
    cudaMemset(device.counts, 0x5a, count_bytes);
    cudaMemset(device.bad, 0x5a, sizeof(*bad));
    ck_assert_int_eq(count_pairs_device(&device, EPX_STREAM_NULL), EPX_SUCCESS);
    ck_assert_int_eq(cudaDeviceSynchronize(), cudaSuccess);
    to_host(experts, device.experts, pair_bytes);
    to_host(counts, device.counts, count_bytes);
    to_host(bad, device.bad, sizeof(*bad));
    cudaFree((void *)(uintptr_t)device.ids);
    cudaFree((void *)(uintptr_t)device.owner);
    cudaFree(device.experts);
    cudaFree(device.counts);
    cudaFree(device.bad);
}

static void compare(const struct epx_count_pairs *host, const int32_t *experts,
                    const int32_t *counts, const struct epx_bad_id *bad)
{
    for (int64_t i = 0; i < (int64_t)host->num_tokens * host->top_k; i++)
        ck_assert_int_eq(experts[i], host->experts[i]);
    for (size_t i = 0; i < epx_count_words(host->shape); i++)
        ck_assert_int_eq(counts[i], host->counts[i]);
    ck_assert_int_eq(bad->pairs, host->bad->pairs);
    if (bad->pairs == 0)
        return;
    ck_assert_int_eq(bad->token, host->bad->token);
    ck_assert_int_eq(bad->choice, host->bad->choice);
    ck_assert_int_eq(bad->value, host->bad->value);
}

START_TEST(kernel_and_host_twin_count_alike)
{
    const struct sizes *s = &all_sizes[_i];
    size_t id_bytes = (size_t)s->tokens * (size_t)s->top_k * (size_t)s->bits / 8;
    struct epx_count_shape shape = {s->experts, s->ranks};
    int32_t *owner = take((size_t)s->experts * sizeof(*owner));
    int32_t *counts = take(epx_count_words(shape) * sizeof(*counts));
    struct epx_bad_id host_bad, bad = {0};
    int32_t *experts = take((size_t)s->tokens * (size_t)s->top_k * sizeof(*experts));
    size_t pairs = (size_t)s->tokens * (size_t)s->top_k;
    struct epx_count_pairs host = {take(id_bytes), owner, s->tokens, s->top_k, s->bits, shape,
                                   take(pairs * sizeof(int32_t)),
                                   take(epx_count_words(shape) * sizeof(*counts)),
                                   take((size_t)s->ranks * sizeof(int32_t)), &host_bad};

    srand((unsigned)_i + 1);
    for (int32_t r = 0; r < s->ranks; r++)
        for (int32_t e = epx_first_expert(r, s->experts, s->ranks);
             e < epx_first_expert(r + 1, s->experts, s->ranks); e++)
            owner[e] = r;
    fill_ids(s, (void *)(uintptr_t)host.ids);
    ck_assert_int_eq(epx_count_pairs_host(&host, EPX_STREAM_NULL), EPX_SUCCESS);
    count_on_device(&host, id_bytes, experts, counts, &bad);
    compare(&host, experts, counts, &bad);
    free((void *)(uintptr_t)host.ids);
    free(host.experts);
    free(experts);
    free(host.counts);
    free(host.last_token);
    free(counts);
    free(owner);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("count_pairs");
    TCase *cases = tcase_create("kernel");

    tcase_add_loop_test(cases, kernel_and_host_twin_count_alike, 0,
                        (int)(sizeof(all_sizes) / sizeof(all_sizes[0])));
    suite_add_tcase(suite, cases);
    return suite;
}

int main(int argc, char **argv)
{
    int devices = 0;
    void *module = dlopen(EPX_CUDA_MODULE, RTLD_NOW | RTLD_LOCAL);

    if (!module) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    *(void **)&count_pairs_device = dlsym(module, "epx_count_pairs");
    if (!count_pairs_device)
        return 1;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 1) {
        suite_init(&argc, &argv);
        suite_skip("no CUDA device");
    }
    return suite_main(&argc, &argv, make_suite);
}
