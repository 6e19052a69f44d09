#include "constraint/choice_rules.h"

#include "rx/rx_parse.h"
#include "schema/json_text.h"

#include <errno.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    const struct slice *x = a, *y = b;
    int r = memcmp(x->ptr, y->ptr, x->len < y->len ? x->len : y->len);
    return r ? r : (x->len > y->len) - (x->len < y->len);
}

#define TREE_DEPTH_MAX 60

/* Sorted texts as one expression that shares their first bytes, `from` bytes of which stand already. */
static rx_id tree(struct rx_store *s, const struct slice *texts, uint32_t count, size_t from, uint32_t depth)
{
    struct slice first = texts[0], last = texts[count - 1];
    size_t same = from;
    while (same < first.len && same < last.len && first.ptr[same] == last.ptr[same])
        same++;
    rx_id head = rx_literal(s, slice_sub(first, from, same - from)), rest = RX_NONE;
    for (uint32_t i = 0, end; i < count; i = end) {
        end = i + 1;
        while (texts[i].len > same && end < count && texts[end].ptr[same] == texts[i].ptr[same])
            end++;
        bool deeper = end - i > 1 && depth < TREE_DEPTH_MAX;
        for (uint32_t k = i; k < (deeper ? i + 1 : end); k++)
            rest = rx_or(s, rest,
                         deeper ? tree(s, texts + i, end - i, same, depth + 1)
                                : rx_literal(s, slice_sub(texts[k], same, SIZE_MAX)));
    }
    return rx_cat(s, head, rest);
}

static int check(const struct slice *texts, uint32_t count, struct err *e)
{
    size_t bytes = 0;
    if (count == 0)
        return err_set(e, -EINVAL, "a choice needs at least one text");
    for (uint32_t i = 0; i < count; i++) {
        if (texts[i].len == 0)
            return err_set(e, -EINVAL, "text %u of the choice is empty", i);
        bytes += texts[i].len;
    }
    if (count > CHOICE_COUNT_MAX || bytes > CHOICE_BYTES_MAX)
        return err_set(e, -E2BIG, "a choice has at most %d texts and %zu KiB; this one has %u and %zu KiB",
                       CHOICE_COUNT_MAX, CHOICE_BYTES_MAX >> 10, count, bytes >> 10);
    return 0;
}

int choice_compile(struct grammar_builder *b, const struct slice *texts, uint32_t count, sym_id *ret,
                   struct err *e)
{
    int r = check(texts, count, e);
    if (r < 0)
        return r;
    struct slice *sorted = malloc(count * sizeof(*sorted));
    if (!sorted)
        return err_set(e, -ENOMEM, "no memory for the choice");
    memcpy(sorted, texts, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare);
    uint32_t kept = 1;
    for (uint32_t i = 1; i < count; i++)
        if (!slice_eq(sorted[i], sorted[kept - 1]))
            sorted[kept++] = sorted[i];
    *ret = grammar_terminal(b, tree(grammar_rx(b), sorted, kept, 0, 0));
    free(sorted);
    return 0;
}

int choice_compile_regex(struct grammar_builder *b, struct slice pattern, sym_id *ret, struct err *e)
{
    static const struct rx_parse_opts whole = {.search = false};
    rx_id rx;
    int r = rx_parse(grammar_rx(b), pattern, &whole, &rx, e);
    if (r == 0)
        *ret = grammar_terminal(b, rx);
    return r;
}

sym_id choice_json_object(struct grammar_builder *b)
{
    struct json_text t;
    json_text_init_plain(&t, b);
    return json_text_object(&t);
}
