#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# clang-format, by .clang-format, finds nothing to change in C and CUDA. Versions of it differ, so a
# comment "clang-format N" there names the one that counts; without it any from 14 on does.
set -u
LC_ALL=C
export LC_ALL
cd "${srcdir:-.}" || exit 1
CLANG_FORMAT=${CLANG_FORMAT:-clang-format}

skip() {
    echo "lint_format: skipped, $*"
    exit 77
}

[ -f .clang-format ] || skip "there is no .clang-format"
version=$("$CLANG_FORMAT" --version 2>/dev/null) || skip "there is no clang-format"
version=$(echo "$version" | sed -n 's/.*version \([0-9][0-9]*\)\..*/\1/p')
wanted=$(sed -n 's/^#.*clang-format \([0-9][0-9]*\).*/\1/p' .clang-format | head -n 1)
[ "${version:-0}" -ge 14 ] || skip "clang-format is older than 14"
[ "$version" = "${wanted:-$version}" ] ||
    skip "clang-format is of version $version, .clang-format of $wanted"

said=$(find src include tools tests examples python contrib -type f \( -name '*.[ch]' \
    -o -name '*.cu' -o -name '*.cuh' \) -print | sort |
    xargs "$CLANG_FORMAT" --style=file --dry-run 2>&1) || {
    echo "lint_format: .clang-format:1: clang-format fails: $said"
    exit 1
}
printf '%s\n' "$said" | awk -F : '
/^[^ :]+:[0-9]+:[0-9]+: warning: / && !(($1, $2) in seen) {
    print "lint_format: " $1 ":" $2 ": clang-format -i changes this line"
    seen[$1, $2] = 1
    bad = 1
}
END { exit bad }'
