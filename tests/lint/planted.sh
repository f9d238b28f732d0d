#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# In a copy of the sources each lint of this folder finds nothing, then what is planted there and
# breaks its rule, and leaves alone what only looks like it.
set -u
LC_ALL=C
export LC_ALL
status=0
num_planted=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
tree=$work/tree
planted=
on="\\" # at the end of a line that goes on
license='/* SPDX-License-Identifier: BSD-3-Clause */'

fail() {
    echo "planted: $*"
    status=1
}

copy_sources() {
    cd "${srcdir:-.}" || exit 1
    {
        find src include tools tests examples fortran python m4 contrib man -type f
        ls configure.ac Makefile.am autogen.sh .ci/run 2>/dev/null
    } | awk -v lint=planted "$(cat tests/lint/sources.awk)"'
        BEGIN { for (i = 1; i < ARGC; i++) print ARGV[i]; exit }
        END { exit bad }' >"$work/sources" || exit 1
    for file in .clang-format examples/tutorial/.clang-format; do
        [ ! -f "$file" ] || echo "$file" >>"$work/sources"
    done
    mkdir "$tree" || exit 1
    # shellcheck disable=SC2046
    tar -cf - $(cat "$work/sources") | (cd "$tree" && tar -xf -) || exit 1
    chmod -R u+w "$tree"
    cd "$tree" || exit 1
}

# run_lint NAME - leaves what it says in said.
run_lint() {
    srcdir=$tree sh "tests/lint/lint_$1.sh" >"$work/said" 2>&1
}

expect_clean() {
    for lint in layers vendors circles functions folders text format; do
        run_lint $lint
        case $? in
        0) ;;
        77)
            sed 's/^/planted: /' "$work/said"
            skipped=$lint
            ;;
        *)
            fail "lint_$lint finds something in the tree itself:"
            head -n 3 "$work/said"
            ;;
        esac
    done
}

# Keeps the two lowest layers, which need no other: beside them what is planted is found sooner, and
# by itself.
keep_a_part() {
    find src tools tests examples -type f ! -name local.mk ! -path 'src/base/*' \
        ! -path 'src/core/*' ! -path 'tests/lint/*' -exec rm {} +
}

# plant FILE [TEXT...] - the texts are lines below the license; plant_bare has none of that.
plant() {
    file=$1
    shift
    plant_bare "$file" "$license" "$@"
}

plant_bare() {
    file=$1
    shift
    [ ! -e "$file" ] || fail "$file is there before it is planted"
    mkdir -p "$(dirname "$file")"
    printf '%s\n' "$@" >"$file"
    planted="$planted $file"
}

# found LINT FILE WORDS - the lint fails and says these words of this file; then uproots all files.
found() {
    num_planted=$((num_planted + 1))
    run_lint "$1"
    code=$?
    if [ $code -ne 1 ]; then
        fail "lint_$1 exits with $code, not 1, with $2 planted for: $3"
    elif ! grep -F "lint_$1: $2:" "$work/said" | grep -qF -- "$3"; then
        fail "lint_$1 does not say of $2: $3"
    fi
    uproot
}

# left_alone LINT - the lint says nothing of what is planted.
left_alone() {
    run_lint "$1"
    for file in $planted; do
        ! grep -F "$file" "$work/said" || fail "lint_$1 complains of $file"
    done
    uproot
}

uproot() {
    for file in $planted; do
        rm "$file"
        rmdir "$(dirname "$file")" 2>/dev/null
    done
    planted=
}

# lines NUMBER TEXT
lines() {
    awk -v number="$1" -v text="$2" 'BEGIN { for (i = 1; i <= number; i++) print text }'
}

plant_layers() {
    lower=base
    for higher in core kernels transport coll api; do
        plant src/$higher/planted_high.h
        plant src/$lower/planted_low.c "#include \"$higher/planted_high.h\""
        found layers src/$lower/planted_low.c:2 "of a higher layer"
        plant src/$lower/planted_low.h
        plant src/$higher/planted_high.c "#include \"$lower/planted_low.h\""
        left_alone layers
        lower=$higher
    done
    lower=
    for higher in /args /warp /protocol /wires /routing /alltoallv /flows/rows; do
        plant src/kernels$higher/planted_high.cuh
        plant src/kernels$lower/planted_low.cuh "#include \"kernels$higher/planted_high.cuh\""
        found layers src/kernels$lower/planted_low.cuh:2 "of a higher floor"
        plant src/kernels$lower/planted_low.cuh
        plant src/kernels$higher/planted_high.cuh "#include \"kernels$lower/planted_low.cuh\""
        left_alone layers
        lower=$higher
    done
    plant src/planted/planted.c
    found layers src/planted/planted.c:1 "lies in no layer"
    plant src/core/planted_near.h
    plant src/core/planted.c '#include "planted_near.h"'
    found layers src/core/planted.c:2 "no path from src"
    plant src/core/planted_near.h
    plant src/core/planted.c '#include <core/planted_near.h>'
    found layers src/core/planted.c:2 'in ""'
    plant tools/planted.c '#include "core/planted_missing.h"'
    found layers tools/planted.c:2 "no path from src"
    plant tests/planted/planted_near.h
    plant tests/planted/planted.c '#include "planted/planted_near.h"' '#include "epx.h"'
    left_alone layers
    plant src/transport/mpi/planted_other.h
    plant src/transport/shm/planted.c '# include "transport/mpi/planted_other.h"'
    found layers src/transport/shm/planted.c:2 "of another transport"
    plant src/transport/cuda/planted_other.h
    plant src/transport/ucx/planted.c '#include "transport/cuda/planted_other.h"' \
        '/*' '#include "coll/planted_comment.h"' '#if HAVE_COMMENT */'
    left_alone layers
}

plant_symbols() {
    for condition in 'if HAVE_PLANTED' 'ifdef HAVE_PLANTED' ' ifndef HAVE_PLANTED' \
        'if defined(HAVE_PLANTED)'; do
        plant src/core/planted.c "#$condition" '#endif'
        found layers src/core/planted.c:2 "asks for HAVE_"
    done
    plant src/api/planted.c '#if 1' "#elif defined(X) && $on" '    HAVE_PLANTED' '#endif'
    found layers src/api/planted.c:4 "asks for HAVE_"
    plant src/core/planted.c 'int EPX_Planted(void)' '{' '    return 0;' '}'
    found layers src/core/planted.c:2 "defines EPX_Planted"
    plant src/api/planted.c 'int PEPX_Planted(int a,' '    int b)' '{' '    return 0;' '}'
    found layers src/api/planted.c:2 "defines PEPX_Planted"
    plant src/api/api_planted.c 'struct a *epx_planted(int (*f)(int))' '{' '    return 0;' '}'
    found layers src/api/api_planted.c:2 "defines epx_planted"
    plant src/api/api_planted.c 'int epx_planted_value = 3;'
    found layers src/api/api_planted.c:2 "defines epx_planted_value"
    plant src/api/api_planted.c 'EPX_PROFILED(Planted)' 'static int values[2];' \
        'static int planted(void)' '{' '    return EPX_Planted();' '}' \
        'int EPX_Planted(void)' '{' '    return planted();' '}' 'extern int epx_planted_value;' \
        'int epx_planted_elsewhere(void);' 'struct epx_planted;'
    left_alone layers
}

# vendor FILE HEADER WHERE
vendor() {
    plant "$1" "#include <$2>"
    found vendors "$1:2" "which is for $3"
}

plant_vendors() {
    vendor src/transport/cuda/planted.c nccl.h src/transport/nccl
    vendor src/kernels/routing/planted.cu nccl_device.h src/transport/nccl
    vendor src/transport/nccl/planted.c ucp/api/ucp.h src/transport/ucx
    vendor src/transport/planted.c ucs/type/status.h src/transport/ucx
    vendor src/transport/cuda/planted.h uct/api/uct.h src/transport/ucx
    vendor src/coll/planted.c cuda_runtime_api.h 'src/transport/{cuda,nccl,ucx}'
    vendor src/kernels/planted.h cuda.h 'src/transport/{cuda,nccl,ucx}'
    vendor src/transport/shm/planted.c cooperative_groups.h 'src/transport/{cuda,nccl,ucx}'
    vendor src/core/planted.cu nv/target 'src/transport/{cuda,nccl,ucx}'
    vendor src/core/planted.c mpi.h include/epx.h
    plant src/kernels/routing/planted.cuh '#include <cuda/atomic>' '#include <nv/target>'
    plant src/coll/device/planted.c '#include <cuda_runtime.h>'
    plant src/coll/planted.c '#include "transport/cuda/cuda_errors.h"' '/* #include <nccl.h> */'
    left_alone vendors
}

# circle FOLDER NUMBER - as many headers each include the next, the last by its .c the first.
circle() {
    i=1
    while [ $i -lt "$2" ]; do
        plant "src/$1/planted_$i.h" "#include \"$1/planted_$((i + 1)).h\""
        i=$((i + 1))
    done
    plant "src/$1/planted_$i.h"
    plant "src/$1/planted_$i.c" "#include \"$1/planted_$i.h\"" "#include \"$1/planted_1.h\""
    found circles "src/$1/planted_1.h:2" "src/$1/planted_$i -> src/$1/planted_1 (src/"
}

plant_circles() {
    circle core 2
    circle kernels/host 3
    circle coll 9
    plant tools/planted_a.h '#include "planted_b.h"'
    plant tools/planted_b.h '#include "planted_a.h"'
    found circles tools/planted_a.h:2 "planted_b -> tools/planted_a ("
    plant src/core/planted_a.h
    plant src/core/planted_b.h '#include "core/planted_a.h"'
    plant src/core/planted_a.c '#include "core/planted_a.h"'
    plant src/core/planted_a.cu '#include "core/planted_a.h"' '/* #include "core/planted_b.h" */'
    left_alone circles
}

# Nothing is included here but the glue's one header.
plant_circles_of_names() {
    a='int epx_python_planted_a(void)' b='epx_python_planted_b()'
    plant python/planted_a.c "$a" '{' "    return $b;" '}'
    plant python/planted_b.c 'struct table epx_python_planted_b;' \
        'struct core core = {epx_python_planted_a};'
    found circles python/planted_a.c:4 "planted_b -> python/planted_a (python/"
    plant python/planted_a.c "$a" '{' "    return $b;" '}'
    plant python/planted_b.c '/* epx_python_planted_a */' 'char *s = "epx_python_planted_a";' \
        'int epx_python_planted_b(struct epx_python_planted_a *a)' '{' '}'
    plant python/mpi/planted_a.c 'int epx_python_planted_b(void)' '{' '}'
    plant python/mpi/planted_b.c 'int f(void)' '{' "    return $b;" '}'
    left_alone circles
}

# import_circle STATEMENT... - a module has the statement, and what it imports imports that module.
import_circle() {
    plant_module a 'from epx._planted_b import f'
    plant_module b '"""Says' 'import epx."""' 'import re' "$@"
    found circles python/epx/_planted_a.py:2 \
        "_planted_b -> python/epx/_planted_a (python/epx/_planted_a.py:2, python/epx/_planted_b."
}

# plant_module LETTER LINES...
plant_module() {
    file=python/epx/_planted_$1.py
    shift
    plant_bare "$file" '# SPDX-License-Identifier: BSD-3-Clause' "$@"
}

plant_circles_of_imports() {
    import_circle 'from epx._planted_a import g as h'
    import_circle 'from epx import _planted_a'
    import_circle 'from epx import _core, _planted_a as a'
    import_circle 'from . import _planted_a'
    import_circle 'from ._planted_a import *'
    import_circle 'import re, epx._planted_a'
    import_circle '    import epx._planted_a as a  # within a function'
    import_circle "from epx import ( # ')" '    _core,' '    _planted_a,' ')'
    import_circle "from epx import $on" '    _planted_a'
    import_circle 'if TYPE_CHECKING: pass; from epx import _core' 'from epx import _planted_a'
    plant_bare python/epx/planted/__init__.py 'from epx.planted.a import f'
    plant_bare python/epx/planted/a.py 'from .. import _core' 'from . import f'
    found circles python/epx/planted/__init__.py:1 "/a -> python/epx/planted/__init__ ("
    plant_module a 'from epx._planted_b import f'
    plant_module b 'from __future__ import annotations' 'if typing.TYPE_CHECKING:' \
        '    from epx import _planted_a' '' '    import epx._planted_a' \
        '"""' 'from epx import _planted_a' '"""' "x =  'import epx._planted_a'  + '\\'" \
        '# import epx._planted_a' 's = "\"; import epx._planted_a"' 'import planted.epx._planted_a'
    left_alone circles
}

# list FILE LINES... - the third line ends, or has, a list of seven.
list() {
    file=$1
    plant "$@"
    found functions "$file:3" "f has 7 parameters"
}

plant_functions() {
    list src/core/planted.h '' 'int f(int a, int b, int c, int d, int e, int f, int g);'
    list tools/planted.c '' 'static int f(int a, int b, /* , */ int c, int d, char e,' \
        '    int f[2], int (*g)(int, int))' '{' '    return 0;' '}'
    list python/planted.c '' 'int f(int a, int b, int c, int d, int e, int f, int g)' '{' '}'
    list src/core/planted.h 'struct planted {' \
        '    int (*f)(int, int, int, int, int, int, int);' '};'
    list src/core/planted.h '' 'typedef int (*f)(int, int, int, int, int, int, int);'
    list src/core/planted.c 'static void g(int a,' \
        '              int (*f)(int, int, int, int, int, int, int))' '{' '}'
    list src/core/planted.h 'extern "C" {' 'int f(int, int, int, int, int, int, ...);' '}'
    list src/core/planted.cu \
        'template <typename T, int N = 1> __global__ void __launch_bounds__(9)' \
        'f(pair<T, N> a, T b, T c, T d, T e, T f, T g)' '{' '}'
    list src/core/planted.h '#define ARGUMENTS int a, int b, int c, int d, int e, int f' \
        'static void NAME(f)(int, int, int, int, int, int, int) {' '}'
    plant src/core/planted.c 'static int f(int a, char *b)' '{' "$(lines 51 '    a++; /* } */')" '}'
    found functions src/core/planted.c:2 "f has a body of 51 lines"
    plant src/kernels/warp/planted.cuh 'static int planted(int a)' '{' '}' \
        'static int planted(long a)' '{' '}'
    plant src/kernels/wires/planted.cuh 'static int planted(int a)' '{' '}'
    found functions src/kernels/wires/planted.cuh:2 "planted is also defined in"
    plant src/kernels/host/planted.c 'static int planted(int a)' '{' '}'
    plant src/kernels/warp/planted.cuh 'static int planted(int a)' '{' '}' \
        'static int planted(long a)' '{' '}'
    left_alone functions
    plant src/core/planted.c "#define M(a, b, c, d, e, f, g) $on" '    f(a, b, c, d, e, f, g)' \
        'MACRO(a, b, c, d, e, f, g)' 'int EPX_F(int, int, int, int, int, int, int);' \
        'static int f(int a, int (*g)(int, int, int), int c, int d, int e, int f)' '{' \
        "$(lines 46 '    a = "}" + 1;')" '    return g(1, 2, 3, 4, 5, 6, 7);' \
        '#if 0' '}' '#else' '}' '#endif' '#if X' 'int h(int a,' '#else' 'int h(long a,' '#endif' \
        '    int b, int c, int d);' 'static int v[] = {g(1, 2, 3, 4, 5, 6, 7)};'
    plant src/core/planted.cuh \
        'static void f(pair<int, int> a, pair<int, int> b, pair<int, int> c, pair<int, int> d);'
    left_alone functions
}

plant_folders() {
    i=1
    while [ $i -le 25 ]; do
        plant "examples/planted/planted_$i.c"
        i=$((i + 1))
    done
    plant_bare examples/planted/planted_script '#!/bin/sh'
    found folders examples/planted "26 sources"
    plant tools/planted.c
    plant tests/planted.c
    found folders tools/planted.c:1 "has the name of tests/planted.c"
    plant src/base/planted.c
    plant src/core/planted.h
    found folders src/core/planted.h:1 "has the stem of src/base/planted"
    for folder in src/core tests tools; do
        plant $folder/planted/planted.c
        found folders $folder/planted "no local.mk"
    done
    plant src/core/planted.c
    plant src/core/planted.h
    plant src/core/planted.cu
    plant_bare src/planted '#! /bin/sh' '' '# src/planted - temporary wrapper script for this'
    plant_bare src/core/planted.o
    plant_bare src/core/.libs/planted.o
    left_alone folders
}

plant_texts() {
    plant_bare src/core/planted.c '/* planted.c - has no license. */'
    found text src/core/planted.c:1 "no SPDX line"
    plant_bare tests/planted_script '#!/bin/sh' '#' '#' '# SPDX-License-Identifier: BSD-3-Clause'
    found text tests/planted_script:1 "no SPDX line"
    plant_bare man/planted.3 '.TH planted'
    found text man/planted.3:1 "no SPDX line"
    plant_bare python/planted.py '"""Has no license."""'
    found text python/planted.py:1 "no SPDX line"
    plant tools/planted.c "$(lines 101 x | tr -d '\n')"
    found text tools/planted.c:2 "101 columns"
    plant tools/planted.c "$(lines 100 x | tr -d '\n')" \
        '/* planted.c - the same: It is, of all. */' \
        'f("/* Of it */"); /* Often */' '/* Its' ' * Of */' '# 3 // is' '// It_is' \
        '// the same' '// Of' '/* of */ /* Item */'
    plant_bare tests/planted '#! /bin/sh' '' '# tests/planted - temporary wrapper script for this'
    plant_bare m4/planted.m4 '# Of libtool.'
    left_alone text
}

# opening FILE LINE WORDS TEXT...
opening() {
    file=$1 at=$2 words=$3
    shift 3
    plant_bare "$file" "$@"
    found text "$file:$at" "a comment opens with \"$words\""
}

plant_openings() {
    hash='# SPDX-License-Identifier: BSD-3-Clause'
    for words in Of "That of" Those "The same" Likewise likewise "As above" Ditto "This one" It; do
        opening src/core/planted.c 2 "$words" "$license" "/* $words x. */"
    done
    opening include/planted.h 2 Of "$license" '/*' ' * planted.h - Of x.' ' */'
    opening tools/planted.cu 2 'That of' "$license" '/* That' ' * of x. */'
    opening tests/planted.cuh 2 likewise "$license" 'int x; /* likewise */ int y;'
    opening examples/planted.c 3 It "$license" 'int x; // the first' 'int y; // It is y.'
    opening src/core/planted.c 3 Those "$license" 'int x;' '// Those' '// are two.'
    opening tests/planted_one.sh 3 'The same' '#!/bin/sh' "$hash" '# The same.'
    opening contrib/planted_script 4 It '#!/bin/sh' "$hash" 'true' 'true # It is.'
    opening src/core/planted.mk 2 Ditto "$hash" '# Ditto'
    opening fortran/planted.F90 2 'As above' '! SPDX-License-Identifier: BSD-3-Clause' \
        'x = 1 ! As above'
    opening m4/epx_planted.m4 2 'This one' "$hash" 'dnl This one'
    opening m4/epx_planted.m4 2 'That of' "$hash" '# That' '# of'
}

plant_formats() {
    plant tests/planted.c 'int  planted ;'
    found format tests/planted.c:2 "clang-format -i changes"
    plant src/core/planted.cuh 'int planted(int a)' '{' '  return a;' '}'
    found format src/core/planted.cuh:3 "clang-format -i changes"
    plant src/core/planted.h 'int planted(int a);'
    left_alone format
}

skipped=
copy_sources
expect_clean
keep_a_part
plant_layers
plant_symbols
plant_vendors
plant_circles
plant_circles_of_names
plant_circles_of_imports
plant_functions
plant_folders
plant_texts
plant_openings
[ "$skipped" = format ] || plant_formats
[ $status -ne 0 ] || echo "planted: the lints find all of $num_planted"
exit $status
