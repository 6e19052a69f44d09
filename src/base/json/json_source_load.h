/* json_source_load.h - json_loadb() of a text as json_source.h changes it. For layers that link jansson. */
#ifndef PLATEAU_BASE_JSON_SOURCE_LOAD_H
#define PLATEAU_BASE_JSON_SOURCE_LOAD_H

#include "base/json/json_source.h"

#include <jansson.h>

static inline size_t json_source_feed(void *into, size_t len, void *source)
{
    return json_source_read(source, into, len);
}

static inline json_t *json_source_load(struct slice text, size_t flags, json_error_t *e)
{
    struct json_source s;
    json_source_init(&s, text);
    return json_load_callback(json_source_feed, &s, flags, e);
}

#endif
