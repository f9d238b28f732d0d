# SPDX-License-Identifier: BSD-3-Clause
# CUDA without a GPU, for the unit tests that name these files, and hosts and nodes on one machine,
# for tests/run.
pretend_copies = tests/pretend/pretend_copies.c tests/pretend/pretend_copies.h
pretend_copying = tests/pretend/pretend_copying.c tests/pretend/pretend_copying.h
pretend_ipc = tests/pretend/pretend_ipc.c tests/pretend/pretend_ipc.h \
  tests/pretend/pretend_blocks.c tests/pretend/pretend_blocks.h
pretend_streams = tests/pretend/pretend_streams.c tests/pretend/pretend_streams.h
EXTRA_DIST += tests/pretend/pretend_host tests/pretend/simulated_nodes
