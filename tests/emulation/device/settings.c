/* SPDX-License-Identifier: BSD-3-Clause */
/* settings.c - what the environment says of the emulated devices. */
#include "emulation/device/settings.h"

#include <stdlib.h>

/* A number from the environment, from `least` to `most`; others count as not set. */
static long long number(const char *name, long long otherwise, long long least, long long most)
{
    const char *text = getenv(name);
    char *end;
    long long value = text ? strtoll(text, &end, 10) : otherwise;

    return !text || *end || end == text || value < least || value > most ? otherwise : value;
}

/* CUDA_VISIBLE_DEVICES can only hide all devices. */
int settings_gpus(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    if (visible && atoi(visible) < 0)
        return 0;
    return (int)number("EMULATION_GPUS", 8, 0, SETTINGS_MOST_GPUS);
}

int settings_sms(void)
{
    return (int)number("EMULATION_SMS", 4, 1, 256);
}

unsigned long long settings_seed(void)
{
    return (unsigned long long)number("EMULATION_SEED", 0, 0, 1LL << 62);
}

int settings_trace(void)
{
    return (int)number("EMULATION_TRACE", 0, 0, 1);
}
