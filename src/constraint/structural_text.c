#include "constraint/structural_work.h"

#include "base/check.h"
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int structural_fail(struct structural_work *w, int code, const char *format, ...)
{
    char text[300];
    va_list args;
    if (w->error)
        return w->error;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return w->error = err_set(w->e, code, "%s: %s", w->at, text);
}

size_t structural_enter(struct structural_work *w, const char *format, ...)
{
    size_t before = w->at_len;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(w->at + before, sizeof(w->at) - before, format, args);
    va_end(args);
    w->at_len = MIN_OF(before + (size_t)MAX_OF(n, 0), sizeof(w->at) - 1);
    return before;
}

void structural_leave(struct structural_work *w, size_t before)
{
    ASSERT(before <= w->at_len);
    w->at_len = before;
    w->at[before] = 0;
}

/* ---- texts of tags ---- */

static size_t token_at(const struct structural_work *w, struct slice text, uint32_t *id)
{
    return w->tokens ? w->tokens->find(w->tokens->arg, text, id) : 0;
}

/* Bytes before the first token. */
static size_t plain_bytes(const struct structural_work *w, struct slice text)
{
    size_t n = 0;
    uint32_t id;
    while (n < text.len && token_at(w, slice_sub(text, n, text.len), &id) == 0)
        n++;
    return n;
}

bool structural_has_token(const struct structural_work *w, struct slice text)
{
    return plain_bytes(w, text) < text.len;
}

struct expr structural_literal(struct structural_work *w, struct slice text)
{
    struct expr all = expr_rx(RX_EMPTY);
    while (text.len) {
        size_t n = plain_bytes(w, text);
        uint32_t id = 0;
        if (n > 0) {
            all = expr_cat(w->b, all, expr_rx(rx_literal(w->s, slice_sub(text, 0, n))));
        } else {
            n = token_at(w, text, &id);
            ASSERT(n > 0 && n <= text.len);
            all = expr_cat(w->b, all, expr_sym(grammar_token(w->b, id)));
        }
        text = slice_sub(text, n, text.len);
    }
    return all;
}

/* ---- free text ---- */

void structural_add_stop(struct structural_work *w, struct structural_stops *stops, struct slice text)
{
    if (text.len == 0 || structural_has_token(w, text))
        return;
    if (stops->count == STRUCTURAL_STOPS_MAX)
        structural_fail(w, -E2BIG, "more than %d texts end or are excluded from one free text",
                        STRUCTURAL_STOPS_MAX);
    else
        stops->all[stops->count++] = text;
}

/* Prefixes of `stop` that `end` completes: text that ends with one has the stop before its end. */
static rx_id begun(struct structural_work *w, struct slice stop, struct slice end)
{
    rx_id all = RX_NONE;
    if ((w->compared += stop.len) > STRUCTURAL_COMPARED_MAX)
        structural_fail(w, -E2BIG, "there are too many long texts that end free text");
    for (size_t k = 1; k < stop.len && !w->error; k++)
        if (slice_starts(end, slice_sub(stop, k, stop.len)))
            all = rx_or(w->s, all, rx_literal(w->s, slice_sub(stop, 0, k)));
    return all;
}

rx_id structural_free_text(struct structural_work *w, const struct structural_stops *stops,
                           const struct slice *ends, uint32_t end_count)
{
    rx_id list[STRUCTURAL_STOPS_MAX], before = RX_NONE;
    for (uint32_t i = 0; i < stops->count; i++) {
        list[i] = rx_literal(w->s, stops->all[i]);
        for (uint32_t k = 0; k < end_count; k++)
            before = rx_or(w->s, before, begun(w, stops->all[i], ends[k]));
    }
    if (stops->count == 0)
        return RX_ALL;
    rx_id has = rx_cat(w->s, RX_ALL, rx_cat(w->s, rx_any(w->s, list, stops->count), RX_ALL));
    return rx_not(w->s, rx_or(w->s, has, rx_cat(w->s, RX_ALL, before)));
}
