/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace_file.c - a JSON file of trace events to which all ranks of a job append.
 *
 * The file is an object with one array. Each rank locks the file, writes its events over the end,
 * then a last event without a comma and the end again. The lock is the file system's, so that
 * ranks on several machines share a file where the system shares it.
 */
#include "core/health/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

static const char head[] = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
static const char last[] = "{\"name\":\"end\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{}}\n]}\n";

static struct timespec began; /* by the clock of files' times */

void epx_trace_file_begin(void)
{
    if (!began.tv_sec)
        clock_gettime(CLOCK_REALTIME_COARSE, &began);
}

static int is_before(struct timespec a, struct timespec b)
{
    return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec < b.tv_nsec);
}

/* Locks the file until this process closes one of that name. */
static int lock_file(FILE *file)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int rc;

    do
        rc = fcntl(fileno(file), F_SETLKW, &all);
    while (rc != 0 && errno == EINTR);
    return rc;
}

/* Where the next event goes: 0 at the head of a file that is new, or of an earlier job; else over
 * the last event. */
static off_t find_place(FILE *file)
{
    struct stat about;

    if (fstat(fileno(file), &about) != 0)
        return -1;
    if (about.st_size < (off_t)(sizeof(head) + sizeof(last) - 2) || is_before(about.st_mtim, began))
        return 0;
    return about.st_size - (off_t)(sizeof(last) - 1);
}

static int write_events(FILE *to, off_t place, void (*events)(FILE *to, void *argument),
                        void *argument)
{
    if (fseeko(to, place, SEEK_SET) != 0)
        return -1;
    if (place == 0)
        fputs(head, to);
    events(to, argument);
    fputs(last, to);
    return fflush(to);
}

/* With the file locked. */
static int append(const char *name, FILE *to, void (*events)(FILE *to, void *argument),
                  void *argument)
{
    off_t place = find_place(to);
    FILE *emptied = place == 0 ? fopen(name, "w") : NULL; /* closed behind the lock */
    int rc = -1, error;

    if (place > 0 || emptied)
        rc = write_events(to, place, events, argument);
    error = errno;
    if (emptied)
        fclose(emptied);
    errno = error;
    return rc;
}

/* Opens the file to read and write, and makes it if it is not there. */
static FILE *open_file(const char *name)
{
    FILE *made = fopen(name, "a");

    if (!made)
        return NULL;
    fclose(made);
    return fopen(name, "r+");
}

int epx_trace_file_append(const char *name, void (*events)(FILE *to, void *argument),
                          void *argument)
{
    FILE *to = open_file(name);
    int error = 0;

    if (!to)
        return errno;
    if (lock_file(to) != 0 || append(name, to, events, argument) != 0)
        error = errno;
    if (fclose(to) != 0 && !error)
        error = errno;
    return error;
}
