#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The picture that epx_particles draws on 3 ranks is XML with every particle once, inside the
# square, in tiles of its rank, and with as many particles and ghosts as its legend says. A picture
# that lacks a particle is found out.
set -u
srcdir=${srcdir:-.}
top_builddir=${top_builddir:-.}
name=check_picture
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/programs.sh
. "$srcdir/tests/support/programs.sh"

PYTHON=${PYTHON:-python3}
"$PYTHON" -c 'import xml.etree' 2>/dev/null || skip "there is no $PYTHON"
use_build
# shellcheck disable=SC2086 # the launcher may have arguments
launch $MPIEXEC -n 3 "$top_builddir/epx_particles" --particles 700 --steps 3 --flow 1 \
    --svg "$work/picture.svg" >"$work/printed" 2>&1 || die "$(cat "$work/printed")"
"$PYTHON" "$srcdir/tests/pages/picture.py" "$work/picture.svg" 3 700 || exit 1

awk '!/<circle/ || gone++ != 350' "$work/picture.svg" >"$work/less.svg"
if "$PYTHON" "$srcdir/tests/pages/picture.py" "$work/less.svg" 3 700 >"$work/said"; then
    die "nothing is said of a picture that lacks a particle"
fi
grep -q '^picture.py: 699 particles' "$work/said" || die "what is said: $(cat "$work/said")"
