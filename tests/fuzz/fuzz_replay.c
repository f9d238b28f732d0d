/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_replay.c - runs the fuzz target once over every file of a folder, with any compiler. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz/fuzz.h"

enum { MOST_BYTES = 65536 };

static int replay(const char *folder, const char *name)
{
    static uint8_t bytes[MOST_BYTES];
    char path[4096];
    uint8_t *exact;
    size_t size;
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "rb");
    if (!file)
        return 0;
    size = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    exact = malloc(size ? size : 1); /* so that a sanitizer sees reads past the end */
    if (!exact)
        return 0;
    for (size_t i = 0; i < size; i++)
        exact[i] = bytes[i];
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return 1;
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    struct dirent *entry;
    int files = 0;

    if (!folder) {
        fprintf(stderr, "usage: fuzz_replay FOLDER\n");
        return EXIT_FAILURE;
    }
    LLVMFuzzerInitialize(&argc, &argv);
    while ((entry = readdir(folder)))
        if (entry->d_name[0] != '.')
            files += replay(argv[1], entry->d_name);
    closedir(folder);
    printf("%d files\n%s\n", files, files ? " No Errors" : " Found 1 errors");
    return files ? EXIT_SUCCESS : EXIT_FAILURE;
}
