#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Every call of the library that can fail, of MPI or for resources, has its place in
# tests/faults/inject.c.
set -u
srcdir=${srcdir:-.}
top_builddir=${top_builddir:-.}
NM=${NM:-$(sed -n 's/^NM = //p' "$top_builddir/Makefile")}
places=tests/faults/inject.c
archives="$top_builddir/.libs/libepx_core.a $top_builddir/.libs/libepx_mpi_parts.a"
bad=0

for archive in $archives; do
    [ -f "$archive" ] && continue
    echo "lint_inject: $archive is not built" >&2
    exit 1
done
# shellcheck disable=SC2086 # a list of words
called=$(${NM:-nm} -u $archives | awk '$1 == "U" { print $2 }' | sort -u)
# Conversions of handles have no error to give.
for name in $(echo "$called" | grep '^MPI_' | grep -v '_[cf]2[cf]$'); do
    grep -qE "FORWARD(_FIRST)?\(${name#MPI_},|^int $name\(" "$srcdir/$places" && continue
    echo "$places: $name is called by the library and cannot be made to fail" >&2
    bad=1
done
for name in malloc calloc realloc reallocarray posix_memalign aligned_alloc strdup strndup \
    asprintf vasprintf mmap mremap shm_open open ftruncate fallocate posix_fallocate \
    pthread_create pthread_key_create socket accept4 epoll_create1 pipe eventfd dlopen; do
    echo "$called" | grep -qx "$name" || continue
    grep -q "__wrap_$name(" "$srcdir/$places" && continue
    echo "$places: $name is called by the library and cannot be made to fail" >&2
    bad=1
done
exit $bad
