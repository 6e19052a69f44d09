/* packed.h - a packed file: a model whose weights lie in the kernels' layout, to be mapped (plateau pack).
 *
 * It is a bundle (bundle.h). It has the source's small files and the heads of its weight files, so a
 * probe of it is a probe of the source. PACKED_ABOUT says for what it was packed. PACKED_WEIGHTS has the
 * packed weights of the text model and its vision encoder, PACKED_HEAD the MTP head's, in the order in
 * which the binder takes memory. Parts have PACKED_PART_BYTES and a checksum each. One thread. */
#ifndef PLATEAU_MODEL_PACKED_H
#define PLATEAU_MODEL_PACKED_H

#include "model/measure.h"

#include "base/files/bundle.h"
#include "compute/mode.h"

#include <jansson.h>

struct packers;
struct weight_memory;

#define PACKED_ABOUT      ".packed/about.json"
#define PACKED_WEIGHTS    ".packed/weights"
#define PACKED_HEAD       ".packed/mtp"
#define PACKED_PART_BYTES BUNDLE_PART_BYTES_MAX
#define PACKED_PAGE       ((uint64_t)4096)
#define PACKED_TEXT_BYTES 256

/* Facts of the pack: source, layout and mode that the weights were packed for. */
struct packed_about {
    char source[PACKED_TEXT_BYTES]; /* the last part of its path */
    char fingerprint[65];           /* digest of the source's files, in hex */
    char layout[32];                /* the backend's */
    char program[32];               /* the version that packed it */
    enum compute_mode compute;
    uint32_t quant;
    struct bind_mark text, all, head; /* text: without the vision encoder; head.used 0: no MTP head */
};

struct packed {
    const char *path;
    const struct bundle *bundle; /* NULL: the files are not packed */
    struct packed_about about;
};

/* `files` outlives *ret. 0, -EINVAL, -ENOTSUP, -ENOMEM, or what reading said. */
int packed_open(struct model_files *files, struct packed *ret, struct err *e);

/* Sets the mode and the form that the file was packed for. 0, -ENOTSUP: others are wanted, or a device that
 * does not compute in the machine's memory. Without a packed file nothing is done. */
int packed_set_parts(const struct packed *p, struct model_parts *parts, struct err *e);
/* Compares the checksums of all its files but the weights. 0, -EINVAL, -ENOMEM, or what reading said. */
int packed_check_files(const struct packed *p, struct err *e);
/* Whether the layout of the file is what this program would pack. 0 or -ENOTSUP. */
int packed_check(const struct packed *p, const struct config *c, const struct measured *m, struct err *e);

/* Options of a load. */
struct packed_load {
    struct packers *packers; /* that compare checksums; may be NULL */
    int (*progress)(void *arg, uint64_t bytes_done, uint64_t bytes_total); /* nonzero: -ECANCELED */
    void *arg;
    uint64_t before, total; /* for progress: bytes mapped already, and bytes of all regions */
};
/* Maps the first `used` bytes of `region`, PACKED_WEIGHTS or PACKED_HEAD, and compares their checksums. 0,
 * -EINVAL (damaged), -ECANCELED, -ENOMEM, or what the system said. */
int packed_map(const struct packed *p, const char *region, uint64_t used, const struct packed_load *load,
               struct account *account, struct weight_memory *ret, struct err *e);

/* The two forms of PACKED_ABOUT. */
json_t *packed_about_json(const struct packed_about *a);
int packed_about_read(const json_t *from, struct packed_about *ret, struct err *e);

#endif
