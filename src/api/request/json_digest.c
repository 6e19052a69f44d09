/* json_digest.c - a sum of hashes where the order counts for nothing, else a chain. */
#include "api/request/json_digest.h"

#include "base/hash.h"
#include "base/rng.h"

#include <pthread.h>
#include <string.h>

#define DEPTH_MAX 512 /* parsed values are less deep */

static uint64_t seed;
static pthread_once_t seed_once = PTHREAD_ONCE_INIT;

static void draw_seed(void)
{
    rng_secret(&seed, sizeof(seed));
}

uint64_t json_digest_seed(void)
{
    pthread_once(&seed_once, draw_seed);
    return seed;
}

void json_digest_use_seed(uint64_t use)
{
    pthread_once(&seed_once, draw_seed);
    seed = use;
}

uint64_t json_digest_text(struct slice text)
{
    return hash_bytes_seeded(text.ptr, text.len, json_digest_seed());
}

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t words[3] = {a, b, c};
    return hash_bytes_seeded(words, sizeof(words), json_digest_seed());
}

static uint64_t digest(const json_t *value, const char *but, unsigned depth);

static uint64_t digest_object(const json_t *object, const char *but, unsigned depth)
{
    uint64_t sum = 0;
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)object, key, member)
        if (!but || strcmp(key, but) != 0)
            sum += mix(JSON_STRING, json_digest_text(slice_of(key)), digest(member, NULL, depth + 1));
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
        return mix(JSON_STRING,
                   json_digest_text((struct slice){json_string_value(value), json_string_length(value)}), 1);
    case JSON_INTEGER:
        return mix(JSON_INTEGER, (uint64_t)json_integer_value(value), 0);
    case JSON_REAL:
        real = json_real_value(value);
        return mix(JSON_REAL, json_digest_text((struct slice){(const char *)&real, sizeof(real)}), 0);
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
