/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soak_device.c - soak on the memory of GPUs: several communicators of one transport at once, some
 * with stages too small for all rows. What the library takes of the GPU is looked at.
 */
#include <cuda_runtime_api.h>
#include <mpi.h>
#include <stdio.h>

#include "suite/soak.h"
#include "support/space.h"
#include "support/suite.h"

enum { SLACK_KIB = 8192 };

struct party parties[] = {
    {.window_bytes = "4194304", .color = everybody},
    {.window_bytes = "65536", .color = everybody},
    {.window_bytes = "262144", .color = halves},
    {.window_bytes = "65536", .color = all_but_last},
};
const int num_parties = sizeof(parties) / sizeof(parties[0]), usual_steps = 60;

int max_sms_of(int num_comms)
{
    int ordinal = 0, sms = 0, gpus = space_num_gpus();
    int sharing = (suite_size + gpus - 1) / gpus, most;

    cudaGetDevice(&ordinal);
    EXPECT(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, ordinal) == cudaSuccess,
           "cudaDeviceGetAttribute");
    most = sms / (num_comms * sharing);
    return most > 1 ? most : 1;
}

/* Memory in use on this rank's GPU, by whoever uses it; nothing is in flight on any rank. */
static int64_t used_kib(void)
{
    size_t unused = 0, all = 0;
    cudaMemPool_t pool = NULL;
    int ordinal = 0;

    cudaGetDevice(&ordinal);
    cudaDeviceSynchronize();
    if (cudaDeviceGetDefaultMemPool(&pool, ordinal) == cudaSuccess)
        cudaMemPoolTrimTo(pool, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT(cudaMemGetInfo(&unused, &all) == cudaSuccess, "cudaMemGetInfo");
    MPI_Barrier(MPI_COMM_WORLD);
    return (int64_t)((all - unused) / 1024);
}

void look_note(struct look *look)
{
    look->kib = used_kib();
}

void look_compare(const struct look *warm)
{
    int64_t grown = most_of_all(used_kib() - warm->kib);

    EXPECT(grown <= SLACK_KIB, "%lld KiB more of the GPU in use than when warm", (long long)grown);
}

const char *look_text(const struct look *warm)
{
    static char text[128];

    snprintf(text, sizeof(text), "of the GPU %lld KiB in use when warm, %lld KiB at the end",
             (long long)most_of_all(warm->kib), (long long)most_of_all(used_kib()));
    return text;
}
