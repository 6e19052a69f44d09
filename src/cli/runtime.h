/* runtime.h - what every command that computes needs: the ledger, the workers, one model and its engine. */
#ifndef PLATEAU_CLI_RUNTIME_H
#define PLATEAU_CLI_RUNTIME_H

#include "cli/options.h"
#include "engine/engine.h"
#include "model/generation_config.h"
#include "text/chat_template.h"

struct runtime {
    const struct options *options;
    char model_dir[4096], model_id[256];
    uint64_t ceiling_bytes;
    struct ledger *ledger;
    struct account *text, *network, *model_account; /* children of the root */
    struct workers *workers;
    struct kern_ops ops;
    struct arena *model_text;             /* tokenizer and template */
    bool needs_tokenizer, needs_template; /* set before runtime_load: it fails early without them */
    struct tokenizer *tokenizer;          /* NULL: the directory has none */
    struct chat_template *template;       /* NULL: none */
    struct generation_defaults defaults;
    struct model *model;
    struct engine *engine;
    uint32_t max_model_len;
};

/* Ledger, ceiling and workers; finds the model's directory. Loads nothing. On failure the runtime is closed. */
int runtime_open(const struct options *o, struct runtime *ret, struct err *e);
/* Loads the model and starts its engine for `rows` rows. Any one thread. */
int runtime_load(struct runtime *rt, uint32_t rows, uint32_t queue,
                 int (*progress)(void *arg, uint64_t done, uint64_t total), void *progress_arg,
                 struct err *e);
/* Closes what is open, in order, each entry whatever the others did; the ledger must be empty then. */
void runtime_close(struct runtime *rt);

#endif
