# SPDX-License-Identifier: BSD-3-Clause
# The fuzz target: replayed over its corpus by `make check' with any compiler; `make fuzz' lets
# clang's libFuzzer look for more, from the corpus, into fuzz/ of the build. A fault stops it and
# leaves the input in fuzz/.
check_PROGRAMS += tests/fuzz/fuzz_replay
EXTRA_DIST += tests/fuzz/corpus
tests_fuzz_fuzz_replay_SOURCES = \
  tests/fuzz/fuzz.h \
  tests/fuzz/fuzz_api.c \
  tests/fuzz/fuzz_replay.c
tests_fuzz_fuzz_replay_CPPFLAGS = $(tests_cppflags)
tests_fuzz_fuzz_replay_LDADD = libepx.la $(MPI_LIBS)

FUZZ_SECONDS = 60
FUZZ_CC = clang
FUZZ_CFLAGS = -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
fuzz_sources = $(filter %.c,$(libepx_core_la_SOURCES) $(libepx_mpi_parts_la_SOURCES)) \
  tests/fuzz/fuzz_api.c

fuzz/fuzz_api: $(addprefix $(srcdir)/,$(fuzz_sources))
	@$(MKDIR_P) fuzz
	$(FUZZ_CC) $(FUZZ_CFLAGS) -ffp-contract=off $(DEFAULT_INCLUDES) $(libepx_core_la_CPPFLAGS) \
	  -I$(top_srcdir)/tests -o $@ $^ $(libepx_core_la_LIBADD) $(MPI_LIBS) -lpthread -lrt -ldl

.PHONY: fuzz
fuzz: fuzz/fuzz_api
	@$(MKDIR_P) fuzz/found
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0 \
	  fuzz/fuzz_api -max_total_time=$(FUZZ_SECONDS) -max_len=512 -timeout=60 -handle_xfsz=0 \
	  -close_fd_mask=2 -print_final_stats=1 -artifact_prefix=fuzz/ fuzz/found \
	  $(srcdir)/tests/fuzz/corpus

clean-local: clean-fuzz
clean-fuzz:
	rm -rf fuzz
.PHONY: clean-fuzz
