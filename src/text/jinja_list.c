/* jinja_list.c - a merge sort: stable, as Python's is, and n log n whatever a client sends. */
#include "text/jinja_list.h"

#include "base/check.h"

/* Merges the sorted a[from..middle) and a[middle..to) into `out`. */
static int merge(struct jinja_run *r, const struct jinja_keyed *a, size_t from, size_t middle, size_t to,
                 bool descending, struct jinja_keyed *out)
{
    size_t i = from, k = middle;
    if (jinja_spend(r, (to - from) / 4) < 0)
        return r->error;
    for (size_t at = from; at < to; at++) {
        bool right = i == middle;
        if (!right && k < to) {
            const struct jinja_value *x = &a[k].key, *y = &a[i].key;
            if (jinja_less(r, descending ? y : x, descending ? x : y, "<", &right) < 0)
                return r->error;
        }
        out[at] = right ? a[k++] : a[i++];
    }
    return 0;
}

int jinja_sort(struct jinja_run *r, struct jinja_keyed *a, size_t len, bool descending)
{
    struct jinja_keyed *other = jinja_alloc_array(r, len, sizeof(*other)), *from = a, *to = other;
    if (!other)
        return r->error;
    for (size_t width = 1; width < len; width *= 2) {
        for (size_t at = 0; at < len; at += 2 * width)
            if (merge(r, from, at, MIN_OF(at + width, len), MIN_OF(at + 2 * width, len), descending, to) < 0)
                return r->error;
        struct jinja_keyed *done = to;
        to = from;
        from = done;
    }
    if (from != a && len)
        memcpy(a, from, len * sizeof(*a));
    return 0;
}

int jinja_sort_pairs(struct jinja_run *r, const struct jinja_value *dict, struct jinja_pair **ret)
{
    size_t len = dict->d->count;
    struct jinja_pair *pairs, *sorted = jinja_alloc_array(r, len, sizeof(*sorted));
    struct jinja_keyed *keyed = jinja_alloc_array(r, len, sizeof(*keyed));
    if (!sorted || !keyed || jinja_pairs(r, dict, &pairs) < 0)
        return r->error;
    /* The place stands for the value. */
    for (size_t i = 0; i < len; i++)
        keyed[i] = (struct jinja_keyed){pairs[i].key, jinja_int((int64_t)i)};
    if (jinja_sort(r, keyed, len, false) < 0)
        return r->error;
    for (size_t i = 0; i < len; i++)
        sorted[i] = pairs[keyed[i].item.i];
    *ret = sorted;
    return 0;
}
