#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Makes configure in a fresh clone.
cd "$(dirname "$0")" && exec autoreconf --install --force "$@"
