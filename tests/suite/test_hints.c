/* SPDX-License-Identifier: BSD-3-Clause */
/* test_hints.c - info over environment over default; bad values, unusable transports. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/exchange.h"
#include "support/fault.h"
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

/* Creates a communicator with one hint, or two. */
static int create(const char *const hints[4], EPX_Comm *comm)
{
    MPI_Info info = suite_info(hints[0], hints[1], hints[2], hints[3], NULL);
    int code;

    *comm = EPX_COMM_NULL;
    code = EPX_Comm_create(MPI_COMM_WORLD, info, comm);
    MPI_Info_free(&info);
    return code;
}

static void expect_both_refused(const char *const hints[4], int wanted)
{
    EPX_Comm comm;

    EXPECT(create(hints, &comm) == wanted, "%s=%s", hints[0], hints[1]);
    EXPECT(comm == EPX_COMM_NULL, "%s=%s made a communicator", hints[0], hints[1]);
    SETTLE();
}

static void expect_refused(const char *key, const char *value, int wanted)
{
    const char *const hints[4] = {key, value};

    expect_both_refused(hints, wanted);
}

static const char *const bad_values[][2] = {
    {"epx_timeout_ms", "soon"},    {"epx_timeout_ms", "-1"},
    {"epx_warn_ms", "late"},       {"epx_warn_ms", "-1"},
    {"epx_timeout_ms", "5s"},      {"epx_timeout_ms", "99999999999999999999"},
    {"epx_window_bytes", "1"},     {"epx_window_bytes", "huge"},
    {"epx_progress", "maybe"},     {"epx_memory", "gpu"},
    {"epx_transport", "smoke"},    {"epx_log", "loud"},
    {"epx_ranks_per_node", "-2"},  {"epx_combine_partials", "float64"},
    {"epx_combine_order", "node"}, {"epx_max_sms", "-1"},
    {"epx_max_sms", "many"},       {"epx_split_phases", "some"},
};

START_TEST(bad_values_are_refused)
{
    expect_refused(bad_values[_i][0], bad_values[_i][1], EPX_ERR_INFO);
}
END_TEST

START_TEST(bad_values_in_the_environment_are_refused)
{
    EPX_Comm comm = EPX_COMM_NULL;

    setenv("EPX_MAX_SMS", "none", 1);
    EXPECT_CODE(EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm), EPX_ERR_INFO);
    unsetenv("EPX_MAX_SMS");
    SETTLE();
}
END_TEST

START_TEST(transports_of_devices_are_unusable_without_one)
{
    expect_refused("epx_transport", "lsa", EPX_ERR_TRANSPORT);
    expect_refused("epx_transport", "ipc", EPX_ERR_TRANSPORT);
    expect_refused("epx_transport", "nccl", EPX_ERR_TRANSPORT);
}
END_TEST

START_TEST(device_memory_needs_a_device)
{
    static const char *const any[4] = {"epx_memory", "cuda:device", "epx_transport", "auto"};
    static const char *const ucx[4] = {"epx_memory", "cuda:device", "epx_transport", "ucx"};

    expect_both_refused(any, EPX_ERR_UNSUPPORTED);
    expect_both_refused(ucx, EPX_ERR_TRANSPORT);
}
END_TEST

START_TEST(transport_and_memory_must_go_together)
{
    static const char *const wrong[][4] = {
        {"epx_transport", "lsa", "epx_memory", "system"},
        {"epx_transport", "ipc", "epx_memory", "system"},
        {"epx_transport", "shm", "epx_memory", "cuda:device"},
        {"epx_transport", "mpi", "epx_memory", "cuda:device"},
    };

    expect_both_refused(wrong[_i], EPX_ERR_UNSUPPORTED);
}
END_TEST

/* Kernels that wait for messages of NCCL would wait for ever. */
START_TEST(messages_of_nccl_want_a_second_hardware_queue)
{
    static const char *const wanted[4] = {"epx_transport", "nccl", "epx_memory", "cuda:device"};
    const char *before = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    char text[16];

    snprintf(text, sizeof(text), "%s", before ? before : "");
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
    expect_both_refused(wanted, EPX_ERR_TRANSPORT);
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (*text)
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", text, 1);
}
END_TEST

/* The environment asks for device memory; info wins. */
START_TEST(a_host_communicator_works_beside_the_device)
{
    EPX_Comm device = suite_comm(NULL), host;
    const char *const hints[4] = {"epx_memory", "system", "epx_transport", "auto"};
    struct exchange x = {.data = {3, EPX_FLOAT32, 16, 0}, .most_rows = 5};
    int64_t counts[64] = {0}, displs[64] = {0}, recvcounts[64], rdispls[64];
    EPX_Request request;

    EXPECT_CODE(create(hints, &host), EPX_SUCCESS);
    SETTLE();
    x.comm = device;
    EXPECT_CODE(exchange_start(&x), EPX_SUCCESS);
    EXPECT_CODE(EPX_Alltoallv(NULL, counts, displs, NULL, recvcounts, rdispls, 0, 1, EPX_BYTE, host,
                              EPX_STREAM_NULL, &request),
                EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    exchange_finish(&x);
    SETTLE();
    exchange_free(&x);
    EXPECT_CODE(EPX_Comm_free(&host), EPX_SUCCESS);
    layer_works(device);
    EXPECT_CODE(EPX_Comm_free(&device), EPX_SUCCESS);
    SETTLE();
}
END_TEST

static int hint_is(EPX_Comm comm, const char *key, const char *wanted)
{
    char value[MPI_MAX_INFO_VAL + 1] = "";
    int found = 0, code;
    MPI_Info info;

    code = EPX_Comm_get_info(comm, &info);
    if (!EXPECT_CODE(code, EPX_SUCCESS))
        return 0;
    MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &found);
    MPI_Info_free(&info);
    return EXPECT(found && (!wanted || strcmp(value, wanted) == 0), "%s is \"%s\", not %s", key,
                  value, wanted ? wanted : "any");
}

START_TEST(info_wins_over_environment_wins_over_default)
{
    EPX_Comm comm = suite_comm("epx_max_sms", "3", NULL);

    hint_is(comm, "epx_max_sms", "3");
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    setenv("EPX_MAX_SMS", "5", 1);
    comm = suite_comm("epx_max_sms", "4", NULL);
    hint_is(comm, "epx_max_sms", "4");
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    comm = suite_comm(NULL);
    hint_is(comm, "epx_max_sms", "5");
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    unsetenv("EPX_MAX_SMS");
    comm = suite_comm(NULL);
    hint_is(comm, "epx_max_sms", "0");
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}
END_TEST

START_TEST(info_used_has_every_hint)
{
    static const char *const keys[] = {"epx_timeout_ms",   "epx_warn_ms",        "epx_max_sms",
                                       "epx_window_bytes", "epx_ranks_per_node", "epx_log"};
    EPX_Comm comm = suite_comm(NULL);

    for (int i = 0; i < 6; i++)
        hint_is(comm, keys[i], NULL);
    hint_is(comm, "epx_memory", space_is_device() ? "cuda:device" : "system");
    hint_is(comm, "epx_progress", "calls");
    hint_is(comm, "epx_split_phases", "large");
    hint_is(comm, "epx_transport",
            strcmp(suite_transport(), "auto") == 0 ? NULL : suite_transport());
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* The lowest rank asks for another transport than the others. */
START_TEST(hints_that_differ_are_named_by_their_words)
{
    const char *const hints[4] = {"epx_transport", suite_rank ? "mpi" : "ucx"};
    struct capture capture;
    char text[4096];
    EPX_Comm comm;
    int code;

    capture_begin(&capture);
    code = create(hints, &comm);
    capture_end(&capture, text, sizeof(text));
    EXPECT(code == EPX_ERR_ARG && comm == EPX_COMM_NULL, "code %d", code);
    EXPECT(strstr(text, suite_rank ? "mpi here" : "ucx here") != NULL, "\"%s\"", text);
    SETTLE();
}
END_TEST

/* Rank 0 warns. */
START_TEST(an_unknown_hint_is_warned_of_and_ignored)
{
    struct capture capture;
    char text[4096];
    EPX_Comm comm;

    capture_begin(&capture);
    comm = suite_comm("epx_speed", "ludicrous", "color", "red", NULL);
    capture_end(&capture, text, sizeof(text));
    EXPECT((strstr(text, "epx_speed") != NULL) == (suite_rank == 0), "\"%s\"", text);
    EXPECT(strstr(text, "color") == NULL, "warned of somebody else's key in \"%s\"", text);
    layer_works(comm);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}
END_TEST

START_TEST(small_windows_move_everything)
{
    EPX_Comm comm = suite_comm("epx_window_bytes", "65536", NULL);

    layer_works(comm);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* Frees the MPI communicator at once: the library has a duplicate. */
START_TEST(the_mpi_communicator_may_be_freed)
{
    EPX_Comm comm = EPX_COMM_NULL;
    MPI_Comm copy;
    int rank = -1, size = -1;

    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    EXPECT_CODE(EPX_Comm_create(copy, MPI_INFO_NULL, &comm), EPX_SUCCESS);
    MPI_Comm_free(&copy);
    SETTLE();
    EXPECT_CODE(EPX_Comm_rank(comm, &rank), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_size(comm, &size), EPX_SUCCESS);
    EXPECT(rank == suite_rank && size == suite_size, "rank %d of %d", rank, size);
    layer_works(comm);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("hints");
    TCase *tcase = tcase_create("hints");

    tcase_add_loop_test(tcase, bad_values_are_refused, 0,
                        (int)(sizeof(bad_values) / sizeof(*bad_values)));
    tcase_add_test(tcase, bad_values_in_the_environment_are_refused);
    if (space_num_gpus() == 0) {
        tcase_add_test(tcase, transports_of_devices_are_unusable_without_one);
        tcase_add_test(tcase, device_memory_needs_a_device);
    }
    tcase_add_loop_test(tcase, transport_and_memory_must_go_together, 0, 4);
    if (space_is_device()) {
        tcase_add_test(tcase, a_host_communicator_works_beside_the_device);
        tcase_add_test(tcase, messages_of_nccl_want_a_second_hardware_queue);
    }
    tcase_add_test(tcase, info_wins_over_environment_wins_over_default);
    tcase_add_test(tcase, info_used_has_every_hint);
    if (suite_size > 1)
        tcase_add_test(tcase, hints_that_differ_are_named_by_their_words);
    tcase_add_test(tcase, an_unknown_hint_is_warned_of_and_ignored);
    tcase_add_test(tcase, small_windows_move_everything);
    tcase_add_test(tcase, the_mpi_communicator_may_be_freed);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
