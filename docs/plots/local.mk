# SPDX-License-Identifier: BSD-3-Clause
# The plots of the documents. `make measure-host', `make measure-neighbor' and, on a machine with 2
# GPUs, `make measure-gpu' run epx_perf and write results to docs/plots in the source tree, or to
# PLOTS_DIR; `make plots' draws all results that are there. README.md in that folder says more.
nobase_dist_doc_DATA += \
  docs/plots/README.md \
  docs/plots/gpu_layer.json \
  docs/plots/gpu_layer.svg \
  docs/plots/host_layer.json \
  docs/plots/host_layer.svg \
  docs/plots/neighbor.json \
  docs/plots/neighbor.svg
EXTRA_DIST += \
  docs/plots/matplotlibrc \
  docs/plots/measure

plots_source = $(srcdir)/docs/plots
PLOTS_DIR = $(plots_source)

measure-host: epx_perf$(EXEEXT)
	$(plots_source)/measure $(PLOTS_DIR)/host_layer.json \
	  $(MPIEXEC) -n 2 ./epx_perf layer --peer mpi -t 1:4096

measure-neighbor: epx_perf$(EXEEXT)
	$(plots_source)/measure $(PLOTS_DIR)/neighbor.json $(MPIEXEC) -n 2 ./epx_perf neighbor -i 60

measure-gpu: epx_perf$(EXEEXT)
	$(plots_source)/measure $(PLOTS_DIR)/gpu_layer.json \
	  $(MPIEXEC) -n 2 ./epx_perf layer -d cuda --peer nccl -t 1:8192 -H 7168 -e 256 -T bfloat16

# The date in a picture is that of its results.
plots:
	for results in $(PLOTS_DIR)/*.json; do \
	  day=`sed -n 's/^  "date": "\(.*\)",/\1/p' $$results` && \
	  SOURCE_DATE_EPOCH=`date -u -d "$$day" +%s` MATPLOTLIBRC=$(plots_source)/matplotlibrc \
	  $(srcdir)/tools/epx_perf/epx_perf_plot -o $${results%.json}.svg $$results || exit; \
	done

.PHONY: measure-host measure-neighbor measure-gpu plots
