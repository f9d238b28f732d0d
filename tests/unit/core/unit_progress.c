/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_progress.c - the clock of a wait: when it gives up, and whom it blames. The tests let time
 * pass by moving the clock's last pass into the past; the bound is so long that real time does not
 * matter.
 */
#include "core/health/comm_end.h"
#include "core/health/patience.h"
#include "core/progress.h"

#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "core/request.h"
#include "support/suite.h"
#include "transport/module.h"

enum { RANKS = 5, ME = 1, BOUND_MS = 10000000, LOOKS = 32 };

static struct epx_comm comm;
static struct epx_clock waited;
static struct epx_clock other; /* of another wait */
static uint64_t answers[RANKS];
static int alive[RANKS], probes, beats, announcements;
static uint64_t position_of[RANKS];
static const char *earlier_message; /* of a rank that gave up first */

static void probe(void *state)
{
    ck_assert_ptr_eq(state, alive);
    probes++;
}

static int answered(void *state, int rank, uint64_t *epoch)
{
    ck_assert_ptr_eq(state, alive);
    ck_assert_int_ne(rank, ME);
    *epoch = position_of[rank];
    return alive[rank];
}

static int beat(void *state, uint64_t epoch, char *message)
{
    (void)epoch;
    (void)message;
    ck_assert_ptr_eq(state, alive);
    beats++;
    return 0;
}

static void announce(void *state, char *message)
{
    ck_assert_ptr_eq(state, alive);
    announcements++;
    if (earlier_message)
        strcpy(message, earlier_message);
}

static const struct epx_liveness_ops fake_liveness = {
    .beat = beat, .probe = probe, .answered = answered, .announce = announce};

static void begin(void)
{
    memset(&comm, 0, sizeof(comm));
    memset(&waited, 0, sizeof(waited));
    memset(&other, 0, sizeof(other));
    memset(answers, 0, sizeof(answers));
    comm.references = 1;
    comm.rank = ME;
    comm.size = RANKS;
    comm.position = 20;
    comm.params.timeout_ms = BOUND_MS;
    comm.liveness.ops = &fake_liveness;
    comm.liveness.state = alive;
    comm.answers = answers;
    probes = beats = announcements = 0;
    earlier_message = NULL;
    epx_status_enter("EPX_Test");
    for (int r = 0; r < RANKS; r++) {
        alive[r] = 1;
        position_of[r] = 20;
    }
}

static void end(void)
{
    epx_comm_take_error(&comm);
}

/* Makes one pass, so many percent of the bound after the last one. */
static void pass_once(int percent, int moved, int waiting_for)
{
    if (waited.last_pass_ns)
        waited.last_pass_ns -= (int64_t)BOUND_MS * 10000 * percent;
    epx_comm_clock(&comm, &waited, moved, waiting_for);
}

/* Makes one pass, and as many more, in no time, as the clock needs to look for answers. */
static void pass(int percent, int moved, int waiting_for)
{
    pass_once(percent, moved, waiting_for);
    for (int i = 0; i < LOOKS && !comm.finished && waited.last_pass_ns; i++)
        pass_once(0, 0, waiting_for);
}

static void wait_in_vain(int waiting_for)
{
    pass(0, 0, waiting_for);
    for (int i = 0; i < 11 && !comm.finished; i++)
        pass(10, 0, waiting_for);
    ck_assert_int_eq(comm.finished, EPX_ERR_TIMEOUT);
}

static void expect_blamed(int rank)
{
    char wanted[64];

    snprintf(wanted, sizeof(wanted), "EPX_Test: rank %d did not answer within %d ms", rank,
             BOUND_MS);
    ck_assert_str_eq(comm.finish_message, wanted);
}

START_TEST(nobody_gives_up_before_the_bound)
{
    pass(0, 0, 2);
    for (int i = 1; i <= 4; i++)
        pass(10, 0, 2);
    ck_assert_int_eq(probes, 0);
    for (int i = 5; i <= 9; i++)
        pass(10, 0, 2);
    ck_assert_int_eq(probes, 1);
    ck_assert_int_eq(comm.finished, 0);
    ck_assert_int_eq(announcements, 0);
    pass(10, 0, 2);
    ck_assert_int_eq(comm.finished, EPX_ERR_TIMEOUT);
    ck_assert_int_eq(comm.async_error, EPX_ERR_TIMEOUT);
    ck_assert_int_eq(announcements, 1);
    ck_assert_int_eq(probes, 1);
}
END_TEST

START_TEST(a_long_gap_counts_for_half_the_bound)
{
    pass(0, 0, 2);
    pass(100000, 0, 2);
    ck_assert_int_eq(comm.finished, 0);
    ck_assert_int_eq(probes, 1);
    pass(40, 0, 2);
    ck_assert_int_eq(comm.finished, 0);
    pass(100000, 0, 2);
    ck_assert_int_eq(comm.finished, EPX_ERR_TIMEOUT);
}
END_TEST

START_TEST(answers_are_looked_for_before_a_rank_is_blamed)
{
    alive[4] = 0;
    pass_once(0, 0, 2);
    pass_once(100000, 0, 2);
    ck_assert_int_eq(probes, 1);
    pass_once(100000, 0, 2);
    pass_once(49, 0, 2);
    for (int i = 3; i < LOOKS; i++)
        pass_once(1, 0, 2);
    ck_assert_int_eq(comm.finished, 0);
    alive[4] = 1;
    alive[3] = 0;
    pass_once(0, 0, 2);
    ck_assert_int_eq(probes, 1);
    ck_assert_int_eq(beats, 0);
    expect_blamed(3);
}
END_TEST

START_TEST(a_host_that_seldom_looks_blames_after_twice_the_bound)
{
    alive[4] = 0;
    pass_once(0, 0, 2);
    for (int i = 1; i <= 3; i++)
        pass_once(100000, 0, 2);
    ck_assert_int_eq(comm.finished, 0);
    ck_assert_int_eq(beats, 0);
    alive[4] = 1;
    alive[3] = 0;
    pass_once(100000, 0, 2);
    ck_assert_int_eq(probes, 1);
    ck_assert_int_eq(beats, LOOKS - 3);
    expect_blamed(3);
}
END_TEST

static void pass_of_other(int percent)
{
    if (other.last_pass_ns)
        other.last_pass_ns -= (int64_t)BOUND_MS * 10000 * percent;
    epx_comm_clock(&comm, &other, 0, 3);
}

/* Lets the other clock ask before the answers to this one's question are counted. */
static void ask_in_between(void)
{
    pass(0, 0, 2);
    pass(50, 0, 2);
    pass_of_other(0);
    pass_of_other(50);
    ck_assert_int_eq(probes, 2);
    for (int r = 0; r < RANKS; r++)
        alive[r] = 0;
}

START_TEST(another_clocks_question_leaves_the_answers_to_the_first)
{
    alive[4] = 0;
    ask_in_between();
    pass(50, 0, 2);
    expect_blamed(4);
}
END_TEST

START_TEST(an_answer_to_an_earlier_question_does_not_count)
{
    ask_in_between();
    alive[0] = alive[2] = alive[3] = 1;
    for (int i = 0; i <= LOOKS; i++)
        pass_of_other(2);
    expect_blamed(4);
}
END_TEST

START_TEST(the_time_before_the_first_pass_does_not_count)
{
    epx_comm_clock(&comm, &waited, 0, 2);
    ck_assert_int_eq(waited.waited_ns, 0);
    ck_assert_int_ne(waited.last_pass_ns, 0);
}
END_TEST

START_TEST(progress_starts_the_clock_anew)
{
    pass(0, 0, 2);
    for (int i = 0; i < 50; i++)
        pass(40, i % 2, 2);
    ck_assert_int_eq(comm.finished, 0);
    pass(0, 1, 2);
    pass(0, 0, 2);
    for (int i = 0; i < 9; i++)
        pass(10, 0, 2);
    pass(0, 1, 2);
    ck_assert_int_eq(probes, 1);
    pass(0, 0, 2);
    for (int i = 0; i < 9; i++)
        pass(10, 0, 2);
    ck_assert_int_eq(probes, 2);
    ck_assert_int_eq(comm.finished, 0);
}
END_TEST

START_TEST(without_a_bound_nobody_gives_up)
{
    comm.params.timeout_ms = 0;
    for (int i = 0; i < 100; i++)
        pass(100, 0, 2);
    ck_assert_int_eq(comm.finished, 0);
    ck_assert_int_eq(probes, 0);
}
END_TEST

START_TEST(a_silent_rank_is_blamed)
{
    alive[4] = 0;
    position_of[0] = 3;
    wait_in_vain(2);
    expect_blamed(4);
}
END_TEST

START_TEST(of_several_silent_ranks_the_one_waited_for_is_blamed)
{
    alive[0] = alive[3] = alive[4] = 0;
    wait_in_vain(3);
    expect_blamed(3);
}
END_TEST

START_TEST(else_the_rank_furthest_behind_is_blamed)
{
    position_of[0] = 19;
    position_of[3] = 17;
    position_of[4] = 18;
    wait_in_vain(2);
    expect_blamed(3);
}
END_TEST

START_TEST(else_the_rank_waited_for_is_blamed)
{
    position_of[3] = 25;
    wait_in_vain(2);
    expect_blamed(2);
}
END_TEST

START_TEST(else_nobody_is_blamed)
{
    wait_in_vain(-1);
    ck_assert_str_eq(comm.finish_message, "EPX_Test: not all 5 ranks came within 10000000 ms");
}
END_TEST

START_TEST(before_there_is_a_transport_the_rank_waited_for_is_blamed)
{
    comm.liveness.ops = NULL;
    wait_in_vain(4);
    expect_blamed(4);
}
END_TEST

static void expect_timed_out(struct epx_request *request)
{
    ck_assert_int_eq(request->complete, 1);
    ck_assert_int_eq(request->error, EPX_ERR_TIMEOUT);
    ck_assert_str_eq(request->message, comm.finish_message);
    epx_request_free(request);
}

static int never(struct epx_request *request, int *moved)
{
    (void)request;
    *moved = 0;
    return EPX_SUCCESS;
}

START_TEST(everything_in_flight_ends_with_the_first_message)
{
    struct epx_request *requests[3];

    for (int i = 0; i < 3; i++) {
        requests[i] = epx_request_create(&comm, NULL);
        requests[i]->progress = never;
        requests[i]->call.verb = EPX_VERB_COMBINE;
        epx_request_submit(requests[i]);
    }
    earlier_message = "EPX_Dispatch: rank 4 did not answer within 7 ms";
    wait_in_vain(2);
    ck_assert_str_eq(comm.finish_message, earlier_message);
    ck_assert_str_eq(comm.message, earlier_message);
    ck_assert_uint_eq(comm.stats.timeouts, 3);
    ck_assert_ptr_null(comm.first);
    for (int i = 0; i < 3; i++)
        expect_timed_out(requests[i]);
    epx_comm_give_up(&comm, "again");
    ck_assert_str_eq(comm.finish_message, earlier_message);
}
END_TEST

static int kernels_ended;

static int ended(const struct epx_request *request)
{
    ck_assert_ptr_eq(request->comm, &comm);
    return kernels_ended;
}

static struct epx_request *give_up_with_kernels(void)
{
    struct epx_request *request = epx_request_create(&comm, NULL);

    kernels_ended = 0;
    request->progress = never;
    request->ended = ended;
    epx_comm_enlist(&comm);
    epx_request_submit(request);
    epx_comm_give_up(&comm, "enough");
    epx_progress();
    ck_assert_int_eq(request->complete, 0);
    return request;
}

START_TEST(a_request_does_not_end_before_its_kernels)
{
    struct epx_request *request = give_up_with_kernels();

    kernels_ended = 1;
    epx_progress();
    epx_comm_unlist(&comm);
    expect_timed_out(request);
}
END_TEST

START_TEST(kernels_that_never_end_are_not_waited_for)
{
    struct epx_request *request = give_up_with_kernels();

    comm.finished_ns -= 10000000000LL;
    epx_progress();
    epx_comm_unlist(&comm);
    expect_timed_out(request);
}
END_TEST

static int retired;

static void retire(struct epx_device *device)
{
    ck_assert_ptr_null(device);
    retired++;
}

static const struct epx_device_ops fake_device = {.retire = retire};

START_TEST(the_threads_of_a_finished_communicator_end_when_it_is_freed)
{
    static struct epx_transport transport = {.device_ops = &fake_device};

    comm.transport = &transport;
    epx_comm_finish(&comm, "enough");
    epx_api_free_comm(&comm);
    ck_assert_int_eq(retired, 1);
}
END_TEST

enum { MANY = 1000, PASSES = 200 };

static struct epx_comm many[MANY];
static int beats_of[MANY];

static int count_beat(void *state, uint64_t epoch, char *message)
{
    (void)epoch;
    (void)message;
    ++*(int *)state;
    return 0;
}

static const struct epx_liveness_ops counting_liveness = {.beat = count_beat};

/* Makes passes while the first communicator has a request, and counts the beats of all. */
static int64_t count_beats(void)
{
    struct epx_request *request;
    int64_t sum = 0;

    memset(many, 0, sizeof(many));
    memset(beats_of, 0, sizeof(beats_of));
    for (int i = 0; i < MANY; i++) {
        many[i].references = many[i].size = 1;
        many[i].liveness = (struct epx_liveness){&counting_liveness, &beats_of[i]};
        epx_comm_enlist(&many[i]);
    }
    request = epx_request_create(&many[0], NULL);
    request->progress = never;
    epx_request_submit(request);
    for (int i = 1; i < PASSES; i++)
        epx_progress();
    for (int i = 0; i < MANY; i++)
        sum += beats_of[i];
    many[0].liveness.ops = NULL;
    epx_comm_give_up(&many[0], "enough");
    epx_comm_take_error(&many[0]);
    epx_request_free(request);
    return sum;
}

START_TEST(a_pass_does_not_take_longer_with_the_number_of_communicators)
{
    int64_t sum = count_beats();

    ck_assert_int_eq(beats_of[0], PASSES);
    ck_assert_msg(sum < (int64_t)PASSES * 16, "%lld beats in %d passes", (long long)sum, PASSES);
    for (int i = 1; i < MANY; i++)
        ck_assert_msg(beats_of[i] > 0, "communicator %d had no turn", i);
    for (int i = 0; i < MANY; i++)
        epx_comm_unlist(&many[i]);
    ck_assert_ptr_null(epx_comm_first_busy());
    ck_assert_ptr_null(epx_comm_next_idle());
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("progress");
    TCase *tcase = tcase_create("progress");

    tcase_add_checked_fixture(tcase, begin, end);
    tcase_add_test(tcase, nobody_gives_up_before_the_bound);
    tcase_add_test(tcase, a_long_gap_counts_for_half_the_bound);
    tcase_add_test(tcase, answers_are_looked_for_before_a_rank_is_blamed);
    tcase_add_test(tcase, a_host_that_seldom_looks_blames_after_twice_the_bound);
    tcase_add_test(tcase, another_clocks_question_leaves_the_answers_to_the_first);
    tcase_add_test(tcase, an_answer_to_an_earlier_question_does_not_count);
    tcase_add_test(tcase, the_time_before_the_first_pass_does_not_count);
    tcase_add_test(tcase, progress_starts_the_clock_anew);
    tcase_add_test(tcase, without_a_bound_nobody_gives_up);
    tcase_add_test(tcase, a_silent_rank_is_blamed);
    tcase_add_test(tcase, of_several_silent_ranks_the_one_waited_for_is_blamed);
    tcase_add_test(tcase, else_the_rank_furthest_behind_is_blamed);
    tcase_add_test(tcase, else_the_rank_waited_for_is_blamed);
    tcase_add_test(tcase, else_nobody_is_blamed);
    tcase_add_test(tcase, before_there_is_a_transport_the_rank_waited_for_is_blamed);
    tcase_add_test(tcase, everything_in_flight_ends_with_the_first_message);
    tcase_add_test(tcase, a_request_does_not_end_before_its_kernels);
    tcase_add_test(tcase, kernels_that_never_end_are_not_waited_for);
    tcase_add_test(tcase, the_threads_of_a_finished_communicator_end_when_it_is_freed);
    tcase_add_test(tcase, a_pass_does_not_take_longer_with_the_number_of_communicators);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
