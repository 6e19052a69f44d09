/* hub_cache.h - the Hugging Face hub's cache on this machine, as its documentation describes it for
 * programs: models--ORG--NAME/{blobs,refs,snapshots}. Reads names and small files; any thread. */
#ifndef PLATEAU_HUB_HUB_CACHE_H
#define PLATEAU_HUB_HUB_CACHE_H

#include "base/err.h"
#include "hub/hub_name.h"

#define HUB_PATH_BYTES       4096
#define HUB_CACHE_MODELS_MAX 4096

/* HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub ($XDG_CACHE_HOME for ~/.cache). 0, or
 * -ENAMETOOLONG. */
int hub_cache_dir(char ret[HUB_PATH_BYTES], struct err *e);
/* A model's folder; it need not exist. */
int hub_cache_folder(const char *cache, const struct hub_name *n, char ret[HUB_PATH_BYTES], struct err *e);

/* HF_HUB_OFFLINE is set. */
bool hub_is_offline(void);

/* The snapshot of a revision, below the folder of a model: the commit in refs/REVISION, or the commit
 * itself. Without refs/main the only snapshot is main's. 0, -ENOENT (there is no such folder), -ENODATA
 * (no such revision, or it is not complete; `e` says which), -ENAMETOOLONG. */
int hub_cache_snapshot(const char *folder, const char *revision, char ret[HUB_PATH_BYTES], struct err *e);

/* The model in whose folder `path` is a snapshot or a file of one, or which it is the folder of. A GGUF file
 * has its quantisation, and so has a snapshot with one GGUF model alone. The revision is main. False:
 * neither. */
bool hub_cache_name_of(const char *path, struct hub_name *ret);

/* Finds the only model NAME of any organisation. 0, -ENOENT (none, or no cache), -ENOTUNIQ (several; `e`
 * names two), -E2BIG. */
int hub_cache_find(const char *cache, const char *name, struct hub_name *ret, struct err *e);
/* As `hub_cache_find()`, but of NAME[:QUANT]; the quantisation is not looked up. */
int hub_cache_find_name(const char *cache, const char *text, struct hub_name *ret, struct err *e);

#endif
