/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sums_by_messages.cu - a round of combine or dispatch backward by messages, leg by leg:
 *   pack    the expert's rank stores the sum of each row's pairs, rounded once, into the outgoing
 *           stage by home rank in the order of records, the gradients of the pairs' weights behind
 *           it
 *   pass    a relay stores the sum of what the ranks of this node have of each node row, rounded
 *           once, by home
 *   unpack  the home adds what came for each token of the round, and takes the gradients of pair
 *           weights
 * The first two post an exchange. With relays that of pack goes inside the nodes and has the sums
 * for homes on other nodes; that of pass has the node rows, and what pack stored for homes on this
 * node.
 * Work: reads the rows of the round's pairs, its unique rows, or what came; writes unique rows,
 * node rows, or tokens. Order: pack by choices, pass by ranks or last choices, unpack as
 * home_sums.cuh says.
 * Launch: the whole device, waits for nothing. await_messages and the next leg follow; the last leg
 * of the last round ends the operation.
 */
#include "kernels/flows/sums/home_sums.cuh"
#include "kernels/flows/sums/packed_places.cuh"
#include "kernels/flows/sums/passed_sums.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/protocol/protocol.cuh"
#include "kernels/wires/messages.cuh"

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    pack_sums(const __grid_constant__ struct epx_combine_rows a)
{
    __shared__ struct message_rows rows;
    __shared__ struct passing passing;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    const bool on = is_on(a.comm), relayed = a.plan.nodes.num_nodes;

    if (on) {
        find_message_rows(a.plan, a.comm, a.rounds, a.round, rows);
        send_sums<T>(a, packed_places{a, a.round, rows}, a.backward && a.comm.state->weighted,
                     lists[threadIdx.x / EPX_WARP]);
    }
    if (!is_last_block(a.comm) || !on)
        return;
    if (relayed)
        find_passing(a.plan, a.comm, a.rounds, rows, passing);
    post_exchange(a.comm, a.plan.outgoing, a.plan.incoming, [&](int32_t r) {
        return relayed ? message_inside(a.plan.nodes, a.rounds, rows, passing, r, false)
                       : message_of_rows(a.plan, a.comm, a.rounds, rows, r, false);
    });
}

/* T is the type of what travels. */
template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    pass_sums(const __grid_constant__ struct epx_combine_rows a)
{
    __shared__ struct message_rows rows;
    __shared__ struct passing passing;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    const bool on = is_on(a.comm);

    if (on) {
        find_message_rows(a.plan, a.comm, a.rounds, a.round, rows);
        find_passing(a.plan, a.comm, a.rounds, rows, passing);
        pass_rank_sums<T>(a, a.round, rows, passing, a.backward && a.comm.state->weighted,
                          lists[threadIdx.x / EPX_WARP]);
    }
    if (is_last_block(a.comm) && on)
        post_exchange(a.comm, a.plan.outgoing, a.plan.incoming, [&](int32_t r) {
            return message_of_rows(a.plan, a.comm, a.rounds, rows, r, false);
        });
}

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    unpack_sums(const __grid_constant__ struct epx_combine_rows a)
{
    __shared__ struct message_rows rows;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    const bool on = is_on(a.comm);

    if (on) {
        find_message_rows(a.plan, a.comm, a.rounds, a.round, rows);
        sum_tokens<T>(a, packed_places{a, a.round, rows}, a.backward && a.comm.state->weighted,
                      lists[threadIdx.x / EPX_WARP]);
    }
    if (!a.round.last || !is_last_block(a.comm) || threadIdx.x)
        return;
    if (on)
        count_route_rows(a.comm, a.plan, a.plan.recv_rows, a.row_bytes);
    end_operation(a.comm, a.num_tokens);
}

/* The kernels of each leg. */
static void (*const kernels[][NUM_SUM_KERNELS])(struct epx_combine_rows) = {
    SUM_KERNELS(pack_sums),
    {pass_sums<float16>, pass_sums<bfloat16>, pass_sums<float32>, pass_sums<float64>,
     pass_sums<float32>, pass_sums<float32>},
    SUM_KERNELS(unpack_sums)};

int epx_launch_sums_by_messages(const struct epx_combine_rows *args, enum epx_leg leg,
                                EPX_Stream stream)
{
    const int64_t rows = most_rows_of_leg(args->comm, args->plan.nodes, args->rounds, leg, false);
    const unsigned blocks = epx_blocks_for_rows(args->comm, rows, args->rounds.cut.bytes);
    void (*const kernel)(struct epx_combine_rows) = kernels[leg][epx_sum_kernel(args)];

    kernel<<<blocks, EPX_WAITING_THREADS, epx_passing_bytes(&args->plan.nodes), stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(kernels[EPX_LEG_PACK]), loaded_relays(kernels[EPX_LEG_PASS]),
    loaded_last(kernels[EPX_LEG_UNPACK]);
