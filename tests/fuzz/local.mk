# SPDX-License-Identifier: BSD-3-Clause
# The fuzz targets: replayed over their inputs, corpus/ and letters/, by `make check' with any
# compiler; `make fuzz' lets clang's libFuzzer look for more, from these, into fuzz/ of the build. A
# fault stops it and leaves the input in fuzz/.
check_PROGRAMS += tests/fuzz/fuzz_letters_replay tests/fuzz/fuzz_replay
EXTRA_DIST += tests/fuzz/corpus tests/fuzz/letters
tests_fuzz_fuzz_letters_replay_SOURCES = \
  tests/fuzz/fuzz.h \
  tests/fuzz/fuzz_letters.c \
  tests/fuzz/fuzz_replay.c
tests_fuzz_fuzz_letters_replay_CPPFLAGS = $(unit_cppflags)
# What libepx_mpi_parts needs of libepx_core, which comes before it.
tests_fuzz_fuzz_letters_replay_LDFLAGS = -Wl,-u,epx_letter_liveness_create -Wl,-u,epx_comm_agree
tests_fuzz_fuzz_letters_replay_LDADD = $(unit_ldadd)
tests_fuzz_fuzz_replay_SOURCES = \
  tests/fuzz/fuzz.h \
  tests/fuzz/fuzz_api.c \
  tests/fuzz/fuzz_replay.c
tests_fuzz_fuzz_replay_CPPFLAGS = $(tests_cppflags)
tests_fuzz_fuzz_replay_LDADD = libepx.la $(MPI_LIBS)

FUZZ_SECONDS = 60
FUZZ_CC = clang
FUZZ_CFLAGS = -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
fuzz_sources = $(filter %.c,$(libepx_core_la_SOURCES) $(libepx_mpi_parts_la_SOURCES))

fuzz/fuzz_api fuzz/fuzz_letters: fuzz/%: $(srcdir)/tests/fuzz/%.c \
    $(addprefix $(srcdir)/,$(fuzz_sources))
	@$(MKDIR_P) fuzz
	$(FUZZ_CC) $(FUZZ_CFLAGS) -ffp-contract=off $(DEFAULT_INCLUDES) $(libepx_core_la_CPPFLAGS) \
	  -I$(top_srcdir)/tests -o $@ $^ $(libepx_core_la_LIBADD) $(MPI_LIBS) -lpthread -lrt -ldl

.PHONY: fuzz
fuzz: fuzz/fuzz_api fuzz/fuzz_letters
	@$(MKDIR_P) fuzz/found fuzz/found_letters
	fuzz/fuzz_letters -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -timeout=60 \
	  -close_fd_mask=2 -print_final_stats=1 -artifact_prefix=fuzz/ fuzz/found_letters \
	  $(srcdir)/tests/fuzz/letters
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0 \
	  fuzz/fuzz_api -max_total_time=$(FUZZ_SECONDS) -max_len=512 -timeout=60 -handle_xfsz=0 \
	  -close_fd_mask=2 -print_final_stats=1 -artifact_prefix=fuzz/ fuzz/found \
	  $(srcdir)/tests/fuzz/corpus

clean-local: clean-fuzz
clean-fuzz:
	rm -rf fuzz
.PHONY: clean-fuzz
