/* hub_pull.h - fetches a model into the hub's cache, as the hub's documentation lays it out for programs.
 *
 * In this order: the list of files, the small files, the headers of the weights, the caller's word on
 * what they say, the weights, the links of the snapshot, the reference of the revision. A process that is
 * killed at any time leaves a cache that other programs can read. One thread; no code of a model is
 * fetched or run. */
#ifndef PLATEAU_HUB_HUB_PULL_H
#define PLATEAU_HUB_HUB_PULL_H

#include "hub/hub_cache.h"

#include <stdint.h>

struct hub_variants;

struct hub_progress {
    const char *phase; /* "list", "headers", "fetch", "check" */
    uint64_t bytes_done, bytes_total;
    uint64_t fetched; /* by this process */
    uint32_t files_done, files;
    const char *retries; /* why a request failed that is made again; NULL: none did since the last byte */
};

struct hub_pull_opts {
    const char *cache; /* made if it is missing */
    struct hub_name name;
    const char *endpoint; /* NULL: HF_ENDPOINT, else the public hub */
    const char *const *include;
    unsigned stall_s;
    bool plans_only; /* ends after `planned` */
    /* The repository has several GGUF models, and `name` and `include` choose none: shows them to a person.
     * NULL: the error alone names them. */
    void (*several)(void *arg, const struct hub_variants *g);
    /* Once for each model that is fetched. `path` is a directory with its small files, and weights that
     * consist of their headers and holes; or a GGUF file of that kind. `bytes` would be fetched, of all
     * models. Nonzero ends the pull. */
    int (*planned)(void *arg, const struct hub_name *name, const char *path, uint64_t bytes, struct err *e);
    /* Every 100 ms or so; nonzero: -ECANCELED. */
    int (*progress)(void *arg, const struct hub_progress *p);
    void *arg;
};

struct hub_pulled {
    struct hub_name name; /* name of the first model, with its quantisation */
    char snapshot[HUB_PATH_BYTES];
    char commit[64];
    uint64_t bytes, fetched; /* bytes of all files; bytes fetched by this process */
    uint32_t files, odd;     /* odd: files of the list that were left out for their names */
};

/* After a failure a second call goes on; `ret` says how far it came. A pull that is refused and a plan remove
 * what they have put into the cache. 0, -ECANCELED, -ENOENT (no such model or revision), -EACCES, -ENODATA
 * (no weights that are read), -ENOTUNIQ (several GGUF models), -ENOSPC, -EBADMSG (a sum was wrong twice),
 * -EBUSY (another pull of the model), -EAGAIN (requests failed again and again), -EINVAL (the endpoint, the
 * token, or the hub's answers), or an error of `planned` or of the system. */
int hub_pull(const struct hub_pull_opts *o, struct hub_pulled *ret, struct err *e);

#endif
