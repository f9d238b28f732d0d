/* SPDX-License-Identifier: BSD-3-Clause */
/* test_arguments.c - bad arguments of every function: code, error handler, message; no harm. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/exchange.h"
#include "support/fault.h"
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

enum { K = 2, MAX_TOKENS = 4, COUNT = 8 };

static EPX_Comm comm;
static EPX_Route route;
static EPX_Request request;

/* Buffers large enough for any call here, in the memory space of the run. */
static int64_t *ids;
static float *weights, *more_weights;
static float *home_rows, *slot_rows, *more_slot_rows;

static EPX_Route_attr good_attr(void)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;

    attr.num_experts = suite_size;
    attr.top_k = K;
    attr.max_tokens = MAX_TOKENS;
    attr.max_row_bytes = COUNT * sizeof(float);
    return attr;
}

static void route_tokens(void)
{
    EXPECT_CODE(EPX_Route_tokens(ids, MAX_TOKENS, route, EPX_STREAM_NULL, &request), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    SETTLE();
}

static void *new_floats(size_t n)
{
    float *image = calloc(n, sizeof(*image)), *memory = space_alloc(n * sizeof(*image));

    space_put(memory, image, n * sizeof(*image));
    free(image);
    return memory;
}

static void make_buffers(void)
{
    size_t rows = (size_t)suite_size * MAX_TOKENS * K;
    int64_t image[MAX_TOKENS * K];

    for (int i = 0; i < MAX_TOKENS * K; i++)
        image[i] = i % suite_size;
    ids = space_alloc(sizeof(image));
    space_put(ids, image, sizeof(image));
    weights = new_floats(4096);
    more_weights = new_floats(4096);
    home_rows = new_floats(MAX_TOKENS * COUNT);
    slot_rows = new_floats(rows * COUNT);
    more_slot_rows = new_floats(rows * COUNT);
}

static void free_buffers(void)
{
    space_free(ids);
    space_free(weights);
    space_free(more_weights);
    space_free(home_rows);
    space_free(slot_rows);
    space_free(more_slot_rows);
}

/* The arguments of an exchange of one row with every rank. */
static struct {
    int64_t counts_image[64], displs_image[64];
    int64_t *sendcounts, *sdispls, *recvcounts, *rdispls;
    void *in, *out;
    int64_t capacity;
    int count;
    EPX_Datatype datatype;
} x;

static void make_exchange(void)
{
    x.sendcounts = space_alloc(sizeof(x.counts_image));
    x.sdispls = space_alloc(sizeof(x.counts_image));
    x.recvcounts = space_alloc(sizeof(x.counts_image));
    x.rdispls = space_alloc(sizeof(x.counts_image));
}

static void free_exchange(void)
{
    space_free(x.sendcounts);
    space_free(x.sdispls);
    space_free(x.recvcounts);
    space_free(x.rdispls);
}

static void open_comm(void)
{
    comm = suite_comm(NULL);
    fault_watch(comm);
    make_exchange();
}

static void close_comm(void)
{
    free_exchange();
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

static void open_route(void)
{
    EPX_Route_attr attr = good_attr();

    make_buffers();
    request = EPX_REQUEST_NULL;
    EXPECT_CODE(EPX_Route_create(&attr, comm, &route), EPX_SUCCESS);
    SETTLE();
}

/* Checks, whatever a test did, that communicator and route still work and nothing is left over. */
static void close_route(void)
{
    EXPECT(request == EPX_REQUEST_NULL, "a failed call left a request");
    route_tokens();
    layer_works(comm);
    EXPECT_CODE(EPX_Route_free(&route), EPX_SUCCESS);
    free_buffers();
    SETTLE();
}

START_TEST(library_calls_need_outputs)
{
    char text[EPX_MAX_ERROR_STRING];
    int n, length;

    EXPECT_UNTOLD(EPX_Get_version(NULL, &n, &n), EPX_ERR_ARG);
    EXPECT_UNTOLD(EPX_Get_version(&n, NULL, &n), EPX_ERR_ARG);
    EXPECT_UNTOLD(EPX_Get_version(&n, &n, NULL), EPX_ERR_ARG);
    EXPECT_UNTOLD(EPX_Get_library_version(NULL, &length), EPX_ERR_ARG);
    EXPECT_UNTOLD(EPX_Get_library_version(text, NULL), EPX_ERR_ARG);
    EXPECT_UNTOLD(EPX_Error_string(EPX_ERR_ARG, NULL, &length), EPX_ERR_ARG);
    EXPECT_UNTOLD(EPX_Error_string(EPX_ERR_ARG, text, NULL), EPX_ERR_ARG);
    EXPECT_UNTOLD(EPX_Error_string(-1, text, &length), EPX_ERR_ARG);
    EXPECT_UNTOLD(EPX_Error_string(EPX_ERR_LASTCODE, text, &length), EPX_ERR_ARG);
    SETTLE();
}
END_TEST

START_TEST(every_code_has_a_text_of_its_own)
{
    char texts[EPX_ERR_LASTCODE][EPX_MAX_ERROR_STRING];
    int length;

    for (int code = 0; code < EPX_ERR_LASTCODE; code++) {
        EXPECT_CODE(EPX_Error_string(code, texts[code], &length), EPX_SUCCESS);
        EXPECT(length > 0 && (size_t)length == strlen(texts[code]), "length %d", length);
        for (int other = 0; other < code; other++)
            EXPECT(strcmp(texts[code], texts[other]) != 0, "%d and %d", code, other);
    }
    SETTLE();
}
END_TEST

START_TEST(versions_agree)
{
    char text[EPX_MAX_LIBRARY_VERSION_STRING], wanted[32];
    int major, minor, patch, length;

    EXPECT_CODE(EPX_Get_version(&major, &minor, &patch), EPX_SUCCESS);
    EXPECT(major == EPX_VERSION_MAJOR && minor == EPX_VERSION_MINOR && patch == EPX_VERSION_PATCH,
           "%d.%d.%d", major, minor, patch);
    snprintf(wanted, sizeof(wanted), "%d.%d.%d", major, minor, patch);
    EXPECT_CODE(EPX_Get_library_version(text, &length), EPX_SUCCESS);
    EXPECT(strstr(text, wanted) != NULL && (size_t)length == strlen(text), "%s", text);
    SETTLE();
}
END_TEST

START_TEST(communicators_are_made_from_intracommunicators)
{
    EPX_Comm none = EPX_COMM_NULL;
    MPI_Info bad = suite_info("epx_timeout_ms", "soon", NULL);
    MPI_Comm half, inter;
    int upper = suite_rank >= suite_size / 2;

    EXPECT_FAULT(NULL, EPX_Comm_create(MPI_COMM_NULL, MPI_INFO_NULL, &none), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, NULL), EPX_ERR_ARG);
    EXPECT_FAULT(NULL, EPX_Comm_create(MPI_COMM_WORLD, bad, &none), EPX_ERR_INFO);
    if (suite_size > 1) {
        MPI_Comm_split(MPI_COMM_WORLD, upper, 0, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, upper ? 0 : suite_size / 2, 9, &inter);
        none = comm;
        EXPECT_CODE(EPX_Comm_create(inter, MPI_INFO_NULL, &none), EPX_ERR_COMM);
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);
    }
    MPI_Info_free(&bad);
    EXPECT(none == EPX_COMM_NULL, "newcomm is not EPX_COMM_NULL");
    SETTLE();
}
END_TEST

START_TEST(communicator_calls_need_a_communicator)
{
    EPX_Comm none = EPX_COMM_NULL;
    char text[EPX_MAX_ERROR_STRING];
    EPX_Stats stats = EPX_STATS_INIT;
    EPX_Waits waits = EPX_WAITS_INIT;
    MPI_Info info;
    void *base = NULL;
    int n;

    EXPECT_FAULT(NULL, EPX_Comm_free(NULL), EPX_ERR_ARG);
    EXPECT_FAULT(NULL, EPX_Comm_free(&none), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Comm_rank(none, &n), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Comm_size(none, &n), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Comm_get_info(none, &info), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Comm_get_hint(none, "epx_transport", text, &n), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Comm_set_errhandler(none, MPI_ERRORS_RETURN), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Comm_get_async_error(none, &n), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Comm_get_error_message(none, text, &n), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Comm_get_stats(none, &stats), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Comm_get_waits(none, &waits), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Comm_get_ranks(none, &n), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Comm_shrink(none, &none), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Alloc_mem(64, none, &base), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Free_mem(weights, none), EPX_ERR_COMM);
    SETTLE();
}
END_TEST

/* An error without a communicator is the last one of its thread. */
START_TEST(a_thread_has_its_last_error)
{
    EPX_Comm none = EPX_COMM_NULL;
    char text[EPX_MAX_ERROR_STRING];
    MPI_Info bad;
    int n;

    MPI_Info_create(&bad);
    MPI_Info_set(bad, "epx_timeout_ms", "4711 or so");
    EXPECT_FAULT(NULL, EPX_Comm_create(MPI_COMM_WORLD, bad, &none), EPX_ERR_INFO);
    MPI_Info_free(&bad);
    EXPECT_CODE(EPX_Get_error_message(text, &n), EPX_SUCCESS);
    EXPECT(strncmp(text, "EPX_Comm_create: ", 17) == 0 && strstr(text, "4711 or so"), "%s", text);
    EXPECT(n == (int)strlen(text), "length %d of %s", n, text);
    EXPECT_FAULT(NULL, EPX_Comm_rank(none, &n), EPX_ERR_COMM);
    EXPECT_CODE(EPX_Get_error_message(text, &n), EPX_SUCCESS);
    EXPECT(strncmp(text, "EPX_Comm_rank: ", 15) == 0, "%s", text);
    EXPECT_UNTOLD(EPX_Get_error_message(NULL, &n), EPX_ERR_ARG);
    SETTLE();
}
END_TEST

START_TEST(communicator_calls_need_outputs)
{
    char text[EPX_MAX_ERROR_STRING];
    EPX_Stats stats = EPX_STATS_INIT;
    EPX_Waits waits = EPX_WAITS_INIT;
    int n;

    EXPECT_FAULT(comm, EPX_Comm_rank(comm, NULL), EPX_ERR_ARG);
    EXPECT_FAULT(comm, EPX_Comm_size(comm, NULL), EPX_ERR_ARG);
    EXPECT_FAULT(comm, EPX_Comm_get_info(comm, NULL), EPX_ERR_ARG);
    EXPECT_FAULT(comm, EPX_Comm_get_hint(comm, NULL, text, &n), EPX_ERR_ARG);
    EXPECT_FAULT(comm, EPX_Comm_get_hint(comm, "epx_transport", NULL, &n), EPX_ERR_ARG);
    EXPECT_FAULT(comm, EPX_Comm_get_hint(comm, "epx_transport", text, NULL), EPX_ERR_ARG);
    EXPECT_FAULT(comm, EPX_Comm_set_errhandler(comm, MPI_ERRHANDLER_NULL), EPX_ERR_ARG);
    EXPECT_CODE(EPX_Comm_get_async_error(comm, NULL), EPX_ERR_ARG);
    EXPECT_CODE(EPX_Comm_get_error_message(comm, NULL, &n), EPX_ERR_ARG);
    EXPECT_CODE(EPX_Comm_get_error_message(comm, text, NULL), EPX_ERR_ARG);
    EXPECT_FAULT(comm, EPX_Comm_get_stats(comm, NULL), EPX_ERR_ARG);
    stats.size = 8;
    EXPECT_FAULT(comm, EPX_Comm_get_stats(comm, &stats), EPX_ERR_ARG);
    EXPECT_FAULT(comm, EPX_Comm_get_waits(comm, NULL), EPX_ERR_ARG);
    waits.num_ranks = -1;
    EXPECT_FAULT(comm, EPX_Comm_get_waits(comm, &waits), EPX_ERR_ARG);
    waits.num_ranks = suite_size > 1 ? suite_size - 1 : 0;
    waits.size = suite_size > 1 ? sizeof(waits) : 8;
    EXPECT_FAULT(comm, EPX_Comm_get_waits(comm, &waits), EPX_ERR_ARG);
    SETTLE();
}
END_TEST

START_TEST(memory_calls_check_their_arguments)
{
    void *base = NULL;

    EXPECT_FAULT(comm, EPX_Alloc_mem(64, comm, NULL), EPX_ERR_ARG);
    EXPECT_FAULT(comm, EPX_Alloc_mem(-1, comm, &base), EPX_ERR_COUNT);
    EXPECT(base == NULL, "an output was written");
    EXPECT_FAULT(comm, EPX_Free_mem(weights, comm), EPX_ERR_BUFFER);
    EXPECT_CODE(EPX_Alloc_mem(suite_rank % 2 ? 0 : 1000, comm, &base), EPX_SUCCESS);
    SETTLE();
    EXPECT_CODE(EPX_Free_mem(base, comm), EPX_SUCCESS);
    SETTLE();
}
END_TEST

START_TEST(freed_handles_are_known)
{
    EPX_Comm other = suite_comm(NULL), freed_comm = other;
    EPX_Route_attr attr = good_attr();
    EPX_Route freed_route, second;
    EPX_Request freed_request;
    int n, flag;

    EXPECT_CODE(EPX_Route_create(&attr, comm, &second), EPX_SUCCESS);
    freed_route = second;
    EXPECT_CODE(EPX_Route_free(&second), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&other), EPX_SUCCESS);
    EXPECT_CODE(EPX_Route_tokens(ids, MAX_TOKENS, route, EPX_STREAM_NULL, &request), EPX_SUCCESS);
    freed_request = request;
    EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    EXPECT_FAULT(NULL, EPX_Comm_size(freed_comm, &n), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Comm_free(&freed_comm), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Route_free(&freed_route), EPX_ERR_ROUTE);
    EXPECT_FAULT(NULL, EPX_Route_tokens(ids, 1, freed_route, EPX_STREAM_NULL, &request),
                 EPX_ERR_ROUTE);
    EXPECT_FAULT(NULL, EPX_Wait(&freed_request, MPI_STATUS_IGNORE), EPX_ERR_REQUEST);
    EXPECT_FAULT(NULL, EPX_Test(&freed_request, &flag, MPI_STATUS_IGNORE), EPX_ERR_REQUEST);
    SETTLE();
}
END_TEST

START_TEST(foreign_handles_are_refused)
{
    int64_t no_object[32] = {0}; /* may lie anywhere, is never looked at */
    EPX_Comm foreign = (EPX_Comm)(void *)no_object, nowhere = (EPX_Comm)(uintptr_t)8;
    EPX_Route not_a_route = (EPX_Route)(void *)comm;
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    EPX_Request never_set = (EPX_Request)(uintptr_t)0xdeadbeef;
    int n;

    EXPECT_FAULT(NULL, EPX_Comm_size(foreign, &n), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Comm_size(nowhere, &n), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Route_get_view(not_a_route, &view), EPX_ERR_ROUTE);
    EXPECT_FAULT(NULL, EPX_Wait(&never_set, MPI_STATUS_IGNORE), EPX_ERR_REQUEST);
    EXPECT_FAULT(NULL, EPX_Waitall(1, &never_set, MPI_STATUSES_IGNORE), EPX_ERR_REQUEST);
    SETTLE();
}
END_TEST

static void expect_attr_refused(EPX_Route_attr attr, int wanted)
{
    EPX_Route none = EPX_ROUTE_NULL;

    EXPECT_FAULT(comm, EPX_Route_create(&attr, comm, &none), wanted);
    EXPECT(none == EPX_ROUTE_NULL, "an output was written");
}

/* Expects EPX_Route_create to refuse attributes of which one is not valid. */
#define REFUSED(member, value, wanted)                                                             \
    do {                                                                                           \
        EPX_Route_attr attr_ = good_attr();                                                        \
        attr_.member = value;                                                                      \
        expect_attr_refused(attr_, wanted);                                                        \
    } while (0)

START_TEST(attributes_have_ranges)
{
    REFUSED(num_experts, 0, EPX_ERR_ARG);
    REFUSED(num_experts, -3, EPX_ERR_ARG);
    REFUSED(top_k, 0, EPX_ERR_ARG);
    REFUSED(top_k, 65, EPX_ERR_ARG);
    REFUSED(max_tokens, -1, EPX_ERR_COUNT);
    REFUSED(max_tokens, 0, EPX_ERR_COUNT);
    REFUSED(alignment, 0, EPX_ERR_ARG);
    REFUSED(alignment, 3, EPX_ERR_ARG);
    REFUSED(alignment, -2, EPX_ERR_ARG);
    REFUSED(recv_capacity, -1, EPX_ERR_COUNT);
    REFUSED(max_row_bytes, -1, EPX_ERR_COUNT);
    REFUSED(index_bits, 0, EPX_ERR_ARG);
    REFUSED(index_bits, 16, EPX_ERR_ARG);
    REFUSED(layout, 0, EPX_ERR_ARG);
    REFUSED(layout, 4, EPX_ERR_ARG);
    REFUSED(overflow, 0, EPX_ERR_ARG);
    REFUSED(overflow, 7, EPX_ERR_ARG);
    REFUSED(max_tokens, INT32_MAX, EPX_ERR_COUNT);
    REFUSED(recv_capacity, (int64_t)INT32_MAX + 1, EPX_ERR_COUNT);
    REFUSED(size, 0, EPX_ERR_ARG);
    REFUSED(size, offsetof(EPX_Route_attr, overflow), EPX_ERR_ARG);
    REFUSED(rows_per_expert, 1, EPX_ERR_ARG);
    REFUSED(zero_unused, 2, EPX_ERR_ARG);
    REFUSED(distinct_experts, 2, EPX_ERR_ARG);
    SETTLE();
}
END_TEST

START_TEST(rank_major_has_no_alignment)
{
    EPX_Route_attr attr = good_attr();

    attr.layout = EPX_RANK_MAJOR;
    attr.alignment = 2;
    expect_attr_refused(attr, EPX_ERR_ARG);
    SETTLE();
}
END_TEST

static EPX_Route_attr slab_attr(int64_t rows_per_expert)
{
    EPX_Route_attr attr = good_attr();

    attr.layout = EPX_EXPERT_SLAB;
    attr.rows_per_expert = rows_per_expert;
    return attr;
}

START_TEST(slabs_have_rows_and_nothing_else)
{
    EPX_Route_attr attr = slab_attr(4);

    expect_attr_refused(slab_attr(0), EPX_ERR_ARG);
    expect_attr_refused(slab_attr(-1), EPX_ERR_ARG);
    expect_attr_refused(slab_attr((int64_t)INT32_MAX + 1), EPX_ERR_COUNT);
    expect_attr_refused(slab_attr(INT64_MAX), EPX_ERR_COUNT);
    attr.alignment = 2;
    expect_attr_refused(attr, EPX_ERR_ARG);
    attr = slab_attr(4);
    attr.recv_capacity = 4;
    expect_attr_refused(attr, EPX_ERR_ARG);
    attr = slab_attr(INT32_MAX / 2 + 1);
    attr.num_experts *= 2;
    expect_attr_refused(attr, EPX_ERR_COUNT);
    attr = slab_attr(4);
    attr.layout = EPX_RANK_MAJOR;
    expect_attr_refused(attr, EPX_ERR_ARG);
    attr = slab_attr(4);
    attr.size = offsetof(EPX_Route_attr, rows_per_expert);
    expect_attr_refused(attr, EPX_ERR_ARG);
    SETTLE();
}
END_TEST

START_TEST(the_capacity_of_slabs_stays)
{
    EPX_Route_attr attr = slab_attr(3);
    EPX_Route slabs = EPX_ROUTE_NULL;

    EXPECT_CODE(EPX_Route_create(&attr, comm, &slabs), EPX_SUCCESS);
    SETTLE();
    EXPECT_FAULT(comm, EPX_Route_set_capacity(slabs, 2), EPX_ERR_ARG);
    EXPECT_FAULT(comm, EPX_Route_set_capacity(slabs, 0), EPX_ERR_ARG);
    EXPECT_FAULT(comm, EPX_Route_set_capacity(slabs, 4), EPX_ERR_ARG);
    EXPECT_CODE(EPX_Route_set_capacity(slabs, 3), EPX_SUCCESS);
    EXPECT_CODE(EPX_Route_free(&slabs), EPX_SUCCESS);
    SETTLE();
}
END_TEST

START_TEST(attributes_of_a_later_version_must_be_unset)
{
    struct {
        EPX_Route_attr attr;
        int64_t tail[2];
    } later = {good_attr(), {0, 0}};
    EPX_Route other = EPX_ROUTE_NULL;

    later.attr.size = sizeof(later);
    EXPECT_CODE(EPX_Route_create(&later.attr, comm, &other), EPX_SUCCESS);
    SETTLE();
    EXPECT_CODE(EPX_Route_free(&other), EPX_SUCCESS);
    later.tail[1] = 1;
    EXPECT_FAULT(comm, EPX_Route_create(&later.attr, comm, &other), EPX_ERR_ARG);
    SETTLE();
}
END_TEST

START_TEST(route_calls_need_handles_and_outputs)
{
    EPX_Route_attr attr = good_attr();
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    EPX_Route none = EPX_ROUTE_NULL;

    EXPECT_FAULT(comm, EPX_Route_create(NULL, comm, &none), EPX_ERR_ARG);
    EXPECT_FAULT(comm, EPX_Route_create(&attr, comm, NULL), EPX_ERR_ARG);
    EXPECT_FAULT(NULL, EPX_Route_create(&attr, EPX_COMM_NULL, &none), EPX_ERR_COMM);
    EXPECT_FAULT(NULL, EPX_Route_free(NULL), EPX_ERR_ARG);
    EXPECT_FAULT(NULL, EPX_Route_free(&none), EPX_ERR_ROUTE);
    EXPECT_FAULT(NULL, EPX_Route_get_view(none, &view), EPX_ERR_ROUTE);
    EXPECT_FAULT(comm, EPX_Route_get_view(route, NULL), EPX_ERR_ARG);
    view.size = 4;
    EXPECT_FAULT(comm, EPX_Route_get_view(route, &view), EPX_ERR_ARG);
    SETTLE();
}
END_TEST

START_TEST(set_capacity_checks_its_arguments)
{
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;

    EXPECT_CODE(EPX_Route_get_view(route, &view), EPX_SUCCESS);
    EXPECT_FAULT(NULL, EPX_Route_set_capacity(EPX_ROUTE_NULL, 1), EPX_ERR_ROUTE);
    EXPECT_FAULT(comm, EPX_Route_set_capacity(route, -1), EPX_ERR_ARG);
    EXPECT_FAULT(comm, EPX_Route_set_capacity(route, view.capacity + 1), EPX_ERR_ARG);
    EXPECT_CODE(EPX_Route_set_capacity(route, 0), EPX_SUCCESS);
    EXPECT_CODE(EPX_Route_set_capacity(route, view.capacity), EPX_SUCCESS);
    SETTLE();
}
END_TEST

START_TEST(set_counts_checks_its_arguments)
{
    EPX_Route_attr attr = good_attr();
    EPX_Route rows = EPX_ROUTE_NULL;
    int32_t *counts = space_alloc(64 * sizeof(*counts));

    attr.layout = EPX_RANK_MAJOR;
    EXPECT_CODE(EPX_Route_create(&attr, comm, &rows), EPX_SUCCESS);
    SETTLE();
    EXPECT_FAULT(NULL, EPX_Route_set_counts(EPX_ROUTE_NULL, counts), EPX_ERR_ROUTE);
    EXPECT_FAULT(comm, EPX_Route_set_counts(rows, counts), EPX_ERR_ARG);
    EXPECT_CODE(EPX_Route_set_counts(rows, NULL), EPX_SUCCESS);
    EXPECT_FAULT(comm, EPX_Route_set_counts(route, (int32_t *)((char *)counts + 2)),
                 EPX_ERR_BUFFER);
    EXPECT_CODE(EPX_Route_set_counts(route, counts), EPX_SUCCESS);
    EXPECT_CODE(EPX_Route_set_counts(route, NULL), EPX_SUCCESS);
    EXPECT_CODE(EPX_Route_free(&rows), EPX_SUCCESS);
    space_free(counts);
    SETTLE();
}
END_TEST

/* What a program has that was built with the structs of 0.1. */
START_TEST(structs_of_the_first_version_are_taken)
{
    EPX_Route_attr attr = good_attr();
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    EPX_Route other = EPX_ROUTE_NULL;

    attr.size = offsetof(EPX_Route_attr, rows_per_expert);
    attr.zero_unused = attr.rows_per_expert = 99; /* behind the struct */
    EXPECT_CODE(EPX_Route_create(&attr, comm, &other), EPX_SUCCESS);
    SETTLE();
    view.size = offsetof(EPX_Route_view, expert_ends);
    EXPECT_CODE(EPX_Route_get_view(other, &view), EPX_SUCCESS);
    EXPECT(view.row_ranks && !view.expert_ends && !view.overflow, "written past the struct");
    EXPECT_CODE(EPX_Route_free(&other), EPX_SUCCESS);
    SETTLE();
}
END_TEST

START_TEST(route_tokens_checks_its_arguments)
{
    EPX_Stream s = EPX_STREAM_NULL;

    EXPECT_FAULT(NULL, EPX_Route_tokens(ids, 1, EPX_ROUTE_NULL, s, &request), EPX_ERR_ROUTE);
    EXPECT_FAULT(comm, EPX_Route_tokens(ids, -1, route, s, &request), EPX_ERR_COUNT);
    EXPECT_FAULT(comm, EPX_Route_tokens(ids, MAX_TOKENS + 1, route, s, &request), EPX_ERR_COUNT);
    EXPECT_FAULT(comm, EPX_Route_tokens(NULL, 1, route, s, &request), EPX_ERR_BUFFER);
    EXPECT_FAULT(comm, EPX_Route_tokens(MPI_IN_PLACE, 1, route, s, &request), EPX_ERR_BUFFER);
    EXPECT_FAULT(comm, EPX_Route_tokens(ids, 1, route, s, NULL), EPX_ERR_ARG);
    SETTLE();
}
END_TEST

static int dispatch(const void *in, void *out, int count, EPX_Datatype datatype)
{
    return EPX_Dispatch(in, weights, out, more_weights, count, datatype, route, EPX_STREAM_NULL,
                        &request);
}

static int combine(const void *in, void *out, int count, EPX_Datatype datatype)
{
    return EPX_Combine(in, weights, out, count, datatype, route, EPX_STREAM_NULL, &request);
}

static int dispatch_backward(const void *in, void *out, int count, EPX_Datatype datatype)
{
    return EPX_Dispatch_backward(in, weights, out, more_weights, count, datatype, route,
                                 EPX_STREAM_NULL, &request);
}

static int combine_backward(const void *in, void *out, int count, EPX_Datatype datatype)
{
    return EPX_Combine_backward(in, more_slot_rows, weights, out, more_weights, count, datatype,
                                route, EPX_STREAM_NULL, &request);
}

static const struct collective {
    int (*call)(const void *in, void *out, int count, EPX_Datatype datatype);
    int starts_at_home, adds;
} collectives[] = {
    {dispatch, 1, 0}, {combine, 0, 1}, {dispatch_backward, 0, 1}, {combine_backward, 1, 1}};

START_TEST(collectives_follow_a_routing)
{
    for (int i = 0; i < 4; i++) {
        const struct collective *c = &collectives[i];
        const void *in = c->starts_at_home ? home_rows : slot_rows;
        void *out = c->starts_at_home ? slot_rows : home_rows;

        EXPECT_FAULT(comm, c->call(in, out, COUNT, EPX_FLOAT32), EPX_ERR_ROUTE);
    }
    SETTLE();
}
END_TEST

START_TEST(collectives_check_rows_and_types)
{
    const struct collective *c = &collectives[_i];
    const void *in = c->starts_at_home ? home_rows : slot_rows;
    void *out = c->starts_at_home ? slot_rows : home_rows;

    route_tokens();
    EXPECT_FAULT(comm, c->call(in, out, -1, EPX_FLOAT32), EPX_ERR_COUNT);
    EXPECT_FAULT(comm, c->call(in, out, COUNT + 1, EPX_FLOAT32), EPX_ERR_COUNT);
    EXPECT_FAULT(comm, c->call(in, out, COUNT, EPX_DATATYPE_NULL), EPX_ERR_TYPE);
    EXPECT_FAULT(comm, c->call(in, out, COUNT, EPX_FLOAT64 + 1), EPX_ERR_TYPE);
    EXPECT_FAULT(comm, c->call(in, out, COUNT, -5), EPX_ERR_TYPE);
    if (c->adds)
        for (EPX_Datatype type = EPX_BYTE; type <= EPX_FLOAT8_E5M2; type++)
            EXPECT_FAULT(comm, c->call(in, out, COUNT, type), EPX_ERR_TYPE);
    SETTLE();
}
END_TEST

START_TEST(collectives_check_their_buffers)
{
    const struct collective *c = &collectives[_i];
    const void *in = c->starts_at_home ? home_rows : slot_rows;
    void *out = c->starts_at_home ? slot_rows : home_rows;

    route_tokens();
    EXPECT_FAULT(comm, c->call(NULL, out, COUNT, EPX_FLOAT32), EPX_ERR_BUFFER);
    EXPECT_FAULT(comm, c->call(in, NULL, COUNT, EPX_FLOAT32), EPX_ERR_BUFFER);
    EXPECT_FAULT(comm, c->call(MPI_IN_PLACE, out, COUNT, EPX_FLOAT32), EPX_ERR_BUFFER);
    EXPECT_FAULT(comm, c->call(in, MPI_IN_PLACE, COUNT, EPX_FLOAT32), EPX_ERR_BUFFER);
    EXPECT_FAULT(comm, c->call(slot_rows, slot_rows, COUNT, EPX_FLOAT32), EPX_ERR_BUFFER);
    if (!space_is_device() || !c->starts_at_home ||
        !c->adds) /* else no row at the slots is known */
        EXPECT_FAULT(comm, c->call(slot_rows + 1, slot_rows, COUNT, EPX_FLOAT32), EPX_ERR_BUFFER);
    EXPECT_FAULT(comm, c->call(in, weights, COUNT, EPX_FLOAT32), EPX_ERR_BUFFER);
    SETTLE();
}
END_TEST

START_TEST(collectives_check_their_weights)
{
    EPX_Stream s = EPX_STREAM_NULL;
    float *in_place = MPI_IN_PLACE;

    route_tokens();
    EXPECT_FAULT(comm,
                 EPX_Dispatch(home_rows, in_place, slot_rows, weights, COUNT, EPX_FLOAT32, route, s,
                              &request),
                 EPX_ERR_BUFFER);
    EXPECT_FAULT(comm,
                 EPX_Dispatch(home_rows, weights, slot_rows, in_place, COUNT, EPX_FLOAT32, route, s,
                              &request),
                 EPX_ERR_BUFFER);
    EXPECT_FAULT(comm,
                 EPX_Dispatch(home_rows, weights, slot_rows, weights, COUNT, EPX_FLOAT32, route, s,
                              &request),
                 EPX_ERR_BUFFER);
    EXPECT_FAULT(
        comm, EPX_Combine(slot_rows, in_place, home_rows, COUNT, EPX_FLOAT32, route, s, &request),
        EPX_ERR_BUFFER);
    EXPECT_FAULT(comm,
                 EPX_Dispatch_backward(slot_rows, weights, home_rows, weights, COUNT, EPX_FLOAT32,
                                       route, s, &request),
                 EPX_ERR_BUFFER);
    EXPECT_FAULT(comm,
                 EPX_Combine_backward(home_rows, in_place, weights, slot_rows, more_weights, COUNT,
                                      EPX_FLOAT32, route, s, &request),
                 EPX_ERR_BUFFER);
    EXPECT_FAULT(comm,
                 EPX_Combine_backward(home_rows, slot_rows, weights, slot_rows, more_weights, COUNT,
                                      EPX_FLOAT32, route, s, &request),
                 EPX_ERR_BUFFER);
    SETTLE();
}
END_TEST

/* A combine from the first two rows of biases, of which one may be wrong. */
static int combine_from(int num_biases, const void *bias, const float *in_weights,
                        const float *token_weights)
{
    const void *biases[EPX_MAX_BIASES + 1] = {more_slot_rows, bias, bias};

    return EPX_Combine_from(slot_rows, in_weights, num_biases, bias ? biases : NULL, token_weights,
                            home_rows, COUNT, EPX_FLOAT32, route, EPX_STREAM_NULL, &request);
}

START_TEST(combine_checks_what_the_home_rank_gives)
{
    const void *good = more_slot_rows;

    route_tokens();
    EXPECT_FAULT(comm, combine_from(-1, good, NULL, NULL), EPX_ERR_ARG);
    EXPECT_FAULT(comm, combine_from(EPX_MAX_BIASES + 1, good, NULL, NULL), EPX_ERR_ARG);
    fault_message_has(comm, "num_biases");
    EXPECT_FAULT(comm, combine_from(1, NULL, NULL, NULL), EPX_ERR_ARG);
    fault_message_has(comm, "biases");
    EXPECT_FAULT(comm, combine_from(0, NULL, weights, more_weights), EPX_ERR_ARG);
    fault_message_has(comm, "token_weights");
    EXPECT_FAULT(comm, combine_from(2, MPI_IN_PLACE, NULL, NULL), EPX_ERR_BUFFER);
    fault_message_has(comm, "biases[1]");
    EXPECT_FAULT(comm, combine_from(2, home_rows, NULL, NULL), EPX_ERR_BUFFER);
    fault_message_has(comm, "biases[1]");
    EXPECT_FAULT(comm, combine_from(2, (const char *)good + 1, NULL, NULL), EPX_ERR_BUFFER);
    fault_message_has(comm, "biases[1]");
    EXPECT_FAULT(comm, combine_from(0, NULL, NULL, (float *)home_rows), EPX_ERR_BUFFER);
    fault_message_has(comm, "token_weights");
    EXPECT_CODE(combine_from(2, good, NULL, weights), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* A row of the rank-major layout is of several pairs: no weight of one of them is its own. */
START_TEST(weights_of_pairs_want_rows_of_pairs)
{
    EPX_Route_attr attr = good_attr();
    EPX_Route rank_major = EPX_ROUTE_NULL, expert_major = route;

    attr.layout = EPX_RANK_MAJOR;
    EXPECT_CODE(EPX_Route_create(&attr, comm, &rank_major), EPX_SUCCESS);
    route = rank_major;
    route_tokens();
    EXPECT_FAULT(comm, combine_from(0, NULL, NULL, weights), EPX_ERR_ARG);
    fault_message_has(comm, "token_weights");
    EXPECT_CODE(EPX_Route_free(&route), EPX_SUCCESS);
    route = expert_major;
    SETTLE();
}
END_TEST

START_TEST(collectives_need_a_route_and_a_request)
{
    EPX_Stream s = EPX_STREAM_NULL;
    const EPX_Route none = EPX_ROUTE_NULL;

    route_tokens();
    EXPECT_FAULT(
        NULL, EPX_Dispatch(home_rows, NULL, slot_rows, NULL, COUNT, EPX_FLOAT32, none, s, &request),
        EPX_ERR_ROUTE);
    EXPECT_FAULT(comm,
                 EPX_Dispatch(home_rows, NULL, slot_rows, NULL, COUNT, EPX_FLOAT32, route, s, NULL),
                 EPX_ERR_ARG);
    EXPECT_FAULT(NULL,
                 EPX_Combine(slot_rows, NULL, home_rows, COUNT, EPX_FLOAT32, none, s, &request),
                 EPX_ERR_ROUTE);
    EXPECT_FAULT(comm, EPX_Combine(slot_rows, NULL, home_rows, COUNT, EPX_FLOAT32, route, s, NULL),
                 EPX_ERR_ARG);
    EXPECT_FAULT(NULL,
                 EPX_Dispatch_backward(slot_rows, NULL, home_rows, NULL, COUNT, EPX_FLOAT32, none,
                                       s, &request),
                 EPX_ERR_ROUTE);
    EXPECT_FAULT(
        comm,
        EPX_Dispatch_backward(slot_rows, NULL, home_rows, NULL, COUNT, EPX_FLOAT32, route, s, NULL),
        EPX_ERR_ARG);
    EXPECT_FAULT(NULL,
                 EPX_Combine_backward(home_rows, more_slot_rows, NULL, slot_rows, NULL, COUNT,
                                      EPX_FLOAT32, none, s, &request),
                 EPX_ERR_ROUTE);
    EXPECT_FAULT(comm,
                 EPX_Combine_backward(home_rows, more_slot_rows, NULL, slot_rows, NULL, COUNT,
                                      EPX_FLOAT32, route, s, NULL),
                 EPX_ERR_ARG);
    SETTLE();
}
END_TEST

static int alltoallv(void)
{
    return EPX_Alltoallv(x.in, x.sendcounts, x.sdispls, x.out, x.recvcounts, x.rdispls, x.capacity,
                         x.count, x.datatype, comm, EPX_STREAM_NULL, &request);
}

static void put_counts(void)
{
    space_put(x.sendcounts, x.counts_image, sizeof(x.counts_image));
    space_put(x.sdispls, x.displs_image, sizeof(x.displs_image));
}

static void good_exchange(void)
{
    for (int r = 0; r < suite_size; r++) {
        x.counts_image[r] = 1;
        x.displs_image[r] = r;
    }
    put_counts();
    x.in = slot_rows;
    x.out = more_slot_rows;
    x.capacity = suite_size;
    x.count = COUNT;
    x.datatype = EPX_FLOAT32;
}

#define EXCHANGE_REFUSED(member, value, wanted)                                                    \
    do {                                                                                           \
        good_exchange();                                                                           \
        x.member = value;                                                                          \
        EXPECT_FAULT(comm, alltoallv(), wanted);                                                   \
    } while (0)

/* In device memory only the kernel reads counts: the request fails, not the call. */
static void expect_counts_refused(void)
{
    put_counts();
    if (!space_is_device()) {
        EXPECT_FAULT(comm, alltoallv(), EPX_ERR_COUNT);
        return;
    }
    EXPECT_CODE(alltoallv(), EPX_SUCCESS);
    EXPECT_FAULT(comm, EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_ERR_COUNT);
}

START_TEST(alltoallv_checks_its_counts)
{
    good_exchange();
    x.counts_image[0] = -1;
    expect_counts_refused();
    good_exchange();
    x.displs_image[0] = -1;
    expect_counts_refused();
    x.in = NULL;
    expect_counts_refused();
    good_exchange();
    EXPECT_CODE(alltoallv(), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* On a device only the kernel knows the counts, hence how long sendbuf is; the host does not. */
START_TEST(alltoallv_checks_its_arguments)
{
    EXCHANGE_REFUSED(capacity, -1, EPX_ERR_COUNT);
    EXCHANGE_REFUSED(count, -1, EPX_ERR_COUNT);
    EXCHANGE_REFUSED(datatype, EPX_DATATYPE_NULL, EPX_ERR_TYPE);
    EXCHANGE_REFUSED(datatype, EPX_FLOAT64 + 1, EPX_ERR_TYPE);
    if (!space_is_device()) {
        EXCHANGE_REFUSED(in, NULL, EPX_ERR_BUFFER);
        EXCHANGE_REFUSED(out, slot_rows, EPX_ERR_BUFFER);
    }
    EXCHANGE_REFUSED(out, NULL, EPX_ERR_BUFFER);
    EXCHANGE_REFUSED(in, MPI_IN_PLACE, EPX_ERR_BUFFER);
    EXCHANGE_REFUSED(out, MPI_IN_PLACE, EPX_ERR_BUFFER);
    EXCHANGE_REFUSED(out, x.sendcounts, EPX_ERR_BUFFER);
    SETTLE();
}
END_TEST

static int alltoallv_of(const int64_t *sendcounts, const int64_t *sdispls, int64_t *recvcounts,
                        int64_t *rdispls, EPX_Comm on, EPX_Request *result)
{
    return EPX_Alltoallv(x.in, sendcounts, sdispls, x.out, recvcounts, rdispls, x.capacity, x.count,
                         x.datatype, on, EPX_STREAM_NULL, result);
}

START_TEST(alltoallv_needs_its_arrays)
{
    EPX_Request *r = &request;

    good_exchange();
    EXPECT_FAULT(comm, alltoallv_of(NULL, x.sdispls, x.recvcounts, x.rdispls, comm, r),
                 EPX_ERR_ARG);
    EXPECT_FAULT(comm, alltoallv_of(x.sendcounts, NULL, x.recvcounts, x.rdispls, comm, r),
                 EPX_ERR_ARG);
    EXPECT_FAULT(comm, alltoallv_of(x.sendcounts, x.sdispls, NULL, x.rdispls, comm, r),
                 EPX_ERR_ARG);
    EXPECT_FAULT(comm, alltoallv_of(x.sendcounts, x.sdispls, x.recvcounts, NULL, comm, r),
                 EPX_ERR_ARG);
    EXPECT_FAULT(comm, alltoallv_of(x.sendcounts, x.sdispls, x.recvcounts, x.rdispls, comm, NULL),
                 EPX_ERR_ARG);
    EXPECT_FAULT(NULL,
                 alltoallv_of(x.sendcounts, x.sdispls, x.recvcounts, x.rdispls, EPX_COMM_NULL, r),
                 EPX_ERR_COMM);
    SETTLE();
}
END_TEST

/* Each of these calls functions with an address that they cannot use in place of each buffer in
 * turn; the message names the buffer. */
static void expect_routing_refused(void *wrong)
{
    EXPECT_FAULT(comm, EPX_Route_tokens(wrong, MAX_TOKENS, route, EPX_STREAM_NULL, &request),
                 EPX_ERR_BUFFER);
    fault_message_has(comm, "expert_ids");
}

static void *wrong_if(int is, void *wrong, void *good)
{
    return is ? wrong : good;
}

static int call_with(const struct collective *c, int place, void *wrong, int n, EPX_Datatype type)
{
    void *in = c->starts_at_home ? home_rows : slot_rows;
    void *out = c->starts_at_home ? slot_rows : home_rows;
    float *in_weights = wrong_if(place == 2, wrong, weights);
    float *out_weights = wrong_if(place == 3, wrong, more_weights);
    void *forward = wrong_if(place == 4, wrong, more_slot_rows);

    in = wrong_if(place == 0, wrong, in);
    out = wrong_if(place == 1, wrong, out);
    if (c->call == dispatch)
        return EPX_Dispatch(in, in_weights, out, out_weights, n, type, route, EPX_STREAM_NULL,
                            &request);
    if (c->call == combine)
        return EPX_Combine(in, in_weights, out, n, type, route, EPX_STREAM_NULL, &request);
    if (c->call == dispatch_backward)
        return EPX_Dispatch_backward(in, in_weights, out, out_weights, n, type, route,
                                     EPX_STREAM_NULL, &request);
    return EPX_Combine_backward(in, forward, in_weights, out, out_weights, n, type, route,
                                EPX_STREAM_NULL, &request);
}

/* The names of the places of call_with. */
static const char *const place_names[4][5] = {
    {"sendbuf", "recvbuf", "weights", "recv_weights"},
    {"sendbuf", "recvbuf", "weights"},
    {"grad_recv", "grad_send", "grad_recv_weights", "grad_weights"},
    {"grad", "grad_sendbuf", "weights", "grad_slot_weights", "sendbuf"},
};

/* Whether a buffer has as many rows as the routing uses: on device memory the host does not know
 * them. */
static int is_at_slots(int i, int place)
{
    return i == 3 ? place > 0 : i > 0 && place % 2 == 0;
}

/* With rows that must be there, where the host knows their number. */
static void expect_rows_refused(void *wrong, int n, int any_number)
{
    const EPX_Datatype type = EPX_FLOAT32;

    for (int i = 0; i < 4; i++)
        for (int place = 0; place < 5 && place_names[i][place]; place++) {
            char named[64];

            if (!any_number && is_at_slots(i, place))
                continue;
            snprintf(named, sizeof(named), ": %s ", place_names[i][place]);
            EXPECT_FAULT(comm, call_with(&collectives[i], place, wrong, n, type), EPX_ERR_BUFFER);
            fault_message_has(comm, named);
        }
}

/* From which place on: sendbuf of an alltoallv is the first. */
static void expect_exchange_refused(void *wrong, int first_place)
{
    static const char *const names[] = {"sendbuf",    "recvbuf", "sendcounts",
                                        "recvcounts", "sdispls", "rdispls"};

    for (int place = first_place; place < 6; place++) {
        char named[64];

        good_exchange();
        snprintf(named, sizeof(named), ": %s ", names[place]);
        EXPECT_FAULT(
            comm,
            EPX_Alltoallv(
                wrong_if(place == 0, wrong, x.in), wrong_if(place == 2, wrong, x.sendcounts),
                wrong_if(place == 4, wrong, x.sdispls), wrong_if(place == 1, wrong, x.out),
                wrong_if(place == 3, wrong, x.recvcounts), wrong_if(place == 5, wrong, x.rdispls),
                x.capacity, x.count, x.datatype, comm, EPX_STREAM_NULL, &request),
            EPX_ERR_BUFFER);
        fault_message_has(comm, named);
    }
}

static void expect_memory_refused(void *wrong)
{
    expect_routing_refused(wrong);
    expect_rows_refused(wrong, COUNT, 1);
    expect_exchange_refused(wrong, 0);
}

/* Good memory, at an address that is no multiple of an element. */
START_TEST(buffers_are_aligned_to_their_elements)
{
    char *spare = new_floats(4096);
    char *half = spare + sizeof(int64_t) / 2;

    route_tokens();
    expect_memory_refused(spare + 1);
    expect_memory_refused(spare + 2);
    expect_routing_refused(half);
    EXPECT_FAULT(comm, call_with(&collectives[0], 0, half, COUNT / 2, EPX_FLOAT64), EPX_ERR_BUFFER);
    EXPECT_FAULT(comm, call_with(&collectives[1], 1, half, COUNT / 2, EPX_FLOAT64), EPX_ERR_BUFFER);
    fault_message_has(comm, "want a multiple of its element's 8 bytes");
    expect_exchange_refused(half, 2);
    EXPECT_FAULT(comm, call_with(&collectives[3], 4, spare + 1, COUNT, EPX_BFLOAT16),
                 EPX_ERR_BUFFER);
    SETTLE();
    space_free(spare);
}
END_TEST

/* The address of a buffer of no rows may be NULL, which is aligned to anything. */
START_TEST(aligned_buffers_are_taken)
{
    static const EPX_Datatype types[] = {EPX_FLOAT16, EPX_BFLOAT16, EPX_FLOAT32, EPX_FLOAT64};
    char *spare = new_floats(4096);

    route_tokens();
    for (int i = 0; i < 4; i++) {
        int element = i < 2 ? 2 : i == 2 ? 4 : 8;

        EXPECT_CODE(call_with(&collectives[i], 0, spare + element, 3, types[i]), EPX_SUCCESS);
        EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    }
    EXPECT_CODE(EPX_Route_tokens(NULL, 0, route, EPX_STREAM_NULL, &request), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    SETTLE();
    space_free(spare);
}
END_TEST

/* All odd and even places, and lengths to which no word fits. */
START_TEST(rows_of_one_byte_types_lie_anywhere)
{
    char *in = new_floats(4096), *out = new_floats(4096);

    route_tokens();
    for (int i = 0; i < 17; i++) {
        EPX_Datatype type = EPX_BYTE + i % 3;

        EXPECT_CODE(EPX_Dispatch(in + i, weights, out + i * 5 % 17, more_weights, 1 + i, type,
                                 route, EPX_STREAM_NULL, &request),
                    EPX_SUCCESS);
        EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
        good_exchange();
        x.in = in + i;
        x.out = out + i * 3 % 17;
        x.count = 1 + i;
        x.datatype = type;
        EXPECT_CODE(alltoallv(), EPX_SUCCESS);
        EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    }
    SETTLE();
    space_free(in);
    space_free(out);
}
END_TEST

START_TEST(counts_that_overflow_are_refused)
{
    EXCHANGE_REFUSED(capacity, INT64_MAX, EPX_ERR_COUNT);
    EXCHANGE_REFUSED(capacity, INT64_MAX / 31, EPX_ERR_COUNT);
    if (space_is_device()) {
        EXCHANGE_REFUSED(capacity, (int64_t)1 << 50, EPX_ERR_BUFFER);
        EXCHANGE_REFUSED(count, INT32_MAX, EPX_ERR_BUFFER);
    }
    SETTLE();
}
END_TEST

/* The last eight bytes of the 2 MiB at `whole` are too few for any buffer but the counts of one
 * rank. */
static void expect_end_refused(char *whole)
{
    char *end = whole + ((size_t)2 << 20) - sizeof(int64_t);

    expect_routing_refused(end);
    expect_rows_refused(end, COUNT, 0);
    if (suite_size > 1)
        expect_exchange_refused(end, 1);
}

START_TEST(a_device_refuses_buffers_that_are_too_short)
{
    char *whole = space_alloc_alone((size_t)2 << 20);

    route_tokens();
    expect_end_refused(whole);
    fault_message_has(comm, "8 bytes");
    SETTLE();
    space_free_alone(whole);
}
END_TEST

/* The kernel finds it out: peers get no row from this rank then. */
START_TEST(a_device_reads_no_row_behind_sendbuf)
{
    char *whole = space_alloc_alone((size_t)2 << 20);
    const int64_t row_bytes = COUNT * sizeof(float);

    for (int i = 0; i < 4; i++) {
        good_exchange();
        x.in = whole + ((size_t)2 << 20) - (size_t)(suite_size * row_bytes);
        x.counts_image[0] = i == 1 ? suite_size + 1 : i == 2 ? INT64_MAX : 1;
        x.displs_image[0] = i == 3 ? INT64_MAX : 0;
        put_counts();
        EXPECT_CODE(alltoallv(), EPX_SUCCESS);
        if (i == 0) {
            EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
            continue;
        }
        EXPECT_FAULT(comm, EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_ERR_BUFFER);
        fault_message_has(comm, "the memory of sendbuf ends after");
    }
    SETTLE();
    space_free_alone(whole);
}
END_TEST

START_TEST(a_device_refuses_freed_memory)
{
    void *freed = space_alloc_alone((size_t)2 << 20);

    route_tokens();
    space_free_alone(freed);
    expect_memory_refused(freed);
    SETTLE();
}
END_TEST

START_TEST(a_device_refuses_memory_of_the_host)
{
    static float here[4096];

    route_tokens();
    expect_memory_refused(here);
    SETTLE();
}
END_TEST

START_TEST(a_device_refuses_memory_of_another)
{
    void *elsewhere = space_alloc_elsewhere(4096 * sizeof(float));

    route_tokens();
    if (elsewhere) {
        expect_memory_refused(elsewhere);
        space_free_elsewhere(elsewhere);
    } else if (suite_rank == 0) {
        printf("no other GPU: nothing tried\n");
    }
    SETTLE();
}
END_TEST

START_TEST(completion_calls_check_their_arguments)
{
    EPX_Request none = EPX_REQUEST_NULL;
    int flag;

    EXPECT_FAULT(NULL, EPX_Wait(NULL, MPI_STATUS_IGNORE), EPX_ERR_REQUEST);
    EXPECT_FAULT(NULL, EPX_Test(NULL, &flag, MPI_STATUS_IGNORE), EPX_ERR_REQUEST);
    EXPECT_FAULT(NULL, EPX_Test(&none, NULL, MPI_STATUS_IGNORE), EPX_ERR_ARG);
    EXPECT_FAULT(NULL, EPX_Waitall(-1, &none, MPI_STATUSES_IGNORE), EPX_ERR_COUNT);
    EXPECT_FAULT(NULL, EPX_Waitall(1, NULL, MPI_STATUSES_IGNORE), EPX_ERR_ARG);
    EXPECT_FAULT(NULL, EPX_Wait_enqueue(NULL, EPX_STREAM_NULL), EPX_ERR_REQUEST);
    SETTLE();
}
END_TEST

/* Nothing is waited for, and the list may be completed without the second one. */
START_TEST(a_request_stands_in_a_list_once)
{
    MPI_Status statuses[3];
    EPX_Request requests[3] = {EPX_REQUEST_NULL, EPX_REQUEST_NULL, EPX_REQUEST_NULL}, only;
    char message[EPX_MAX_ERROR_STRING];
    struct capture capture;

    EXPECT_CODE(EPX_Route_tokens(ids, MAX_TOKENS, route, EPX_STREAM_NULL, &only), EPX_SUCCESS);
    requests[0] = requests[2] = only;
    statuses[2].MPI_ERROR = -1;
    capture_begin(&capture);
    EXPECT_FAULT(NULL, EPX_Waitall(3, requests, statuses), EPX_ERR_REQUEST);
    capture_end(&capture, message, sizeof(message));
    EXPECT(strstr(message, "EPX_Waitall: requests[0] and requests[2] are the same"), "\"%s\"",
           message);
    EXPECT(requests[0] == only && requests[2] == only && statuses[2].MPI_ERROR == -1,
           "an output was written");
    requests[2] = EPX_REQUEST_NULL;
    EXPECT_CODE(EPX_Waitall(3, requests, statuses), EPX_SUCCESS);
    SETTLE();
}
END_TEST

START_TEST(a_good_call_after_a_refused_one_is_that_call)
{
    route_tokens();
    if (suite_rank == 0)
        EXPECT_FAULT(comm, dispatch(home_rows, slot_rows, -1, EPX_FLOAT32), EPX_ERR_COUNT);
    EXPECT_CODE(dispatch(home_rows, slot_rows, COUNT, EPX_FLOAT32), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    SETTLE();
}
END_TEST

START_TEST(messages_name_function_and_values)
{
    route_tokens();
    EXPECT_FAULT(comm, dispatch(home_rows, slot_rows, -17, EPX_FLOAT32), EPX_ERR_COUNT);
    fault_message_has(comm, "EPX_Dispatch");
    fault_message_has(comm, "-17");
    REFUSED(top_k, 65, EPX_ERR_ARG);
    fault_message_has(comm, "EPX_Route_create");
    fault_message_has(comm, "65");
    REFUSED(max_tokens, 0, EPX_ERR_COUNT);
    fault_message_has(comm, "max_tokens");
    EXPECT_FAULT(comm, dispatch(home_rows, slot_rows, COUNT, (EPX_Datatype)(intptr_t)MPI_FLOAT),
                 EPX_ERR_TYPE);
    fault_message_has(comm, "MPI_FLOAT, want EPX_FLOAT32");
    EXPECT_FAULT(comm, combine(slot_rows, home_rows, COUNT, EPX_BYTE), EPX_ERR_TYPE);
    fault_message_has(comm, "EPX_BYTE");
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("arguments");
    TCase *tcase = tcase_create("arguments");

    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_checked_fixture(tcase, open_route, close_route);
    tcase_add_test(tcase, library_calls_need_outputs);
    tcase_add_test(tcase, every_code_has_a_text_of_its_own);
    tcase_add_test(tcase, versions_agree);
    tcase_add_test(tcase, communicators_are_made_from_intracommunicators);
    tcase_add_test(tcase, communicator_calls_need_a_communicator);
    tcase_add_test(tcase, freed_handles_are_known);
    tcase_add_test(tcase, foreign_handles_are_refused);
    tcase_add_test(tcase, a_thread_has_its_last_error);
    tcase_add_test(tcase, communicator_calls_need_outputs);
    tcase_add_test(tcase, memory_calls_check_their_arguments);
    tcase_add_test(tcase, attributes_have_ranges);
    tcase_add_test(tcase, rank_major_has_no_alignment);
    tcase_add_test(tcase, slabs_have_rows_and_nothing_else);
    tcase_add_test(tcase, the_capacity_of_slabs_stays);
    tcase_add_test(tcase, attributes_of_a_later_version_must_be_unset);
    tcase_add_test(tcase, route_calls_need_handles_and_outputs);
    tcase_add_test(tcase, set_capacity_checks_its_arguments);
    tcase_add_test(tcase, set_counts_checks_its_arguments);
    tcase_add_test(tcase, structs_of_the_first_version_are_taken);
    tcase_add_test(tcase, route_tokens_checks_its_arguments);
    tcase_add_test(tcase, collectives_follow_a_routing);
    tcase_add_loop_test(tcase, collectives_check_rows_and_types, 0, 4);
    tcase_add_loop_test(tcase, collectives_check_their_buffers, 0, 4);
    tcase_add_test(tcase, collectives_check_their_weights);
    tcase_add_test(tcase, combine_checks_what_the_home_rank_gives);
    tcase_add_test(tcase, weights_of_pairs_want_rows_of_pairs);
    tcase_add_test(tcase, collectives_need_a_route_and_a_request);
    tcase_add_test(tcase, alltoallv_checks_its_counts);
    tcase_add_test(tcase, alltoallv_checks_its_arguments);
    tcase_add_test(tcase, alltoallv_needs_its_arrays);
    tcase_add_test(tcase, buffers_are_aligned_to_their_elements);
    tcase_add_test(tcase, aligned_buffers_are_taken);
    tcase_add_test(tcase, rows_of_one_byte_types_lie_anywhere);
    tcase_add_test(tcase, counts_that_overflow_are_refused);
    tcase_add_test(tcase, completion_calls_check_their_arguments);
    tcase_add_test(tcase, a_request_stands_in_a_list_once);
    tcase_add_test(tcase, a_good_call_after_a_refused_one_is_that_call);
    tcase_add_test(tcase, messages_name_function_and_values);
    if (space_is_device()) {
        tcase_add_test(tcase, a_device_refuses_memory_of_the_host);
        tcase_add_test(tcase, a_device_refuses_memory_of_another);
        tcase_add_test(tcase, a_device_refuses_buffers_that_are_too_short);
        tcase_add_test(tcase, a_device_reads_no_row_behind_sendbuf);
        tcase_add_test(tcase, a_device_refuses_freed_memory);
    }
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
