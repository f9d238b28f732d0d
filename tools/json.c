/* SPDX-License-Identifier: BSD-3-Clause */
/* json.c - writes JSON. */
#include "json.h"

void json_write_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++) {
        if ((unsigned char)*text < ' ') {
            fprintf(file, "\\u%04x", (unsigned)*text);
            continue;
        }
        if (*text == '"' || *text == '\\')
            fputc('\\', file);
        fputc(*text, file);
    }
    fputc('"', file);
}

static void begin_line(const struct json *json)
{
    fprintf(json->file, "\n%*s", 2 * json->depth, "");
}

/* Writes what stands before the value of a member. */
static void begin_member(struct json *json, const char *name)
{
    if (json->members)
        fputc(',', json->file);
    if (json->depth)
        begin_line(json);
    json->members = 1;
    if (!name)
        return;
    json_write_text(json->file, name);
    fputs(": ", json->file);
}

void json_open(struct json *json, const char *name, char bracket)
{
    begin_member(json, name);
    fputc(bracket, json->file);
    json->depth++;
    json->members = 0;
}

void json_close(struct json *json, char bracket)
{
    json->depth--;
    if (json->members)
        begin_line(json);
    fputc(bracket, json->file);
    json->members = 1;
    if (json->depth == 0)
        fputc('\n', json->file);
}

void json_text(struct json *json, const char *name, const char *text)
{
    begin_member(json, name);
    if (text)
        json_write_text(json->file, text);
    else
        fputs("null", json->file);
}

void json_number(struct json *json, const char *name, int64_t number)
{
    begin_member(json, name);
    fprintf(json->file, "%lld", (long long)number);
}

void json_boolean(struct json *json, const char *name, int yes)
{
    begin_member(json, name);
    fputs(yes ? "true" : "false", json->file);
}
