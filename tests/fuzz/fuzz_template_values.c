/* Values of templates, built by a program of bytes: each byte is an operation on a few registers, which makes
 * a value, nests one, or walks over two of them. Invariants: no crash, also where values are as deep as they
 * may be or share their parts; nothing is deeper than the bound; equality has both directions; printing and
 * JSON repeat; a run that ends has a message, and makes and walks nothing more. */
#include "base/check.h"
#include "template/tmpl_eval.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REGISTERS = 8, ITEMS_MAX = 64 };

struct machine {
    struct tmpl_run run;
    struct tmpl_value values[REGISTERS];
    const uint8_t *at, *end;
};

static uint8_t take(struct machine *m)
{
    return m->at < m->end ? *m->at++ : 0;
}

static struct tmpl_value *pick(struct machine *m)
{
    return &m->values[take(m) % REGISTERS];
}

static struct tmpl_value plain(struct machine *m)
{
    static const double floats[] = {0, -0.0, 1, 0.1, 1e300, -1e-300, 9007199254740993.0, INFINITY};
    uint8_t what = take(m), n = take(m);
    size_t len = MIN_OF((size_t)n, (size_t)(m->end - m->at));
    switch (what % 6) {
    case 0:
        return tmpl_none();
    case 1:
        return tmpl_bool(n & 1);
    case 2:
        return tmpl_int((int64_t)n - 128);
    case 3:
        return tmpl_float(floats[n % COUNT_OF(floats)]);
    case 4:
        return tmpl_undefined(SLICE("x"));
    default:
        m->at += len;
        return tmpl_string((struct slice){(const char *)m->at - len, len});
    }
}

static struct tmpl_value list_of(struct machine *m)
{
    enum tmpl_seq_kind kind = take(m) % 3;
    uint8_t count = take(m) % ITEMS_MAX;
    struct tmpl_seq *l = tmpl_seq_begin(&m->run, 0);
    for (uint8_t i = 0; l && i < count; i++)
        ASSERT(tmpl_seq_push(m->run.a, l, *pick(m)));
    return tmpl_list_of(&m->run, l, kind);
}

static struct tmpl_value dict_of(struct machine *m)
{
    uint8_t count = take(m) % ITEMS_MAX;
    struct tmpl_dict *d = tmpl_dict_new(m->run.a, 0);
    ASSERT(d);
    for (uint8_t i = 0; i < count; i++)
        ASSERT(tmpl_dict_set(&m->run, m->run.a, d, *pick(m), *pick(m)));
    return tmpl_dict_of(&m->run, d);
}

/* A value in many lists or dicts, with itself beside it if `twice`. */
static struct tmpl_value nested(struct machine *m, struct tmpl_value v)
{
    uint8_t how = take(m), times = take(m);
    bool twice = how & 2;
    for (uint8_t i = 0; i < times && !m->run.error; i++) {
        struct tmpl_dict *d = how & 1 ? tmpl_dict_new(m->run.a, 1) : NULL;
        struct tmpl_seq *l = d ? NULL : tmpl_seq_begin(&m->run, 2);
        if (d)
            ASSERT(tmpl_dict_set(&m->run, m->run.a, d, twice ? v : tmpl_string(SLICE("k")), v));
        for (int k = 0; l && k <= twice; k++)
            l->items[l->count++] = v;
        v = d ? tmpl_dict_of(&m->run, d) : tmpl_list_of(&m->run, l, TMPL_SEQ_TUPLE);
    }
    return v;
}

static void check_equality(struct machine *m)
{
    const struct tmpl_value *x = pick(m), *y = pick(m);
    bool one = tmpl_equal(&m->run, x, y), other = tmpl_equal(&m->run, y, x);
    ASSERT(m->run.error || one == other);
    ASSERT(m->run.error || tmpl_equal(&m->run, x, x) || m->run.error);
}

static void check_order(struct machine *m)
{
    const struct tmpl_value *x = pick(m), *y = pick(m);
    int one, other;
    bool is = tmpl_compare(&m->run, x, y, &one), back = tmpl_compare(&m->run, y, x, &other);
    ASSERT(m->run.error || is == back);
    ASSERT(m->run.error || !is || one == -other);
}

/* str(v), or json.dumps(v) where `json` says how. */
static void put(struct tmpl_text *t, const struct tmpl_value *v, const struct tmpl_json_opts *json)
{
    if (json)
        (void)tmpl_tojson(t, v, json, 0);
    else
        tmpl_print(t, v);
}

static void check_text(struct machine *m, const struct tmpl_json_opts *json)
{
    const struct tmpl_value *v = pick(m);
    struct tmpl_text one, two;
    tmpl_text_begin(&m->run, &one);
    put(&one, v, json);
    tmpl_text_begin(&m->run, &two);
    put(&two, v, json);
    ASSERT(one.failed || two.failed || slice_eq(tmpl_text_slice(&one), tmpl_text_slice(&two)));
    (void)tmpl_text_end(&m->run, &one);
}

static void step(struct machine *m)
{
    uint8_t op = take(m), how = take(m);
    struct tmpl_value *to = pick(m);
    const struct tmpl_json_opts json = {how & 4 ? how % 4 : -1, how & 1, how & 2, {0}, {0}};
    switch (op % 9) {
    case 0:
        *to = plain(m);
        break;
    case 1:
        *to = list_of(m);
        break;
    case 2:
        *to = dict_of(m);
        break;
    case 3:
        *to = nested(m, *pick(m));
        break;
    case 4:
        check_equality(m);
        break;
    case 5:
        check_order(m);
        break;
    case 6:
        check_text(m, how & 8 ? NULL : &json);
        break;
    case 7:
        if (to->type == TMPL_DICT_VALUE)
            *to = tmpl_pairs(&m->run, to->dict);
        break;
    default:
        (void)tmpl_contains(&m->run, to, pick(m));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};
    struct arena *a = NULL;
    ASSERT(arena_create(&(struct arena_opts){.bytes_max = (size_t)64 << 20}, &a) == 0);
    struct machine m = {.run = {.a = a,
                                .e = &e,
                                .steps_left = 50000,
                                .depth_left = 400,
                                .look_below = 50000,
                                .text_bytes_max = 1 << 16},
                        .at = data,
                        .end = data + size};
    for (int i = 0; i < REGISTERS; i++)
        m.values[i] = tmpl_none();
    while (m.at < m.end && !m.run.error) {
        step(&m);
        for (int i = 0; i < REGISTERS && !m.run.error; i++)
            ASSERT(tmpl_depth(&m.values[i]) <= TMPL_VALUE_DEPTH_MAX);
    }
    ASSERT(!m.run.error || e.text[0]);
    arena_free(a);
    return 0;
}
