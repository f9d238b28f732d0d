#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# python/setup.py, by which pip builds the package, takes nothing from an earlier build: JAX that
# was installed since is built in, and the library is looked for where epx.pc says now.
set -u
srcdir=$(cd "${srcdir:-.}" && pwd)
top_builddir=$(cd "${top_builddir:-.}" && pwd)
name=check_setup
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/programs.sh
. "$srcdir/tests/support/programs.sh"
PYTHON=${PYTHON:-python3}

# install_in FOLDER - where pkg-config finds this library.
install_in() {
    mkdir -p "$work/$1"
    ln -s "$top_builddir"/.libs/libepx.so* "$work/$1"
    cat >"$work/$1/epx.pc" <<END
libdir=$work/$1
Name: EPX
Description: not installed
Version: 0
Cflags: -I$srcdir/include $(configured MPI_CFLAGS)
Libs: -L$work/$1 -lepx $mpi_libs
END
}

# build FOLDER - the package against the library there.
build() {
    PKG_CONFIG_PATH=$work/$1 "$PYTHON" setup.py -q build_ext --inplace >"$work/said" 2>&1 ||
        die "setup.py fails: $(cat "$work/said")"
    [ ! -e build ] || die "setup.py leaves a folder build"
}

has() {
    grep -aq "$1" epx/_glue*.so
}

use_build
[ -f "$top_builddir/.libs/libepx.so" ] || skip "there is no shared library"
[ -z "${SANITIZER:-}" ] || skip "Python itself is not checked"
"$PYTHON" -c 'import setuptools' 2>/dev/null || skip "$PYTHON has no setuptools"
mkdir "$work/python" "$work/python/epx" "$work/python/mpi"
cp "$srcdir"/python/*.[ch] "$srcdir"/python/setup.py "$srcdir"/python/pyproject.toml "$work/python"
cp "$srcdir"/python/mpi/*.[ch] "$work/python/mpi"
cp "$srcdir"/python/epx/*.py "$srcdir"/python/epx/py.typed "$work/python/epx"
for package in interfaces te; do
    mkdir "$work/python/epx/$package"
    cp "$srcdir/python/epx/$package"/*.py "$work/python/epx/$package"
done
cd "$work/python" || exit 1
chmod -R u+w .
install_in one
install_in two

XLA_FFI_INCLUDE='' build one
has "$work/one" || die "the package does not know where its library is"
if "$PYTHON" -c 'import jax' 2>/dev/null; then
    ! has epx_python_xla_dispatch || die "JAX is built in where XLA_FFI_INCLUDE is empty"
    build one
    has epx_python_xla_dispatch || die "JAX is not built in"
fi
build two
has "$work/two" || die "the package looks for its library where it was"
