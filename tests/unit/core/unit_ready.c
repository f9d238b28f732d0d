/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_ready.c - what ranks tell of an operation, every way in which they can disagree, and who
 * is named then.
 */
#include "core/ready.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "core/route.h"
#include "support/suite.h"
#include "transport/transport.h"

enum { RANKS = 4 };

static struct epx_comm comm;
static struct epx_route good, other;
static struct epx_request request;
static struct epx_ready ready[RANKS];
static int weighted;

static void begin(void)
{
    memset(&comm, 0, sizeof(comm));
    memset(&good, 0, sizeof(good));
    memset(&other, 0, sizeof(other));
    memset(&request, 0, sizeof(request));
    epx_log_set_level(EPX_LOG_LEVEL_ERROR);
    epx_status_enter("EPX_Test");
    comm.size = RANKS;
    good.comm = other.comm = &comm;
    good.id = 5;
    other.id = 6;
    request.call.recv_capacity = request.call.num_rows = 10;
    good.next = &other;
    comm.routes = &good;
    request.comm = &comm;
    request.route = &good;
    request.epoch = 9;
    request.call.verb = EPX_VERB_DISPATCH;
    request.call.datatype = EPX_FLOAT16;
    request.call.fields = (struct epx_fields){.num = 1, .at = {{.bytes = 20}}};
    request.call.row_bytes = 20;
    request.call.num_tokens = 3;
    weighted = -1;
}

static void all_tell(void)
{
    for (int r = 0; r < RANKS; r++)
        ready[r] = epx_ready_of(&request);
}

static int agree(void)
{
    epx_fail_quietly(EPX_SUCCESS, "nothing");
    return epx_ready_agree(&request, ready, &weighted);
}

static void expect_message(const char *wanted)
{
    ck_assert_ptr_nonnull(strstr(epx_status_message(), wanted));
}

START_TEST(a_request_tells_what_it_is)
{
    struct epx_ready told = epx_ready_of(&request);

    ck_assert_int_eq(told.epoch, 9);
    ck_assert_int_eq(told.verb, EPX_VERB_DISPATCH);
    ck_assert_int_eq(told.route, 5);
    ck_assert_int_eq(told.error, EPX_SUCCESS);
    ck_assert_int_eq(told.num_fields, 1);
    ck_assert_int_eq(told.fields[0].bytes, 20);
    ck_assert_int_eq(told.datatype, EPX_DATATYPE_NULL);
    ck_assert_int_eq(told.fields[0].segment, -1);
    ck_assert_int_eq(told.most_rows, 0);
    good.error = EPX_ERR_TRUNCATE;
    ck_assert_int_eq(epx_ready_of(&request).error, EPX_ERR_TRUNCATE);
    request.call.verb = EPX_VERB_ROUTE_TOKENS;
    ck_assert_int_eq(epx_ready_of(&request).error, EPX_SUCCESS);
    request.call.verb = EPX_VERB_ROUTE_DISPATCH;
    ck_assert_int_eq(epx_ready_of(&request).error, EPX_SUCCESS);
}
END_TEST

/* So that the dispatch of EPX_Route_dispatch needs no agreement of its own. */
START_TEST(a_routing_that_dispatches_tells_all_that_a_dispatch_does)
{
    struct epx_window *window = epx_window_private(RANKS, 0, 300);
    struct epx_segment segment = {.id = 4, .bytes = 300, .reachable = 1, .window = window};
    struct epx_ready dispatch, both;
    float weight;

    comm.segments = &segment;
    request.call.fields.at[0].out = window->own + 100;
    request.call.weights_in = &weight;
    dispatch = epx_ready_of(&request);
    request.call.verb = EPX_VERB_ROUTE_DISPATCH;
    both = epx_ready_of(&request);
    ck_assert_int_eq(both.verb, EPX_VERB_ROUTE_DISPATCH);
    both.verb = dispatch.verb;
    ck_assert_mem_eq(&both, &dispatch, sizeof(both));
    epx_window_free(window);
}
END_TEST

START_TEST(only_a_dispatch_behind_its_routing_skips_the_agreement)
{
    int moved = 0;

    request.call.verb = EPX_VERB_ROUTE_DISPATCH;
    request.half = EPX_HALF_ROUTING;
    ck_assert(!epx_ready_skip(&request, &weighted, &moved));
    ck_assert_int_eq(moved, 0);
    all_tell();
    for (int r = 0; r < RANKS; r++)
        ready[r].weights = r == 1 ? EPX_WEIGHTS_GIVEN : EPX_WEIGHTS_EITHER;
    ck_assert_int_eq(agree(), EPX_SUCCESS);
    ck_assert_int_eq(weighted, 1);
    weighted = -1;
    request.half = EPX_HALF_DISPATCH;
    ck_assert(epx_ready_skip(&request, &weighted, &moved));
    ck_assert_int_eq(weighted, 1);
    ck_assert_int_eq(moved, 1);
    ck_assert_int_eq(request.phase, EPX_PHASE_VERB);
}
END_TEST

START_TEST(only_verbs_that_add_tell_the_datatype)
{
    static const int adds[] = {0, 0, 0, 0, 0, 1, 1, 1, 0};
    static const int64_t none[RANKS];

    request.call.sendcounts = none;
    for (int verb = EPX_VERB_ROUTE_TOKENS; verb <= EPX_VERB_ALLTOALLV; verb++) {
        request.call.verb = (enum epx_verb)verb;
        ck_assert_int_eq(epx_ready_of(&request).datatype,
                         adds[verb] ? EPX_FLOAT16 : EPX_DATATYPE_NULL);
    }
}
END_TEST

START_TEST(an_exchange_tells_its_longest_block)
{
    int64_t counts[RANKS] = {3, 8, 0, 7};

    request.route = NULL;
    request.call.verb = EPX_VERB_ALLTOALLV;
    request.call.sendcounts = counts;
    ck_assert_int_eq(epx_ready_of(&request).most_rows, 8);
    ck_assert_int_eq(epx_ready_of(&request).route, -1);
}
END_TEST

/* The whole buffer must lie in the segment: capacity times row_bytes. */
START_TEST(a_receive_buffer_in_a_segment_is_offered)
{
    struct epx_window *window = epx_window_private(RANKS, 0, 300);
    struct epx_segment segment = {.id = 4, .bytes = 300, .reachable = 1, .window = window};

    comm.segments = &segment;
    request.call.fields.at[0].out = window->own + 100;
    ck_assert_int_eq(epx_ready_of(&request).fields[0].segment, 4);
    ck_assert_int_eq(epx_ready_of(&request).fields[0].offset, 100);
    request.call.fields.at[0].out = window->own + 101;
    ck_assert_int_eq(epx_ready_of(&request).fields[0].segment, -1);
    request.call.fields.at[0].out = window->own;
    segment.reachable = 0;
    ck_assert_int_eq(epx_ready_of(&request).fields[0].segment, -1);
    segment.reachable = 1;
    request.call.verb = EPX_VERB_COMBINE;
    ck_assert_int_eq(epx_ready_of(&request).fields[0].segment, -1);
    epx_window_free(window);
}
END_TEST

START_TEST(a_rank_without_rows_says_nothing_of_weights)
{
    float weights[1];

    ck_assert_int_eq(epx_ready_of(&request).weights, EPX_WEIGHTS_NONE);
    request.call.num_tokens = 0;
    ck_assert_int_eq(epx_ready_of(&request).weights, EPX_WEIGHTS_EITHER);
    request.call.weights_in = weights;
    ck_assert_int_eq(epx_ready_of(&request).weights, EPX_WEIGHTS_GIVEN);
    request.call.verb = EPX_VERB_COMBINE;
    ck_assert_int_eq(epx_ready_of(&request).weights, EPX_WEIGHTS_NONE);
    request.call.token_weights = weights;
    ck_assert_int_eq(epx_ready_of(&request).weights, EPX_WEIGHTS_GIVEN);
    request.call.verb = EPX_VERB_DISPATCH_BACKWARD;
    ck_assert_int_eq(epx_ready_of(&request).weights, EPX_WEIGHTS_GIVEN);
    request.call.weights_in = NULL;
    ck_assert_int_eq(epx_ready_of(&request).weights, EPX_WEIGHTS_NONE);
    request.call.num_rows = -1; /* nobody knows */
    ck_assert_int_eq(epx_ready_of(&request).weights, EPX_WEIGHTS_NONE);
    request.call.num_rows = 0;
    ck_assert_int_eq(epx_ready_of(&request).weights, EPX_WEIGHTS_EITHER);
}
END_TEST

START_TEST(ranks_that_tell_the_same_agree)
{
    all_tell();
    ready[1].fields[0].segment = 3;
    ready[1].fields[0].offset = 64;
    ready[2].most_rows = 12;
    ck_assert_int_eq(agree(), EPX_SUCCESS);
    ck_assert_int_eq(weighted, 0);
}
END_TEST

struct disagreement {
    size_t member;
    int64_t value;
    const char *message; /* of rank 2 against rank 0 */
};

static const struct disagreement disagreements[] = {
    {offsetof(struct epx_ready, epoch), 10,
     "the number of the operation is 9 on rank 0, 10 on rank 2"},
    {offsetof(struct epx_ready, verb), EPX_VERB_COMBINE,
     "rank 0 called EPX_Dispatch and rank 2 EPX_Combine"},
    {offsetof(struct epx_ready, route), 6, "the number of the route is 5 on rank 0, 6 on rank 2"},
    {offsetof(struct epx_ready, fields[0].bytes), 21,
     "the length of a row in bytes is 20 on rank 0, 21 on rank 2"},
    {offsetof(struct epx_ready, datatype), EPX_BFLOAT16,
     "the datatype is EPX_DATATYPE_NULL on rank 0, EPX_BFLOAT16 on rank 2"},
};

/* The first rank that differs from rank 0 is named, whatever comes after. */
START_TEST(every_disagreement_is_found_and_named)
{
    const struct disagreement *d = &disagreements[_i];

    for (int last = 2; last < RANKS; last++) {
        all_tell();
        for (int r = 2; r <= last; r++)
            memcpy((char *)&ready[r] + d->member, &d->value, sizeof(d->value));
        ck_assert_int_eq(agree(), EPX_ERR_ARG);
        expect_message(d->message);
    }
    ck_assert_int_eq(good.error, EPX_SUCCESS);
}
END_TEST

static int agree_on_weights(const char *told)
{
    all_tell();
    for (int r = 0; r < RANKS; r++)
        ready[r].weights = told[r] == 'g'   ? EPX_WEIGHTS_GIVEN
                           : told[r] == 'n' ? EPX_WEIGHTS_NONE
                                            : EPX_WEIGHTS_EITHER;
    return agree();
}

START_TEST(weights_are_given_by_all_that_have_rows_or_none)
{
    static const struct {
        const char *told;
        int weighted;
    } fine[] = {{"gggg", 1}, {"nnnn", 0}, {"eeee", 0}, {"egeg", 1}, {"neee", 0}, {"eeeg", 1}};

    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(agree_on_weights(fine[i].told), EPX_SUCCESS);
        ck_assert_int_eq(weighted, fine[i].weighted);
    }
}
END_TEST

START_TEST(the_first_two_that_differ_in_weights_are_named)
{
    static const struct {
        const char *told, *message;
    } wrong[] = {
        {"gnnn", "weights are NULL on rank 1 but not on rank 0"},
        {"nggg", "weights are NULL on rank 0 but not on rank 1"},
        {"egen", "weights are NULL on rank 3 but not on rank 1"},
        {"enge", "weights are NULL on rank 1 but not on rank 2"},
    };

    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(agree_on_weights(wrong[i].told), EPX_ERR_ARG);
        expect_message(wrong[i].message);
    }
}
END_TEST

START_TEST(a_failed_routing_fails_the_operation_on_all_ranks)
{
    all_tell();
    ready[3].error = EPX_ERR_TRUNCATE;
    ck_assert_int_eq(agree(), EPX_ERR_TRUNCATE);
    expect_message("the routing failed on rank 3");
    good.error = EPX_ERR_TRUNCATE;
    strcpy(good.message, "rank 3 lacks room");
    ck_assert_int_eq(agree(), EPX_ERR_TRUNCATE);
    ck_assert_str_eq(epx_status_message(), "rank 3 lacks room");
    ready[1].fields[0].bytes++;
    ck_assert_int_eq(agree(), EPX_ERR_ARG);
}
END_TEST

/* That includes the routing of a route that only requests still hold. */
START_TEST(a_routing_that_met_another_operation_is_void)
{
    struct epx_route freed = {.id = 7};
    struct epx_request queued = {.route = &freed};

    comm.first = &request;
    request.next = &queued;
    all_tell();
    ready[1].verb = EPX_VERB_ROUTE_TOKENS;
    ready[2].verb = EPX_VERB_ROUTE_DISPATCH;
    ready[1].route = 6;
    ready[2].route = 7;
    ck_assert_int_eq(agree(), EPX_ERR_ARG);
    ck_assert_int_eq(good.error, EPX_SUCCESS);
    ck_assert_int_eq(good.routed, 0);
    ck_assert_int_eq(other.error, EPX_ERR_ARG);
    ck_assert_int_eq(other.routed, 1);
    ck_assert_str_eq(other.message, epx_status_message());
    ck_assert_int_eq(freed.error, EPX_ERR_ARG);
}
END_TEST

/* Lists of fields: rank 2 tells others than rank 0, of these three. */
START_TEST(the_first_field_that_differs_is_named)
{
    static const struct {
        int64_t num, bytes[3];
        const char *message;
    } told[] = {
        {3, {20, 9, 8}, "a row of field 1 has 4 bytes on rank 0, 9 on rank 2"},
        {2, {20, 4, 0}, "field 2 is missing on rank 2, but not on rank 0"},
        {2, {21, 4, 0}, "a row of field 0 has 20 bytes on rank 0, 21 on rank 2"},
    };

    request.call.verb = _i % 2 ? EPX_VERB_ROUTE_DISPATCH_FIELDS : EPX_VERB_DISPATCH_FIELDS;
    request.call.fields = (struct epx_fields){3, {{.bytes = 20}, {.bytes = 4}, {.bytes = 8}}};
    all_tell();
    ck_assert_int_eq(ready[2].num_fields, 3);
    ck_assert_int_eq(agree(), EPX_SUCCESS);
    ready[2].num_fields = told[_i].num;
    for (int f = 0; f < 3; f++)
        ready[2].fields[f].bytes = told[_i].bytes[f];
    ck_assert_int_eq(agree(), EPX_ERR_ARG);
    expect_message(told[_i].message);
    ready[0] = ready[1] = ready[2];
    ready[3].num_fields = 4;
    ck_assert_int_eq(agree(), EPX_ERR_ARG);
}
END_TEST

/* A field without bytes needs no memory; all others must lie in windows. */
START_TEST(a_rank_takes_stores_if_every_field_does)
{
    struct epx_window *window = epx_window_private(RANKS, 0, 600);
    struct epx_segment segment = {.id = 4, .bytes = 600, .reachable = 1, .window = window};
    static char elsewhere[200];
    struct epx_ready told;

    comm.segments = &segment;
    request.call.verb = EPX_VERB_DISPATCH_FIELDS;
    request.call.fields.num = 3;
    request.call.fields.at[0].out = window->own;
    request.call.fields.at[1] = (struct epx_field){NULL, window->own + 400, 20};
    request.call.fields.at[2] = (struct epx_field){NULL, elsewhere, 0};
    told = epx_ready_of(&request);
    ck_assert_int_eq(told.fields[1].segment, 4);
    ck_assert_int_eq(told.fields[1].offset, 400);
    ck_assert_int_eq(epx_ready_takes_stores(&told), 1);
    request.call.fields.at[1].out = elsewhere;
    told = epx_ready_of(&request);
    ck_assert_int_eq(told.fields[0].segment, 4);
    ck_assert_int_eq(told.fields[1].segment, -1);
    ck_assert_int_eq(epx_ready_takes_stores(&told), 0);
    epx_window_free(window);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("ready");
    TCase *tcase = tcase_create("ready");

    tcase_add_checked_fixture(tcase, begin, NULL);
    tcase_add_test(tcase, a_request_tells_what_it_is);
    tcase_add_test(tcase, a_routing_that_dispatches_tells_all_that_a_dispatch_does);
    tcase_add_test(tcase, only_a_dispatch_behind_its_routing_skips_the_agreement);
    tcase_add_test(tcase, only_verbs_that_add_tell_the_datatype);
    tcase_add_test(tcase, an_exchange_tells_its_longest_block);
    tcase_add_test(tcase, a_receive_buffer_in_a_segment_is_offered);
    tcase_add_test(tcase, a_rank_without_rows_says_nothing_of_weights);
    tcase_add_test(tcase, ranks_that_tell_the_same_agree);
    tcase_add_loop_test(tcase, every_disagreement_is_found_and_named, 0, 5);
    tcase_add_loop_test(tcase, the_first_field_that_differs_is_named, 0, 3);
    tcase_add_test(tcase, a_rank_takes_stores_if_every_field_does);
    tcase_add_test(tcase, weights_are_given_by_all_that_have_rows_or_none);
    tcase_add_test(tcase, the_first_two_that_differ_in_weights_are_named);
    tcase_add_test(tcase, a_failed_routing_fails_the_operation_on_all_ranks);
    tcase_add_test(tcase, a_routing_that_met_another_operation_is_void);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
