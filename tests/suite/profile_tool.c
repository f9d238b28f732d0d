/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * profile_tool.c - a tool that is preloaded: it takes the place of some functions, counts their
 * calls and passes them on. test_profiling finds it by tool_calls.
 */
#include <string.h>

#include "epx.h"
#include "suite/profile_tool.h"

static struct tool_counter {
    const char *function;
    int calls;
} counters[] = {
    {"EPX_Comm_create", 0},
    {"EPX_Route_tokens", 0},
    {"EPX_Dispatch", 0},
    {"EPX_Route_dispatch", 0},
    {"EPX_Combine", 0},
    {"EPX_Wait", 0},
    {"EPX_Test", 0},
    {"EPX_Waitall", 0},
    {"EPX_Wait_enqueue", 0},
    {"EPX_Dispatch_fields", 0},
    {"EPX_Route_dispatch_fields", 0},
};

static int *counter(const char *function)
{
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
        if (strcmp(counters[i].function, function) == 0)
            return &counters[i].calls;
    return NULL;
}

int tool_calls(const char *function)
{
    int *calls = counter(function);
    int taken = calls ? *calls : -1;

    if (calls)
        *calls = 0;
    return taken;
}

int EPX_Comm_create(MPI_Comm comm, MPI_Info info, EPX_Comm *newcomm)
{
    ++*counter(__func__);
    return PEPX_Comm_create(comm, info, newcomm);
}

int EPX_Route_tokens(const void *expert_ids, int num_tokens, EPX_Route route, EPX_Stream stream,
                     EPX_Request *request)
{
    ++*counter(__func__);
    return PEPX_Route_tokens(expert_ids, num_tokens, route, stream, request);
}

int EPX_Dispatch(const void *sendbuf, const float *weights, void *recvbuf, float *recv_weights,
                 int count, EPX_Datatype datatype, EPX_Route route, EPX_Stream stream,
                 EPX_Request *request)
{
    ++*counter(__func__);
    return PEPX_Dispatch(sendbuf, weights, recvbuf, recv_weights, count, datatype, route, stream,
                         request);
}

int EPX_Route_dispatch(const void *expert_ids, int num_tokens, const void *sendbuf,
                       const float *weights, void *recvbuf, float *recv_weights, int count,
                       EPX_Datatype datatype, EPX_Route route, EPX_Stream stream,
                       EPX_Request *request)
{
    ++*counter(__func__);
    return PEPX_Route_dispatch(expert_ids, num_tokens, sendbuf, weights, recvbuf, recv_weights,
                               count, datatype, route, stream, request);
}

int EPX_Dispatch_fields(int nfields, const void *const sendbufs[], void *const recvbufs[],
                        const int counts[], const EPX_Datatype datatypes[], const float *weights,
                        float *recv_weights, EPX_Route route, EPX_Stream stream,
                        EPX_Request *request)
{
    ++*counter(__func__);
    return PEPX_Dispatch_fields(nfields, sendbufs, recvbufs, counts, datatypes, weights,
                                recv_weights, route, stream, request);
}

int EPX_Route_dispatch_fields(const void *expert_ids, int num_tokens, int nfields,
                              const void *const sendbufs[], void *const recvbufs[],
                              const int counts[], const EPX_Datatype datatypes[],
                              const float *weights, float *recv_weights, EPX_Route route,
                              EPX_Stream stream, EPX_Request *request)
{
    ++*counter(__func__);
    return PEPX_Route_dispatch_fields(expert_ids, num_tokens, nfields, sendbufs, recvbufs, counts,
                                      datatypes, weights, recv_weights, route, stream, request);
}

int EPX_Combine(const void *sendbuf, const float *weights, void *recvbuf, int count,
                EPX_Datatype datatype, EPX_Route route, EPX_Stream stream, EPX_Request *request)
{
    ++*counter(__func__);
    return PEPX_Combine(sendbuf, weights, recvbuf, count, datatype, route, stream, request);
}

int EPX_Wait(EPX_Request *request, MPI_Status *status)
{
    ++*counter(__func__);
    return PEPX_Wait(request, status);
}

int EPX_Test(EPX_Request *request, int *flag, MPI_Status *status)
{
    ++*counter(__func__);
    return PEPX_Test(request, flag, status);
}

int EPX_Waitall(int n, EPX_Request requests[], MPI_Status *statuses)
{
    ++*counter(__func__);
    return PEPX_Waitall(n, requests, statuses);
}

int EPX_Wait_enqueue(EPX_Request *request, EPX_Stream stream)
{
    ++*counter(__func__);
    return PEPX_Wait_enqueue(request, stream);
}
