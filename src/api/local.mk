# SPDX-License-Identifier: BSD-3-Clause
libepx_core_la_SOURCES += \
  src/api/api.c \
  src/api/api.h \
  src/api/api_alltoallv.c \
  src/api/api_coll.c \
  src/api/api_comm.c \
  src/api/api_create.c \
  src/api/api_dispatch.c \
  src/api/api_graph.c \
  src/api/api_health.c \
  src/api/api_init.c \
  src/api/api_request.c \
  src/api/api_route.c \
  src/api/api_start.c \
  src/api/calls.c \
  src/api/f08.c \
  src/api/f08.h \
  src/api/make_comm.c \
  src/api/profile.h
