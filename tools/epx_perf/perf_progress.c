/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_progress.c - one line on the user's terminal that tells how far a long run is. */
#include "epx_perf/perf_progress.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "epx_perf/space/perf_time.h"

/* What is printed passes through the launcher, the line does not: it waits until that is shown. */
static const double silence_seconds = 1, refresh_seconds = 0.5;

static struct {
    int terminal, is_open, visible;
    int point, points, tokens;
    int64_t row_bytes;
    double begun, printed, shown; /* times of perf_seconds */
} progress;

/* A launcher that gives every rank a process group of its own is the parent of the ranks. */
static int in_foreground(int terminal)
{
    pid_t group = tcgetpgrp(terminal);

    return group > 0 && (group == getpgrp() || group == getpgid(getppid()));
}

void perf_progress_open(int points)
{
    const char *kind = getenv("TERM");

    if (!kind || strcmp(kind, "dumb") == 0)
        return;
    progress.terminal = open("/dev/tty", O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (progress.terminal < 0)
        return;
    progress.is_open = 1;
    progress.points = points;
    progress.begun = progress.printed = perf_seconds();
}

void perf_progress_close(void)
{
    perf_progress_clear();
    if (progress.is_open)
        close(progress.terminal);
    progress.is_open = 0;
}

/* A terminal may stop those who write to it in the background, unless they block the signal. */
static void write_terminal(const char *text)
{
    sigset_t stop, before;
    ssize_t written;

    sigemptyset(&stop);
    sigaddset(&stop, SIGTTOU);
    sigprocmask(SIG_BLOCK, &stop, &before);
    written = write(progress.terminal, text, strlen(text));
    sigprocmask(SIG_SETMASK, &before, NULL);
    progress.visible = written > 0;
}

void perf_progress_point(int tokens, int64_t row_bytes)
{
    progress.point++;
    progress.tokens = tokens;
    progress.row_bytes = row_bytes;
}

void perf_progress_show(const char *loop, int64_t iteration, int64_t iterations)
{
    double now = progress.is_open ? perf_seconds() : 0;
    char line[160];

    if (!progress.is_open || now - progress.printed < silence_seconds ||
        now - progress.shown < refresh_seconds || !in_foreground(progress.terminal))
        return;
    progress.shown = now;
    snprintf(line, sizeof(line),
             "\r\033[Kpoint %d of %d (%d tokens, %lld B), %s %lld of %lld, %.0f s", progress.point,
             progress.points, progress.tokens, (long long)progress.row_bytes, loop,
             (long long)iteration, (long long)iterations, now - progress.begun);
    write_terminal(line);
}

void perf_progress_clear(void)
{
    if (!progress.is_open)
        return;
    if (progress.visible && in_foreground(progress.terminal))
        write_terminal("\r\033[K");
    progress.visible = 0;
    progress.printed = perf_seconds();
}
