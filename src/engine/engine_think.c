/* engine_think.c - one of two markers is matched at a time: outside of reasoning the opening one, inside the
 * closing one. A marker's first token does not come again within it, as is so for special tokens: a mismatch
 * begins anew at its first token. */
#include "engine/engine_think.h"

#include "base/check.h"

#include <errno.h>

static int check_marker(const uint32_t *ids, uint32_t count, uint32_t vocab)
{
    if (count > JOB_MARKER_MAX)
        return -EINVAL;
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] >= vocab)
            return -EINVAL;
    return 0;
}

int engine_think_check(const struct job_thinking *limits, uint32_t vocab)
{
    int r = check_marker(limits->open, limits->open_count, vocab);
    return r < 0 ? r : check_marker(limits->close, limits->close_count, vocab);
}

uint32_t engine_think_forced(const struct engine_think *t)
{
    const struct job_thinking *l = &t->limits;
    if (!engine_think_reasons(t) || (t->used < l->budget && !t->closes))
        return ENGINE_THINK_NONE;
    ASSERT(t->matched < l->close_count);
    return l->close[t->matched];
}

void engine_think_close(struct engine_think *t)
{
    ASSERT(engine_think_reasons(t));
    t->closes = true;
}

/* True: the marker is complete. */
static bool match(struct engine_think *t, const uint32_t *marker, uint32_t count, uint32_t token)
{
    if (count == 0)
        return false;
    if (token != marker[t->matched])
        t->matched = 0;
    t->matched += token == marker[t->matched];
    if (t->matched < count)
        return false;
    t->matched = 0;
    return true;
}

void engine_think_take(struct engine_think *t, uint32_t token)
{
    struct job_thinking *l = &t->limits;
    if (!engine_think_is_on(t))
        return;
    if (!l->inside) {
        l->inside = match(t, l->open, l->open_count, token);
        return;
    }
    if (t->used < l->budget)
        t->used++;
    l->inside = !match(t, l->close, l->close_count, token);
    t->closes = t->closes && l->inside;
}
