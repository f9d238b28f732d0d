# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/kernels/args/alltoallv_args.h \
  src/kernels/args/bank_args.h \
  src/kernels/args/block_shape.h \
  src/kernels/args/control_args.h \
  src/kernels/args/device_comm.h \
  src/kernels/args/device_outcome.h \
  src/kernels/args/load.h \
  src/kernels/args/mover_args.h \
  src/kernels/args/ready_note.h \
  src/kernels/args/route_args.h \
  src/kernels/args/route_dispatch_args.h \
  src/kernels/args/row_args.h \
  src/kernels/args/sum_args.h
