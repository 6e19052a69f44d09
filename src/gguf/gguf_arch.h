/* gguf_arch.h - what GGUF files of an architecture call things, and what they change, as data.
 *
 * An architecture is a row of a table:
 *   - the family that computes it, the keys of config.json that its metadata are, and what they leave out;
 *   - the names of its tensors by role, and which of them have rows or columns in another order than
 *     Hugging Face's files (tensor_naming.h). */
#ifndef PLATEAU_GGUF_GGUF_ARCH_H
#define PLATEAU_GGUF_GGUF_ARCH_H

#include "tensor/tensor_naming.h"

#include <stddef.h>

struct gguf;
struct slice;

/* A key of the metadata, without "ARCHITECTURE.", and the key of config.json that it is, or with "rope." in
 * front that of its rope_parameters. */
struct gguf_key {
    const char *key; /* NULL: the end */
    const char *name;
};

/* layer_types of layers with keys of attention, as head_count_kv lists them, and of those without. */
struct gguf_kinds {
    const char *without, *with; /* NULL: the metadata list no kinds */
    const char *mlp;            /* layers without keys whose feed_forward_length is over 0; NULL: `without` */
};

/* Differences between layers with a window and the others. */
struct gguf_apart {
    bool heads_listed;        /* num_attention_heads_per_layer lists heads of queries */
    const char *window_heads; /* key of config.json: heads of queries in layers with a window; NULL: none */
    uint32_t kv_times;        /* KV heads in layers with a window, for each of another layer */
    uint32_t full_divisor;    /* layers without a window rotate this part of rope.dimension_count */
    uint32_t full_every;      /* the first of this many layers has no window in a file without a list */
    bool gating;              /* the count of gates says whether heads or values have them */
};

struct gguf_arch {
    const char *name;       /* general.architecture */
    bool experts;           /* the row of files whose expert_count is over 0; another row has the others */
    const char *needs;      /* a key of the row's files; the row of files without it follows; NULL: none */
    const char *model_type; /* its model_type in config.json */
    const char *sees;       /* that with a vision encoder's file beside it; NULL: the same */
    bool refused;           /* the family is known and not computed: only its model_type is read */
    const struct gguf_key *keys; /* in addition to the common ones; NULL: none */
    struct gguf_key flag;        /* a tensor, and the key of config.json that is true if the file has it */
    const char *facts;           /* members of config.json that the metadata leave out, as JSON; NULL: none */
    bool
        two_sizes; /* True if layers with a window have heads of another size, and the last ones share keys */
    bool ssm;      /* True if some layers are Mamba-2 */
    bool latent;   /* True if attention is latent: keys and values of all heads are one row */
    bool xielu;    /* True if metadata have the numbers of xIELU of each layer */
    const char *dense; /* key of config.json: how many layers at the begin have no router, which no metadata
                          say; NULL: they do */
    struct gguf_kinds kinds;
    const struct gguf_apart *apart; /* NULL: all layers have the same numbers */
    bool limits;                    /* True if metadata have bounds of activations of each layer */
    uint32_t score_by_width;        /* a model of this many layers scales scores by hidden / heads; 0: none */
    struct tensor_naming naming;
};

/* The row of the file `g`; NULL for a file without the keys that some rows need. Returns NULL if the
 * architecture is not read. */
const struct gguf_arch *gguf_arch_find(const struct gguf *g, struct slice name, bool experts);
/* Why an architecture that gguf_arch_find() does not find is not read. */
const char *gguf_arch_unserved(struct slice name);
/* Keys that all architectures share. */
extern const struct gguf_key gguf_arch_keys[];

#endif
