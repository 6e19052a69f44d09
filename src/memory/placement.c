/* placement.c - the rules of --place, and the rows of its table. A rule is PART=PLACE, with a range of layers
 * behind `layers` and `experts` where it is not about all of them. */
#include "memory/placement.h"

#include "base/check.h"
#include "base/slice.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const part_names[] = {
    [PLACEMENT_REST] = "rest", [PLACEMENT_LAYERS] = "layers", [PLACEMENT_EXPERTS] = "experts"};

/* ---- parsing ---- */

#define QUOTED_MOST 60 /* bytes of a text that an error quotes */

static int refuse(struct slice rule, const char *why, struct err *e)
{
    ASSERT(why[0] != 0);
    return err_set(e, -EINVAL, "--place %.*s: %s", (int)MIN_OF(rule.len, (size_t)QUOTED_MOST),
                   rule.ptr ? rule.ptr : "", why);
}

static bool parse_part(struct slice *what, enum placement_part *ret)
{
    for (size_t i = 0; i < COUNT_OF(part_names); i++) {
        struct slice name = slice_of(part_names[i]);
        if (!slice_starts(*what, name))
            continue;
        *what = slice_trim(slice_sub(*what, name.len, what->len), SLICE_BLANKS);
        *ret = (enum placement_part)i;
        return true;
    }
    return false;
}

static bool parse_layer(struct slice s, uint32_t *ret)
{
    uint64_t value;
    if (!slice_u64(slice_trim(s, SLICE_BLANKS), PLACEMENT_LAYERS_MAX - 1, &value))
        return false;
    ASSERT(value < PLACEMENT_LAYERS_MAX);
    *ret = (uint32_t)value;
    return true;
}

/* "10-47", "3", or nothing: all. */
static bool parse_range(struct slice s, struct placement_rule *ret)
{
    const size_t dash = slice_find(s, SLICE("-"), 0);
    ASSERT(ret->part != PLACEMENT_REST);
    ret->first = 0;
    ret->last = UINT32_MAX;
    if (s.len == 0)
        return true;
    if (!parse_layer(slice_sub(s, 0, dash), &ret->first))
        return false;
    ret->last = ret->first;
    return dash == SIZE_MAX || parse_layer(slice_sub(s, dash + 1, s.len), &ret->last);
}

static bool parse_place(struct slice s, char ret[PLACEMENT_PLACE_BYTES])
{
    static const char *const kinds[] = {"cuda:", "fake:"};
    uint64_t index;
    bool known = slice_eq(s, SLICE("cpu"));
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        struct slice kind = slice_of(kinds[i]);
        known = known || (slice_starts(s, kind) && slice_u64(slice_sub(s, kind.len, s.len), 99, &index));
    }
    if (!known || s.len >= PLACEMENT_PLACE_BYTES)
        return false;
    memcpy(ret, s.ptr, s.len);
    ret[s.len] = 0;
    ASSERT(strlen(ret) == s.len);
    return true;
}

static int parse_rule(struct slice text, struct placement_rule *ret, struct err *e)
{
    const size_t equals = slice_find(text, SLICE("="), 0);
    struct slice what = slice_trim(slice_sub(text, 0, equals), SLICE_BLANKS);
    if (equals == SIZE_MAX || !parse_part(&what, &ret->part))
        return refuse(text, "PART=PLACE is expected, with the part experts, layers or rest", e);
    if (ret->part == PLACEMENT_REST ? what.len > 0 : !parse_range(what, ret))
        return refuse(text, "after layers and experts a range of layers such as 0-19 may follow", e);
    if (ret->last < ret->first)
        return refuse(text, "the range ends before it begins", e);
    if (!parse_place(slice_trim(slice_sub(text, equals + 1, text.len), SLICE_BLANKS), ret->place))
        return refuse(text, "the place cpu, cuda:N or fake:N is expected", e);
    ASSERT(ret->first <= ret->last && ret->place[0] != 0);
    return 0;
}

int placement_parse(const char *text, struct placement_wish *ret, struct err *e)
{
    struct placement_wish w = {.count = 0};
    struct slice rest = slice_of(text);
    for (bool more = rest.len > 0; more;) {
        const size_t comma = slice_find(rest, SLICE(","), 0);
        if (w.count == PLACEMENT_RULES_MAX)
            return err_set(e, -EINVAL, "--place has more than %u rules", PLACEMENT_RULES_MAX);
        struct placement_rule *rule = &w.rules[w.count++];
        *rule = (struct placement_rule){.last = UINT32_MAX};
        int r = parse_rule(slice_trim(slice_sub(rest, 0, comma), SLICE_BLANKS), rule, e);
        if (r < 0)
            return r;
        more = comma != SIZE_MAX;
        rest = more ? slice_sub(rest, comma + 1, rest.len) : rest;
    }
    *ret = w;
    return 0;
}

/* ---- placing ---- */

void placement_all(const struct placement_sizes *s, uint32_t domain, struct placement *ret)
{
    ASSERT(s->layers <= PLACEMENT_LAYERS_MAX && domain < PLACEMENT_NO_EXPERTS);
    *ret = (struct placement){.layers = s->layers, .rest = (uint8_t)domain};
    for (uint32_t i = 0; i < s->layers; i++) {
        ret->layer[i] = (uint8_t)domain;
        ret->experts[i] = s->experts_bytes[i] > 0 ? (uint8_t)domain : PLACEMENT_NO_EXPERTS;
    }
}

void placement_experts(struct placement *p, uint32_t domain)
{
    ASSERT(domain < PLACEMENT_NO_EXPERTS && p->layers <= PLACEMENT_LAYERS_MAX);
    for (uint32_t i = 0; i < p->layers; i++)
        if (p->experts[i] != PLACEMENT_NO_EXPERTS)
            p->experts[i] = (uint8_t)domain;
}

static const char *rule_text(const struct placement_rule *r, char *ret, size_t bytes_max)
{
    if (r->part == PLACEMENT_REST || r->last == UINT32_MAX)
        snprintf(ret, bytes_max, "--place %s=%s", part_names[r->part], r->place);
    else
        snprintf(ret, bytes_max, "--place %s %u-%u=%s", part_names[r->part], r->first, r->last, r->place);
    return ret;
}

static int unknown_place(const struct placement_names *places, const char *rule, struct err *e)
{
    char known[128] = "";
    ASSERT(places->count > 0);
    for (uint32_t i = 0; i < places->count; i++) {
        size_t len = strlen(known);
        snprintf(known + len, sizeof(known) - len, "%s%s", i ? ", " : "", places->names[i]);
    }
    return err_set(e, -EINVAL, "%s: the process computes on %s (--device)", rule, known);
}

static int apply_rule(const struct placement_rule *r, uint32_t domain, struct placement *p, const char *text,
                      struct err *e)
{
    uint32_t last = MIN_OF(r->last, p->layers - 1), changed = r->part == PLACEMENT_REST;
    ASSERT(domain < PLACEMENT_NO_EXPERTS);
    if (r->part == PLACEMENT_REST)
        p->rest = (uint8_t)domain;
    else if (r->first >= p->layers || (r->last != UINT32_MAX && r->last >= p->layers))
        return err_set(e, -EINVAL, "%s: the model has layers 0 to %u", text, p->layers - 1);
    for (uint32_t i = r->first; r->part != PLACEMENT_REST && i <= last; i++) {
        uint8_t *place = r->part == PLACEMENT_LAYERS ? &p->layer[i] : &p->experts[i];
        if (r->part == PLACEMENT_LAYERS && p->experts[i] == p->layer[i])
            p->experts[i] = (uint8_t)domain;
        if (*place == PLACEMENT_NO_EXPERTS)
            continue;
        *place = (uint8_t)domain;
        changed++;
    }
    return changed > 0 ? 0 : err_set(e, -EINVAL, "%s: there the model has no experts", text);
}

int placement_apply(const struct placement_wish *w, const struct placement_names *places, struct placement *p,
                    struct err *e)
{
    ASSERT(p->layers > 0);
    for (uint32_t i = 0; i < w->count; i++) {
        const struct placement_rule *r = &w->rules[i];
        char text[96];
        uint32_t domain = 0;
        rule_text(r, text, sizeof(text));
        while (domain < places->count && strcmp(places->names[domain], r->place) != 0)
            domain++;
        if (domain == places->count)
            return unknown_place(places, text, e);
        int error = apply_rule(r, domain, p, text, e);
        if (error < 0)
            return error;
    }
    return 0;
}

bool placement_any_apart(const struct placement *p)
{
    bool any = false;
    ASSERT(p->layers <= PLACEMENT_LAYERS_MAX);
    for (uint32_t i = 0; i < p->layers; i++)
        any |= placement_is_apart(p, i);
    return any;
}

static int not_computed(const struct placement_row *row, const char *where, const char *device, struct err *e)
{
    char what[48];
    return err_set(e, -ENOTSUP,
                   "--place: %s of a model on %s cannot be computed on %s: experts in the machine (cpu) and "
                   "layers with their experts on other devices can",
                   placement_row_text(row, what, sizeof(what)), device, where);
}

/* Experts lie in the machine or with their layers. */
static bool follow_layers(const struct placement *p, const struct placement_row *row)
{
    bool follow = true;
    ASSERT(row->part == PLACEMENT_EXPERTS && row->last < p->layers);
    for (uint32_t i = row->first; i <= row->last; i++)
        follow &= p->experts[i] == PLACEMENT_NO_EXPERTS || p->experts[i] == p->layer[i];
    return row->domain == 0 || follow;
}

int placement_check(const struct placement *p, uint32_t domain, const struct placement_names *places,
                    struct err *e)
{
    struct placement_walk w = {.started = false};
    while (placement_next(p, NULL, &w)) {
        const struct placement_row *row = &w.row;
        ASSERT(row->domain < places->count && domain < places->count);
        bool computed =
            row->part == PLACEMENT_EXPERTS
                ? follow_layers(p, row)
                : row->domain == domain || (row->part == PLACEMENT_LAYERS && row->domain > 0 && domain > 0);
        if (!computed)
            return not_computed(row, places->names[row->domain], places->names[domain], e);
    }
    return 0;
}

uint32_t placement_devices(const struct placement *p, uint32_t domain, uint32_t ret[SHARDS_MAX],
                           uint8_t shard[PLACEMENT_LAYERS_MAX])
{
    uint32_t count = 1;
    ret[0] = domain;
    for (uint32_t i = 0; i < p->layers; i++) {
        uint32_t at = 0;
        while (at < count && ret[at] != p->layer[i])
            at++;
        if (at == SHARDS_MAX)
            return 0;
        if (at == count)
            ret[count++] = p->layer[i];
        shard[i] = (uint8_t)at;
    }
    return count;
}

/* ---- the table ---- */

static uint8_t place_of(const struct placement *p, enum placement_part part, uint32_t layer)
{
    ASSERT(layer < p->layers && part != PLACEMENT_REST);
    return part == PLACEMENT_LAYERS ? p->layer[layer] : p->experts[layer];
}

/* The neighbours from row->first on, a layer with such a part. */
static void fill_row(const struct placement *p, const struct placement_sizes *s, struct placement_row *row)
{
    row->domain = place_of(p, row->part, row->first);
    ASSERT(row->domain != PLACEMENT_NO_EXPERTS);
    row->bytes = 0;
    for (uint32_t i = row->first; i < p->layers; i++) {
        uint8_t place = place_of(p, row->part, i);
        if (place == PLACEMENT_NO_EXPERTS)
            continue;
        if (place != row->domain)
            return;
        row->last = i;
        if (s)
            row->bytes += row->part == PLACEMENT_LAYERS ? s->layer_bytes[i] : s->experts_bytes[i];
    }
}

bool placement_next(const struct placement *p, const struct placement_sizes *s, struct placement_walk *w)
{
    struct placement_row *row = &w->row;
    uint32_t from = row->part == PLACEMENT_REST ? 0 : row->last + 1;
    if (p->layers == 0)
        return false;
    if (!w->started) {
        *w = (struct placement_walk){.started = true, .row = {.part = PLACEMENT_REST, .domain = p->rest}};
        row->bytes = s ? s->rest_bytes : 0;
        return true;
    }
    if (row->part == PLACEMENT_REST)
        row->part = PLACEMENT_LAYERS;
    for (;;) {
        while (from < p->layers && place_of(p, row->part, from) == PLACEMENT_NO_EXPERTS)
            from++;
        if (from < p->layers)
            break;
        if (row->part == PLACEMENT_EXPERTS)
            return false;
        row->part = PLACEMENT_EXPERTS;
        from = 0;
    }
    row->first = row->last = from;
    fill_row(p, s, row);
    return true;
}

const char *placement_row_text(const struct placement_row *row, char *ret, size_t bytes_max)
{
    const char *name = part_names[row->part];
    ASSERT(row->first <= row->last);
    if (row->part == PLACEMENT_REST)
        snprintf(ret, bytes_max, "the rest");
    else if (row->first == row->last)
        snprintf(ret, bytes_max, "%s %u", name, row->first);
    else
        snprintf(ret, bytes_max, "%s %u-%u", name, row->first, row->last);
    return ret;
}

const char *placement_text(const struct placement *p, const struct placement_names *places, char *ret,
                           size_t bytes_max)
{
    struct placement_walk w = {.started = false};
    size_t len = 0;
    uint32_t domain = UINT32_MAX;
    char what[48];
    ASSERT(bytes_max > 0);
    ret[0] = 0;
    while (placement_next(p, NULL, &w) && len < bytes_max) {
        const struct placement_row *row = &w.row;
        ASSERT(row->domain < places->count);
        placement_row_text(row, what, sizeof(what));
        if (row->domain == domain)
            snprintf(ret + len, bytes_max - len, " and %s", what);
        else if (len == 0)
            snprintf(ret + len, bytes_max - len, "%s: %s", places->names[row->domain], what);
        else
            snprintf(ret + len, bytes_max - len, ", %s: %s", places->names[row->domain], what);
        len = strlen(ret);
        domain = row->domain;
    }
    return ret;
}
