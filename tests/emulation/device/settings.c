/* SPDX-License-Identifier: BSD-3-Clause */
/* settings.c - what the environment says of the emulated devices. */
#include "emulation/device/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number that a text is, from `least` to `most`; others count as not set. */
static long long number_of(const char *text, long long otherwise, long long least, long long most)
{
    char *end;
    long long value = text ? strtoll(text, &end, 10) : otherwise;

    return !text || *end || end == text || value < least || value > most ? otherwise : value;
}

static long long number(const char *name, long long otherwise, long long least, long long most)
{
    return number_of(getenv(name), otherwise, least, most);
}

/* CUDA_VISIBLE_DEVICES can only hide all devices. */
int settings_gpus(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    if (visible && atoi(visible) < 0)
        return 0;
    return (int)number("EMULATION_GPUS", 8, 0, SETTINGS_MOST_GPUS);
}

int settings_sms(int gpu)
{
    const char *numbers = getenv("EMULATION_SMS");
    char text[16];
    int num = 1, length;

    for (const char *at = numbers; at && *at; at++)
        num += *at == ',';
    for (int i = 0; numbers && i < gpu % num; i++)
        numbers = strchr(numbers, ',') + 1;
    length = numbers ? (int)strcspn(numbers, ",") : 0;
    snprintf(text, sizeof(text), "%.*s", length, numbers ? numbers : "");
    return (int)number_of(text, 4, 1, 256);
}

unsigned long long settings_seed(void)
{
    return (unsigned long long)number("EMULATION_SEED", 0, 0, 1LL << 62);
}

int settings_trace(void)
{
    return (int)number("EMULATION_TRACE", 0, 0, 1);
}
