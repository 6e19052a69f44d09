/* packing.h - the command pack: a model's files to one packed file. */
#ifndef PLATEAU_HOST_PACKING_H
#define PLATEAU_HOST_PACKING_H

#include <stdint.h>

struct err;
struct pack_result;
struct settings;

struct packing_opts {
    const char *out;
    int (*progress)(void *arg, uint64_t bytes_done, uint64_t bytes_total); /* nonzero: -ECANCELED */
    void *arg;
};

/* Packs o->models.model, or the bundled model. 0, or as pack_model(). */
int packing_run(const struct settings *o, const struct packing_opts *opts, struct pack_result *ret,
                struct err *e);

#endif
