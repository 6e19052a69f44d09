/* gauge.c - the two forms of a table's numbers. */
#include "api/report/gauge.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/json/json_out.h"

#include <stdio.h>
#include <string.h>

void gauges_write_label(struct slice value, struct buf *ret)
{
    buf_putc(ret, '"');
    for (size_t i = 0; i < value.len; i++) {
        char c = value.ptr[i];
        if (c == '\n') {
            buf_puts(ret, "\\n");
            continue;
        }
        if (c == '"' || c == '\\')
            buf_putc(ret, '\\');
        buf_putc(ret, c);
    }
    buf_putc(ret, '"');
}

void gauges_write_head(const char *series, const char *kind, const char *help, struct buf *ret)
{
    buf_printf(ret, "# HELP %s %s\n# TYPE %s %s\n", series, help, series, kind);
}

static const size_t sizes[] = {[GAUGE_U32] = sizeof(uint32_t),
                               [GAUGE_U64] = sizeof(uint64_t),
                               [GAUGE_I64] = sizeof(int64_t),
                               [GAUGE_DOUBLE] = sizeof(double),
                               [GAUGE_BOOL] = sizeof(bool)};

union number {
    uint32_t u32;
    uint64_t u64;
    int64_t i64;
    double real;
    bool flag;
};

static union number read_number(const struct gauge *g, const char *at)
{
    union number n;
    memcpy(&n, at, sizes[g->type]);
    if (g->type == GAUGE_U32)
        n.u64 = n.u32;
    return n;
}

static void write_sample(const struct gauge *g, union number n, struct buf *ret)
{
    if (g->unit == GAUGE_PERCENT)
        buf_printf(ret, "%.4f", n.real / 100);
    else if (g->unit != GAUGE_AS_IS)
        buf_printf(ret, "%.15g", (double)n.u64 / (double)NS_PER_S);
    else if (g->type == GAUGE_BOOL)
        buf_puts(ret, n.flag ? "1" : "0");
    else if (g->type == GAUGE_DOUBLE)
        buf_printf(ret, "%.15g", n.real);
    else if (g->type == GAUGE_I64)
        buf_printf(ret, "%lld", (long long)n.i64);
    else
        buf_printf(ret, "%llu", (ull)n.u64);
}

static void put_member(const struct gauge *g, union number n, struct json_out *j)
{
    if (g->unit == GAUGE_PERCENT)
        json_put_fixed(j, g->member, 2, n.real);
    else if (g->unit != GAUGE_AS_IS)
        json_put_fixed(j, g->member, 3, (double)n.u64 / (double)(g->unit == GAUGE_MS ? NS_PER_MS : NS_PER_S));
    else if (g->type == GAUGE_BOOL)
        json_put_bool(j, g->member, n.flag);
    else if (g->type == GAUGE_DOUBLE)
        json_put_general(j, g->member, 15, n.real);
    else if (g->type == GAUGE_I64)
        json_put_i64(j, g->member, n.i64);
    else
        json_put_u64(j, g->member, n.u64);
}

/* ---- /metrics ---- */

static void write_labels(const struct gauge *g, const char *model, const char *item, struct buf *ret)
{
    const char *separator = "{";
    if (model) {
        buf_puts(ret, "{model_name=");
        gauges_write_label(slice_of(model), ret);
        separator = ",";
    }
    if (g->labels) {
        buf_printf(ret, "%s%s", separator, g->labels);
        separator = ",";
    }
    if (item)
        buf_printf(ret, "%s%s=\"%s\"", separator, g->item_label, item);
    if (model || g->labels || item)
        buf_putc(ret, '}');
}

static void write_samples(const struct gauge *g, const struct gauge_source *s, struct buf *ret)
{
    if (g->write) {
        g->write(g, s->numbers, ret);
        return;
    }
    for (uint32_t i = 0; i < MAX_OF(g->items, 1u); i++) {
        char number[12];
        const char *item = number;
        snprintf(number, sizeof(number), "%u", i);
        if (g->item_name)
            item = g->item_name(i);
        if (!item)
            continue;
        buf_puts(ret, g->series);
        write_labels(g, s->model, g->items > 0 ? item : NULL, ret);
        buf_putc(ret, ' ');
        write_sample(g, read_number(g, (const char *)s->numbers + g->offset + i * sizes[g->type]), ret);
        buf_putc(ret, '\n');
    }
}

static bool is_in_scope(const struct gauge *g, bool own)
{
    return g->series && (g->scope == GAUGE_ALL_OWN || (g->scope == GAUGE_OWN) == own);
}

void gauges_write_series(const struct gauge_table *t, const struct gauge_source *sources, uint32_t count,
                         bool own, struct buf *ret)
{
    for (uint32_t first = 0, end; first < t->count; first = end) {
        const struct gauge *g = &t->rows[first];
        end = first + 1;
        if (!is_in_scope(g, own))
            continue;
        while (end < t->count && t->rows[end].series && strcmp(t->rows[end].series, g->series) == 0)
            end++;
        gauges_write_head(g->series, g->kind, g->help, ret);
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t row = first; row < end; row++)
                write_samples(&t->rows[row], &sources[i], ret);
    }
}

/* ---- /api/status ---- */

static const struct gauge *member_at(const struct gauge_table *t, const char *object, uint32_t place)
{
    for (uint32_t i = 0; i < t->count; i++)
        if (t->rows[i].object && t->rows[i].place == place && strcmp(t->rows[i].object, object) == 0)
            return &t->rows[i];
    return NULL;
}

void gauges_put_members(const struct gauge_table *t, const char *object, const void *numbers,
                        struct json_out *j)
{
    const struct gauge *g;
    for (uint32_t place = 1; (g = member_at(t, object, place)) != NULL; place++)
        put_member(g, read_number(g, (const char *)numbers + g->offset), j);
}

void gauges_put_object(const struct gauge_table *t, const char *object, const void *numbers,
                       struct json_out *j)
{
    json_open(j, object);
    gauges_put_members(t, object, numbers, j);
    json_close(j);
}
