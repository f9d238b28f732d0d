/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_shm_space.c - on a machine short of shared memory (the run mounts a tiny one) all ranks
 * are told the same; auto falls back to a transport that needs none.
 */
#include <string.h>

#include "support/operation.h"
#include "support/suite.h"

static int same_on_all(const char *what, int code)
{
    int ends[2] = {code, -code};

    MPI_Allreduce(MPI_IN_PLACE, ends, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return EXPECT(ends[0] == -ends[1], "%s gave %d here, other codes elsewhere", what, code);
}

static int short_of_memory(int code)
{
    return code == EPX_ERR_NO_MEM || code == EPX_ERR_TRANSPORT;
}

static int open_small_layer(struct layer *layer, EPX_Comm comm)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;

    attr.num_experts = 4;
    attr.top_k = 2;
    attr.max_tokens = 4096;
    attr.max_row_bytes = 8192;
    layer->route = EPX_ROUTE_NULL;
    return EPX_Route_create(&attr, comm, &layer->route);
}

/* Expects a refusal when the communicator is made, or when its first large window is. */
static void expect_refused(void)
{
    EPX_Comm comm = EPX_COMM_NULL;
    int code = EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm);
    struct layer layer;
    void *base = NULL;

    same_on_all("EPX_Comm_create", code);
    EXPECT(code == EPX_SUCCESS || short_of_memory(code), "code %d", code);
    SETTLE();
    if (code != EPX_SUCCESS)
        return;
    code = open_small_layer(&layer, comm);
    same_on_all("EPX_Route_create", code);
    EXPECT(short_of_memory(code), "code %d", code);
    code = EPX_Alloc_mem(256 << 20, comm, &base);
    same_on_all("EPX_Alloc_mem", code);
    EXPECT(short_of_memory(code), "code %d", code);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

static void expect_works(void)
{
    EPX_Comm comm = suite_comm(NULL);
    struct layer layer;

    layer_works(comm);
    EXPECT_CODE(open_small_layer(&layer, comm), EPX_SUCCESS);
    SETTLE();
    EXPECT_CODE(EPX_Route_free(&layer.route), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

START_TEST(all_ranks_are_told)
{
    if (strncmp(suite_transport(), "shm", 3) == 0) /* nodes with too little refuse as well */
        expect_refused();
    else
        expect_works();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("shm space");
    TCase *tcase = tcase_create("shm space");

    tcase_add_test(tcase, all_ranks_are_told);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
