/* SPDX-License-Identifier: BSD-3-Clause */
/* machine_key.c - tells machines apart, and containers of one machine that share no memory. */
#include "base/machine_key.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv */
static uint64_t add_bytes(uint64_t hash, const void *bytes, size_t num)
{
    const unsigned char *byte = bytes;

    for (size_t i = 0; i < num; i++)
        hash = (hash ^ byte[i]) * 0x100000001b3;
    return hash;
}

/* A number that the system draws when it starts; empty where it tells none. */
static void read_boot_id(char *text, int bytes)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

    if (file && !fgets(text, bytes, file))
        text[0] = '\0';
    if (file)
        fclose(file);
}

int64_t epx_machine_key(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325;
    char boot_id[64] = "";
    struct stat shared;

    read_boot_id(boot_id, (int)sizeof(boot_id));
    hash = add_bytes(hash, name, strlen(name));
    hash = add_bytes(hash, boot_id, strlen(boot_id));
    if (stat("/dev/shm", &shared) == 0)
        hash = add_bytes(hash, &shared.st_dev, sizeof(shared.st_dev));
    return (int64_t)hash;
}
