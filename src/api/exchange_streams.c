/* exchange_streams.c - which choice a wake-up means: a table by the stream's address. */
#include "api/api_state.h"
#include "api/exchange.h"

#include "base/check.h"
#include "base/hash.h"
#include "gen/choice.h"

static struct list *bucket_of(struct api *a, const struct stream *s)
{
    return &a->streams[hash_bytes(&s, sizeof(s)) & a->bucket_mask];
}

void exchange_watch_choices(struct exchange *x, uint32_t from)
{
    ASSERT(from <= x->gen.submitted && x->gen.submitted <= x->gen.choice_count);
    for (uint32_t i = from; i < x->gen.submitted; i++)
        list_push_back(bucket_of(x->api, x->gen.choices[i].stream), &x->gen.choices[i].by_stream);
}

struct choice *exchange_find_choice(struct api *a, const struct stream *s)
{
    LIST_EACH(it, bucket_of(a, s)) {
        struct choice *c = LIST_ENTRY(it, struct choice, by_stream);
        if (c->stream == s)
            return c;
    }
    return NULL;
}
