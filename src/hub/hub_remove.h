/* hub_remove.h - removes one model from the hub's cache. */
#ifndef PLATEAU_HUB_HUB_REMOVE_H
#define PLATEAU_HUB_HUB_REMOVE_H

#include "hub/hub_cache.h"

#include <stdint.h>

/* Bytes of the model's files, each counted once: links are not followed. 0, -ENOENT (not in the cache),
 * -ELOOP (its folder is a link), or what the system said. */
int hub_remove_bytes(const char *cache, const struct hub_name *n, uint64_t *ret, struct err *e);
/* Removes models--ORG--NAME and all below it. Links are removed and not followed, so nothing outside is
 * touched. Results as above; `ret` gets the removed bytes, after a failure too. */
int hub_remove(const char *cache, const struct hub_name *n, uint64_t *ret, struct err *e);

#endif
