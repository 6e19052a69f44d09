#include "base/wide_integer.h"

#include <stdlib.h>

static _Thread_local struct wide_integers *table;

struct wide_integers *wide_integers_enter(struct wide_integers *t)
{
    struct wide_integers *before = table;
    table = t;
    return before;
}

static struct wide_integer *find(double value)
{
    for (uint32_t i = 0; table && i < table->count; i++)
        if (table->all[i].value == value)
            return &table->all[i];
    return NULL;
}

void wide_integer_note(struct slice text)
{
    char digits[WIDE_INTEGER_BYTES_MAX + 1];
    if (!table || text.len > WIDE_INTEGER_BYTES_MAX)
        return;
    memcpy(digits, text.ptr, text.len);
    digits[text.len] = 0;
    double value = strtod(digits, NULL);
    struct wide_integer *w = find(value);
    if (w && !slice_eq(text, (struct slice){w->text, w->len}))
        w->len = 0;
    if (w || table->count == WIDE_INTEGERS_MAX)
        return;
    w = &table->all[table->count++];
    w->value = value;
    w->len = (uint8_t)text.len;
    memcpy(w->text, text.ptr, text.len);
}

struct slice wide_integer_text(double value)
{
    const struct wide_integer *w = find(value);
    return w ? (struct slice){w->text, w->len} : (struct slice){0};
}
