/* messages_place.c - helpers of the files that convert a request. */
#include "api/wire/messages.h"

#include "gen/request_memory.h"

bool messages_no_memory(const struct messages_place *p)
{
    return request_memory_reject(p->memory, p->why);
}

void messages_mark(struct request *r, const json_t *holder, size_t message, size_t bytes)
{
    const json_t *v = json_object_get(holder, "cache_control");
    if (!v || json_is_null(v) || r->gen.mark_count == GEN_MARKS_MAX)
        return;
    struct chat_mark mark = {(uint32_t)message, bytes};
    for (uint32_t i = 0; i < r->gen.mark_count; i++)
        if (r->gen.marks[i].message == mark.message && r->gen.marks[i].bytes == bytes)
            return;
    r->gen.marks[r->gen.mark_count++] = mark;
}
