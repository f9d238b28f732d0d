# SPDX-License-Identifier: BSD-3-Clause
include src/kernels/flows/rows/local.mk
include src/kernels/flows/sums/local.mk
include src/kernels/flows/grads/local.mk
