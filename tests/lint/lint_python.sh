#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# ruff finds nothing in the Python package and in its tests, nothing to format either, and mypy
# --strict nothing in the package; python/pyproject.toml has their settings.
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
"$PYTHON" -m ruff check --no-cache --quiet . || status=1
"$PYTHON" -m ruff format --no-cache --diff --quiet . || status=1
"$PYTHON" -c 'import torch' 2>/dev/null || {
    echo "lint_python: types are not checked, $PYTHON has no torch"
    exit $status
}
"$PYTHON" -m mypy --cache-dir "$work" || status=1
exit $status
