#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Kernels that copy in bulk where the GPU can compile for sm_80, which cannot: no build by default
# has their other half.
set -u
check=check_older_gpus
# shellcheck source=tests/tools/checks.sh
. "${srcdir:-.}/tests/tools/checks.sh"
cd "$top_builddir" || exit 1
nvcc=$(sed -n 's/^NVCC = //p' Makefile)
nvccflags=$(sed -n 's/^NVCCFLAGS = //p' Makefile)
[ "$nvcc" ] || skip "built without CUDA"
"$nvcc" --version | grep -q '^Cuda compilation tools' || skip "$nvcc is no compiler for GPUs"

for source in "$srcdir"/src/kernels/flows/*/move_*.cu; do
    ptx=src/kernels/flows/${source##*/flows/}; ptx=${ptx%.cu}.ptx
    rm -f "$ptx"
    # Not optimized: it is enough to be compiled, and takes an eighth of the time.
    ${MAKE:-make} -s "$ptx" NVCCFLAGS="$nvccflags -Xcicc -O0" >"$work/out" 2>&1 ||
        fail "$(cat "$work/out")"
    grep -q '^[.]target sm_80' "$ptx" || fail "$ptx is for another GPU"
    grep -q 'cp[.]async[.]bulk' "$ptx" && fail "$ptx has bulk copies"
    rm -f "$ptx"
done
exit $status
