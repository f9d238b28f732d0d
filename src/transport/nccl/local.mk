# SPDX-License-Identifier: BSD-3-Clause
if HAVE_NCCL
libepx_cuda_la_SOURCES += \
  src/transport/nccl/lsa_window.cu \
  src/transport/nccl/lsa_window.h \
  src/transport/nccl/nccl_open.c \
  src/transport/nccl/nccl_open.h \
  src/transport/nccl/nccl_ranks.c \
  src/transport/nccl/nccl_ranks.h \
  src/transport/nccl/transport_lsa.c \
  src/transport/nccl/transport_nccl.c
endif
