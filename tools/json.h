/* SPDX-License-Identifier: BSD-3-Clause */
/* json.h - writes JSON: members one after the other, the commas and the indentation by itself. */
#ifndef EPX_TOOLS_JSON_H
#define EPX_TOOLS_JSON_H

#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *file;
    int depth;
    int members; /* whether the object or array in hand has any yet */
};

/* A text between quotation marks. */
void json_write_text(FILE *file, const char *text);
/* An object '{' or an array '['; the name is NULL in an array and at the top. */
void json_open(struct json *json, const char *name, char bracket);
void json_close(struct json *json, char bracket);
/* Members; a text that is NULL is null. */
void json_text(struct json *json, const char *name, const char *text);
void json_number(struct json *json, const char *name, int64_t number);
void json_boolean(struct json *json, const char *name, int yes);

#endif
