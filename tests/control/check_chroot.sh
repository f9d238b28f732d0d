#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Three ranks that fork starts exchange rows where there is no MPI: in a folder that has libepx, the
# libraries that the linker wants for it, and nothing else, and that is the root of the ranks.
set -u
check=check_chroot
# shellcheck source=tests/tools/checks.sh
. "${srcdir:-.}/tests/tools/checks.sh"
cd "$top_builddir" || exit 1
[ -z "${SANITIZER:-}" ] || skip "the sanitizer wants more than the libraries"
program=tests/control/.libs/test_bootstrap
library=.libs/libepx.so.0
[ -f "$program" ] || skip "there is no shared libepx, or no test that is linked with it"
type ldd >/dev/null 2>&1 || skip "there is no ldd"
user=
[ "$(id -u)" -eq 0 ] || user='--user --map-root-user'
# shellcheck disable=SC2086 # a list of options
unshare $user --mount --pid --fork chroot / true 2>/dev/null ||
    skip "no right to change the root of a process"

# Copies a file that is there by this name, where it has one of the same name in the root.
copy() {
    mkdir -p "$work/root$(dirname "$1")"
    [ -e "$work/root$1" ] || cp -L "$1" "$work/root$1"
}

mkdir -p "$work/root/proc" "$work/root/dev/shm" "$work/root/lib"
cp "$program" "$work/root/test_bootstrap"
cp -L "$library" "$work/root/lib"
LD_LIBRARY_PATH=$PWD/.libs ldd "$program" >"$work/needed" || fail "ldd fails"
! grep -i mpi "$work/needed" || fail "the program is linked with MPI"
sed -n 's/^[^/]*\(\/[^ ]*\) (0x.*/\1/p' "$work/needed" | grep -v libepx >"$work/libraries"
while read -r file; do
    copy "$file"
done <"$work/libraries"
find "$work/root" | grep -i mpi && fail "there is MPI in the root"

# shellcheck disable=SC2016,SC2086 # for the shell in the namespaces; a list of options
unshare $user --mount --pid --fork --kill-child sh -ec '
    mount -t proc proc "$0/proc"
    mount -t tmpfs tmpfs "$0/dev/shm"
    LD_LIBRARY_PATH=/lib exec chroot "$0" /test_bootstrap "three ranks work"' "$work/root" \
    >"$work/out" 2>&1 </dev/null || fail "the ranks fail: $(cat "$work/out")"
expect_line "$work/out" ' No Errors'
expect_line "$work/out" 'ran: three ranks work'
exit $status
