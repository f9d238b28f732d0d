/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * by_files.c - ranks that a batch system or torchrun started, on any machines that share a folder,
 * by which they gather for the first contact. RANK and WORLD_SIZE in the environment say who each
 * is, as torchrun sets them. The folder is a new one for each job.
 *
 *   cc by_files.c $(pkg-config --cflags --libs epx) -o by_files
 *   mkdir /shared/job1
 *   for r in 0 1 2; do RANK=$r WORLD_SIZE=3 ./by_files /shared/job1 & done; wait
 */
#include <epx.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_S = 60, NAME_BYTES = 512 };

struct meeting {
    const char *folder;
    int rank, size;
    int round; /* of gathering */
};

static void name_file(const struct meeting *meeting, int rank, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%s/%d.%d", meeting->folder, meeting->round, rank);
}

/* Writes under another name first: who finds the file finds all of it. */
static int leave(const struct meeting *meeting, const void *own, size_t bytes)
{
    char name[NAME_BYTES], draft[NAME_BYTES + 8];
    FILE *file;
    int failed;

    name_file(meeting, meeting->rank, name);
    snprintf(draft, sizeof(draft), "%s.draft", name);
    file = fopen(draft, "wb");
    if (!file)
        return 1;
    failed = fwrite(own, 1, bytes, file) != bytes;
    return fclose(file) || failed || rename(draft, name);
}

/* Waits for what a rank leaves, for a minute. */
static int find(const struct meeting *meeting, int rank, void *bytes_of_rank, size_t bytes)
{
    const struct timespec nap = {0, 10000000};
    const time_t end = time(NULL) + PATIENCE_S;
    char name[NAME_BYTES];
    FILE *file = NULL;
    int failed;

    name_file(meeting, rank, name);
    while (!(file = fopen(name, "rb"))) {
        if (time(NULL) > end)
            return fprintf(stderr, "rank %d did not come\n", rank), 1;
        nanosleep(&nap, NULL);
    }
    failed = fread(bytes_of_rank, 1, bytes, file) != bytes;
    fclose(file);
    return failed;
}

static int allgather(const void *own, void *all, size_t bytes, void *arg)
{
    struct meeting *meeting = arg;
    int failed = leave(meeting, own, bytes);

    for (int r = 0; r < meeting->size && !failed; r++)
        failed = find(meeting, r, (char *)all + (size_t)r * bytes, bytes);
    meeting->round++;
    return failed;
}

int main(int argc, char **argv)
{
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    struct meeting meeting = {argc > 1 ? argv[1] : NULL, 0, 0, 0};
    EPX_Bootstrap bootstrap = EPX_BOOTSTRAP_INIT;
    EPX_Comm comm;
    void *memory;

    if (!rank || !size || !meeting.folder)
        return fprintf(stderr, "usage: RANK=... WORLD_SIZE=... by_files FOLDER\n"), 2;
    bootstrap.rank = meeting.rank = atoi(rank);
    bootstrap.num_ranks = meeting.size = atoi(size);
    bootstrap.allgather = allgather;
    bootstrap.arg = &meeting;
    if (EPX_Comm_create_from(&bootstrap, NULL, &comm))
        return 1;
    if (EPX_Alloc_mem(1 << 20, comm, &memory) || EPX_Free_mem(memory, comm))
        return 1;
    printf("rank %d of %d: ready\n", meeting.rank, meeting.size);
    return EPX_Comm_free(&comm) != EPX_SUCCESS;
}
