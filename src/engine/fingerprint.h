/* fingerprint.h - the identity of a model's pages on disk: its files (model_fingerprint.h) and the layout of
 * their content. */
#ifndef PLATEAU_ENGINE_FINGERPRINT_H
#define PLATEAU_ENGINE_FINGERPRINT_H

#include "base/err.h"

#include <stdbool.h>

struct model_files;
struct model_shape;
struct store_identity;

#define FINGERPRINT_HEX 64 /* digits */

struct fingerprint_opts {
    const char *given;     /* digits in place of the files' fingerprint; NULL: that one */
    unsigned experts;      /* experts in the machine's memory: which, and how they compute; 0: as the rest */
    const char *namespace; /* part of the identity: models of other ones share nothing; NULL: none */
};

/* Whether the text may be `given`. */
bool fingerprint_is_hex(const char *text);

/* `layout` names everything else that decides the bits of K, V and states: arithmetic, sizes, the processor's
 * instruction sets, the program's version. Any thread. 0, or as model_fingerprint(). */
int fingerprint_make(struct model_files *files, const struct model_shape *shape, unsigned cpu_flags,
                     const struct fingerprint_opts *opts, struct store_identity *ret, struct err *e);

#endif
