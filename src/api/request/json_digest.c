/* json_digest.c - a sum of hashes where the order counts for nothing, else a chain. */
#include "api/request/json_digest.h"

#include "base/hash.h"

#include <string.h>

#define DEPTH_MAX 512 /* parsed values are less deep */

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t words[3] = {a, b, c};
    return hash_bytes(words, sizeof(words));
}

static uint64_t digest(const json_t *value, const char *but, unsigned depth);

static uint64_t digest_object(const json_t *object, const char *but, unsigned depth)
{
    uint64_t sum = 0;
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)object, key, member)
        if (!but || strcmp(key, but) != 0)
            sum += mix(JSON_STRING, hash_bytes(key, strlen(key)), digest(member, NULL, depth + 1));
    return mix(JSON_OBJECT, sum, 0);
}

static uint64_t digest(const json_t *value, const char *but, unsigned depth)
{
    uint64_t ret = JSON_ARRAY;
    const json_t *each;
    double real;
    size_t i;
    if (!value || depth > DEPTH_MAX)
        return 0;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return digest_object(value, but, depth);
    case JSON_ARRAY:
        json_array_foreach(value, i, each)
            ret = mix(JSON_ARRAY, ret, digest(each, NULL, depth + 1));
        return ret;
    case JSON_STRING:
        return mix(JSON_STRING, hash_bytes(json_string_value(value), json_string_length(value)), 1);
    case JSON_INTEGER:
        return mix(JSON_INTEGER, (uint64_t)json_integer_value(value), 0);
    case JSON_REAL:
        real = json_real_value(value);
        return mix(JSON_REAL, hash_bytes(&real, sizeof(real)), 0);
    default:
        return mix((uint64_t)json_typeof(value), 0, 0);
    }
}

uint64_t json_digest(const json_t *value)
{
    return digest(value, NULL, 0);
}

uint64_t json_digest_but(const json_t *object, const char *but)
{
    return digest(object, but, 0);
}

uint64_t json_digest_set(const json_t *list)
{
    uint64_t sum = 0;
    size_t i;
    const json_t *each;
    json_array_foreach(list, i, each)
        sum += digest(each, NULL, 0);
    return sum;
}

uint64_t json_digest_chain(uint64_t before, uint64_t next)
{
    return mix(JSON_ARRAY, before, next);
}
