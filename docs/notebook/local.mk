# SPDX-License-Identifier: BSD-3-Clause
# The notebook: what was measured, a file for each day and question. README.md has a line for each.
nobase_dist_doc_DATA += \
  docs/notebook/2026-11-23_not_small.md \
  docs/notebook/2026-11-23_small_operations.md \
  docs/notebook/2026-11-23_what_was_tried.md \
  docs/notebook/2026-11-23_where_small_ends.md \
  docs/notebook/2026-11-24_pinned_messages.md \
  docs/notebook/2026-11-24_two_gpus.md \
  docs/notebook/2026-11-25_few_multiprocessors.md \
  docs/notebook/2026-11-25_launches.md \
  docs/notebook/2026-11-25_packets.md \
  docs/notebook/2026-11-25_small_combines.md \
  docs/notebook/2026-11-25_small_routings.md \
  docs/notebook/2026-11-26_calls.md \
  docs/notebook/2026-11-27_alltoallv.md \
  docs/notebook/2026-11-27_beside_products.md \
  docs/notebook/2026-11-27_host_memory.md \
  docs/notebook/2026-11-27_large_routings.md \
  docs/notebook/2026-11-27_middle_rows.md \
  docs/notebook/2026-11-27_short_rows.md \
  docs/notebook/2026-11-27_two_h200s.md \
  docs/notebook/2026-11-28_grid_of_shapes.md \
  docs/notebook/2026-11-29_lost_ranks.md \
  docs/notebook/2026-11-29_making_a_communicator.md \
  docs/notebook/2026-11-29_neighbours.md \
  docs/notebook/2026-11-29_one_h200.md \
  docs/notebook/2026-11-29_second_storey.md \
  docs/notebook/2026-11-30_guards.md \
  docs/notebook/2026-11-30_persistent_path.md \
  docs/notebook/2026-11-30_two_h200s.md \
  docs/notebook/2026-11-30_waits_and_spills.md \
  docs/notebook/2026-11-30_wires.md \
  docs/notebook/2026-12-01_given_weights.md \
  docs/notebook/README.md
