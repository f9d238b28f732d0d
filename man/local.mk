# SPDX-License-Identifier: BSD-3-Clause
# A page for every public function; the links are functions that share a page. epx_hints(7) gets
# its hints from src/base/param.c and src/transport/list.c, epx_tutorial(7) its programs and what
# they print from examples/tutorial/.
dist_man_MANS += \
  man/EPX_Alloc_mem.3 \
  man/EPX_Alltoallv.3 \
  man/EPX_Alltoallv_init.3 \
  man/EPX_Combine.3 \
  man/EPX_Combine_backward.3 \
  man/EPX_Combine_from.3 \
  man/EPX_Comm_create.3 \
  man/EPX_Comm_create_from.3 \
  man/EPX_Comm_free.3 \
  man/EPX_Comm_get_async_error.3 \
  man/EPX_Comm_get_error_message.3 \
  man/EPX_Get_error_message.3 \
  man/EPX_Comm_get_hint.3 \
  man/EPX_Comm_get_info.3 \
  man/EPX_Comm_get_ranks.3 \
  man/EPX_Comm_get_stats.3 \
  man/EPX_Comm_get_waits.3 \
  man/EPX_Comm_rank.3 \
  man/EPX_Comm_set_errhandler.3 \
  man/EPX_Comm_shrink.3 \
  man/EPX_Comm_size.3 \
  man/EPX_Dispatch.3 \
  man/EPX_Dispatch_backward.3 \
  man/EPX_Dispatch_fields.3 \
  man/EPX_Error_string.3 \
  man/EPX_Free_mem.3 \
  man/EPX_Get_library_version.3 \
  man/EPX_Get_version.3 \
  man/EPX_Graph_create_adjacent.3 \
  man/EPX_Graph_free.3 \
  man/EPX_Neighbor_alltoallv.3 \
  man/EPX_Neighbor_alltoallv_init.3 \
  man/EPX_Request_free.3 \
  man/EPX_Route_create.3 \
  man/EPX_Route_dispatch.3 \
  man/EPX_Route_dispatch_fields.3 \
  man/EPX_Route_free.3 \
  man/EPX_Route_get_view.3 \
  man/EPX_Route_set_capacity.3 \
  man/EPX_Route_set_counts.3 \
  man/EPX_Route_tokens.3 \
  man/EPX_Start.3 \
  man/EPX_Startall.3 \
  man/EPX_Test.3 \
  man/EPX_Wait.3 \
  man/EPX_Wait_enqueue.3 \
  man/EPX_Waitall.3 \
  man/epx.7 \
  man/epx_info.1 \
  man/epx_memory.7 \
  man/epx_moe.1 \
  man/epx_particles.1 \
  man/epx_perf.1 \
  man/epx_perf_plot.1 \
  man/epx_perf_sweep.1 \
  man/epx_petsc.7 \
  man/epx_transports.7 \
  man/epx_trouble.7

nodist_man_MANS = \
  man/epx_hints.7 \
  man/epx_tutorial.7

EXTRA_DIST += \
  examples/first.c \
  man/epx_hints.7.in \
  man/epx_tutorial.7.in \
  man/hints.awk \
  man/structs.awk \
  man/texts.awk

CLEANFILES += $(nodist_man_MANS) man/*.tmp

man/epx_hints.7: man/epx_hints.7.in man/hints.awk src/base/param.c src/transport/list.c
	$(AM_V_GEN)$(MKDIR_P) man && \
	$(AWK) -f $(srcdir)/man/hints.awk $(srcdir)/src/transport/list.c \
	  $(srcdir)/src/base/param.c $(srcdir)/man/epx_hints.7.in >$@.tmp && \
	mv -f $@.tmp $@

man/epx_tutorial.7: man/epx_tutorial.7.in man/texts.awk examples/first.c $(tutorial_texts)
	$(AM_V_GEN)$(MKDIR_P) man && \
	$(AWK) -v srcdir=$(srcdir) -f $(srcdir)/man/texts.awk $(srcdir)/man/epx_tutorial.7.in \
	  >$@.tmp && \
	mv -f $@.tmp $@
