/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_shm_space.c - on a machine short of shared memory (the run mounts a small one) all ranks
 * are told the same; auto falls back to what needs none, and says so in one warning of all ranks.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* What the ranks wrote to standard error since listen(). */
struct said {
    int errors, warnings;     /* lines, of all ranks */
    int instead, what_to_set; /* of the warnings: those that tell */
};

static FILE *heard;
static int saved;

static void listen(void)
{
    heard = tmpfile();
    fflush(stderr);
    saved = dup(STDERR_FILENO);
    dup2(fileno(heard), STDERR_FILENO);
}

/* A machine with fewer CPUs than ranks is warned of in every test. */
static int is_warning(const char *line)
{
    return strncmp(line, "epx", 3) == 0 && strstr(line, ": warning: ") && !strstr(line, " CPU");
}

/* Collective; writes what was said once more. */
static struct said hear(const char *instead)
{
    char line[4 * EPX_MAX_ERROR_STRING];
    int num[4] = {0};

    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(heard);
    while (fgets(line, sizeof(line), heard)) {
        int warns = is_warning(line);

        num[0] += strstr(line, "error:") != NULL;
        num[1] += warns;
        num[2] += warns && strstr(line, instead) != NULL;
        num[3] += warns && strstr(line, "enlarge /dev/shm") != NULL;
        fputs(line, stderr);
    }
    fclose(heard);
    MPI_Allreduce(MPI_IN_PLACE, num, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return (struct said){num[0], num[1], num[2], num[3]};
}

static void expect_warning(struct said said)
{
    EXPECT(said.errors == 0, "%d errors", said.errors);
    EXPECT(said.warnings == 1, "%d warnings", said.warnings);
    EXPECT(said.instead == 1, "no warning tells what is used instead");
    EXPECT(said.what_to_set == 1, "no warning tells what to set");
    SETTLE();
}

static void expect_error(struct said said)
{
    EXPECT(said.errors > 0, "no error");
    EXPECT(said.warnings == 0, "%d warnings", said.warnings);
    SETTLE();
}

static EPX_Route open_route(EPX_Comm comm, int max_tokens, int wanted)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route route = EPX_ROUTE_NULL;
    int code;

    attr.num_experts = 4;
    attr.top_k = 2;
    attr.max_tokens = max_tokens;
    attr.max_row_bytes = 8192;
    code = EPX_Route_create(&attr, comm, &route);
    same_on_all("EPX_Route_create", code);
    EXPECT(wanted ? short_of_memory(code) : code == EPX_SUCCESS, "code %d", code);
    return route;
}

enum { FEW_TOKENS = 4096, MANY_TOKENS = 600000, MUCH_MEMORY = 256 << 20 };

/* Expects a refusal when the communicator is made, or when its first large window is. */
static void expect_refused(void)
{
    EPX_Comm comm = EPX_COMM_NULL;
    void *base = NULL;
    int code;

    listen();
    code = EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm);
    same_on_all("EPX_Comm_create", code);
    EXPECT(code == EPX_SUCCESS || short_of_memory(code), "code %d", code);
    SETTLE();
    if (code == EPX_SUCCESS) {
        open_route(comm, FEW_TOKENS, 1);
        code = EPX_Alloc_mem(MUCH_MEMORY, comm, &base);
        same_on_all("EPX_Alloc_mem", code);
        EXPECT(short_of_memory(code), "code %d", code);
        EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    }
    expect_error(hear(""));
}

/* Whether auto took transport shm: then there is no room for routes and memory. */
static int is_on_shm(EPX_Comm comm)
{
    char name[64] = "";
    MPI_Info info;
    int found;

    EXPECT_CODE(EPX_Comm_get_info(comm, &info), EPX_SUCCESS);
    MPI_Info_get(info, "epx_transport", sizeof(name) - 1, name, &found);
    MPI_Info_free(&info);
    return strcmp(name, "shm") == 0;
}

/* All that does not fit is made twice, and told once. */
static void expect_falls_back(EPX_Comm comm)
{
    EPX_Route routes[2];
    char *base[2];

    listen();
    for (int i = 0; i < 2; i++)
        routes[i] = open_route(comm, MANY_TOKENS, EPX_SUCCESS);
    expect_warning(hear(" is used for a route instead of shm: "));
    listen();
    for (int i = 0; i < 2; i++) {
        EXPECT_CODE(EPX_Alloc_mem(MUCH_MEMORY, comm, &base[i]), EPX_SUCCESS);
        memset(base[i], 1, MUCH_MEMORY / 64);
    }
    expect_warning(hear("private memory, "));
    for (int i = 0; i < 2; i++) {
        EXPECT_CODE(EPX_Free_mem(base[i], comm), EPX_SUCCESS);
        EXPECT_CODE(EPX_Route_free(&routes[i]), EPX_SUCCESS);
    }
}

static void expect_works(void)
{
    EPX_Route route;
    struct said said;
    EPX_Comm comm;

    listen();
    comm = suite_comm(NULL);
    said = hear(" is used instead of shm");
    if (is_on_shm(comm)) {
        EXPECT(said.errors + said.warnings == 0, "something was said");
        expect_falls_back(comm);
    } else {
        expect_warning(said);
    }
    layer_works(comm);
    route = open_route(comm, FEW_TOKENS, EPX_SUCCESS);
    SETTLE();
    EXPECT_CODE(EPX_Route_free(&route), EPX_SUCCESS);
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
