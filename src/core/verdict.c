/* SPDX-License-Identifier: BSD-3-Clause */
/* verdict.c - what ranks and kernels find wrong with an operation, in words. */
#include "core/verdict.h"

#include <stdio.h>

#include "core/request.h"

const char *epx_datatype_name(int64_t datatype)
{
    static const char *const names[] = {
        [EPX_DATATYPE_NULL] = "EPX_DATATYPE_NULL",
        [EPX_BYTE] = "EPX_BYTE",
        [EPX_FLOAT8_E4M3] = "EPX_FLOAT8_E4M3",
        [EPX_FLOAT8_E5M2] = "EPX_FLOAT8_E5M2",
        [EPX_FLOAT16] = "EPX_FLOAT16",
        [EPX_BFLOAT16] = "EPX_BFLOAT16",
        [EPX_FLOAT32] = "EPX_FLOAT32",
        [EPX_FLOAT64] = "EPX_FLOAT64",
    };

    return datatype < 0 || datatype > EPX_FLOAT64 ? "no datatype" : names[datatype];
}

int epx_fail_differs(enum epx_told told, int beside, int64_t first, int64_t value, int rank)
{
    static const char *const names[] = {
        [EPX_TOLD_EPOCH] = "the number of the operation",
        [EPX_TOLD_ROUTE] = "the number of the route",
        [EPX_TOLD_GRAPH] = "the number of the graph",
        [EPX_TOLD_ROW_BYTES] = "the length of a row in bytes",
        [EPX_TOLD_BIASES] = "num_biases",
    };

    if (told == EPX_TOLD_VERB)
        return epx_fail(EPX_ERR_ARG, "rank %d called %s and rank %d %s at the same place", beside,
                        epx_verb_name((enum epx_verb)first), rank,
                        epx_verb_name((enum epx_verb)value));
    if (told == EPX_TOLD_DATATYPE)
        return epx_fail(EPX_ERR_ARG, "the datatype is %s on rank %d, %s on rank %d",
                        epx_datatype_name(first), beside, epx_datatype_name(value), rank);
    return epx_fail(EPX_ERR_ARG, "%s is %lld on rank %d, %lld on rank %d", names[told],
                    (long long)first, beside, (long long)value, rank);
}

int epx_fail_field(int field, int64_t first, int64_t value, int rank)
{
    if (first < 0 || value < 0)
        return epx_fail(EPX_ERR_ARG, "field %d is missing on rank %d, but not on rank %d", field,
                        first < 0 ? 0 : rank, first < 0 ? rank : 0);
    return epx_fail(EPX_ERR_ARG, "a row of field %d has %lld bytes on rank 0, %lld on rank %d",
                    field, (long long)first, (long long)value, rank);
}

int epx_fail_weights(int64_t verb, int rank_without, int rank_with)
{
    return epx_fail(EPX_ERR_ARG, "%s are NULL on rank %d but not on rank %d",
                    verb == EPX_VERB_COMBINE ? "token_weights" : "weights", rank_without,
                    rank_with);
}

int epx_fail_no_room(int rank, int64_t rows, int64_t capacity)
{
    return epx_fail(EPX_ERR_TRUNCATE,
                    "rank %d needs room for %lld rows, its recv_capacity is %lld; raise it, or set "
                    "overflow to EPX_OVERFLOW_DROP",
                    rank, (long long)rows, (long long)capacity);
}

int epx_fail_full_slab(int expert, int64_t rows, int64_t room)
{
    return epx_fail(EPX_ERR_TRUNCATE,
                    "expert %d needs room for %lld rows, rows_per_expert is %lld; raise it, or set "
                    "overflow to EPX_OVERFLOW_DROP",
                    expert, (long long)rows, (long long)room);
}

int epx_fail_too_many(int rank, int64_t rows, int64_t capacity)
{
    return epx_fail(EPX_ERR_TRUNCATE, "%lld rows for rank %d, its recv_capacity is %lld",
                    (long long)rows, rank, (long long)capacity);
}

/* Whether two expert ids of 32 bits that lie side by side would read as this one of 64. */
static int is_two_ids(int64_t id, int num_experts)
{
    int32_t low = (int32_t)(uint32_t)(uint64_t)id, high = (int32_t)(id >> 32);

    return num_experts && id > INT32_MAX && low >= -1 && low < num_experts && high >= -1 &&
           high < num_experts;
}

int epx_fail_bad_id(struct epx_bad_pair bad, int num_experts)
{
    char wanted[32] = "out of range";

    if (num_experts)
        snprintf(wanted, sizeof(wanted), "not in -1..%d", num_experts - 1);
    return epx_fail(
        EPX_ERR_ARG,
        "expert id %lld of token %lld, choice %lld is %s (%lld such ids); "
        "they count as -1%s",
        (long long)bad.id, (long long)bad.token, (long long)bad.choice, wanted, (long long)bad.num,
        is_two_ids(bad.id, num_experts) ? "; index_bits is 64, are these ids of 32 bits?" : "");
}

int epx_fail_bad_count(int rank, int64_t count, int64_t displ)
{
    return epx_fail(EPX_ERR_COUNT, "sendcounts[%d] is %lld, sdispls[%d] is %lld", rank,
                    (long long)count, rank, (long long)displ);
}

int epx_fail_no_rows(int rank, int64_t count)
{
    return epx_fail(EPX_ERR_BUFFER, "sendbuf is NULL but sendcounts[%d] is %lld", rank,
                    (long long)count);
}

int epx_fail_past_end(int rank, int64_t count, int64_t displ, int64_t rows)
{
    return epx_fail(EPX_ERR_BUFFER,
                    "sendcounts[%d] is %lld, sdispls[%d] is %lld, but the memory of sendbuf ends "
                    "after %lld rows",
                    rank, (long long)count, rank, (long long)displ, (long long)rows);
}

int epx_fail_edge(int sender, int64_t sent_bytes, int receiver, int64_t received_bytes)
{
    return epx_fail(EPX_ERR_ARG,
                    "the length of a row in bytes is %lld on rank %d, %lld on rank %d, to which it "
                    "sends",
                    (long long)sent_bytes, sender, (long long)received_bytes, receiver);
}

int epx_fail_fixed(int sender, int64_t rows, int64_t fixed)
{
    return epx_fail(EPX_ERR_ARG,
                    "rank %d sends %lld rows, with EPX_FIXED_COUNTS its count was %lld", sender,
                    (long long)rows, (long long)fixed);
}

int epx_fail_routing(int code, int rank)
{
    return epx_fail(code, "the routing failed on rank %d", rank);
}
