/* draft_model.c - checks, loads and frees a draft model.
 *
 * A draft token is an id of the target, so both tokenizers must be equal, id by id. A model may have more
 * rows than tokens, as padding. Models without a tokenizer need as many rows. */
#include "registry/draft_model.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/hash.h"
#include "memory/accounts.h"
#include "store/store_identity.h"
#include "tokenizer/tokenizer.h"
#include "weights/model_files.h"
#include "weights/model_json.h"
#include "weights/model_fingerprint.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES_MAX ((size_t)512 << 20) /* address space for its tokenizer */
#define SHOWN_BYTES    40

/* Begin of every refusal of a draft model. */
#define REFUSED "--draft-model %s: "

static bool generates(const struct model_shape *s)
{
    return !s->encoder && !s->both_ways && s->labels == 0;
}

static int check_target(const struct draft_model_plan *p, const struct model_shape *target, struct err *e)
{
    if (!generates(target))
        return err_set(e, -ENOTSUP,
                       REFUSED "a draft model drafts for a model that generates text, and %s does not",
                       p->dir, target->family);
    return 0;
}

static int check_shape(const struct draft_model_plan *p, struct err *e)
{
    const struct model_shape *s = &p->shape;
    if (!generates(s))
        return err_set(e, -ENOTSUP, REFUSED "%s does not generate text, and cannot draft", p->dir, s->family);
    if (s->recurrent_layers > 0)
        return err_set(e, -ENOTSUP,
                       REFUSED "%s has recurrent layers; a draft model needs keys and values in all of them, "
                               "since its state cannot return to the token before a rejected draft",
                       p->dir, s->family);
    return 0;
}

/* Copies the checkpoint's first architecture; empty: it names none. */
static void read_architecture(struct model_files *files, char ret[64])
{
    struct err ignored = {{0}};
    json_t *root = NULL;
    ret[0] = 0;
    if (model_json(files, "config.json", &root, &ignored) < 0)
        return;
    const char *name = json_string_value(json_array_get(json_object_get(root, "architectures"), 0));
    snprintf(ret, 64, "%s", name ? name : "");
    json_decref(root);
}

bool draft_model_is_eagle(const struct draft_model_plan *p)
{
    struct model_files *files = NULL;
    struct err ignored = {{0}};
    char name[64];
    if (!p->dir[0] || model_files_open(p->dir, &files, &ignored) < 0)
        return false;
    read_architecture(files, name);
    model_files_close(files);
    return strstr(name, "Eagle3") != NULL;
}

/* Other EAGLE checkpoints are a layer that reads hidden states of its target, and no model by themselves. */
static int check_kind(struct model_files *files, struct err *e)
{
    char name[64];
    read_architecture(files, name);
    return strstr(name, "Eagle")
               ? err_set(e, -ENOTSUP, "%s is not an EAGLE-3 head; those and whole models can draft", name)
               : 0;
}

int draft_model_probe(struct draft_model_plan *p, const struct model_shape *target,
                      const struct model_parts *parts, struct err *e)
{
    struct model_files *files = NULL;
    struct err why = {{0}};
    ASSERT(p->dir[0]);
    int r = check_target(p, target, e);
    if (r < 0)
        return r;
    p->parts = (struct model_parts){.backend = parts->backend,
                                    .compute = parts->compute,
                                    .kv_form = parts->kv_form,
                                    .quant = parts->quant};
    r = model_files_open(p->dir, &files, &why);
    if (r == 0)
        r = check_kind(files, &why);
    if (r == 0)
        r = model_probe(files, &p->parts, &p->shape, &why);
    if (r == 0)
        p->tokenizer_bytes = tokenizer_planned_bytes(model_files_bytes(files, "tokenizer.json"));
    model_files_close(files);
    return r < 0 ? err_set(e, r, REFUSED "%s", p->dir, why.text) : check_shape(p, e);
}

/* ---- tokenizers ---- */

static struct slice shown(const struct tokenizer *t, uint32_t id)
{
    struct slice text = tokenizer_token_text(t, id);
    return tokenizer_is_token(t, id) ? slice_sub(text, 0, MIN_OF(text.len, (size_t)SHOWN_BYTES))
                                     : SLICE("not a token");
}

static bool is_same(const struct tokenizer *a, const struct tokenizer *b, uint32_t id)
{
    return tokenizer_is_token(a, id) == tokenizer_is_token(b, id) &&
           tokenizer_is_added(a, id) == tokenizer_is_added(b, id) &&
           slice_eq(tokenizer_token_text(a, id), tokenizer_token_text(b, id));
}

/* Returns 0, or -EINVAL: they differ, and `e` names the first token that does. NULL means no tokenizer. */
static int compare_tokenizers(const struct tokenizer *target, const struct tokenizer *draft, struct err *e)
{
    if (!target || !draft)
        return !target && !draft ? 0 : err_set(e, -EINVAL, "only one of the two models has a tokenizer.json");
    uint32_t count = MAX_OF(tokenizer_vocab_size(target), tokenizer_vocab_size(draft));
    for (uint32_t id = 0; id < count; id++) {
        if (is_same(target, draft, id))
            continue;
        struct slice own = shown(target, id), other = shown(draft, id);
        return err_set(
            e, -EINVAL,
            "its tokenizer is another: id %u is '%.*s' in the target and '%.*s' in the draft model", id,
            (int)own.len, own.ptr, (int)other.len, other.ptr);
    }
    return 0;
}

/* Reads the draft model's tokenizer, compares, and frees it. */
static int compare(struct draft_model *d, struct model_files *files, const struct tokenizer *tokenizer,
                   struct err *e)
{
    struct tokenizer *own = NULL;
    struct charge charge = account_charge(d->account);
    struct arena *a = NULL;
    if (arena_create(&(struct arena_opts){TEXT_BYTES_MAX, 0, &charge}, &a) < 0)
        return err_set(e, -ENOMEM, "no memory for its tokenizer");
    int r = tokenizer_load(a, files, &own, e);
    if (r == 0 || r == -ENOENT)
        r = compare_tokenizers(tokenizer, own, e);
    arena_free(a);
    return r;
}

/* ---- loading ---- */

static int open_accounts(struct draft_model *d, const struct model_opts *opts)
{
    int r = accounts_open(opts->parent, ACCOUNT_DRAFT, ACCOUNT_NO_LIMIT, &d->account);
    if (r == 0 && opts->device_parent)
        r = accounts_open(opts->device_parent, ACCOUNT_DRAFT, ACCOUNT_NO_LIMIT, &d->device_account);
    return r;
}

int draft_model_load(struct draft_model *d, const struct draft_model_plan *p, const struct model_opts *opts,
                     const struct model_shape *target, const struct tokenizer *tokenizer, struct err *e)
{
    struct model_files *files = NULL;
    struct model_opts own = *opts;
    struct err why = {{0}};
    ASSERT(p->dir[0] && !d->model && !d->account);
    ASSERT(target->page_beside == p->shape.page_bytes && target->groups[0].page_bytes > target->page_beside);
    own.parts = p->parts;
    own.parts.page_stride = target->groups[0].page_bytes;
    own.context = MIN_OF(opts->context, p->shape.context_max);
    own.logits_max = opts->seqs_max;
    int r = open_accounts(d, opts);
    if (r < 0)
        return err_set(e, r, "no memory for an account");
    own.parent = d->account;
    own.device_parent = d->device_account;
    r = model_files_open(p->dir, &files, &why);
    if (r == 0)
        r = compare(d, files, tokenizer, &why);
    if (r == 0 && !tokenizer && p->shape.vocab != target->vocab)
        r = err_set(&why, -EINVAL, "it has %u tokens, the target %u, and none of them has a tokenizer",
                    p->shape.vocab, target->vocab);
    if (r == 0)
        r = model_load(files, &own, &d->model, &why);
    model_files_close(files);
    return r < 0 ? err_set(e, r, REFUSED "%s", p->dir, why.text) : 0;
}

void draft_model_close(struct draft_model *d)
{
    model_free(d->model);
    account_close(d->device_account);
    account_close(d->account);
    *d = (struct draft_model){0};
}

int draft_model_mark(const struct draft_model_plan *p, struct store_identity *identity, struct err *e)
{
    uint8_t fingerprint[MODEL_FINGERPRINT_BYTES];
    struct model_files *files;
    ASSERT(p->dir[0]);
    int r = model_files_open(p->dir, &files, e);
    if (r < 0)
        return r;
    r = model_fingerprint(files, fingerprint, e);
    model_files_close(files);
    if (r < 0)
        return r;
    size_t len = strnlen(identity->layout, sizeof(identity->layout));
    int more = snprintf(identity->layout + len, sizeof(identity->layout) - len, " draft=%016llx",
                        (ull)hash_bytes(fingerprint, sizeof(fingerprint)));
    return more < (int)(sizeof(identity->layout) - len) ? 0 : err_set(e, -E2BIG, "its layout has no room");
}
