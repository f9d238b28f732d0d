#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Every header compiles alone in C; epx.h, and the first program, also as strict C99 and C++,
# without a warning.
set -u
srcdir=${srcdir:-.}
top_builddir=${top_builddir:-.}
status=0

fail() {
    echo "lint_headers: $*" >&2
    status=1
}

# The value of a variable of the Makefile.
configured() {
    sed -n "s/^$1 = //p" "$top_builddir/Makefile"
}

[ -f "$top_builddir/Makefile" ] || {
    echo "lint_headers: $top_builddir has no Makefile" >&2
    exit 1
}
CC=${CC:-$(configured CC)}
CXX=${CXX:-$(configured CXX)}
# The packages' own headers may warn.
flags=$(for package in MPI_CFLAGS CUDA_CPPFLAGS NCCL_CPPFLAGS UCX_CPPFLAGS; do
    configured $package
done | sed 's/-I */-isystem /g')
warnings="-Wall -Wextra -Werror -pedantic-errors"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# compile FILE COMPILER FLAGS... - the flags are lists of words.
compile() {
    file=$1
    shift
    # shellcheck disable=SC2086,SC2068
    $@ $warnings -I"$srcdir/include" -I"$srcdir/src" -I"$top_builddir" $flags \
        -fsyntax-only "$file" >"$work/said" 2>&1 || {
        cat "$work/said" >&2
        return 1
    }
}

# lacking FILE - a header of CUDA, NCCL or UCX that it needs and that is not here.
lacking() {
    # shellcheck disable=SC2086
    $CC -I"$srcdir/include" -I"$srcdir/src" -I"$top_builddir" $flags -M -MG "$1" 2>/dev/null |
        tr ' ' '\n' | grep -E '^(cuda|nccl|uc[ps]/)' | head -n 1
}

# A header that is included several times, once for each type, cannot stand alone.
is_template() {
    [ "$1" = src/kernels/host/row_arithmetic.h ]
}

cat >"$work/epx.c" <<'EOF'
#include <epx.h>
int main(void)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    EPX_Stats stats = EPX_STATS_INIT;
    EPX_Comm comm = EPX_COMM_NULL;
    EPX_Route route = EPX_ROUTE_NULL;
    EPX_Request request = EPX_REQUEST_NULL;
    EPX_Stream stream = EPX_STREAM_NULL;

    return attr.size + view.size + stats.size == 0 && !comm && !route && !request && !stream;
}
EOF
cp "$work/epx.c" "$work/epx.cc"

find "$srcdir/include" "$srcdir/src" -name '*.h' | sed "s|^$srcdir/||" | sort >"$work/headers"
[ -s "$work/headers" ] || fail "no headers found"
while read -r header; do
    is_template "$header" && continue
    printf '#include "%s"\n#include "%s"\n' "${header#*/}" "${header#*/}" >"$work/alone.c"
    missing=$(lacking "$work/alone.c")
    if [ "$missing" ]; then
        echo "lint_headers: $header is not tried, there is no $missing"
        continue
    fi
    compile "$work/alone.c" "$CC" -std=c11 || fail "$header does not compile alone"
done <"$work/headers"

cp "$srcdir/examples/first.c" "$work/first.c"
cp "$srcdir/examples/first.c" "$work/first.cc"
for program in epx first; do
    compile "$work/$program.c" "$CC" -std=c99 || fail "$program.c is not clean C99"
done
if printf 'int main() { return 0; }\n' >"$work/try.cc" &&
    ${CXX:-false} -fsyntax-only "$work/try.cc" >"$work/said" 2>&1; then
    for standard in c++11 c++17; do
        for program in epx first; do
            compile "$work/$program.cc" "$CXX" -std=$standard ||
                fail "$program.c is not clean $standard"
        done
    done
else
    echo "lint_headers: epx.h is not tried as C++, there is no C++ compiler"
fi
exit $status
