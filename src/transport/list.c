/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * list.c - the list of transports, and the only file that asks what the build has. It is compiled
 * twice: libepx has the tables of host memory, its module libepx_cuda those of device memory.
 */
#include "transport/list.h"

#include "config.h"

#define ABSENT NULL, 0
#ifdef EPX_CUDA_MODULE
#define HOST(ops) NULL, 1
#define DEVICE(ops) &(ops), 1
#else
#define HOST(ops) &(ops), 1
#define DEVICE(ops) NULL, 1
#endif

/* In the module libepx_mpi. */
#define MPI NULL, 1

#if HAVE_UCX
#define UCX(ops) HOST(ops)
#else
#define UCX(ops) ABSENT
#endif
#if HAVE_CUDA
#define CUDA(ops) DEVICE(ops)
#else
#define CUDA(ops) ABSENT
#endif
#if HAVE_CUDA && HAVE_NCCL
#define CUDA_NCCL(ops) DEVICE(ops)
#else
#define CUDA_NCCL(ops) ABSENT
#endif
#if HAVE_CUDA && HAVE_UCX
#define CUDA_UCX(ops) DEVICE(ops)
#else
#define CUDA_UCX(ops) ABSENT
#endif

/* Two neighbouring lines with one name and memory are two implementations of one transport. */
const struct epx_listed epx_transports[] = {
    {"lsa", EPX_MEMORY_CUDA, CUDA_NCCL(epx_transport_lsa), 0,
     "kernels store into NCCL symmetric windows"},
    {"ipc", EPX_MEMORY_CUDA, CUDA(epx_transport_ipc), 0, "kernels store into CUDA IPC memory"},
    {"nccl", EPX_MEMORY_CUDA, CUDA_NCCL(epx_transport_nccl), 0,
     "NCCL messages, exact counts; rows go to a node once"},
    {"ucx", EPX_MEMORY_CUDA, CUDA_UCX(epx_transport_ucx_device), 0,
     "UCX on device memory; rows go to a node once"},
    {"ucx", EPX_MEMORY_CUDA, CUDA_UCX(epx_transport_bounce), 0,
     "UCX through pinned memory; rows go to a node once"},
    {"shm", EPX_MEMORY_SYSTEM, HOST(epx_transport_shm), 0,
     "ranks store into each other's shared memory"},
    {"shm+ucx", EPX_MEMORY_SYSTEM, UCX(epx_transport_ucx), 1,
     "shared memory inside a node, UCX between nodes"},
    {"ucx", EPX_MEMORY_SYSTEM, UCX(epx_transport_ucx), 0,
     "UCX: stores within a node, messages between nodes"},
    {"shm+mpi", EPX_MEMORY_SYSTEM, MPI, 1, "shared memory inside a node, MPI between nodes"},
    {"mpi", EPX_MEMORY_SYSTEM, MPI, 0, "MPI collectives on host buffers"},
    {NULL, EPX_MEMORY_AUTO, ABSENT, 0, NULL},
};

#ifndef EPX_CUDA_MODULE
/* The values of the hint epx_transport: auto, and every name of the list once, in its order. */
const char *const epx_param_transports[] = {"auto",    "lsa", "ipc",     "nccl", "shm",
                                            "shm+ucx", "ucx", "shm+mpi", "mpi",  NULL};
#endif
