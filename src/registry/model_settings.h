/* model_settings.h - what one model is to be served with: the process's options, changed by what its section
 * of the configuration file says. Plain data; made once at the start. */
#ifndef PLATEAU_REGISTRY_MODEL_SETTINGS_H
#define PLATEAU_REGISTRY_MODEL_SETTINGS_H

#include "base/check.h"
#include "engine/engine_opts.h"
#include "memory/plan.h"
#include "registry/draft_model.h"
#include "registry/model_id.h"
#include "registry/speculation.h"
#include "sample/sampler_params.h"

#include <jansson.h>

#define MODEL_ALIASES_MAX 32
#define MODEL_WARMS_MAX   16

/* NAN and -1: the model's own. */
struct sampling_defaults {
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k;
};

/* Options of the settings table. Each model has its own copy, changed by its section. */
struct model_options {
    const char *compute, *kv_dtype, *quant, *spec, *trim; /* names of a mode */
    const char *repetition_detection;                     /* a mode of repetition.h */
    const char *template_kwargs;                          /* a JSON object; NULL: none */
    const char *tool_format, *reasoning_format; /* names of chat_syntax.h; NULL or "auto": find them */
    const char *draft_model;                    /* NULL: none */
    const char *place;                          /* rules of placement.h; NULL: none */
    const char *mmproj;                         /* file of the vision encoder; NULL: find one */
    const char *fingerprint, *cache_namespace;  /* fingerprint_opts */
    struct speculation speculation;             /* but for `way`, which is in `spec` */
    struct engine_opts engine;                  /* sizes and times; the rest belongs to a loaded model */
    struct sampling_defaults sampling;          /* 0, or -1 where 0 is a value: the model's own */
    uint64_t bytes_max;                         /* limit of the model's account; 0: the ceiling */
    uint64_t image_pixels_max;                  /* 0: no images */
    uint32_t image_tokens;                      /* model_parts.image_tokens */
    uint64_t grammar_cache_bytes;               /* 0: no constrained decoding */
    uint64_t ttl_ns;                            /* idle time before unloading; 0: never */
    uint32_t replicas;           /* engines of the model, each on a device of its own; 0 counts as 1 */
    uint32_t compaction_reserve; /* tokens that only compactions have, see plan_wish.reserve */
    bool embeddings;             /* a generator serves vectors and scores too */
    bool pinned;                 /* neither idle time nor others' needs unload it */
};

struct model_settings {
    char id[MODEL_ID_BYTES], dir[MODEL_DIR_BYTES];
    const char *aliases[MODEL_ALIASES_MAX];
    uint32_t alias_count;
    const char *warm[MODEL_WARMS_MAX + 1]; /* [KEY=]FILE: prefixes that are computed after its load */
    bool shares;  /* there are other models: what each cannot run without is set aside for it */
    bool preload; /* loaded at the start; the server is not ready before */
    struct model_options options;
    uint32_t tokens_max; /* tokens of one step */
    uint32_t device;     /* index into registry_opts.devices */
    /* The other devices that --place names. */
    uint32_t beside[SHARDS_MAX - 1], beside_count;
    /* Replicas stand next to each other: this one is number `replica` of `replica_count`. The first has the
     * names that clients use. 0 counts as 1. */
    uint32_t replica, replica_count;
    /* Results of the last load, or of the start; planned: they are there. */
    bool planned;
    struct plan plan; /* its accounts' limits; what a load reserves before it begins is plan.load_bytes */
    struct model_parts parts; /* parts of the checkpoint that are loaded */
    struct model_shape shape;
    struct draft_model_plan draft;
    /* But for what only a loaded model has: name, model, tokenizer, workers, parent. */
    struct engine_opts engine;
    struct sampling_defaults sampling;
    struct repetition_params repetition;
    const json_t *template_kwargs;        /* NULL: none */
    uint32_t max_tokens_default;          /* when a request says none; 0: the server's */
    bool needs_tokenizer, needs_template; /* without them loading fails */
    bool greedy; /* a request without a temperature samples only if generation_config.json says so */
};

#endif
