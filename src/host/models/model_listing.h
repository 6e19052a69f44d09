/* model_listing.h - what is known of a model before it is loaded: from its headers and the plan. */
#ifndef PLATEAU_HOST_MODEL_LISTING_H
#define PLATEAU_HOST_MODEL_LISTING_H

#include "model/model.h"
#include "registry/model_use.h"

struct settings;

enum listing_state {
    LISTING_FITS,
    LISTING_TOO_LARGE, /* readable, but the plan does not fit */
    LISTING_REFUSED,   /* not served: the files are not those of a model that is computed */
};

struct model_listing {
    enum listing_state state;
    struct err why; /* unless it fits */
    uint64_t disk_bytes;
    int64_t used_s; /* when one of its files was last read, since 1970; 0: not known */
    /* Zeros if refused. */
    struct model_shape shape;
    enum model_kind kind;                /* purpose of the model */
    uint64_t floor_bytes, ceiling_bytes; /* least bytes that serving takes, and the limit */
    uint32_t compaction_reserve;         /* beyond max_model_len */
    uint32_t max_model_len;              /* that it would be served with; 0: it does not fit */
};

/* Describes the model at `path`, served with the settings `o`. Reads names, sizes and headers. */
void model_listing_make(const struct settings *o, const char *path, const char *id,
                        struct model_listing *ret);
/* "fits", "too large", "refused" */
const char *listing_state_name(enum listing_state s);

/* True for a model that is served with less than its own context. */
static inline bool listing_shortens(const struct model_listing *m)
{
    return m->max_model_len + m->compaction_reserve < m->shape.context_max;
}

#endif
