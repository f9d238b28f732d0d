/* SPDX-License-Identifier: BSD-3-Clause */
/* board.c - memory that all ranks map, for what they tell each other without MPI. */
#include "faults/board.h"

#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/suite.h"

void *board_open(size_t bytes)
{
    char name[] = "/tmp/epx-board-XXXXXX";
    int fd = suite_rank == 0 ? mkstemp(name) : -1;
    void *board;

    MPI_Bcast(name, (int)sizeof(name), MPI_CHAR, 0, MPI_COMM_WORLD);
    if (suite_rank)
        fd = open(name, O_RDWR);
    else if (ftruncate(fd, (off_t)bytes) != 0)
        perror(name);
    MPI_Barrier(MPI_COMM_WORLD);
    board = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (suite_rank == 0)
        unlink(name);
    close(fd);
    return board;
}
