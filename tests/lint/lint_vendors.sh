#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A vendor's headers are included in src only in the vendor's folders: NCCL's and UCX's in their
# transports, CUDA's in those, transport/cuda, coll/device and .cu and .cuh of kernels; MPI's never.
set -u
LC_ALL=C
export LC_ALL
cd "${srcdir:-.}" || exit 1
find src -type f | sort | awk -v lint=lint_vendors "$(cat tests/lint/sources.awk \
    tests/lint/c.awk)"'
!is_c(FILENAME) { next }
{ scan_c($0) }
included != "" {
    where = place_of(included)
    if (where != "" && FILENAME !~ where)
        complain_here("includes " included ", which is for " wanted)
}
END { exit bad }

# Where a header may be included, as a regular expression and, in wanted, as words; "" if anywhere.
function place_of(header) {
    if (header ~ /^nccl/) {
        wanted = "src/transport/nccl"
        return "^src/transport/nccl/"
    }
    if (header ~ /^uc[pst]\//) {
        wanted = "src/transport/ucx"
        return "^src/transport/ucx/"
    }
    if (header ~ /^(cuda|cooperative_groups|nv\/)/) {
        wanted = "src/transport/{cuda,nccl,ucx}, src/coll/device and .cu and .cuh of src/kernels"
        return "^src/(transport/(cuda|nccl|ucx)/|coll/device/|kernels/.*\\.cuh?$)"
    }
    if (header == "mpi.h") {
        wanted = "include/epx.h, which brings it"
        return "^include/"
    }
    return ""
}
'
