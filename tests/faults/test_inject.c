/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_inject.c - every allocation and every call of MPI that the library makes fails once, on
 * one rank at a time. No such failure is lost, crashes or hangs a rank, or leaks; the ranks agree
 * about it; the next communicator works.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/request.h"
#include "faults/inject.h"
#include "support/suite.h"

enum { EXPERTS = 6, TOP_K = 2, TOKENS = 5, WIDTH = 24, MAX_RANKS = 4 };
enum { ROWS = MAX_RANKS * TOKENS * TOP_K, PATIENCE_MS = 60000 };

/* What one rank saw: errors of calls that the others make too, and of local calls. */
struct outcome {
    int fired, joint, local, repeated, wrong;
    int exchanging, done; /* began its last operation, is through with it */
    char function[32], where[32];
};

struct world {
    EPX_Comm comm;
    EPX_Route route;
    float *slots;
};

static float tokens[TOKENS][WIDTH], sums[TOKENS][WIDTH], staged[ROWS][WIDTH];
static float weights[TOKENS][TOP_K], slot_weights[ROWS], gradients[TOKENS][TOP_K];
static int32_t ids[TOKENS][TOP_K];
static int64_t counts[4][MAX_RANKS];
static struct outcome outcome, outcomes[MAX_RANKS];
static int kept;
static int is_set_up; /* whether the setup that a process makes once is done */
static struct world world;

/* Whether the call took no part in the collective, so that it may be repeated. */
static int took_no_part(int code, int nonblocking)
{
    return code == EPX_ERR_NOT_INITIALIZED || (nonblocking && code == EPX_ERR_NO_MEM);
}

static int note(int code, int *kind, const char *where)
{
    if (code == EPX_SUCCESS)
        return 1;
    if (!outcome.joint && !outcome.local)
        snprintf(outcome.where, sizeof(outcome.where), "%s", where);
    *kind = *kind ? *kind : code;
    return 0;
}

#define CALL(kind, nonblocking, function, ...)                                                     \
    do {                                                                                           \
        int code_ = function(__VA_ARGS__);                                                         \
        if (took_no_part(code_, nonblocking)) {                                                    \
            outcome.repeated = code_;                                                              \
            code_ = function(__VA_ARGS__);                                                         \
        }                                                                                          \
        ok = note(code_, &outcome.kind, #function);                                                \
    } while (0)

/* Expects a message that tells why: for several requests MPI itself only says that one failed. */
static void expect_reason(void)
{
    char message[EPX_MAX_ERROR_STRING] = "", vague[MPI_MAX_ERROR_STRING] = "";
    int length;

    PMPI_Error_string(MPI_ERR_IN_STATUS, vague, &length);
    EPX_Comm_get_error_message(world.comm, message, &length);
    EXPECT(!strstr(message, vague), "\"%s\" does not tell why", message);
}

static int wait_for(EPX_Request *request)
{
    MPI_Status status;
    int ok;

    CALL(joint, 0, EPX_Wait, request, &status);
    if (!ok)
        expect_reason();
    return ok;
}

static int create(MPI_Info info)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    MPI_Info used = MPI_INFO_NULL;
    int ok;

    attr.num_experts = EXPERTS;
    attr.top_k = TOP_K;
    attr.max_tokens = TOKENS;
    attr.index_bits = 32;
    CALL(joint, 0, EPX_Comm_create, MPI_COMM_WORLD, info, &world.comm);
    if (!ok)
        return 0;
    CALL(local, 0, EPX_Comm_set_errhandler, world.comm, MPI_ERRORS_RETURN);
    CALL(local, 0, EPX_Comm_get_info, world.comm, &used);
    if (ok)
        MPI_Info_free(&used);
    CALL(joint, 0, EPX_Alloc_mem, (MPI_Aint)sizeof(staged), world.comm, &world.slots);
    if (ok)
        CALL(joint, 0, EPX_Route_create, &attr, world.comm, &world.route);
    return ok;
}

static int there_and_back(void)
{
    EPX_Request request = EPX_REQUEST_NULL;
    int ok;

    CALL(joint, 1, EPX_Route_tokens, ids, TOKENS, world.route, EPX_STREAM_NULL, &request);
    if (!ok || !wait_for(&request))
        return 0;
    CALL(joint, 1, EPX_Dispatch, tokens, &weights[0][0], world.slots, slot_weights, WIDTH,
         EPX_FLOAT32, world.route, EPX_STREAM_NULL, &request);
    if (!ok || !wait_for(&request))
        return 0;
    CALL(joint, 1, EPX_Combine, world.slots, NULL, sums, WIDTH, EPX_FLOAT32, world.route,
         EPX_STREAM_NULL, &request);
    return ok && wait_for(&request);
}

static int backwards(void)
{
    EPX_Request request = EPX_REQUEST_NULL;
    int ok;

    CALL(joint, 1, EPX_Combine_backward, tokens, NULL, slot_weights, staged, NULL, WIDTH,
         EPX_FLOAT32, world.route, EPX_STREAM_NULL, &request);
    if (!ok || !wait_for(&request))
        return 0;
    CALL(joint, 1, EPX_Dispatch_backward, staged, slot_weights, sums, &gradients[0][0], WIDTH,
         EPX_FLOAT32, world.route, EPX_STREAM_NULL, &request);
    return ok && wait_for(&request);
}

static int exchange(void)
{
    EPX_Request request = EPX_REQUEST_NULL;
    int ok;

    for (int r = 0; r < suite_size; r++) {
        counts[0][r] = 1;
        counts[1][r] = r;
    }
    CALL(joint, 1, EPX_Alltoallv, tokens, counts[0], counts[1], staged, counts[2], counts[3], ROWS,
         WIDTH, EPX_FLOAT32, world.comm, EPX_STREAM_NULL, &request);
    return ok && wait_for(&request);
}

/* Every token has two choices: combined without weights, it comes home doubled. */
static void check_sums(void)
{
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < WIDTH; i++)
            outcome.wrong += sums[t][i] != 2 * tokens[t][i];
}

static void destroy(void)
{
    int ok = 1;

    if (world.route)
        CALL(local, 0, EPX_Route_free, &world.route);
    if (world.slots)
        CALL(joint, 0, EPX_Free_mem, world.slots, world.comm);
    if (world.comm)
        CALL(joint, 0, EPX_Comm_free, &world.comm);
    (void)ok;
}

static void run(MPI_Info info, enum inject_kind kind, int nth)
{
    const char *function;

    memset(&outcome, 0, sizeof(outcome));
    memset(&world, 0, sizeof(world));
    inject_arm(kind, nth);
    if (create(info) && there_and_back()) {
        check_sums();
        outcome.exchanging = backwards();
        outcome.done = outcome.exchanging && exchange();
    }
    destroy();
    epx_request_free_all_by_mpi();
    function = inject_disarm();
    outcome.fired = function != NULL;
    snprintf(outcome.function, sizeof(outcome.function), "%s", function ? function : "");
    if (kind == INJECT_MPI)
        inject_catch_up();
    PMPI_Allgather(&outcome, sizeof(outcome), MPI_BYTE, outcomes, sizeof(outcome), MPI_BYTE,
                   MPI_COMM_WORLD);
}

static void fill(void)
{
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < WIDTH; i++)
            tokens[t][i] = (float)(100 * suite_rank + 10 * t + i);
        for (int k = 0; k < TOP_K; k++) {
            ids[t][k] = (suite_rank + t + 3 * k) % EXPERTS;
            weights[t][k] = 1;
        }
    }
}

/* Sockets try again to have memory for what has come. */
static int frames_are_received(void)
{
    const char *control = getenv("EPX_CONTROL");

    return control && strcmp(control, "sockets") == 0;
}

/* Calls whose failure changes nothing that the caller asked for: clean-up, texts and probes. */
static int may_be_silent(const char *function)
{
    static const char *const names[] = {
        "MPI_Cancel",    "MPI_Comm_call_errhandler", "MPI_Comm_free", "MPI_Error_string",
        "MPI_Info_free", "MPI_Status_set_cancelled", "MPI_Wait",      "MPI_Status_set_elements_x",
        "dlopen"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(function, names[i]) == 0)
            return 1;
    return strcmp(function, "malloc") == 0 && frames_are_received();
}

static int ended(const struct outcome *o)
{
    return o->joint == EPX_ERR_TIMEOUT || o->joint == EPX_ERR_MPI;
}

static int any_joint(void)
{
    for (int r = 0; r < suite_size; r++)
        if (outcomes[r].joint)
            return 1;
    return 0;
}

static int any_ended(void)
{
    for (int r = 0; r < suite_size; r++)
        if (ended(&outcomes[r]))
            return 1;
    return 0;
}

static int is_setup(const char *function)
{
    return strncmp(function, "MPI_Add_error", 13) == 0 || strstr(function, "keyval") ||
           strcmp(function, "MPI_Comm_set_attr") == 0;
}

/* Whether memory may be kept: a communicator that has ended keeps what late messages may go to. */
static int may_keep(const char *function)
{
    return (any_ended() && !is_setup(function)) || strcmp(function, "MPI_Cancel") == 0;
}

/* Whether the call is among the last that ranks make together: this rank may be through with the
 * exchange, or with all, before another fails there. What it frees later it then frees alone. */
static int at_the_end(const struct outcome *victim)
{
    return strcmp(victim->where, "EPX_Free_mem") == 0 ||
           strcmp(victim->where, "EPX_Comm_free") == 0 ||
           (victim->exchanging && outcomes[suite_rank].done);
}

static void judge(int victim, int nth, enum inject_kind kind)
{
    const struct outcome *v = &outcomes[victim], *mine = &outcomes[suite_rank];
    int told = v->joint || v->local || v->repeated;
    int falls_back = kind == INJECT_SHORTAGE && strcmp(suite_transport(), "auto") == 0;

    EXPECT(told || may_be_silent(v->function) || falls_back,
           "failure %d, %s on rank %d, gave no error", nth, v->function, victim);
    EXPECT(!any_joint() || mine->joint || at_the_end(v),
           "failure %d, %s in %s on rank %d: error %d there, none here", nth, v->function, v->where,
           victim, v->joint);
    EXPECT(kind == INJECT_MPI || mine->joint == EPX_SUCCESS || mine->joint == EPX_ERR_NO_MEM,
           "failure %d, %s in %s on rank %d: error %d here", nth, v->function, v->where, victim,
           mine->joint);
    EXPECT(mine->joint || mine->done, "failure %d, %s: no error, but not done", nth, v->function);
    EXPECT(mine->wrong == 0, "failure %d, %s: %d wrong sums", nth, v->function, mine->wrong);
    EXPECT(may_keep(v->function) || inject_live() == kept,
           "failure %d, %s in %s on rank %d: %d objects left", nth, v->function, v->where, victim,
           inject_live() - kept);
    kept = inject_live();
}

static void still_works(MPI_Info info, int nth, const char *function)
{
    int live = inject_live();

    run(info, INJECT_SHORTAGE, 0);
    EXPECT(outcome.done && !outcome.joint && !outcome.local && !outcome.wrong,
           "after failure %d, %s: error %d in %s", nth, function, outcome.joint, outcome.where);
    EXPECT(inject_live() == live, "after failure %d, %s: %d more objects left", nth, function,
           inject_live() - live);
}

static MPI_Info hints(int timeout_ms)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", timeout_ms);
    return suite_info("epx_timeout_ms", text, "epx_window_bytes", "65536", NULL);
}

/* Lets the nth call fail and returns 1, 0 if there is no nth call. On a busy machine the bound is
 * made longer. */
static int fail_nth(enum inject_kind kind, int victim, int nth, int *timeout_ms)
{
    for (;; *timeout_ms *= 2) {
        MPI_Info info = hints(*timeout_ms);

        run(info, kind, victim == suite_rank ? nth : 0);
        MPI_Info_free(&info);
        if (outcomes[victim].fired || !any_joint() || *timeout_ms > PATIENCE_MS)
            return outcomes[victim].fired;
        kept = inject_live();
    }
}

/*
 * Lets the nth call fail for n = 1, 2, ... until nothing fails any more. Begins again at 1 when a
 * process has made its setup, after which fewer calls are made.
 */
static int sweep(enum inject_kind kind, int victim, int timeout_ms)
{
    MPI_Info patient = hints(PATIENCE_MS);
    int nth, fired = 0, in_setup = 0;
    char function[sizeof(outcome.function)];

    kept = inject_live();
    for (nth = 1; fail_nth(kind, victim, nth, &timeout_ms); nth++) {
        fired++;
        snprintf(function, sizeof(function), "%s", outcomes[victim].function);
        judge(victim, nth, kind);
        in_setup |= is_setup(function);
        if (in_setup && !is_setup(function)) {
            is_set_up = 1;
            in_setup = nth = 0;
        }
        if (is_set_up)
            still_works(patient, nth, function);
        SETTLE();
    }
    EXPECT(!any_joint(), "error %d when nothing failed", outcome.joint);
    MPI_Info_free(&patient);
    return fired;
}

START_TEST(every_shortage_on_one_rank_is_an_error_on_all)
{
    int fired;

    fill();
    epx_request_free_all_by_mpi();
    fired = sweep(INJECT_SHORTAGE, _i, PATIENCE_MS);
    EXPECT(fired > 20, "only %d failures", fired);
    SETTLE();
    if (suite_rank == 0)
        printf("%d shortages on rank %d\n", fired, _i);
}
END_TEST

START_TEST(every_error_of_mpi_ends_in_an_error_on_all)
{
    int fired;

    fill();
    fired = sweep(INJECT_MPI, _i, 200);
    EXPECT(fired > 40, "only %d failures", fired);
    SETTLE();
    if (suite_rank == 0)
        printf("%d failures of MPI on rank %d\n", fired, _i);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("inject");
    TCase *tcase = tcase_create("each call in turn");

    tcase_add_loop_test(tcase, every_error_of_mpi_ends_in_an_error_on_all, 0, suite_size);
    tcase_add_loop_test(tcase, every_shortage_on_one_rank_is_an_error_on_all, 0, suite_size);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
