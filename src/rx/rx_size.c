/* rx_size.c - how many nodes an expression has, as far as it matters. */
#include "rx/rx_store.h"

#include "base/check.h"

enum { SLOTS = 2 * RX_SIZE_MAX };

/* False when it is there already. */
static bool add(rx_id *slots, rx_id id)
{
    uint32_t at = id * 2654435761u % SLOTS;
    for (; slots[at]; at = (at + 1) % SLOTS)
        if (slots[at] == id + 1)
            return false;
    slots[at] = id + 1;
    return true;
}

uint32_t rx_size(struct rx_store *s, rx_id x, uint32_t most)
{
    ASSERT(most < RX_SIZE_MAX);
    rx_id slots[SLOTS] = {0};
    uint32_t from = s->list_count, count = 0;
    bool pushed = rx_push(s, x);
    while (pushed && s->list_count > from && count < most) {
        rx_id id = s->list[--s->list_count];
        const struct rx_item *n = rx_at(s, id);
        if (!add(slots, id))
            continue;
        count++;
        if (n->kind >= RX_K_CAT)
            pushed = rx_push(s, n->a);
        if (n->kind >= RX_K_CAT && n->kind <= RX_K_AND)
            pushed = pushed && rx_push(s, n->b);
    }
    s->list_count = from;
    return pushed ? count : most;
}

bool rx_has_loop(struct rx_store *s, rx_id x)
{
    rx_id slots[SLOTS] = {0};
    uint32_t from = s->list_count, count = 0;
    bool found = !rx_push(s, x);
    while (!found && s->list_count > from) {
        rx_id id = s->list[--s->list_count];
        const struct rx_item *n = rx_at(s, id);
        if (!add(slots, id))
            continue;
        found = ++count == RX_SIZE_MAX ||
                (n->kind == RX_K_REPEAT && n->max > 8 && rx_at(s, n->a)->kind != RX_K_BYTES);
        if (n->kind >= RX_K_CAT)
            found = found || !rx_push(s, n->a);
        if (n->kind >= RX_K_CAT && n->kind <= RX_K_AND)
            found = found || !rx_push(s, n->b);
    }
    s->list_count = from;
    return found;
}
