/* stop_match.c - Knuth, Morris and Pratt, one automaton per string.
 *
 * A search in a window of recent text would be shorter code, but would read each byte once per byte of the
 * longest string, and a client chooses both. An automaton's state also says how much text must be held
 * back. */
#include "engine/stop_match.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>

struct stop {
    const char *bytes;
    uint16_t *shorter; /* [len]: length of the longest proper prefix of bytes[0..i] that also ends it */
    uint16_t len, state;
};

struct stop_match {
    uint32_t count;
    uint64_t bytes;
    struct stop stops[];
};

size_t stop_match_arena_bytes(const struct slice *stops, uint32_t count)
{
    size_t bytes = sizeof(struct stop_match) + count * sizeof(struct stop) + 64;
    for (uint32_t i = 0; i < count; i++)
        bytes += (stops[i].len + 1) + ROUND_UP(stops[i].len * sizeof(uint16_t), (size_t)64) + 64;
    return bytes;
}

static uint16_t advance(const struct stop *s, uint16_t state, char c)
{
    while (state > 0 && s->bytes[state] != c)
        state = s->shorter[state - 1];
    return s->bytes[state] == c ? state + 1 : state;
}

static int stop_init(struct stop *s, struct arena *a, struct slice text)
{
    ASSERT(text.len > 0 && text.len <= UINT16_MAX);
    s->len = (uint16_t)text.len;
    s->bytes = arena_strndup(a, text.ptr, text.len);
    s->shorter = ARENA_ARRAY(a, uint16_t, text.len);
    if (!s->bytes || !s->shorter)
        return -ENOMEM;
    for (uint16_t i = 1; i < s->len; i++)
        s->shorter[i] = advance(s, s->shorter[i - 1], s->bytes[i]);
    return 0;
}

int stop_match_create(struct arena *a, const struct slice *stops, uint32_t count, struct stop_match **ret)
{
    struct stop_match *m = arena_alloc(a, sizeof(*m) + count * sizeof(struct stop));
    if (!m)
        return -ENOMEM;
    m->count = count;
    for (uint32_t i = 0; i < count; i++) {
        int r = stop_init(&m->stops[i], a, stops[i]);
        if (r < 0)
            return r;
    }
    *ret = m;
    return 0;
}

/* The longest string that ends with this byte, or NULL. */
static const struct stop *feed_byte(struct stop_match *m, char c)
{
    const struct stop *hit = NULL;
    m->bytes++;
    for (uint32_t i = 0; i < m->count; i++) {
        struct stop *s = &m->stops[i];
        s->state = advance(s, s->state, c);
        if (s->state == s->len && (!hit || s->len > hit->len))
            hit = s;
    }
    return hit;
}

bool stop_match_feed(struct stop_match *m, struct slice text, struct stop_hit *ret)
{
    for (size_t i = 0; i < text.len; i++) {
        const struct stop *hit = feed_byte(m, text.ptr[i]);
        if (!hit)
            continue;
        *ret = (struct stop_hit){(uint32_t)(hit - m->stops), m->bytes - hit->len};
        return true;
    }
    return false;
}

void stop_match_skip(struct stop_match *m, size_t bytes)
{
    m->bytes += bytes;
    for (uint32_t i = 0; i < m->count; i++)
        m->stops[i].state = 0;
}

uint64_t stop_match_bytes(const struct stop_match *m)
{
    return m->bytes;
}

uint32_t stop_match_held(const struct stop_match *m)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < m->count; i++)
        held = MAX_OF(held, m->stops[i].state);
    return held;
}
