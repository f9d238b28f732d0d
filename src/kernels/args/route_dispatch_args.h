/* SPDX-License-Identifier: BSD-3-Clause */
/* route_dispatch_args.h - arguments and launchers of a routing and its dispatch in one launch. */
#ifndef EPX_KERNELS_ARGS_ROUTE_DISPATCH_ARGS_H
#define EPX_KERNELS_ARGS_ROUTE_DISPATCH_ARGS_H

#include "kernels/args/route_args.h"
#include "kernels/args/row_args.h"

/* Arguments of a small EPX_Route_dispatch; both parts have the same comm, note, plan and banks. */
struct epx_route_dispatch {
    struct epx_route_tokens routing;
    struct epx_dispatch_rows rows;
};

#ifdef __cplusplus
extern "C" {
#endif
/* Launchers return EPX_SUCCESS, or EPX_ERR_CUDA with the error left to cudaGetLastError. */
int epx_launch_route_dispatch_small(const struct epx_route_dispatch *args, EPX_Stream stream);
int epx_launch_route_dispatch_fields_small(const struct epx_route_dispatch *args,
                                           EPX_Stream stream);
#ifdef __cplusplus
}
#endif

#endif
