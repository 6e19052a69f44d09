/* schema_work.c - memory, failures and the time of one compilation. */
#include "schema/schema_work.h"

#include "schema/schema.h"

#include "base/check.h"
#include "base/err.h"
#include "base/wanted.h"
#include "rx/rx_store.h"

#include <stdarg.h>
#include <stdio.h>

/* Steps between two looks at the clock; a step takes microseconds. */
#define LOOK_STEPS  64
#define ALIVE_STEPS 2000 /* derivatives, to prove that an expression matches nothing */

/* The JSON pointer of a node, from its end to its start. */
static void pointer_of(const struct schema_work *w, uint32_t node, char *ret, size_t size)
{
    char at[200];
    ret[0] = 0;
    for (uint32_t n = node; n < w->node_count && w->nodes[n].key; n = w->nodes[n].parent) {
        const struct schema_node *d = &w->nodes[n];
        snprintf(at, sizeof(at), "/%s%s%s%s", d->key, d->name ? "/" : "", d->name ? d->name : "", ret);
        if (strlen(at) >= size)
            return;
        memcpy(ret, at, strlen(at) + 1);
    }
}

int schema_fail(struct schema_work *w, int code, uint32_t node, const char *format, ...)
{
    ASSERT(code < 0);
    char text[320], pointer[160];
    va_list args;
    if (w->error)
        return w->error;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    pointer_of(w, node, pointer, sizeof(pointer));
    return w->error = err_set(w->e, code, "schema at #%s: %s", pointer, text);
}

static bool fail_late(struct schema_work *w, int code)
{
    ASSERT(code == -ETIME || code == -ECANCELED);
    w->error = code == -ETIME
                   ? err_set(w->e, code, "the schema takes too long to compile; a smaller one is needed")
                   : err_set(w->e, code, "the compilation was cancelled");
    return true;
}

bool schema_failed(struct schema_work *w)
{
    if (w->error)
        return true;
    if (w->s->stopped)
        return fail_late(w, w->s->stopped);
    if (rx_failed(w->s) || grammar_builder_failed(w->b)) {
        w->error = err_set(w->e, -E2BIG,
                           "the schema is too large: its grammar exceeds the limit of rules "
                           "and expressions");
        return true;
    }
    if (++w->looks % LOOK_STEPS)
        return false;
    int r = wanted_check(w->opts->wanted);
    return r < 0 && fail_late(w, r);
}

static void *alloc(struct schema_work *w, struct arena *a, size_t bytes)
{
    void *p = w->error ? NULL : arena_alloc_align(a, bytes, 8);
    if (!p && !w->error)
        w->error = arena_overran(a) ? err_set(w->e, -E2BIG,
                                              "the schema is too large: compiling it takes more than %zu MiB",
                                              SCHEMA_WORK_BYTES >> 20)
                                    : err_set(w->e, -ENOMEM, "no memory to compile the schema");
    return p;
}

void *schema_keep(struct schema_work *w, size_t bytes)
{
    return alloc(w, w->keep, bytes);
}

void *schema_take(struct schema_work *w, size_t bytes)
{
    return alloc(w, w->scratch, bytes);
}

struct slice schema_text(const json_t *string)
{
    return (struct slice){json_string_value(string), json_string_length(string)};
}

bool schema_rx_none(struct schema_work *w, rx_id x)
{
    return rx_alive(w->s, x, ALIVE_STEPS) == 0;
}

/* ---- opening and closing ---- */

int schema_work_open(struct schema_work *w, struct grammar_builder *b, const struct schema_opts *opts,
                     struct err *e)
{
    struct arena_opts keep = {.bytes_max = SCHEMA_WORK_BYTES / 2, .charge = opts->charge};
    *w = (struct schema_work){.b = b, .s = grammar_rx(b), .opts = opts, .e = e};
    w->wanted_before = rx_wanted(w->s, opts->wanted ? opts->wanted : w->s->wanted);
    int r = arena_create(&keep, &w->keep);
    if (r == 0)
        r = arena_create(&keep, &w->scratch);
    if (r < 0)
        return err_set(e, r, "no memory to compile the schema");
    if (opts->raw != RX_NONE)
        json_text_init_raw(&w->text, b, opts->raw);
    else if (opts->plain)
        json_text_init_plain(&w->text, b);
    else
        json_text_init(&w->text, b);
    if (opts->spacing)
        json_text_space(&w->text, opts->spacing);
    return 0;
}

void schema_work_close(struct schema_work *w)
{
    rx_wanted(w->s, w->wanted_before);
    arena_free(w->scratch);
    arena_free(w->keep);
}
