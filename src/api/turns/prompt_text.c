/* prompt_text.c - FNV-1a over the text, byte for byte, so that a mark may stand anywhere.
 *
 * The hash finds places only: digests decide whether parts are equal. */
#include "api/turns/prompt_text.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>

#define DEPTH_MAX   64 /* a deeper value has no text */
#define FNV_PRIME   0x100000001b3ull
#define MEMBER_ENDS '\x1e'

static void at_mark(struct prompt_text *t)
{
    ASSERT(t->same <= t->known_count);
    uint16_t mark = (uint16_t)(t->hash >> 40 ^ t->hash);
    if (t->marks && t->count < t->most)
        t->marks[t->count++] = mark;
    if (!t->known || t->differs)
        return;
    if (t->same == t->known_count || t->known[t->same] != mark) {
        t->differs = true;
        return;
    }
    t->same++;
    memcpy(t->difference.at, t->path, sizeof(t->difference.at));
    t->difference.character = t->characters;
}

static void put(struct prompt_text *t, const char *bytes, size_t count, bool counts)
{
    ASSERT(t->stride >= PROMPT_STRIDE_LEAST);
    for (size_t i = 0; i < count; i++) {
        t->hash = (t->hash ^ (uint8_t)bytes[i]) * FNV_PRIME;
        t->characters += counts && ((uint8_t)bytes[i] & 0xc0) != 0x80;
        if (++t->bytes % t->stride == 0)
            at_mark(t);
    }
}

/* Names are a client's text, and the path stands in headers: only characters of tokens stay. */
static size_t enter(struct prompt_text *t, const char *name, size_t index)
{
    ASSERT(t->path_bytes < sizeof(t->path));
    size_t before = t->path_bytes;
    char *to = t->path + before, number[24];
    if (!name)
        snprintf(number, sizeof(number), "[%zu]", index);
    else if (before > 0 && before < sizeof(t->path) - 1)
        *to++ = '.';
    for (const char *c = name ? name : number; *c && to < t->path + sizeof(t->path) - 1; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
                     strchr("_-$", *c) || !name;
        *to++ = plain ? *c : '?';
    }
    *to = 0;
    t->path_bytes = (size_t)(to - t->path);
    t->characters = 0;
    return before;
}

static void leave(struct prompt_text *t, size_t before)
{
    ASSERT(before <= t->path_bytes);
    t->path_bytes = before;
    memset(t->path + before, 0, sizeof(t->path) - before);
}

static void add(struct prompt_text *t, const json_t *value, unsigned depth)
{
    const char *name;
    const json_t *each;
    json_t *member;
    size_t i;
    json_int_t integer = json_integer_value(value);
    double real = json_real_value(value);
    if (!value || depth > DEPTH_MAX)
        return;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        json_object_foreach((json_t *)value, name, member) {
            size_t before = enter(t, name, 0);
            put(t, name, strlen(name), false);
            add(t, member, depth + 1);
            leave(t, before);
        }
        break;
    case JSON_ARRAY:
        json_array_foreach(value, i, each) {
            size_t before = enter(t, NULL, i);
            add(t, each, depth + 1);
            leave(t, before);
        }
        break;
    case JSON_STRING:
        put(t, json_string_value(value), json_string_length(value), true);
        break;
    case JSON_INTEGER:
        put(t, (const char *)&integer, sizeof(integer), false);
        break;
    case JSON_REAL:
        put(t, (const char *)&real, sizeof(real), false);
        break;
    default:
        put(t, json_is_true(value) ? "t" : "f", 1, false);
        break;
    }
    put(t, (const char[]){MEMBER_ENDS}, 1, false);
}

void prompt_text_add(struct prompt_text *t, const json_t *value)
{
    ASSERT(t->path_bytes == 0);
    add(t, value, 0);
    t->difference.within = t->stride;
}

static uint64_t bytes_of(const json_t *value, unsigned depth)
{
    uint64_t ret = 1;
    const char *name;
    const json_t *each;
    json_t *member;
    size_t i;
    if (!value || depth > DEPTH_MAX)
        return 0;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        json_object_foreach((json_t *)value, name, member)
            ret += strlen(name) + bytes_of(member, depth + 1);
        return ret;
    case JSON_ARRAY:
        json_array_foreach(value, i, each)
            ret += bytes_of(each, depth + 1);
        return ret;
    case JSON_STRING:
        return ret + json_string_length(value);
    case JSON_INTEGER:
    case JSON_REAL:
        return ret + sizeof(json_int_t);
    default:
        return ret + 1;
    }
}

uint64_t prompt_text_bytes(const json_t *value)
{
    return bytes_of(value, 0);
}
