/* responses_page.h - a page of the items of a stored response, as OpenAI's list of input items. */
#ifndef PLATEAU_API_RESPONSES_PAGE_H
#define PLATEAU_API_RESPONSES_PAGE_H

#include "base/buf.h"
#include "base/wanted.h"

#include <stdbool.h>

#define RESPONSES_PAGE_MAX 100

struct responses_page {
    bool newest_first;
    uint64_t limit;              /* items; 0: all of them */
    struct slice after;          /* the id of the item before the page; empty: it begins with the first one */
    const struct wanted *wanted; /* polled at each item; may be NULL */
};

/* Appends the list that `items` (JSON, with RESPONSES_BETWEEN between them) has on that page. 0, -ECANCELED,
 * -ETIME, or -ENOENT: none of the items has the id `after`. */
int responses_page_write(struct slice items, const struct responses_page *page, struct buf *ret);

#endif
