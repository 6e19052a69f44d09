/* catalog.h - the models on this machine: below a directory, by one walk that every command and the server
 * share; in each source; and the one of a name.
 *
 * The walk follows links down to 8 levels and reads at most 4096 directories. It skips directories inside a
 * model, names that begin with a dot, and in the hub's cache data sets, spaces, and all but the current
 * snapshot of a model. It reads names only, in their order. */
#ifndef PLATEAU_HOST_CATALOG_H
#define PLATEAU_HOST_CATALOG_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hub_name;

#define CATALOG_PATH_BYTES 4096 /* HUB_PATH_BYTES, too */
#define CATALOG_ID_BYTES   256

enum catalog_kind {
    CATALOG_DIRECTORY, /* with config.json and .safetensors files */
    CATALOG_FILE,      /* a GGUF model, by its first part that is there, or a packed file */
    /* The others are not served. */
    CATALOG_ENCODER, /* a GGUF file with a vision encoder */
    CATALOG_BIN,     /* a directory with config.json, whose weights are .bin files */
    CATALOG_PARTIAL, /* a directory with config.json or .safetensors files, and not both */
    CATALOG_HUB      /* a model's folder in the hub's cache, without a complete snapshot */
};

struct catalog_entry {
    char *path;                /* path of a directory or a file */
    char *why;                 /* reason of CATALOG_HUB; else NULL */
    char id[CATALOG_ID_BYTES]; /* the name that a server gives it; of the hub's cache ORG/NAME[:QUANT] */
    enum catalog_kind kind;
};

static inline bool catalog_is_model(const struct catalog_entry *m)
{
    return m->kind <= CATALOG_FILE;
}

/* Calls `found` for each entry, once all have their names. 0, -ENOENT (`dir` cannot be read), -E2BIG (more
 * directories or entries), -ENOMEM, or the result of `found`. */
int catalog_walk(const char *dir, int (*found)(void *arg, const struct catalog_entry *m, struct err *e),
                 void *arg, struct err *e);

/* Receives a model's path and id, both valid during the call. */
typedef int catalog_found_fn(void *arg, const char *path, const char *id, struct err *e);
/* As `catalog_walk()`, but `found` gets path and id alone, of what is not served, too. */
int catalog_each(const char *dir, catalog_found_fn *found, void *arg, struct err *e);

/* ---- sources ---- */

/* The bundled model: beside the program's folder (build/plateau in a checkout), in share of the installation
 * (PREFIX/bin/plateau), or in the checkout of the build. 0 or -ENOENT. */
int catalog_bundled(char ret[CATALOG_PATH_BYTES], struct err *e);

/* The starter model: SmolLM2-135M-Instruct, where tools/fetch-starter has put it. False: it is not there. */
bool catalog_starter(char ret[CATALOG_PATH_BYTES]);

/* Calls `found` for each model of each source that exists: the bundled and the starter model, the hub's
 * cache, the folders of LM Studio, and Ollama's store. 0, or the result of `found`; what cannot be read is
 * passed over. */
int catalog_each_source(catalog_found_fn *found, void *arg, struct err *e);

/* ---- one model ---- */

/* Finds the model that a command line names. A path that exists is the result, but for a model's folder in
 * the hub's cache, which becomes its current snapshot, or its GGUF file. Else canary and smollm2 are the
 * bundled and the starter model. ORG/NAME[@REVISION][:QUANT] is looked up in the hub's cache, and so is
 * NAME[:QUANT]; then the name among the models of LM Studio and Ollama, as the command models lists them. Any
 * other path is the result, too. 0, -ENOENT and -ENODATA (a name of the hub that the cache does not have, or
 * not complete), -ENOTUNIQ (NAME of several organisations, or several GGUF models), -ENAMETOOLONG; `e` has
 * the next step. */
int catalog_find(const char *model, char ret[CATALOG_PATH_BYTES], struct err *e);

/* As `catalog_find()`, but of ORG/NAME[@REVISION][:QUANT] in the hub's cache alone. */
int catalog_find_in_hub(const struct hub_name *name, char ret[CATALOG_PATH_BYTES], struct err *e);

/* Identifies the model at `path`, a directory or a file, by its files, as entries of the SSD tier do. 0, or
 * an error of model_files_open() or model_fingerprint(). */
int catalog_fingerprint(const char *path, uint8_t ret[32], struct err *e);

/* Reading `path` as a model failed with `code` and `e`. `e` names the reason where it is the path itself: it
 * does not exist, is a GGUF file, has weights of another format, is a directory above models, the cache of
 * the Hugging Face hub, or an incomplete download. Otherwise `path` is put before the message. Returns
 * `code`. Reads directories and the index of the weights. For messages of a command or of a start, not for
 * clients, because they name paths. */
int catalog_hint(const char *path, int code, struct err *e);

#endif
