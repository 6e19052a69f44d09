/* hub_work.h - the state of a pull, and its two ways to fetch: one answer into memory or a file, or the
 * parts of files over all connections. Of hub_pull.c; one thread. */
#ifndef PLATEAU_HUB_HUB_WORK_H
#define PLATEAU_HUB_HUB_WORK_H

#include "hub/hub_variants.h"
#include "hub/hub_http.h"
#include "hub/hub_list.h"
#include "hub/hub_pull.h"

struct hub_blob;

struct hub_work {
    const struct hub_pull_opts *opts;
    struct hub_http *http;
    struct hub_list list;
    struct hub_blob *blobs;       /* [list.count] */
    bool *had;                    /* [list.count] an earlier pull left it, or some of its bytes */
    struct hub_variants variants; /* the GGUF models that are fetched */
    bool keeps;                   /* files that came stay, although not all did: the next pull goes on */
    char folder[HUB_PATH_BYTES];
    struct hub_progress shown;
    uint64_t shown_ns;
    uint64_t here; /* bytes of the files that are present */
};

/* How often a request has failed since the last byte came. */
struct hub_retry {
    unsigned tries;
    uint64_t not_before_ns;
};
/* After HUB_END_AGAIN: false when there were too many. */
bool hub_retry_again(struct hub_retry *r, const struct hub_transfer *t, bool resumes);

/* Shows progress now and then. 0 or -ECANCELED. */
int hub_work_show(struct hub_work *w);
/* Path of a file of the revision at the hub. */
int hub_work_path(const struct hub_work *w, const char *name, char ret[HUB_URL_BYTES], struct err *e);
/* One answer, as `t` says, to t->take; `restart` (may be NULL) drops the bytes before a request without a
 * range is made again. 0 or an error of hub_pull(). */
int hub_work_get(struct hub_work *w, struct hub_transfer *t, void (*restart)(void *arg), struct err *e);
/* Files [0, count) whose `weights` are or are not: all their parts, and their sums. */
int hub_work_fetch(struct hub_work *w, bool weights, struct err *e);

#endif
