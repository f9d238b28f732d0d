/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * record_runs.cuh - where the records lie that a sender of sums wants. The records of each home are
 * in the order of their tokens; the lanes of a warp search together. Each step of a search is a
 * load that the next step waits for; 8192 records take three steps of 32 lanes.
 */
#ifndef EPX_KERNELS_FLOWS_SUMS_RECORD_RUNS_CUH
#define EPX_KERNELS_FLOWS_SUMS_RECORD_RUNS_CUH

#include "kernels/args/device_comm.h"
#include "kernels/device_plan.h"
#include "kernels/warp/lanes.cuh"

/* Records of one home that follow each other. */
struct record_run {
    int32_t next, end;
};

/* How many lanes of a warp look for the records of one home: all homes are searched at once, if
 * they are at most as many as lanes. */
static __device__ __forceinline__ int32_t lanes_of_home(int32_t homes)
{
    int32_t lanes = EPX_WARP;

    while (lanes > 1 && lanes * homes > EPX_WARP)
        lanes /= 2;
    return lanes;
}

/* How many of the `lanes` lanes that search together say yes. */
static __device__ __forceinline__ int32_t count_of_lanes(bool yes, int32_t lanes)
{
    const uint32_t all = __ballot_sync(~0u, yes) >> (lane_id() & ~(lanes - 1));

    return __popc(lanes < EPX_WARP ? all & ((1u << lanes) - 1) : all);
}

/* The whole warp, as many lanes together: the first of num records whose token is not below the
 * given one. Each step cuts what is left into one part more than there are lanes. */
template <typename TokenOf>
static __device__ int32_t first_not_below(int32_t num, int64_t token, int32_t lanes,
                                          TokenOf token_of)
{
    const int32_t lane = lane_id() & (lanes - 1);
    int32_t low = 0, high = num;

    while (__any_sync(~0u, low < high)) {
        const int32_t step = (high - low + lanes) / (lanes + 1), at = low + step * (lane + 1) - 1;
        const bool below = low < high && at < high && token_of(at) < token;
        const int32_t num_below = count_of_lanes(below, lanes);
        const int32_t first_above = low + step * (num_below + 1) - 1;

        low += step * num_below;
        high = num_below < lanes && first_above < high ? first_above : high;
    }
    return low;
}

/* The whole warp: finds the records of all other homes whose tokens are in [begin, end); returns
 * the most of one home. */
static __device__ int32_t find_runs(const struct epx_device_plan &plan,
                                    const struct epx_device_comm &c, int64_t begin, int64_t end,
                                    struct record_run *runs)
{
    const int32_t ranks = c.num_ranks, lanes = lanes_of_home(ranks - 1);
    int32_t most = 0;

    for (int32_t i = 1 + lane_id() / lanes; i - lane_id() / lanes < ranks; i += EPX_WARP / lanes) {
        const int32_t home = (c.rank + i) % ranks;
        const int32_t num = i < ranks ? plan.view.rank_counts[home] : 0;
        const auto token_of = [&](int32_t at) {
            return epx_wire_record_at(&plan, plan.records[c.rank], home, at)->token;
        };
        struct record_run run = {first_not_below(num, begin, lanes, token_of), 0};
        int32_t at = run.next + (lane_id() & (lanes - 1)), more;

        run.end = run.next;
        do {
            more = count_of_lanes(at < num && token_of(at) < end, lanes);
            run.end += more;
            at += lanes;
        } while (__any_sync(~0u, more == lanes));
        if (i < ranks && (lane_id() & (lanes - 1)) == 0)
            runs[home] = run;
        most = run.end - run.next > most ? run.end - run.next : most;
    }
    most = __reduce_max_sync(~0u, most);
    __syncwarp();
    return most;
}

#endif
