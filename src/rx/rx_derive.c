/* rx_derive.c - derivatives (Brzozowski 1964): the texts that may follow a byte.
 *
 * A counter is a number in the node: the derivative of x{m,n} is (derivative of x) x{m-1,n-1}. */
#include "rx/rx_store.h"

#include "base/check.h"

static rx_id derive(struct rx_store *s, rx_id x, uint8_t byte);

static rx_id derive_chain(struct rx_store *s, rx_id x, uint8_t byte)
{
    ASSERT(rx_at(s, x)->kind == RX_K_CAT);
    uint32_t from = s->list_count;
    for (;;) {
        const struct rx_item *n = rx_at(s, x);
        if (n->kind != RX_K_CAT) {
            if (!rx_push(s, derive(s, x, byte)))
                return RX_NONE;
            break;
        }
        rx_id rest = n->b, head = n->a;
        rx_id made = derive(s, head, byte);
        if (made != RX_NONE && !rx_push(s, rx_cat(s, made, rest)))
            return RX_NONE;
        if (!rx_nullable(s, head))
            break;
        x = rest;
    }
    if (s->list_count == from + 1)
        return s->list[--s->list_count];
    return rx_or_list(s, from);
}

static rx_id derive_list(struct rx_store *s, rx_id x, uint8_t byte)
{
    enum rx_kind kind = rx_at(s, x)->kind;
    ASSERT(kind == RX_K_OR || kind == RX_K_AND);
    uint32_t from = s->list_count;
    for (bool more = true; more && !s->failed;) {
        const struct rx_item *n = rx_at(s, x);
        more = n->kind == kind;
        rx_id made = derive(s, more ? n->a : x, byte);
        if (made == RX_NONE && kind == RX_K_AND) {
            s->list_count = from;
            return RX_NONE;
        }
        /* Lists that become elements of the same kind of list are taken apart. */
        if (made != RX_NONE && !rx_push_list(s, kind, made))
            return RX_NONE;
        if (more)
            x = rx_at(s, x)->b;
    }
    return kind == RX_K_OR ? rx_or_list(s, from) : rx_and_list(s, from);
}

static rx_id derive_node(struct rx_store *s, rx_id x, uint8_t byte)
{
    const struct rx_item *n = rx_at(s, x);
    switch ((enum rx_kind)n->kind) {
    case RX_K_CAT:
        return derive_chain(s, x, byte);
    case RX_K_OR:
    case RX_K_AND:
        return derive_list(s, x, byte);
    case RX_K_NOT:
        return rx_not(s, derive(s, n->a, byte));
    case RX_K_REPEAT: {
        rx_id made = derive(s, n->a, byte);
        if (made == RX_NONE)
            return RX_NONE;
        n = rx_at(s, x);
        ASSERT(n->max > 0);
        return rx_cat(
            s, made,
            rx_repeat(s, n->a, n->min ? n->min - 1 : 0, n->max == RX_UNBOUNDED ? RX_UNBOUNDED : n->max - 1));
    }
    default:
        return RX_NONE;
    }
}

static rx_id derive(struct rx_store *s, rx_id x, uint8_t byte)
{
    const struct rx_item *n = rx_at(s, x);
    rx_step(s);
    if (s->failed || x <= RX_EMPTY)
        return RX_NONE;
    if (n->kind == RX_K_BYTES)
        return rx_has(rx_set_at(s, n->a), byte) ? RX_EMPTY : RX_NONE;
    if (n->kind == RX_K_CAT && rx_at(s, n->a)->kind == RX_K_BYTES)
        return rx_has(rx_set_at(s, rx_at(s, n->a)->a), byte) ? n->b : (rx_id)RX_NONE;
    struct rx_memo *m = &s->memo[(x * 31u + byte) % RX_MEMO];
    if (m->of == x && m->byte == byte)
        return m->rest;
    rx_id made = derive_node(s, x, byte);
    if (!s->failed)
        *m = (struct rx_memo){.of = x, .byte = byte, .rest = made};
    return s->failed ? (rx_id)RX_NONE : made;
}

rx_id rx_derive(struct rx_store *s, rx_id a, uint8_t byte)
{
    ASSERT(a < s->count);
    return derive(s, a, byte);
}

/* ---- First bytes ---- */

static void add_all(struct rx_bytes *set)
{
    memset(set, 0xFF, sizeof(*set));
}

/* Parts may be shared: a walk that takes each as often as it occurs takes 2^n steps for n nodes. This walk
 * passes over the nodes that it remembers. After FIRST_STEPS it adds all bytes. */
enum { FIRST_SEEN = 256, FIRST_STEPS = 1 << 16 };

struct first_walk {
    const struct rx_store *store;
    struct rx_bytes *set;
    uint32_t steps;
    rx_id seen[FIRST_SEEN]; /* id + 1, by id */
};

static bool first_is_new(struct first_walk *w, rx_id x)
{
    rx_id *seen = &w->seen[x % FIRST_SEEN];
    if (*seen == x + 1)
        return false;
    *seen = x + 1;
    return true;
}

static void add_first(struct first_walk *w, rx_id x)
{
    const struct rx_store *s = w->store;
    struct rx_bytes *set = w->set;
    while (first_is_new(w, x)) {
        const struct rx_item *n = rx_at(s, x);
        if (++w->steps >= FIRST_STEPS) {
            add_all(set);
            return;
        }
        switch ((enum rx_kind)n->kind) {
        case RX_K_NONE:
        case RX_K_EMPTY:
            return;
        case RX_K_BYTES:
            for (int i = 0; i < 4; i++)
                set->bits[i] |= rx_set_at(s, n->a)->bits[i];
            return;
        case RX_K_CAT:
            add_first(w, n->a);
            if (!(rx_at(s, n->a)->flags & RX_F_NULLABLE))
                return;
            x = n->b;
            break;
        case RX_K_OR:
            add_first(w, n->a);
            x = n->b;
            break;
        case RX_K_REPEAT:
            x = n->a;
            break;
        default:
            add_all(set);
            return;
        }
    }
}

void rx_first(const struct rx_store *s, rx_id x, struct rx_bytes *set)
{
    struct first_walk w = {.store = s, .set = set};
    add_first(&w, x);
}

/* ---- Without the empty text ---- */

/* Its results are in the memo of derivatives, by this number in place of a byte. */
enum { NO_BYTE = 256 };

/* In a chain of nullable parts the first part that takes a byte is any of them. */
static rx_id chain_without_empty(struct rx_store *s, rx_id x)
{
    uint32_t from = s->list_count;
    for (;;) {
        const struct rx_item *n = rx_at(s, x);
        if (n->kind != RX_K_CAT)
            break;
        rx_id rest = n->b;
        rx_id made = rx_cat(s, rx_without_empty(s, n->a), rest);
        if (!rx_push(s, made))
            return RX_NONE;
        x = rest;
    }
    if (!rx_push(s, rx_without_empty(s, x)))
        return RX_NONE;
    return rx_or_list(s, from);
}

static rx_id list_without_empty(struct rx_store *s, rx_id x)
{
    uint32_t from = s->list_count;
    for (bool more = true; more && !s->failed;) {
        const struct rx_item *n = rx_at(s, x);
        more = n->kind == RX_K_OR;
        if (!rx_push_list(s, RX_K_OR, rx_without_empty(s, more ? n->a : x)))
            return RX_NONE;
        if (more)
            x = rx_at(s, x)->b;
    }
    return rx_or_list(s, from);
}

static rx_id node_without_empty(struct rx_store *s, rx_id x)
{
    ASSERT(rx_nullable(s, x));
    const struct rx_item *n = rx_at(s, x);
    if (n->kind == RX_K_CAT)
        return chain_without_empty(s, x);
    if (n->kind == RX_K_OR)
        return list_without_empty(s, x);
    if (n->kind != RX_K_REPEAT)
        return rx_and(s, x, rx_not(s, RX_EMPTY));
    rx_id body = n->a;
    uint32_t max = n->max;
    if (!rx_nullable(s, body))
        return rx_repeat(s, body, 1, max);
    ASSERT(max > 0);
    rx_id rest = rx_repeat(s, body, 0, max == RX_UNBOUNDED ? max : max - 1);
    return rx_cat(s, rx_without_empty(s, body), rest);
}

rx_id rx_without_empty(struct rx_store *s, rx_id x)
{
    rx_step(s);
    if (s->failed || x == RX_EMPTY)
        return RX_NONE;
    if (!(rx_at(s, x)->flags & RX_F_NULLABLE))
        return x;
    struct rx_memo *m = &s->memo[(x * 31u + NO_BYTE) % RX_MEMO];
    if (m->of == x && m->byte == NO_BYTE)
        return m->rest;
    rx_id made = node_without_empty(s, x);
    if (!s->failed)
        *m = (struct rx_memo){.of = x, .byte = NO_BYTE, .rest = made};
    return s->failed ? (rx_id)RX_NONE : made;
}
