# SPDX-License-Identifier: BSD-3-Clause
# The programs of epx_tutorial(7), each with what it prints. tests/pages/check_tutorial.sh runs
# them.
tutorial_texts = \
  examples/tutorial/by_hand.c \
  examples/tutorial/by_hand.txt \
  examples/tutorial/forked.c \
  examples/tutorial/forked.txt \
  examples/tutorial/graph.c \
  examples/tutorial/grouped.c \
  examples/tutorial/grouped.txt \
  examples/tutorial/overflow.c \
  examples/tutorial/overflow.txt \
  examples/tutorial/overlap.c \
  examples/tutorial/overlap.txt \
  examples/tutorial/particles.c \
  examples/tutorial/particles.txt \
  examples/tutorial/rank_major.c \
  examples/tutorial/rank_major.txt \
  examples/tutorial/sizing.c \
  examples/tutorial/sizing.txt
tutorialdir = $(exampledir)/tutorial
dist_tutorial_DATA = $(tutorial_texts)
EXTRA_DIST += examples/tutorial/.clang-format
