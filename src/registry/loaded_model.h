/* loaded_model.h - one model with all that serving it takes: accounts, tokenizer, template, weights, engine.
 *
 * Loading is an ordered list of steps, unloading the same list backwards. A load that fails at any step
 * leaves nothing: what its steps made is unmade and the ledger is what it was. Unloading runs every entry
 * whatever the ones before it reported. One thread at a time. */
#ifndef PLATEAU_REGISTRY_LOADED_MODEL_H
#define PLATEAU_REGISTRY_LOADED_MODEL_H

#include "registry/draft_model.h"
#include "registry/model_use.h"

#include "base/arena.h"
#include "model/config/generation_config.h"

struct chat_template;
struct domain;
struct engine;
struct err;
struct kv_events;
struct kv_feed;
struct model_files;
struct grammar_vocab;
struct registry_faults;
struct served_model;

#define LOADED_MODEL_TROUBLE_BYTES 256

struct loaded_model {
    struct account *account, *tokenizer_account;
    struct account *device_account; /* in the domain of its device; NULL: that is the machine's memory */
    struct account *beside_accounts[SHARDS_MAX - 1]; /* in the domains of its other devices */
    char devices[SHARDS_MAX * 10];                   /* their names: "cuda:0,cuda:1", "cpu" */
    struct arena *text;                              /* tokenizer and template */
    struct tokenizer *tokenizer;
    struct chat_template *template;
    struct chat_syntax *syntax;
    struct model *model;
    struct draft_model draft;
    struct grammar_vocab *vocab; /* NULL, as the two below: no constrained decoding */
    struct account *grammars_account;
    struct grammar_cache *grammars;
    struct engine *engine;
    struct kv_feed *feed; /* takes the events of the prefix cache; NULL: nobody does */
    struct generation_defaults defaults;
    struct model_use use;
};

struct loaded_model_opts {
    const struct model_settings *settings; /* planned; borrowed while the model is loaded */
    struct model_files *files;             /* that were planned, closed at the end; NULL: they are opened */
    struct ledger *ledger;                 /* the model's accounts open below the roots of its domains */
    struct holders *holders;               /* engine_opts.holders */
    struct device *device;
    struct device *cpu;                    /* model_opts.cpu */
    struct device *beside[SHARDS_MAX - 1]; /* the other devices of a model that is spread over several */
    struct store *store;                   /* engine_opts.store */
    struct shared_tier *shared;            /* engine_opts.shared */
    const _Atomic uint64_t *ends_ns;       /* engine_opts.ends_ns */
    struct kv_events *events;              /* NULL: none */
    /* Called for each of its accounts with the bytes that the plan demands before anything is loaded: sets
     * them aside as the account's floor, or says in `e` why not. NULL: account_set_floor() is enough. */
    int (*make_room)(void *arg, struct account *account, uint64_t bytes, struct err *e);
    /* See model_opts.progress. */
    int (*progress)(void *arg, uint64_t done, uint64_t total);
    /* May be NULL. A step of the load begins; the name is a constant. */
    void (*step)(void *arg, const char *name);
    /* See engine_opts.failed; may be NULL. */
    void (*failed)(void *arg, int error);
    void *arg; /* argument of all four */
    const struct engine_faults *engine_faults;
    const struct registry_faults *faults;
};

/* 0, -ENOMEM, -ECANCELED (progress said so), or what reading said. */
int loaded_model_load(const struct loaded_model_opts *opts, struct loaded_model *ret, struct err *e);
/* Its account in the domain; NULL: none. */
struct account *loaded_model_account(const struct loaded_model *h, const struct domain *domain);
/* Sums the bytes that its accounts reserve and use, in all domains together. */
void loaded_model_bytes(const struct loaded_model *h, uint64_t *reserved, uint64_t *used);
/* Fills in the view of the model that requests use. */
void loaded_model_describe(const struct loaded_model *h, const struct model_settings *s,
                           struct served_model *ret);
/* Unmakes all parts that exist; fine on a zeroed struct and after a failed load. `trouble`
 * (LOADED_MODEL_TROUBLE_BYTES, may be NULL) gets the names of steps that reported a failure. */
void loaded_model_close(struct loaded_model *h, const struct registry_faults *faults, char *trouble);

#endif
