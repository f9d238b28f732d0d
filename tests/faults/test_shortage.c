/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_shortage.c - where the last rank may open few files, have short ones or few addresses, all
 * ranks are told so when they make a communicator over ucx, or need shared memory, and go on. UCX
 * would abort the process, a file that gets too long would end it by a signal.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/status.h"
#include "coll/attach.h"
#include "support/operation.h"
#include "support/suite.h"

enum { FILE_STEPS = 20, FILES_A_STEP = 3, ADDRESS_STEPS = 8, MIB_A_STEP = 32 };

static struct rlimit all;

/* A limit for this process, until end_shortage. */
static void limit(int resource, long most)
{
    struct rlimit few;

    getrlimit(resource, &all);
    few = all;
    few.rlim_cur = (rlim_t)most;
    EXPECT(setrlimit(resource, &few) == 0, "no limit of %ld", most);
}

static void end_shortage(int resource)
{
    if (suite_rank == suite_size - 1)
        EXPECT(setrlimit(resource, &all) == 0, "the limit stays");
}

/* The lowest descriptor that is free, and num more, may be opened by the last rank. */
static void leave_files(int num)
{
    int next = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);

    close(next);
    if (suite_rank == suite_size - 1)
        limit(RLIMIT_NOFILE, next + num);
}

static void leave_addresses(long bytes)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0;

    EXPECT(file && fscanf(file, "%ld", &pages) == 1, "nothing in /proc/self/statm");
    if (file)
        fclose(file);
    if (suite_rank == suite_size - 1)
        limit(RLIMIT_AS, pages * sysconf(_SC_PAGESIZE) + bytes);
}

/* Nodes are pretended, so that auto comes to ucx. */
static int make_comm(const char *transport, EPX_Comm *comm)
{
    MPI_Info info = suite_info("epx_transport", transport, "epx_ranks_per_node", "1", NULL);
    int code = EPX_Comm_create(MPI_COMM_WORLD, info, comm);

    MPI_Info_free(&info);
    return code;
}

static void expect_works(const char *transport, const char *used)
{
    EPX_Comm comm = EPX_COMM_NULL;

    EXPECT_CODE(make_comm(transport, &comm), EPX_SUCCESS);
    SETTLE();
    EXPECT(strcmp(epx_transport_name(comm), used) == 0, "transport %s, not %s",
           epx_transport_name(comm), used);
    layer_works(comm);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

/* Every rank is told what the last one lacks, and goes on with another transport. */
static void expect_refusal(const char *lack)
{
    EPX_Comm comm = EPX_COMM_NULL;
    char rank[32];

    snprintf(rank, sizeof(rank), "rank %d", suite_size - 1);
    EXPECT_CODE(make_comm("ucx", &comm), EPX_ERR_NO_MEM);
    EXPECT(strstr(epx_status_message(), lack) && strstr(epx_status_message(), rank),
           "\"%s\" names no %s of %s", epx_status_message(), lack, rank);
    SETTLE();
    expect_works("auto", "mpi");
}

START_TEST(too_few_files_are_told_to_all_ranks)
{
    leave_files(_i * FILES_A_STEP);
    expect_refusal("more files");
    end_shortage(RLIMIT_NOFILE);
    SETTLE();
}
END_TEST

START_TEST(too_few_addresses_are_told_to_all_ranks)
{
    leave_addresses((_i + 1L) * MIB_A_STEP << 20);
    expect_refusal("MiB of addresses");
    end_shortage(RLIMIT_AS);
    SETTLE();
}
END_TEST

static const long file_bytes[] = {4096, 1 << 20, 8 << 20};

START_TEST(too_short_files_are_told_to_all_ranks)
{
    if (suite_rank == suite_size - 1)
        limit(RLIMIT_FSIZE, file_bytes[_i]);
    expect_refusal("ulimit -f");
    end_shortage(RLIMIT_FSIZE);
    SETTLE();
}
END_TEST

/* Creates a communicator of one node, where it must be possible or must be refused on all ranks. */
static EPX_Comm make_local(const char *transport, int wanted)
{
    MPI_Info info = suite_info("epx_transport", transport, NULL);
    EPX_Comm comm = EPX_COMM_NULL;

    EXPECT_CODE(EPX_Comm_create(MPI_COMM_WORLD, info, &comm), wanted);
    MPI_Info_free(&info);
    EXPECT(!wanted || strstr(epx_status_message(), "ulimit -f"), "\"%s\"", epx_status_message());
    SETTLE();
    return comm;
}

START_TEST(shared_memory_longer_than_a_file_may_be_is_refused)
{
    EPX_Comm comm;

    if (suite_rank == suite_size - 1)
        limit(RLIMIT_FSIZE, 4096);
    make_local("shm", EPX_ERR_NO_MEM);
    comm = make_local("auto", EPX_SUCCESS);
    EXPECT(strcmp(epx_transport_name(comm), "mpi") == 0, "transport %s", epx_transport_name(comm));
    layer_works(comm);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    end_shortage(RLIMIT_FSIZE);
    SETTLE();
}
END_TEST

/* There is room for the communicator, not for the memory. Where auto chose shm that is private. */
START_TEST(memory_longer_than_a_file_may_be_is_not_shared)
{
    const int is_named = _i;
    EPX_Comm comm;
    void *base;

    if (suite_rank == suite_size - 1)
        limit(RLIMIT_FSIZE, 32 << 20);
    comm = make_local(is_named ? "shm" : "auto", EPX_SUCCESS);
    EXPECT(strcmp(epx_transport_name(comm), "shm") == 0, "transport %s", epx_transport_name(comm));
    EXPECT_CODE(EPX_Alloc_mem(64 << 20, comm, &base), is_named ? EPX_ERR_NO_MEM : EPX_SUCCESS);
    SETTLE();
    layer_works(comm);
    if (!is_named)
        EXPECT_CODE(EPX_Free_mem(base, comm), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    end_shortage(RLIMIT_FSIZE);
    SETTLE();
}
END_TEST

START_TEST(what_was_short_may_be_had_later)
{
    expect_works("ucx", "ucx");
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("shortage");
    TCase *tcase = tcase_create("shortage");

    tcase_add_loop_test(tcase, too_few_files_are_told_to_all_ranks, 0, FILE_STEPS);
    tcase_add_loop_test(tcase, too_few_addresses_are_told_to_all_ranks, 0, ADDRESS_STEPS);
    tcase_add_loop_test(tcase, too_short_files_are_told_to_all_ranks, 0,
                        sizeof(file_bytes) / sizeof(file_bytes[0]));
    tcase_add_test(tcase, shared_memory_longer_than_a_file_may_be_is_refused);
    tcase_add_loop_test(tcase, memory_longer_than_a_file_may_be_is_not_shared, 0, 2);
    tcase_add_test(tcase, what_was_short_may_be_had_later);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
