/* messages_cache.c - cache_control: cuts of the prefix cache, and the time that the prefix is kept. */
#include "api/request/field.h"
#include "api/wire/messages.h"

#include "base/check.h"

#define TTL_DEFAULT_S 300

void messages_keep(struct request *r, const json_t *control, bool head)
{
    const json_t *ttl = json_object_get(control, "ttl");
    uint32_t seconds = ttl && !json_is_null(ttl) ? field_ttl_s(ttl) : TTL_DEFAULT_S;
    uint32_t *to = head ? &r->gen.keep_head_s : &r->gen.keep_s;
    if (seconds == 0)
        field_note_ignored(r, "cache_control.ttl");
    *to = MAX_OF(*to, seconds);
}

void messages_mark(struct request *r, const json_t *holder, size_t message, size_t bytes)
{
    const json_t *v = json_object_get(holder, "cache_control");
    if (!v || json_is_null(v))
        return;
    messages_keep(r, v, bytes < SIZE_MAX);
    request_mark(r, message, bytes);
}
