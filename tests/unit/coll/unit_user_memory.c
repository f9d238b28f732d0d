/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_user_memory.c - what a communicator on device memory makes of users' buffers, over pretended
 * calls of CUDA, so that it needs no GPU. All of CUDA's addresses are in a table here.
 */
#include "coll/device/user_memory.h"

#include <string.h>

#include "support/suite.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_scope.h"
#include "transport/cuda/driver_call.h"

enum { OWN = 1, OTHER = 0, UNIT = 4096 };

/* A piece of addresses, in units; range 0 = the driver does not tell of one. */
struct piece {
    int first, num;
    enum cudaMemoryType type;
    int device, range_first, range_num, is_allocation, is_pooled, access;
};

/* The unit 0 is nobody's; so are those between pieces. */
static const struct piece pieces[] = {
    {1, 2, cudaMemoryTypeDevice, OWN, 1, 2, 1, 0, 3},   /* of cudaMalloc */
    {3, 2, cudaMemoryTypeDevice, OWN, 3, 2, 1, 0, 3},   /* another one right behind */
    {10, 1, cudaMemoryTypeDevice, OWN, 10, 5, 0, 0, 3}, /* reserved are 10 to 14 */
    {11, 1, cudaMemoryTypeDevice, OWN, 10, 5, 0, 0, 3},
    {12, 1, cudaMemoryTypeDevice, OWN, 10, 5, 0, 0, 1}, /* only to be read */
    {13, 1, cudaMemoryTypeDevice, OWN, 10, 5, 0, 0, 0}, /* closed */
    {20, 1, cudaMemoryTypeDevice, OTHER, 20, 1, 1, 0, 3},
    {22, 1, cudaMemoryTypeManaged, OTHER, 22, 1, 0, 0, 0},
    {24, 1, cudaMemoryTypeHost, OWN, 24, 1, 0, 0, 3},
    {26, 1, cudaMemoryTypeDevice, OWN, 26, 1, 0, 1, 0}, /* of cudaMallocAsync */
    {28, 1, cudaMemoryTypeDevice, OWN, 0, 0, 0, 0, 3},  /* of unknown extent */
};

static char *const base = (char *)0x100000;
static struct epx_device device;

static const struct piece *piece_of(uintptr_t address)
{
    uintptr_t unit = (address - (uintptr_t)base) / UNIT;

    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
        if (unit >= (uintptr_t)pieces[i].first &&
            unit < (uintptr_t)(pieces[i].first + pieces[i].num))
            return &pieces[i];
    return NULL;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    const struct piece *piece = piece_of((uintptr_t)pointer);

    memset(attributes, 0, sizeof(*attributes));
    attributes->type = piece ? piece->type : cudaMemoryTypeUnregistered;
    attributes->device = piece ? piece->device : -1;
    return cudaSuccess;
}

static void tell(const struct piece *piece, CUpointer_attribute attribute, void *data)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = (CUdeviceptr)(uintptr_t)(base + piece->range_first * UNIT);
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = (size_t)piece->range_num * UNIT; break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned char *)data = (unsigned char)piece->is_allocation;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = piece->is_pooled ? (CUmemoryPool)(void *)base : NULL;
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: *(int *)data = piece->access; break;
    default: ck_abort_msg("attribute %d", (int)attribute);
    }
}

static CUresult CUDAAPI get_attributes(unsigned num, CUpointer_attribute *attributes, void **data,
                                       CUdeviceptr pointer)
{
    const struct piece *piece = piece_of((uintptr_t)pointer);

    ck_assert_ptr_nonnull(piece);
    for (unsigned i = 0; i < num; i++)
        tell(piece, attributes[i], data[i]);
    return CUDA_SUCCESS;
}

cudaError_t epx_find_driver_call(const char *name, unsigned version, void **call)
{
    union {
        void *data;
        epx_pointer_attributes *function;
    } found = {.function = get_attributes};

    (void)version;
    *call = found.data;
    return strcmp(name, "cuPointerGetAttributes") == 0 ? cudaSuccess : cudaErrorSymbolNotFound;
}

int epx_fail_cuda(cudaError_t error, const char *call)
{
    return epx_fail(EPX_ERR_CUDA, "%s: error %d", call, (int)error);
}

static int scopes; /* that were entered and not left */

cudaError_t epx_device_enter(int ordinal, struct epx_device_scope *scope)
{
    (void)scope;
    scopes += ordinal == OWN;
    return ordinal == OWN ? cudaSuccess : cudaErrorInvalidDevice;
}

void epx_device_leave(const struct epx_device_scope *scope)
{
    (void)scope;
    scopes--;
}

/* The code for a buffer that begins so many bytes after the start of a unit. */
static int code_of(int unit, int64_t offset, int64_t bytes, int written)
{
    struct epx_device_buffer buffer = {"sendbuf", base + unit * UNIT + offset, bytes, written};

    return epx_user_memory_check(&device, &buffer, 1);
}

static void take_device(void)
{
    device.ordinal = OWN;
    ck_assert_int_eq(epx_user_memory_init(&device), EPX_SUCCESS);
}

START_TEST(a_buffer_ends_inside_its_allocation)
{
    ck_assert_int_eq(code_of(1, 0, 2 * UNIT, 1), EPX_SUCCESS);
    ck_assert_int_eq(code_of(1, 100, 2 * UNIT - 100, 0), EPX_SUCCESS);
    ck_assert_int_eq(code_of(2, 0, UNIT, 0), EPX_SUCCESS);
    ck_assert_int_eq(code_of(1, 1, 2 * UNIT, 0), EPX_ERR_BUFFER);
    ck_assert_ptr_nonnull(strstr(epx_status_message(), "sendbuf has 8191 bytes"));
    ck_assert_int_eq(code_of(1, 0, INT64_MAX, 0), EPX_ERR_BUFFER);
    ck_assert_int_eq(code_of(4, UNIT - 8, 9, 1), EPX_ERR_BUFFER);
    ck_assert_int_eq(code_of(28, 0, UNIT, 1), EPX_SUCCESS);
}
END_TEST

START_TEST(memory_of_others_is_refused)
{
    ck_assert_int_eq(code_of(0, 0, 8, 0), EPX_ERR_BUFFER);
    ck_assert_int_eq(code_of(0, 0, 0, 0), EPX_ERR_BUFFER);
    ck_assert_int_eq(code_of(20, 0, 8, 0), EPX_ERR_BUFFER);
    ck_assert_ptr_nonnull(strstr(epx_status_message(), "device 0"));
    ck_assert_int_eq(code_of(24, 0, 8, 0), EPX_ERR_BUFFER);
    ck_assert_int_eq(code_of(22, 0, UNIT, 1), EPX_SUCCESS);
    ck_assert_int_eq(code_of(22, 0, UNIT + 1, 1), EPX_ERR_BUFFER);
    ck_assert_int_eq(code_of(26, 0, UNIT, 1), EPX_SUCCESS);
    ck_assert_int_eq(code_of(26, 0, UNIT + 1, 1), EPX_ERR_BUFFER);
}
END_TEST

/* A buffer that is not right is told of, wherever it stands among others. */
START_TEST(all_buffers_are_looked_at)
{
    const struct epx_device_buffer good = {"ids", base + UNIT, 2 * UNIT, 0};
    const struct epx_device_buffer bad = {"recvbuf", base + UNIT, 2 * UNIT + 1, 1};
    const struct epx_device_buffer lists[][3] = {
        {good, good, good}, {bad, good, good}, {good, bad, good}, {good, good, bad}};

    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(epx_user_memory_check(&device, lists[i], 3),
                         i ? EPX_ERR_BUFFER : EPX_SUCCESS);
        if (i)
            ck_assert_ptr_nonnull(strstr(epx_status_message(), "recvbuf has 8192 bytes"));
        ck_assert_int_eq(scopes, 0);
    }
}
END_TEST

START_TEST(mapped_pieces_are_asked_about)
{
    ck_assert_int_eq(code_of(10, 0, 2 * UNIT, 1), EPX_SUCCESS);
    ck_assert_int_eq(code_of(10, 0, 2 * UNIT + 1, 0), EPX_SUCCESS);
    ck_assert_int_eq(code_of(10, 0, 2 * UNIT + 1, 1), EPX_ERR_BUFFER);
    ck_assert_ptr_nonnull(strstr(epx_status_message(), "may not write"));
    ck_assert_int_eq(code_of(10, 0, 3 * UNIT, 0), EPX_SUCCESS);
    ck_assert_int_eq(code_of(10, 0, 3 * UNIT + 1, 0), EPX_ERR_BUFFER);
    ck_assert_int_eq(code_of(13, 0, 1, 0), EPX_ERR_BUFFER);
    ck_assert_int_eq(code_of(12, 0, 2 * UNIT + 1, 0), EPX_ERR_BUFFER);
    ck_assert_ptr_nonnull(strstr(epx_status_message(), "the end of sendbuf"));
    ck_assert_int_eq(code_of(10, 0, 5 * UNIT + 1, 0), EPX_ERR_BUFFER);
    ck_assert_ptr_nonnull(strstr(epx_status_message(), "to the end of its allocation"));
}
END_TEST

START_TEST(kernels_are_told_where_memory_ends)
{
    ck_assert_int_eq(epx_user_memory_bytes(&device, base + UNIT + 8), 2 * UNIT - 8);
    ck_assert_int_eq(epx_user_memory_bytes(&device, base + 11 * UNIT), 4 * UNIT);
    ck_assert(epx_user_memory_bytes(&device, base + 28 * UNIT) == INT64_MAX);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("user_memory");
    TCase *tcase = tcase_create("user_memory");

    tcase_add_checked_fixture(tcase, take_device, NULL);
    tcase_add_test(tcase, a_buffer_ends_inside_its_allocation);
    tcase_add_test(tcase, memory_of_others_is_refused);
    tcase_add_test(tcase, all_buffers_are_looked_at);
    tcase_add_test(tcase, mapped_pieces_are_asked_about);
    tcase_add_test(tcase, kernels_are_told_where_memory_ends);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
