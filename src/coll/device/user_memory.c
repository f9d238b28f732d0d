/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * user_memory.c - whether kernels can use the memory that a caller gives them.
 *
 * The driver knows the range of addresses that a pointer belongs to. For memory of cudaMalloc that
 * is the allocation. Memory that is mapped piece by piece (cuMemMap, as PyTorch's expandable
 * segments are) has a range of reserved addresses, not all of which need be mapped or open to the
 * device; there the last byte is asked about as well. What lies between is taken on trust.
 */
#include "coll/device/user_memory.h"

#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_scope.h"
#include "transport/cuda/driver_call.h"

/* The range of addresses that a pointer belongs to; size 0 = the driver does not tell. */
struct range {
    CUdeviceptr start;
    size_t size;
    int is_allocation; /* of cudaMalloc: all of the range is mapped */
    CUmemoryPool pool; /* of cudaMallocAsync, which its device may use; else NULL */
};

int epx_user_memory_init(struct epx_device *device)
{
    union {
        void *data;
        epx_pointer_attributes *function;
    } call;

    EPX_TRY_CUDA(epx_find_driver_call("cuPointerGetAttributes", EPX_ANY_DRIVER, &call.data));
    device->pointer_attributes = call.function;
    return EPX_SUCCESS;
}

static struct range range_of(const struct epx_device *device, const void *address)
{
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    struct range range = {0, 0, 0, NULL};
    void *data[] = {&range.start, &range.size, &range.is_allocation, &range.pool};

    if (device->pointer_attributes(4, attributes, data, (CUdeviceptr)(uintptr_t)address) !=
        CUDA_SUCCESS)
        range.size = 0;
    return range;
}

static int64_t bytes_behind(const struct range *range, const void *address)
{
    size_t before = (uintptr_t)address - (uintptr_t)range->start;

    return range->size ? (int64_t)(range->size - before) : INT64_MAX;
}

int64_t epx_user_memory_bytes(const struct epx_device *device, const void *address)
{
    struct range range = range_of(device, address);

    return bytes_behind(&range, address);
}

/* Whether the device may read, or write, what lies at an address; it may if the driver does not
 * tell. */
static int may_use(const struct epx_device *device, const void *address, int written)
{
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_ACCESS_FLAGS;
    int flags = 0, wanted = written ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                                    : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ;
    void *data = &flags;

    if (device->pointer_attributes(1, &attribute, &data, (CUdeviceptr)(uintptr_t)address) !=
        CUDA_SUCCESS)
        return 1;
    return (flags & wanted) == wanted;
}

/* Checks where one byte of a buffer lies; the first, or the last. */
static int check_place(const struct epx_device *device, const struct epx_device_buffer *buffer,
                       const char *address, int *managed)
{
    const char *part = address == buffer->address ? "" : "the end of ";
    struct cudaPointerAttributes attributes;
    cudaError_t error = cudaPointerGetAttributes(&attributes, address);

    if (error != cudaSuccess)
        return epx_fail_cuda(error, buffer->name);
    *managed = attributes.type == cudaMemoryTypeManaged;
    if (*managed)
        return EPX_SUCCESS;
    EPX_FAIL_IF(attributes.type != cudaMemoryTypeDevice, EPX_ERR_BUFFER,
                "%s%s (%lld bytes at %p) is not in device memory", part, buffer->name,
                (long long)buffer->bytes, buffer->address);
    EPX_FAIL_IF(attributes.device != device->ordinal, EPX_ERR_BUFFER,
                "%s%s is in the memory of device %d, the communicator's is %d", part, buffer->name,
                attributes.device, device->ordinal);
    return EPX_SUCCESS;
}

/* Asks about the last byte of memory that is not of cudaMalloc, and who may use what was mapped. */
static int check_mapping(const struct epx_device *device, const struct epx_device_buffer *buffer,
                         const struct range *range)
{
    const char *last = (const char *)buffer->address + buffer->bytes - 1;
    int managed;

    EPX_TRY(check_place(device, buffer, last, &managed));
    if (managed || range->pool)
        return EPX_SUCCESS;
    EPX_FAIL_IF(!may_use(device, buffer->address, buffer->written) ||
                    !may_use(device, last, buffer->written),
                EPX_ERR_BUFFER, "device %d may not %s %s", device->ordinal,
                buffer->written ? "write" : "read", buffer->name);
    return EPX_SUCCESS;
}

static int check(const struct epx_device *device, const struct epx_device_buffer *buffer)
{
    struct range range;
    int managed;

    EPX_TRY(check_place(device, buffer, buffer->address, &managed));
    if (buffer->bytes == 0)
        return EPX_SUCCESS;
    range = range_of(device, buffer->address);
    EPX_FAIL_IF(buffer->bytes > bytes_behind(&range, buffer->address), EPX_ERR_BUFFER,
                "%s has %lld bytes from %p to the end of its allocation, want %lld", buffer->name,
                (long long)bytes_behind(&range, buffer->address), buffer->address,
                (long long)buffer->bytes);
    return range.is_allocation ? EPX_SUCCESS : check_mapping(device, buffer, &range);
}

int epx_user_memory_check(const struct epx_device *device, const struct epx_device_buffer *buffers,
                          int num)
{
    struct epx_device_scope scope;
    int rc = EPX_SUCCESS;

    EPX_TRY_CUDA(epx_device_enter(device->ordinal, &scope));
    for (int i = 0; rc == EPX_SUCCESS && i < num; i++)
        rc = check(device, &buffers[i]);
    epx_device_leave(&scope);
    return rc;
}
