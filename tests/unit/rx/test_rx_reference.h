/* test_rx_reference.h - a plain recogniser over rx_node(): sets of places where a match may end.
 *
 * It knows no derivative and no automaton. Texts have at most 30 bytes: a set of places is one word. */
#ifndef PLATEAU_TESTS_UNIT_TEST_RX_REFERENCE_H
#define PLATEAU_TESTS_UNIT_TEST_RX_REFERENCE_H

#include "rx/rx.h"

typedef uint32_t rx_places; /* bit i: place i */

static rx_places rx_ends(const struct rx_store *s, rx_id x, struct slice text, rx_places from);

static inline rx_places rx_ends_repeat(const struct rx_store *s, const struct rx_node *n, struct slice text,
                                       rx_places from)
{
    rx_places all = 0, now = from;
    for (uint32_t k = 0; k < n->min && now; k++)
        now = rx_ends(s, n->a, text, now);
    for (uint32_t k = n->min;; k++) {
        /* Places that fewer repetitions have reached lead nowhere new. */
        now &= ~all;
        all |= now;
        if (k == n->max || now == 0)
            return all;
        now = rx_ends(s, n->a, text, now);
    }
}

/* Where matches end that begin at any place of `from`, which has one place for AND and NOT. */
static rx_places rx_ends(const struct rx_store *s, rx_id x, struct slice text, rx_places from)
{
    struct rx_node n = rx_node(s, x);
    rx_places to = 0, all = 0;
    switch (n.kind) {
    case RX_K_NONE:
        return 0;
    case RX_K_EMPTY:
        return from;
    case RX_K_BYTES:
        for (uint32_t i = 0; i < text.len; i++)
            if (from >> i & 1 && n.set.bits[(uint8_t)text.ptr[i] / 64] >> (uint8_t)text.ptr[i] % 64 & 1)
                to |= 2u << i;
        return to;
    case RX_K_CAT:
        return rx_ends(s, n.b, text, rx_ends(s, n.a, text, from));
    case RX_K_OR:
        return rx_ends(s, n.a, text, from) | rx_ends(s, n.b, text, from);
    case RX_K_REPEAT:
        return rx_ends_repeat(s, &n, text, from);
    case RX_K_AND:
    case RX_K_NOT:
        for (uint32_t i = 0; i <= text.len; i++) {
            if (!(from >> i & 1))
                continue;
            rx_places one = rx_ends(s, n.a, text, 1u << i);
            to = ((2u << text.len) - 1) & ~((1u << i) - 1);
            all |= n.kind == RX_K_NOT ? to & ~one : one & rx_ends(s, n.b, text, 1u << i);
        }
        return all;
    }
    return 0;
}

static inline bool rx_matches(const struct rx_store *s, rx_id x, struct slice text)
{
    return rx_ends(s, x, text, 1) >> text.len & 1;
}

#endif
