/* hub_list.h - the files of one revision, as the hub lists them, and which of them a model needs.
 *
 * Any bytes may come as a listing: lengths, counts and nesting are limited, and nothing but names, sizes
 * and sums is kept. */
#ifndef PLATEAU_HUB_HUB_LIST_H
#define PLATEAU_HUB_HUB_LIST_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct slice;

#define HUB_LIST_BYTES_MAX  ((size_t)8 << 20)
#define HUB_LIST_FILES_MAX  10000
#define HUB_ETAG_BYTES      65                   /* SHA-256 in hex; a small file has git's SHA-1 */
#define HUB_SMALL_BYTES_MAX ((uint64_t)32 << 20) /* largest file without SHA-256 */
#define HUB_COMMIT_BYTES    41

struct hub_file {
    char *name;
    uint64_t bytes;
    char etag[HUB_ETAG_BYTES]; /* "": the listing has no sum */
    bool sha256;
};

struct hub_list {
    char commit[HUB_COMMIT_BYTES];
    struct hub_file *files;
    uint32_t count;
    uint32_t odd; /* files that were left out: their names would leave the directory, or have no sum */
};

/* Both forms that the hub has: an object with "sha" and "siblings", and an array of a tree, which adds to
 * *l. 0, -EINVAL, -E2BIG (too many files), -ENOMEM. hub_list_done() either way. */
int hub_list_parse(struct slice json, struct hub_list *l, struct err *e);
/* Zeroed is fine. */
void hub_list_done(struct hub_list *l);

/* Keeps the files that serving needs, and files that match one of `include` (shell patterns; NULL ends the
 * list, and may be the list) and are safe. `index` is the text of
 * model.safetensors.index.json, whose shards stay; empty: all do. 0, or -ENODATA (no weights stay; `e` names
 * the formats). */
int hub_list_choose(struct hub_list *l, const char *const *include, struct slice index, struct err *e);
const struct hub_file *hub_list_find(const struct hub_list *l, const char *name);
/* Whether the name matches one of the shell patterns, which NULL ends; NULL has none. */
bool hub_file_matches(const struct hub_file *f, const char *const *patterns);
/* False: Python code or a pickle, which may run code and is never fetched. */
bool hub_file_is_safe(const struct hub_file *f);
/* Tensors: fetched last. */
bool hub_file_is_weights(const struct hub_file *f);

#endif
