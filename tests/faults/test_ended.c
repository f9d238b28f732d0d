/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_ended.c - ranks die while they reserve the memory of a large EPX_Alloc_mem: all ranks of a
 * communicator, or the lowest alone, by SIGKILL or by SIGTERM; or the lowest dies when it has just
 * made the object. Nothing of it may stay in /dev/shm. Each case has two ranks and a communicator
 * of its own; the last rank of all is the witness. The linker puts this program between the library
 * and shm_open and posix_fallocate.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "support/suite.h"

enum { BYTES = 256 << 20, PATIENCE_S = 60 };

enum verdict { VERDICT_OPEN, VERDICT_GOOD, VERDICT_BAD };

static const struct {
    const char *name;
    int signal, all, at_open;
} cases[] = {{"SIGKILL to all ranks", SIGKILL, 1, 0},
             {"SIGKILL to the lowest rank", SIGKILL, 0, 0},
             {"SIGTERM to all ranks", SIGTERM, 1, 0},
             {"SIGTERM to the lowest rank", SIGTERM, 0, 0},
             {"SIGKILL to the lowest rank when it made the object", SIGKILL, 0, 1}};
enum { CASES = sizeof(cases) / sizeof(cases[0]), RANKS = 2 * CASES + 1, WITNESS = RANKS - 1 };

static struct {
    int pid[RANKS];
    _Atomic int verdict[RANKS]; /* of survivors */
} * board;

static int dies_opening, dies_reserving; /* the signal that the call ends with, 0 = none */

int __real_shm_open(const char *name, int flags, mode_t mode);
int __wrap_shm_open(const char *name, int flags, mode_t mode);
int __real_posix_fallocate(int fd, off_t offset, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t offset, off_t bytes);

int __wrap_shm_open(const char *name, int flags, mode_t mode)
{
    int fd = __real_shm_open(name, flags, mode);

    if (dies_opening)
        kill(getpid(), dies_opening);
    return fd;
}

int __wrap_posix_fallocate(int fd, off_t offset, off_t bytes)
{
    int error = __real_posix_fallocate(fd, offset, bytes);

    if (dies_reserving)
        kill(getpid(), dies_reserving);
    return error;
}

/* Maps the board, from a file that is removed before a rank dies. */
static void open_board(void)
{
    char name[] = "/tmp/epx-board-XXXXXX";
    int fd = suite_rank == 0 ? mkstemp(name) : -1;

    MPI_Bcast(name, (int)sizeof(name), MPI_CHAR, 0, MPI_COMM_WORLD);
    if (suite_rank)
        fd = open(name, O_RDWR);
    else if (ftruncate(fd, 4096) != 0)
        perror(name);
    MPI_Barrier(MPI_COMM_WORLD);
    board = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    board->pid[suite_rank] = (int)getpid();
    MPI_Barrier(MPI_COMM_WORLD);
    if (suite_rank == 0)
        unlink(name);
    close(fd);
}

static EPX_Comm open_comm(MPI_Comm ranks)
{
    MPI_Info info = suite_info("epx_transport", "shm", "epx_timeout_ms", "2000", NULL);
    EPX_Comm comm = EPX_COMM_NULL;

    EXPECT_CODE(EPX_Comm_create(ranks, info, &comm), EPX_SUCCESS);
    MPI_Info_free(&info);
    return comm;
}

/* Whether a name of shared memory is one that this process made. */
static int is_of(const char *name, int pid)
{
    char start[32];

    snprintf(start, sizeof(start), "epx-%d-", pid);
    return strncmp(name, start, strlen(start)) == 0;
}

/* Expects no name in /dev/shm that the process made; removes what is there. */
static void expect_nothing_left(const char *what, int pid)
{
    DIR *folder = opendir("/dev/shm");
    struct dirent *entry;

    if (!EXPECT(folder != NULL, "no /dev/shm"))
        return;
    while ((entry = readdir(folder)))
        if (!EXPECT(!is_of(entry->d_name, pid), "%s: /dev/shm/%s is left", what, entry->d_name))
            unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
}

static void nap(void)
{
    const struct timespec time = {0, 10000000};

    nanosleep(&time, NULL);
}

static void expect_dead(const char *what, int pid)
{
    double start = suite_seconds();

    while (kill(pid, 0) == 0 && suite_seconds() - start < PATIENCE_S)
        nap();
    EXPECT(kill(pid, 0) != 0 && errno == ESRCH, "%s: process %d lives", what, pid);
}

static void expect_verdict(const char *what, int rank)
{
    double start = suite_seconds();

    while (atomic_load(&board->verdict[rank]) == VERDICT_OPEN &&
           suite_seconds() - start < PATIENCE_S)
        nap();
    EXPECT(atomic_load(&board->verdict[rank]) == VERDICT_GOOD, "%s: rank %d says %d", what, rank,
           atomic_load(&board->verdict[rank]));
}

static void be_witness(void)
{
    for (int i = 0; i < CASES; i++) {
        expect_dead(cases[i].name, board->pid[2 * i]);
        if (cases[i].all)
            expect_dead(cases[i].name, board->pid[2 * i + 1]);
        else
            expect_verdict(cases[i].name, 2 * i + 1);
        expect_nothing_left(cases[i].name, board->pid[2 * i]);
        expect_nothing_left(cases[i].name, board->pid[2 * i + 1]);
    }
    printf(suite_own_complaints() ? " Found %d errors\n" : " No Errors\n", suite_own_complaints());
    fflush(stdout);
}

static void be_victim(EPX_Comm comm, int lowest)
{
    int number = suite_rank / 2, victim = lowest || cases[number].all, code;
    void *base = NULL;

    if (victim)
        *(cases[number].at_open ? &dies_opening : &dies_reserving) = cases[number].signal;
    code = EPX_Alloc_mem(BYTES, comm, &base);
    EXPECT(!victim, "%s: the rank lives", cases[number].name);
    EXPECT(code == EPX_ERR_TIMEOUT, "%s: code %d", cases[number].name, code);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    atomic_store(&board->verdict[suite_rank], suite_own_complaints() ? VERDICT_BAD : VERDICT_GOOD);
}

int main(int argc, char **argv)
{
    EPX_Comm comm = EPX_COMM_NULL;
    MPI_Comm ranks;

    suite_init(&argc, &argv);
    if (suite_size != RANKS)
        suite_skip("the program wants two ranks a case, and a witness");
    open_board();
    MPI_Comm_split(MPI_COMM_WORLD, suite_rank / 2, suite_rank, &ranks);
    if (suite_rank != WITNESS)
        comm = open_comm(ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    if (suite_rank == WITNESS)
        be_witness();
    else
        be_victim(comm, suite_rank % 2 == 0);
    _exit(0);
}
