/* tmpl_trace.c - a message is known by its dict, which carries its number; slices and copies of the list
 * share the dicts. */
#include "template/tmpl_trace.h"

#include "template/tmpl_value.h"

#include "base/arena.h"

bool tmpl_trace_init(struct tmpl_trace *t, struct arena *a, const struct tmpl_text *out,
                     const struct tmpl_value *messages)
{
    const struct tmpl_seq *list = messages->list;
    *t = (struct tmpl_trace){.out = out,
                             .spans = ARENA_ARRAY(a, struct tmpl_span, list->count + 1),
                             .count = list->count,
                             .current = TMPL_TRACE_NONE};
    for (uint32_t i = 0; t->spans && i < list->count; i++) {
        t->spans[i] = (struct tmpl_span){0};
        if (list->items[i].type == TMPL_DICT_VALUE)
            list->items[i].dict->message = i + 1;
    }
    return t->spans != NULL;
}

uint32_t tmpl_trace_message(const struct tmpl_value *v)
{
    return v->type == TMPL_DICT_VALUE && v->dict->message ? v->dict->message - 1 : TMPL_TRACE_NONE;
}

/* A loop inside may have looked at other messages meanwhile, so it may have several pieces. */
static void extend(struct tmpl_span *s, size_t from, size_t to)
{
    if (s->from == s->to)
        s->from = from;
    s->to = to;
}

void tmpl_trace_take_up(struct tmpl_trace *t, uint32_t message)
{
    if (t->current != TMPL_TRACE_NONE && t->out->len > t->since)
        extend(&t->spans[t->current], t->since, t->out->len);
    t->current = message;
    t->since = t->out->len;
}
