#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# 256 ranks that fork starts make a communicator and move rows. Each has 255 connections, and is let
# down by nobody that a busy machine keeps waiting.
set -u
check=check_many
# shellcheck source=tests/tools/checks.sh
. "${srcdir:-.}/tests/tools/checks.sh"
cd "$top_builddir" || exit 1
[ -z "${SANITIZER:-}" ] || skip "the sanitizer wants too much memory of 256 processes"
[ "$(ulimit -n)" = unlimited ] || [ "$(ulimit -n)" -ge 1024 ] || skip "too few files may be opened"
expect_code 0 timeout -k 5 220 tests/control/time_creation 256 1
expect_line "$work/out" '256 ranks, sockets: median [0-9.]+ ms, .* [0-9]+ KiB a rank'
exit $status
