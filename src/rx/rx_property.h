/* rx_property.h - sets of code points by name: \p{...}, \d, \w, \s. */
#ifndef PLATEAU_RX_RX_PROPERTY_H
#define PLATEAU_RX_RX_PROPERTY_H

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct rx_range;
struct slice;

/* Code points as sorted ranges apart from each other, without surrogates. */
struct rx_set {
    struct rx_range *at;
    uint32_t count, room;
};

/* False: no memory. Sets grow in `a`; outgrown arrays stay there. */
bool rx_set_add(struct arena *a, struct rx_set *set, uint32_t first, uint32_t last);
/* Sorts and joins. */
void rx_set_normalize(struct rx_set *set);
bool rx_set_complement(struct arena *a, struct rx_set *set);
/* Adds all code points of a general category (L, Lu, Letter, Uppercase_Letter, ...; also gc=Lu). 0; -EINVAL:
 * no such category; -ENOMEM. */
int rx_set_add_category(struct arena *a, struct rx_set *set, struct slice name);

#endif
