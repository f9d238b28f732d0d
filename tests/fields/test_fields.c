/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_fields.c - EPX_Dispatch_fields and EPX_Route_dispatch_fields: every byte of every field is
 * that of the reference; lists that do not agree are refused on all ranks.
 */
#include <string.h>

#include "fields/fields.h"
#include "support/fault.h"
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

enum { IN_FLIGHT = 4 };

static EPX_Comm comm;

static void open_comm(void)
{
    comm = suite_comm("epx_window_bytes", "65536", NULL);
    fault_watch(comm);
}

static void close_comm(void)
{
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

/* fp8 rows with their scales, and two more of other types. */
static const struct field_kind usual[] = {{EPX_FLOAT8_E4M3, 37, MEMORY_WINDOW},
                                          {EPX_FLOAT32, 3, MEMORY_WINDOW},
                                          {EPX_FLOAT64, 1, MEMORY_MALLOC},
                                          {EPX_BFLOAT16, 5, MEMORY_MIXED}};

/* The scenario knows the length of a row of all fields, for max_row_bytes. */
static void open_layer(struct layer *layer, struct scenario *s, const struct field_kind kinds[],
                       int num)
{
    s->datatype = EPX_BYTE;
    s->count = fields_row_bytes(kinds, num);
    layer_open(layer, s, comm);
    SETTLE();
}

static void open_small(struct layer *layer, const struct field_kind kinds[], int num)
{
    struct scenario s = scenario_small(EPX_BYTE);

    s.tokens = TOKENS_FULL;
    open_layer(layer, &s, kinds, num);
}

/* One routing, and the fields with it or behind it. */
static void run_once(struct layer *layer, const struct field_kind kinds[], int num, uint64_t seed)
{
    struct routing routing;
    struct fields fields;
    int routes = seed % 2 == 0;

    routing_prepare(&routing, layer, seed);
    if (!routes && EXPECT_CODE(routing_call(&routing), EPX_SUCCESS))
        routing_finish(&routing);
    fields_prepare(&fields, &routing, kinds, num, seed + 1);
    if (EXPECT_CODE(fields_call(&fields, routes), EPX_SUCCESS))
        fields_finish(&fields);
    SETTLE();
    fields_free(&fields);
    routing_free(&routing);
}

static void run(struct scenario *s, const struct field_kind kinds[], int num)
{
    struct layer layer;

    open_layer(&layer, s, kinds, num);
    for (int i = 0; i < 3; i++)
        run_once(&layer, kinds, num, s->seed + (uint64_t)i);
    layer_close(&layer);
    SETTLE();
}

START_TEST(every_field_of_every_row_arrives)
{
    struct scenario s = scenario_edge(_i);
    struct field_kind kinds[EPX_MAX_FIELDS];

    memcpy(kinds, usual, sizeof(kinds));
    for (int f = 0; f < EPX_MAX_FIELDS; f++)
        kinds[f].memory = s.memory;
    scenario_print(&s);
    run(&s, kinds, 1 + _i % EPX_MAX_FIELDS);
}
END_TEST

/* Bit f of the test's number: whether field f is in a window; bit 3: in MIXED windows. */
START_TEST(each_field_is_in_a_window_or_not)
{
    struct scenario s = scenario_small(EPX_BYTE);
    struct field_kind kinds[3];

    memcpy(kinds, usual, sizeof(kinds));
    for (int f = 0; f < 3; f++)
        kinds[f].memory = !(_i >> f & 1) ? MEMORY_MALLOC : _i & 8 ? MEMORY_MIXED : MEMORY_WINDOW;
    s.layout = _i % 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    run(&s, kinds, 3);
}
END_TEST

/* A stage of 65536 bytes takes no row of the longer ones: their segments end within fields. Rows of
 * the last three lists lie at multiples of 16 bytes on the first rank. The memory is the test's. */
static const struct field_kind lengths[][EPX_MAX_FIELDS] = {
    {{EPX_FLOAT32, 0, 0}, {EPX_BYTE, 0, 0}},
    {{EPX_FLOAT32, 0, 0}, {EPX_BYTE, 7, 0}, {EPX_FLOAT16, 3, 0}},
    {{EPX_BYTE, 7, 0}, {EPX_FLOAT64, 0, 0}},
    {{EPX_FLOAT8_E4M3, 7168, 0}, {EPX_FLOAT32, 56, 0}, {EPX_FLOAT16, 3, 0}},
    {{EPX_BYTE, 8191, 0}, {EPX_BFLOAT16, 40001, 0}},
    {{EPX_BYTE, 70001, 0}, {EPX_FLOAT64, 20003, 0}, {EPX_FLOAT16, 3, 0}},
    {{EPX_BYTE, 200001, 0}, {EPX_FLOAT32, 1, 0}},
    {{EPX_FLOAT8_E4M3, 7168, 0}, {EPX_FLOAT32, 56, 0}},
    {{EPX_FLOAT32, 4, 0}, {EPX_BYTE, 0, 0}, {EPX_FLOAT16, 1032, 0}, {EPX_BYTE, 4096, 0}},
    {{EPX_BYTE, 0, 0}, {EPX_FLOAT64, 2, 0}, {EPX_FLOAT32, 1024, 0}, {EPX_BYTE, 0, 0}},
};

enum { NUM_LENGTHS = (int)(sizeof(lengths) / sizeof(lengths[0])) };

START_TEST(fields_of_any_length_arrive)
{
    struct scenario s = scenario_small(EPX_BYTE);
    struct field_kind kinds[EPX_MAX_FIELDS];
    int which = _i / 3, num = 0;

    memcpy(kinds, lengths[which], sizeof(kinds));
    for (; num < EPX_MAX_FIELDS && kinds[num].datatype; num++)
        kinds[num].memory = (enum memory)(_i % 3);
    s.experts = suite_size + 1;
    s.top_k = 2;
    s.max_tokens = 2;
    s.row_bytes_known = which % 2;
    s.alignment = 2;
    s.zero_unused = _i % 2;
    run(&s, kinds, num);
}
END_TEST

START_TEST(any_list_is_that_of_the_reference)
{
    struct scenario s = scenario_random(5000 + (uint64_t)_i);
    struct field_kind kinds[EPX_MAX_FIELDS];
    int num = 1 + data_below(s.seed, 71, 0, EPX_MAX_FIELDS);

    for (int f = 0; f < num; f++) {
        uint64_t field = (uint64_t)f;

        kinds[f].datatype = EPX_BYTE + data_below(s.seed, 72, field, 7);
        kinds[f].count = data_below(s.seed, 73, field, f % 2 ? 9 : 400);
        kinds[f].memory = (enum memory)data_below(s.seed, 74, field, 3);
    }
    scenario_print(&s);
    run(&s, kinds, num);
}
END_TEST

static void run_many_rows(int max_tokens, const struct field_kind kinds[2], int variant)
{
    struct scenario s = scenario_small(EPX_BYTE);
    struct layer layer;

    s.tokens = TOKENS_FULL;
    s.max_tokens = max_tokens;
    s.layout = variant % 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.row_bytes_known = variant / 2 % 2;
    open_layer(&layer, &s, kinds, 2);
    run_once(&layer, kinds, 2, 1);
    layer_close(&layer);
}

/* So many rows that copies bypass the caches. */
START_TEST(more_rows_than_caches_hold_arrive)
{
    const struct field_kind kinds[] = {{EPX_BYTE, suite_size > 4 ? 300 : 40003, MEMORY_WINDOW},
                                       {EPX_FLOAT32, 100, MEMORY_WINDOW}};

    run_many_rows(256, kinds, _i);
}
END_TEST

/* A warp of a GPU moves one such row at a time, and blocks have more warps than for long ones. */
START_TEST(many_rows_of_middle_length_arrive)
{
    const enum memory memory = (enum memory)(_i % 3);
    const struct field_kind kinds[] = {{EPX_FLOAT8_E4M3, _i < 6 ? 4096 : 2803, memory},
                                       {EPX_FLOAT32, 32, memory}};

    run_many_rows(space_is_device() ? 500 : 200, kinds, _i);
}
END_TEST

/* More rows than a bank of a GPU holds, each for one slot. */
START_TEST(many_rows_of_one_slot_arrive)
{
    struct scenario s = scenario_one_slot(EPX_BYTE, 32768);
    const enum memory memory = (enum memory)(_i % 3);
    const struct field_kind kinds[] = {{EPX_FLOAT8_E4M3, s.count, memory},
                                       {EPX_FLOAT32, _i % 2 ? 4 : 3, memory}};

    s.layout = _i / 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    run(&s, kinds, 2);
}
END_TEST

static EPX_Stats stats_now(void)
{
    EPX_Stats stats = EPX_STATS_INIT;

    EXPECT_CODE(EPX_Comm_get_stats(comm, &stats), EPX_SUCCESS);
    return stats;
}

/* A row counts once, with the bytes of all its fields. */
START_TEST(stats_count_one_call_and_all_bytes)
{
    int row_bytes = fields_row_bytes(usual, 3);
    struct layer layer;
    EPX_Stats start, end;
    uint64_t rows, bytes;

    open_small(&layer, usual, 3);
    start = stats_now();
    run_once(&layer, usual, 3, 2);
    end = stats_now();
    rows = end.rows_self + end.rows_node + end.rows_network - start.rows_self - start.rows_node -
           start.rows_network;
    bytes = end.bytes_self + end.bytes_node + end.bytes_network - start.bytes_self -
            start.bytes_node - start.bytes_network;
    EXPECT(end.calls - start.calls == 1, "one call counts as %d", (int)(end.calls - start.calls));
    EXPECT(rows > 0 && bytes == rows * (uint64_t)row_bytes, "%llu bytes in %llu rows",
           (unsigned long long)bytes, (unsigned long long)rows);
    SETTLE();
    layer_close(&layer);
}
END_TEST

/* Behind dispatches of one array, on routings of their own. */
START_TEST(lists_in_flight_keep_their_order)
{
    struct routing routing[IN_FLIGHT];
    struct fields fields[IN_FLIGHT];
    struct operation op[IN_FLIGHT];
    struct layer layer;

    open_small(&layer, usual, 4);
    for (int i = 0; i < IN_FLIGHT; i++) {
        routing_prepare(&routing[i], &layer, (uint64_t)i);
        fields_prepare(&fields[i], &routing[i], usual, 1 + i, 20);
        EXPECT_CODE(fields_call(&fields[i], 1), EPX_SUCCESS);
        EXPECT_CODE(operation_start(&op[i], &routing[i], DISPATCH, 30), EPX_SUCCESS);
    }
    for (int i = IN_FLIGHT - 1; i >= 0; i--) {
        operation_finish(&op[i]);
        EXPECT_CODE(EPX_Wait(&fields[i].request, MPI_STATUS_IGNORE), EPX_SUCCESS);
        fields_check(&fields[i]);
    }
    SETTLE();
    for (int i = 0; i < IN_FLIGHT; i++) {
        operation_free(&op[i]);
        fields_free(&fields[i]);
        routing_free(&routing[i]);
    }
    layer_close(&layer);
}
END_TEST

/* What the last rank, or the first, does otherwise than all others. */
static const struct {
    int num, odd_field, count;
    const char *message;
} odd_lists[] = {
    {3, 0, 38, "a row of field 0 has "},       {3, 1, 2, "a row of field 1 has "},
    {3, 2, 0, "a row of field 2 has "},        {2, 0, 37, "field 2 is missing on rank "},
    {4, 0, 37, "field 3 is missing on rank "}, {3, 1, 20000, "a row of field 1 has "},
};

/* Calls with the odd list where this rank is the odd one; nothing must be written. */
static void call_in_vain(struct fields *fields, struct routing *routing, int odd, int routes)
{
    int is_odd = suite_rank == (odd % 2 ? 0 : suite_size - 1);
    struct field_kind kinds[EPX_MAX_FIELDS];

    memcpy(kinds, usual, sizeof(kinds));
    for (int f = 0; f < EPX_MAX_FIELDS; f++)
        kinds[f].memory = MEMORY_MALLOC;
    if (is_odd)
        kinds[odd_lists[odd].odd_field].count = odd_lists[odd].count;
    routing->ref->truncated = 1;
    fields_prepare(fields, routing, kinds, is_odd ? odd_lists[odd].num : 3, 3);
    routing->ref->truncated = 0;
    EXPECT_CODE(fields_call(fields, routes), EPX_SUCCESS);
}

static void expect_refused(EPX_Request *request, const char *function, const char *part)
{
    EXPECT_FAULT(comm, EPX_Wait(request, MPI_STATUS_IGNORE), EPX_ERR_ARG);
    fault_message_has(comm, function);
    fault_message_has(comm, part);
    SETTLE();
}

/* The routing stays valid: a dispatch behind it finds all rows. */
START_TEST(lists_must_agree)
{
    struct routing routing;
    struct fields fields, later;
    struct layer layer;

    open_small(&layer, usual, 4);
    EXPECT_CODE(routing_start(&routing, &layer, 1), EPX_SUCCESS);
    routing_finish(&routing);
    call_in_vain(&fields, &routing, _i, 0);
    fields_prepare(&later, &routing, usual, 4, 4);
    EXPECT_CODE(fields_call(&later, 0), EPX_SUCCESS);
    expect_refused(&fields.request, "EPX_Dispatch_fields: ", odd_lists[_i].message);
    fields_check(&fields);
    fields_finish(&later);
    SETTLE();
    fields_free(&fields);
    fields_free(&later);
    routing_free(&routing);
    layer_close(&layer);
}
END_TEST

/* Nothing is routed: operations fail until the next routing. */
START_TEST(lists_must_agree_before_tokens_are_routed)
{
    struct routing routing;
    struct operation later;
    struct fields fields;
    struct layer layer;

    open_small(&layer, usual, 4);
    routing_prepare(&routing, &layer, 2);
    call_in_vain(&fields, &routing, _i, 1);
    routing.ref->truncated = 1;
    EXPECT_CODE(operation_start(&later, &routing, DISPATCH, 4), EPX_SUCCESS);
    expect_refused(&fields.request, "EPX_Route_dispatch_fields: ", odd_lists[_i].message);
    fields_check(&fields);
    expect_refused(&later.request, "", odd_lists[_i].message);
    operation_check(&later);
    SETTLE();
    operation_free(&later);
    fields_free(&fields);
    routing_free(&routing);
    run_once(&layer, usual, 4, 6);
    layer_close(&layer);
}
END_TEST

/* Types may differ where the bytes agree, as in EPX_Dispatch. */
START_TEST(types_of_the_same_length_agree)
{
    const struct field_kind some[] = {{EPX_BYTE, 24, MEMORY_WINDOW},
                                      {EPX_FLOAT32, 4, MEMORY_MIXED}};
    const struct field_kind others[] = {{EPX_BYTE, 24, MEMORY_WINDOW},
                                        {EPX_FLOAT16, 8, MEMORY_MIXED}};
    struct routing routing;
    struct fields fields;
    struct layer layer;

    open_small(&layer, some, 2);
    routing_prepare(&routing, &layer, 2);
    fields_prepare(&fields, &routing, some, 2, 3);
    if (suite_rank % 2)
        fields.kind[1] = others[1];
    EXPECT_CODE(fields_call(&fields, 1), EPX_SUCCESS);
    fields_finish(&fields);
    SETTLE();
    fields_free(&fields);
    routing_free(&routing);
    layer_close(&layer);
}
END_TEST

START_TEST(all_ranks_call_it_or_none)
{
    struct routing routing;
    struct operation op;
    struct fields fields;
    struct layer layer;

    open_small(&layer, usual, 1);
    EXPECT_CODE(routing_start(&routing, &layer, 1), EPX_SUCCESS);
    routing_finish(&routing);
    routing.ref->truncated = 1;
    fields_prepare(&fields, &routing, usual, 1, 2);
    operation_prepare(&op, &routing, DISPATCH, 2);
    if (suite_rank == 0) {
        EXPECT_CODE(operation_call(&op), EPX_SUCCESS);
        fields.request = op.request;
    } else {
        EXPECT_CODE(fields_call(&fields, 0), EPX_SUCCESS);
    }
    expect_refused(&fields.request, "EPX_Dispatch_fields", "rank 0 called EPX_Dispatch and rank 1");
    fields_check(&fields);
    operation_check(&op);
    SETTLE();
    operation_free(&op);
    fields_free(&fields);
    routing_free(&routing);
    run_once(&layer, usual, 1, 3);
    layer_close(&layer);
}
END_TEST

/* The arrays of a call that is refused for one of them. */
struct arrays {
    int num;
    const void *in[2];
    void *out[2];
    int counts[2];
    EPX_Datatype types[2];
    const void **ins;
    void **outs;
    int *count_array;
    EPX_Datatype *type_array;
};

static struct arrays good_arrays(const struct fields *fields)
{
    struct arrays a = {.num = 2};

    for (int f = 0; f < 2; f++) {
        a.in[f] = fields->in[f].address;
        a.out[f] = fields->out[f].address;
        a.counts[f] = fields->kind[f].count;
        a.types[f] = fields->kind[f].datatype;
    }
    return a;
}

/* Makes one thing wrong; returns the code that is due, and the message's part. */
static int spoil(struct arrays *a, int what, const char **part)
{
    static const struct {
        int code;
        const char *part;
    } due[] = {
        {EPX_ERR_ARG, "nfields is 0"},       {EPX_ERR_ARG, "nfields is 5"},
        {EPX_ERR_ARG, "sendbufs is NULL"},   {EPX_ERR_ARG, "recvbufs is NULL"},
        {EPX_ERR_ARG, "counts is NULL"},     {EPX_ERR_ARG, "datatypes is NULL"},
        {EPX_ERR_COUNT, "counts[1] is -1"},  {EPX_ERR_TYPE, "datatypes[1] is 99"},
        {EPX_ERR_BUFFER, "sendbufs[1] is"},  {EPX_ERR_BUFFER, "recvbufs[0] is"},
        {EPX_ERR_BUFFER, "overlap"},         {EPX_ERR_BUFFER, "recvbufs[1] is at"},
        {EPX_ERR_COUNT, "max_row_bytes is"},
    };

    a->num = what == 0 ? 0 : what == 1 ? EPX_MAX_FIELDS + 1 : 2;
    a->ins = what == 2 ? NULL : a->in;
    a->outs = what == 3 ? NULL : a->out;
    a->count_array = what == 4 ? NULL : a->counts;
    a->type_array = what == 5 ? NULL : a->types;
    a->counts[1] = what == 6 ? -1 : what == 12 ? a->counts[1] + 1 : a->counts[1];
    a->types[1] = what == 7 ? 99 : a->types[1];
    a->in[1] = what == 8 ? NULL : a->in[1];
    a->out[0] = what == 9 ? NULL : a->out[0];
    a->out[1] = what == 10 ? a->out[0] : what == 11 ? (char *)a->out[1] + 1 : a->out[1];
    *part = due[what].part;
    return due[what].code;
}

START_TEST(a_wrong_list_is_refused)
{
    static const struct field_kind kinds[] = {{EPX_FLOAT32, 8, MEMORY_MALLOC},
                                              {EPX_FLOAT32, 2, MEMORY_MALLOC}};
    struct scenario s = scenario_small(EPX_BYTE);
    struct routing routing;
    struct fields fields;
    struct layer layer;
    struct arrays a;
    const char *part;
    int code;

    s.tokens = TOKENS_FULL;
    s.row_bytes_known = 1;
    open_layer(&layer, &s, kinds, 2);
    EXPECT_CODE(routing_start(&routing, &layer, 1), EPX_SUCCESS);
    routing_finish(&routing);
    fields_prepare(&fields, &routing, kinds, 2, 2);
    a = good_arrays(&fields);
    code = spoil(&a, _i / 2, &part);
    if (_i % 2)
        EXPECT_FAULT(comm,
                     EPX_Dispatch_fields(a.num, a.ins, a.outs, a.count_array, a.type_array, NULL,
                                         NULL, layer.route, EPX_STREAM_NULL, &fields.request),
                     code);
    else
        EXPECT_FAULT(comm,
                     EPX_Route_dispatch_fields(routing.id_buffer.address,
                                               routing.tokens[suite_rank], a.num, a.ins, a.outs,
                                               a.count_array, a.type_array, NULL, NULL, layer.route,
                                               EPX_STREAM_NULL, &fields.request),
                     code);
    fault_message_has(comm, part);
    EXPECT(fields.request == EPX_REQUEST_NULL, "a refused call left a request");
    EXPECT_CODE(fields_call(&fields, 0), EPX_SUCCESS);
    fields_finish(&fields);
    SETTLE();
    fields_free(&fields);
    routing_free(&routing);
    layer_close(&layer);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("fields");
    TCase *tcase = tcase_create("fields");
    int ranks_differ = suite_size > 1;
    int odd = ranks_differ ? (int)(sizeof(odd_lists) / sizeof(odd_lists[0])) : 0;

    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_loop_test(tcase, every_field_of_every_row_arrives, 0, SCENARIO_EDGES);
    tcase_add_loop_test(tcase, each_field_is_in_a_window_or_not, 0, 16);
    tcase_add_loop_test(tcase, fields_of_any_length_arrive, 0, 3 * NUM_LENGTHS);
    tcase_add_loop_test(tcase, any_list_is_that_of_the_reference, 0, 30);
    tcase_add_loop_test(tcase, more_rows_than_caches_hold_arrive, 0, 4);
    tcase_add_loop_test(tcase, many_rows_of_middle_length_arrive, 0, suite_size == 2 ? 12 : 3);
    tcase_add_loop_test(tcase, many_rows_of_one_slot_arrive, 0, 4);
    tcase_add_test(tcase, stats_count_one_call_and_all_bytes);
    tcase_add_test(tcase, lists_in_flight_keep_their_order);
    tcase_add_loop_test(tcase, lists_must_agree, 0, odd);
    tcase_add_loop_test(tcase, lists_must_agree_before_tokens_are_routed, 0, odd);
    tcase_add_test(tcase, types_of_the_same_length_agree);
    tcase_add_loop_test(tcase, all_ranks_call_it_or_none, 0, ranks_differ);
    tcase_add_loop_test(tcase, a_wrong_list_is_refused, 0, 26);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
