/* hub_remove.h - removes one model from the hub's cache. */
#ifndef PLATEAU_HUB_HUB_REMOVE_H
#define PLATEAU_HUB_HUB_REMOVE_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct hub_name;

/* Removes a directory and all below it, and follows no link. What fails stays. */
void hub_remove_tree(const char *dir);
/* The files of one GGUF model, `n` with its quantisation, below the folder of its repository: counts the
 * bytes, and `removes` them. *whole: there is no other model, and nothing was done; the folder is to be
 * removed. 0, -ENOENT (there is no such model), -ENOMEM, -E2BIG, or what the system said. */
int hub_remove_variant(const char *folder, const struct hub_name *n, bool removes, uint64_t *bytes,
                       bool *whole);
/* Bytes of the model's files, each counted once: links are not followed. With a quantisation, those of that
 * GGUF model. 0, -ENOENT (not in the cache), -ELOOP (its folder is a link), or what the system said. */
int hub_remove_bytes(const char *cache, const struct hub_name *n, uint64_t *ret, struct err *e);
/* Removes models--ORG--NAME and all below it, or that GGUF model if there are others. Links are removed and
 * not followed, so nothing outside is touched. Results as above; `ret` gets the removed bytes, after a
 * failure too. */
int hub_remove(const char *cache, const struct hub_name *n, uint64_t *ret, struct err *e);

#endif
