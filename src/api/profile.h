/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * profile.h - the profiling layer: sources that define or call public functions say EPX_X and get
 * PEPX_X, of which EPX_X is a weak alias, so that a tool can replace EPX_X and sees no call that
 * the library makes itself. Where there are no weak aliases EPX_X is the function.
 */
#ifndef EPX_API_PROFILE_H
#define EPX_API_PROFILE_H

#include "config.h"
#include "epx.h"

#ifdef EPX_WEAK_ALIASES
/*
 * Stands, without a semicolon, in the file that defines EPX_name. The alias gets its name from the
 * assembler, because for the compiler EPX_name is PEPX_name by now.
 */
#define EPX_PROFILED(name)                                                                         \
    extern __typeof__(PEPX_##name) epx_weak_##name __asm__("EPX_" #name)                           \
        __attribute__((weak, alias("PEPX_" #name)));

#define EPX_Get_version PEPX_Get_version
#define EPX_Get_library_version PEPX_Get_library_version
#define EPX_Error_string PEPX_Error_string
#define EPX_Get_error_message PEPX_Get_error_message
#define EPX_Comm_create PEPX_Comm_create
#define EPX_Comm_create_from PEPX_Comm_create_from
#define EPX_Comm_free PEPX_Comm_free
#define EPX_Comm_rank PEPX_Comm_rank
#define EPX_Comm_size PEPX_Comm_size
#define EPX_Comm_get_info PEPX_Comm_get_info
#define EPX_Comm_get_hint PEPX_Comm_get_hint
#define EPX_Comm_set_errhandler PEPX_Comm_set_errhandler
#define EPX_Comm_get_async_error PEPX_Comm_get_async_error
#define EPX_Comm_get_error_message PEPX_Comm_get_error_message
#define EPX_Comm_get_stats PEPX_Comm_get_stats
#define EPX_Comm_get_waits PEPX_Comm_get_waits
#define EPX_Comm_shrink PEPX_Comm_shrink
#define EPX_Comm_get_ranks PEPX_Comm_get_ranks
#define EPX_Alloc_mem PEPX_Alloc_mem
#define EPX_Free_mem PEPX_Free_mem
#define EPX_Route_create PEPX_Route_create
#define EPX_Route_free PEPX_Route_free
#define EPX_Route_set_capacity PEPX_Route_set_capacity
#define EPX_Route_set_counts PEPX_Route_set_counts
#define EPX_Route_tokens PEPX_Route_tokens
#define EPX_Route_get_view PEPX_Route_get_view
#define EPX_Route_dispatch PEPX_Route_dispatch
#define EPX_Route_dispatch_fields PEPX_Route_dispatch_fields
#define EPX_Dispatch PEPX_Dispatch
#define EPX_Dispatch_fields PEPX_Dispatch_fields
#define EPX_Combine PEPX_Combine
#define EPX_Combine_from PEPX_Combine_from
#define EPX_Dispatch_backward PEPX_Dispatch_backward
#define EPX_Combine_backward PEPX_Combine_backward
#define EPX_Alltoallv PEPX_Alltoallv
#define EPX_Alltoallv_init PEPX_Alltoallv_init
#define EPX_Graph_create_adjacent PEPX_Graph_create_adjacent
#define EPX_Graph_free PEPX_Graph_free
#define EPX_Neighbor_alltoallv PEPX_Neighbor_alltoallv
#define EPX_Neighbor_alltoallv_init PEPX_Neighbor_alltoallv_init
#define EPX_Start PEPX_Start
#define EPX_Startall PEPX_Startall
#define EPX_Request_free PEPX_Request_free
#define EPX_Wait PEPX_Wait
#define EPX_Test PEPX_Test
#define EPX_Waitall PEPX_Waitall
#define EPX_Wait_enqueue PEPX_Wait_enqueue
#else
#define EPX_PROFILED(name)
#endif

#endif
