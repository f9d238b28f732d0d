/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * process.c - which process a rank is, and whether it has ended. A process that was killed may be a
 * zombie for long, if nobody waits for it. The state in /proc is that of its first thread alone; so
 * a descriptor of the process is asked, which tells when the last thread has ended.
 */
#define _GNU_SOURCE /* syscall */
#include "transport/cuda/lost/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STAT_BYTES = 1024, FIELDS_BEFORE_START = 19 };

/* When a process started, 0 if that is not known. The field is the 22nd, and the second one, a name
 * in brackets, may have blanks. */
static int64_t find_start(int64_t id)
{
    char name[64], text[STAT_BYTES];
    long long started = 0;
    const char *at;
    size_t length;
    FILE *file;

    snprintf(name, sizeof(name), "/proc/%lld/stat", (long long)id);
    file = fopen(name, "re");
    if (!file)
        return 0;
    length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    at = strrchr(text, ')');
    for (int i = 0; at && i <= FIELDS_BEFORE_START; i++)
        at = strchr(at + 1, ' ');
    return at && sscanf(at, "%lld", &started) == 1 ? started : 0;
}

static int64_t find_space(void)
{
    struct stat space;

    return stat("/proc/self/ns/pid", &space) == 0 ? (int64_t)space.st_ino : 0;
}

void epx_process_self(struct epx_process *process)
{
    process->id = getpid();
    process->started = find_start(process->id);
    process->space = find_space();
}

/* -1 with errno set if there is none. */
static int open_process(int64_t id)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, (pid_t)id, 0);
#else
    (void)id;
    errno = ENOSYS;
    return -1;
#endif
}

static int has_ended(int fd)
{
    struct pollfd ended = {fd, POLLIN, 0};

    return poll(&ended, 1, 0) == 1 && (ended.revents & POLLIN);
}

int epx_process_is_gone(const struct epx_process *process)
{
    int64_t started;
    int gone, fd;

    if (!process->started || !process->space || process->space != find_space())
        return 0;
    if (kill((pid_t)process->id, 0) != 0 && errno == ESRCH)
        return 1;
    fd = open_process(process->id);
    if (fd < 0)
        return errno == ESRCH;
    started = find_start(process->id); /* 0 = not known now */
    gone = has_ended(fd) || (started && started != process->started);
    close(fd);
    return gone;
}
