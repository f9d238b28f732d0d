#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The recipe for Spack compiles, and gives configure no argument that it does not know.
set -u
cd "${srcdir:-.}" || exit 1
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || {
    echo "lint_spack: skipped, there is no Python 3.9"
    exit 77
}
exec python3 contrib/spack/check_recipe.py configure
