#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# ruff finds nothing in the Python package, in its tests and in the examples, nothing to format
# either, and mypy --strict nothing in the package and in the examples; python/pyproject.toml has
# their settings.
set -u
cd "${srcdir:-.}/python" || exit 1
PYTHON=${PYTHON:-python3}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

for tool in ruff mypy; do
    "$PYTHON" -m $tool --version >/dev/null 2>&1 || {
        echo "lint_python: skipped, $PYTHON has no $tool"
        exit 77
    }
done
set -- --config pyproject.toml --no-cache --quiet ../examples/python
"$PYTHON" -m ruff check "$@" || status=1
"$PYTHON" -m ruff format --diff "$@" || status=1
"$PYTHON" -m ruff check --no-cache --quiet . || status=1
"$PYTHON" -m ruff format --no-cache --diff --quiet . || status=1
"$PYTHON" -c 'import jax, torch' 2>/dev/null || {
    echo "lint_python: types are not checked, $PYTHON lacks jax or torch"
    exit $status
}
"$PYTHON" -m mypy --cache-dir "$work" || status=1
MYPYPATH=$PWD "$PYTHON" -m mypy --cache-dir "$work" ../examples/python/*.py || status=1
MYPYPATH=$PWD "$PYTHON" -m mypy --cache-dir "$work" deep_ep/deep_ep || status=1
exit $status
