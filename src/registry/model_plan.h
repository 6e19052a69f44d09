/* model_plan.h - memory of one model, collected from every module that will take some; memory/plan adds it
 * up. */
#ifndef PLATEAU_REGISTRY_MODEL_PLAN_H
#define PLATEAU_REGISTRY_MODEL_PLAN_H

#include "engine/engine.h"
#include "registry/draft_model.h"
#include "registry/speculation.h"
#include "spec/drafting.h"

struct model_files;
struct plan_model;

/* Memory of speculative decoding: of the weights, of each page, and of each recurrent state. */
struct model_plan_drafting {
    uint64_t weight_bytes, page_bytes, state_bytes;
};

struct model_plan {
    /* Given. */
    const char *name; /* outlives the plan */
    uint32_t queue, workers;
    uint32_t domain;                 /* see plan_model.domain */
    uint32_t beside[SHARDS_MAX - 1]; /* with parts.shards: the domains of the other devices */
    uint64_t prefix_cache_bytes, pinned_cache_bytes;
    bool tells_prefixes;    /* engine_opts */
    uint32_t agents;        /* see plan_wish */
    bool shows_prefixes;    /* see engine_opts */
    bool grammars;          /* if it has a tokenizer */
    uint32_t max_model_len; /* see plan_wish.max_model_len */
    struct speculation speculation;
    struct draft_model_plan draft; /* dir is given with speculation.draft_model; the rest is read */
    struct model_parts
        parts; /* fields about images are given; the rest follows from speculation and the model */
    /* Read from the files by model_plan_probe(). */
    struct drafting_opts drafting;
    struct model_shape shape;
    struct placement_sizes sizes; /* bytes of the parts in these places */
    struct model_plan_drafting drafting_takes;
    uint64_t tokenizer_bytes;
    uint64_t grammar_vocab_bytes; /* 0: no constrained decoding */
};

#define MODEL_PLAN_STEP_TOKENS 512 /* tokens of one step that a plan's workspace has room for */

/* Tokens of one step for `seqs` sequences with `drafts_max` draft tokens each. */
uint32_t model_plan_step_tokens(uint32_t seqs, uint32_t drafts_max);
/* As `model_plan_step_tokens()`, but of this model: a text that sees itself both ways is one step. */
uint32_t model_plan_tokens(const struct model_plan *p, uint32_t seqs);
/* The engine's options that a plan needs; plans and engines share them. drafting: NULL without speculative
 * decoding. */
struct engine_opts model_plan_engine_opts(uint32_t seqs, uint32_t queue, uint64_t prefix_cache_bytes,
                                          const struct drafting_opts *drafting);
/* Opens the model's files. mmproj: the file of its vision encoder; NULL or empty: find one. 0, or an error of
 * model_files_open() or model_files_use_encoder(). */
int model_plan_open_files(const char *dir, const char *mmproj, struct model_files **ret, struct err *e);
/* Reads headers, loads nothing. 0 or what model_probe() said. */
int model_plan_probe(struct model_plan *p, struct model_files *files, struct err *e);
/* A plan_model_fn whose arg is a struct model_plan. */
void model_plan_numbers(void *model_plan, uint32_t seqs, struct plan_model *ret);

#endif
