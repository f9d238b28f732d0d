/* SPDX-License-Identifier: BSD-3-Clause */
/* unit_element.c - conversions against the reference's, datatypes, and the cut of long rows. */
#include "kernels/element.h"

#include <math.h>

#include "kernels/layout.h"
#include "support/reference.h"
#include "support/suite.h"

static uint16_t reference_bits(EPX_Datatype datatype, float value)
{
    uint16_t bits;

    ref_store(datatype, &bits, 0, (double)value);
    return bits;
}

START_TEST(every_16_bit_number_is_read_and_written_back)
{
    for (unsigned bits = 0; bits <= 0xffff; bits++) {
        uint16_t half = (uint16_t)bits;
        double f16 = ref_load(EPX_FLOAT16, &half, 0), bf16 = ref_load(EPX_BFLOAT16, &half, 0);

        if (!isnan(f16)) {
            ck_assert((double)epx_float_of_float16(half) == f16);
            ck_assert_uint_eq(epx_float16_of_float((float)f16), bits);
        } else {
            ck_assert(isnan(epx_float_of_float16(half)));
            ck_assert(
                isnan(epx_float_of_float16(epx_float16_of_float(epx_float_of_float16(half)))));
        }
        if (!isnan(bf16)) {
            ck_assert((double)epx_float_of_bfloat16(half) == bf16);
            ck_assert_uint_eq(epx_bfloat16_of_float((float)bf16), bits);
        } else {
            ck_assert(isnan(epx_float_of_bfloat16(half)));
        }
    }
}
END_TEST

/* All exponents and signs, with mantissas near every tie of both types. */
static void check_float(uint32_t bits)
{
    float value = epx_float_of_bits(bits);

    if (isnan(value)) {
        ck_assert(isnan(epx_float_of_float16(epx_float16_of_float(value))));
        ck_assert(isnan(epx_float_of_bfloat16(epx_bfloat16_of_float(value))));
        return;
    }
    if (epx_float16_of_float(value) != reference_bits(EPX_FLOAT16, value))
        ck_abort_msg("float16 of %a is %04x, not %04x", (double)value, epx_float16_of_float(value),
                     reference_bits(EPX_FLOAT16, value));
    if (epx_bfloat16_of_float(value) != reference_bits(EPX_BFLOAT16, value))
        ck_abort_msg("bfloat16 of %a is %04x, not %04x", (double)value,
                     epx_bfloat16_of_float(value), reference_bits(EPX_BFLOAT16, value));
}

START_TEST(every_float_is_rounded_to_nearest_even)
{
    for (uint32_t high = 0; high <= 0xffff; high++)
        for (uint32_t low = 0; low < 9; low++) {
            static const uint32_t lows[] = {0,      1,      0x0fff, 0x1000, 0x1001,
                                            0x7fff, 0x8000, 0x8001, 0xffff};

            check_float(high << 16 | lows[low]);
        }
    for (uint64_t i = 0; i < 2000000; i++)
        check_float((uint32_t)data_hash(1, 2, i));
}
END_TEST

START_TEST(datatypes_have_sizes)
{
    for (EPX_Datatype type = EPX_BYTE; type <= EPX_FLOAT64; type++) {
        ck_assert_uint_eq((size_t)epx_datatype_bytes(type), data_size(type));
        ck_assert_int_eq(epx_datatype_adds(type) != 0, type >= EPX_FLOAT16);
    }
    ck_assert_int_eq(epx_datatype_bytes(EPX_DATATYPE_NULL), 0);
    ck_assert_int_eq(epx_datatype_bytes(EPX_FLOAT64 + 1), 0);
    ck_assert_int_eq(epx_datatype_bytes(-1), 0);
    ck_assert_int_eq(epx_datatype_adds(EPX_FLOAT64 + 1), 0);
}
END_TEST

START_TEST(segments_cover_a_row_once)
{
    static const int64_t rows[] = {0, 1, 8191, 8192, 8193, 65536, 65537, 1000003, 16777217};
    static const int64_t most[] = {8192, 20000, 65536, 1 << 24};

    for (int i = 0; i < 9; i++)
        for (int j = 0; j < 4; j++) {
            struct epx_segments cut = epx_segments_cut(rows[i], most[j]);
            int64_t covered = 0;

            for (int64_t s = 0; s < cut.num; s++) {
                ck_assert_int_eq(epx_segment_offset(cut, s), covered);
                ck_assert_int_le(epx_segment_length(cut, s), most[j]);
                ck_assert(epx_segment_length(cut, s) > 0 || rows[i] == 0);
                covered += epx_segment_length(cut, s);
                ck_assert(covered == rows[i] || covered % EPX_SEGMENT_QUANTUM == 0);
            }
            ck_assert_int_eq(covered, rows[i]);
        }
}
END_TEST

START_TEST(experts_are_owned_once)
{
    for (int ranks = 1; ranks < 20; ranks++)
        for (int experts = 1; experts < 70; experts++) {
            ck_assert_int_eq(epx_first_expert(0, experts, ranks), 0);
            ck_assert_int_eq(epx_first_expert(ranks, experts, ranks), experts);
            for (int r = 0; r < ranks; r++) {
                ck_assert_int_le(epx_first_expert(r, experts, ranks),
                                 epx_first_expert(r + 1, experts, ranks));
                for (int e = epx_first_expert(r, experts, ranks);
                     e < epx_first_expert(r + 1, experts, ranks); e++)
                    ck_assert_int_eq(epx_owner(e, experts, ranks), r);
            }
        }
    ck_assert_int_eq(epx_first_expert(65535, INT32_MAX, 65536), 2147450879);
    ck_assert_int_eq(epx_owner((1 << 24) - 1, 1 << 24, 128), 127);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("element");
    TCase *tcase = tcase_create("element");

    tcase_add_test(tcase, every_16_bit_number_is_read_and_written_back);
    tcase_add_test(tcase, every_float_is_rounded_to_nearest_even);
    tcase_add_test(tcase, datatypes_have_sizes);
    tcase_add_test(tcase, segments_cover_a_row_once);
    tcase_add_test(tcase, experts_are_owned_once);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}
