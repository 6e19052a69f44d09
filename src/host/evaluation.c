/* evaluation.c - two models beside each other, each with pages for one sequence and a state. */
#include "host/evaluation.h"

#include "base/bytes_text.h"
#include "base/check.h"
#include "base/none.h"
#include "compute/device.h"
#include "memory/domain.h"
#include "tokenizer/tokenizer.h"
#include "unicode/utf8.h"
#include "weights/model_files.h"

#include <errno.h>
#include <string.h>

enum { STEP_TOKENS = 64 };
#define TEXT_SPACE ((size_t)8 << 30) /* address space of an arena; bytes are charged as they are used */

/* One of the two models. */
struct side {
    struct model *model;
    const struct model_shape *shape;
    struct account *memory; /* account of pages and state, in the model's domain */
    dev_ptr room;           /* pages of each group, then the state; 0: none */
    uint64_t room_bytes;
    dev_ptr pages[PAGE_GROUPS_MAX], state;
    float *logits; /* [STEP_TOKENS][vocab] */
};

struct evaluation {
    const struct evaluation_opts *opts;
    struct arena *arena;
    struct model_files *files[2]; /* files of the model, and of the reference */
    struct side sides[2];         /* the model, and the reference if there is one */
    uint32_t side_count;
    uint32_t *tokens, *chunk; /* tokens of the text; [context] */
    uint64_t token_count;
    uint32_t *page_ids; /* 0, 1, ...: every group has its own pages */
    bool has_begin;
    uint32_t begin; /* the token before each text */
    struct divergence *divergence;
};

/* ---- opening ---- */

static uint32_t page_count(const struct evaluation_opts *o)
{
    return DIV_UP(o->context, PAGE_TOKENS);
}

static uint64_t room_bytes_of(const struct evaluation_opts *o, const struct model_shape *s)
{
    return ROUND_UP(page_count(o) * s->page_bytes + s->state_bytes, (uint64_t)UNIT_BYTES);
}

/* The parts of the model itself, and of the reference. */
static struct model_parts parts_of(const struct evaluation_opts *o, bool reference)
{
    struct model_parts p = {.backend = o->device->backend};
    p.compute = reference ? COMPUTE_F32 : o->arithmetic.compute;
    p.kv_form = reference ? KV_F32 : o->arithmetic.kv_form;
    p.quant = reference ? 0 : o->arithmetic.quant;
    return p;
}

static int open_files(struct evaluation *v, struct err *e)
{
    int r = model_files_open(v->opts->dir, &v->files[0], e);
    return r == 0 && v->opts->reference ? model_files_open(v->opts->reference, &v->files[1], e) : r;
}

static int check_memory(const struct evaluation *v, struct err *e)
{
    const struct evaluation_opts *o = v->opts;
    const char *dirs[] = {o->dir, o->reference};
    uint64_t needed = 0, spare = account_numbers(o->parent).limit;
    for (int i = 0; i < 2 && dirs[i]; i++) {
        struct model_shape s;
        const struct model_parts parts = parts_of(o, i == 1);
        int r = model_probe(v->files[i], &parts, &s, e);
        if (r < 0)
            return r;
        struct model_workspace w = model_workspace_bytes(&s, STEP_TOKENS, 1, o->device->workers);
        needed += s.weight_bytes + s.loading_bytes + s.tables_bytes + w.device_bytes + w.host_bytes +
                  room_bytes_of(o, &s) + (uint64_t)STEP_TOKENS * s.vocab * sizeof(float);
        if (s.encoder || s.both_ways)
            return err_set(e, -EINVAL, "%s is an encoder: it predicts no next token", dirs[i]);
        if (o->context > s.context_max)
            return err_set(e, -EINVAL, "%s takes at most %u tokens; give a smaller --ctx", dirs[i],
                           s.context_max);
    }
    if (o->device_parent || needed <= spare)
        return 0;
    return err_set(e, -ENOMEM, "%s would be needed, and %s may be used; see --memory-limit",
                   bytes_text(needed).text, bytes_text(spare).text);
}

struct loading {
    const struct evaluation_opts *opts;
    const char *dir;
};

static int tell_load(void *arg, uint64_t done, uint64_t total)
{
    const struct loading *l = arg;
    return l->opts->progress ? l->opts->progress(l->opts->arg, l->dir, done, total) : 0;
}

static int make_room(struct evaluation *v, struct side *s)
{
    const struct domain *d = model_domain(s->model);
    uint64_t bytes = room_bytes_of(v->opts, s->shape);
    s->memory = v->opts->device_parent ? v->opts->device_parent : v->opts->parent;
    if (account_reserve(s->memory, bytes) < 0)
        return -ENOMEM;
    if (domain_reserve(d, bytes, false, &s->room) < 0) {
        account_release(s->memory, bytes);
        return -ENOMEM;
    }
    s->room_bytes = bytes;
    if (domain_commit(d, s->room, bytes) < 0)
        return -ENOMEM;
    dev_ptr at = s->room;
    for (uint32_t g = 0; g < s->shape->group_count; g++) {
        s->pages[g] = at;
        at = dev_add(at, page_count(v->opts) * s->shape->groups[g].page_bytes);
    }
    s->state = at;
    return 0;
}

static int open_side(struct evaluation *v, struct model_parts parts, struct err *e)
{
    const struct evaluation_opts *o = v->opts;
    struct model_files *files = v->files[v->side_count];
    const char *dir = model_files_path(files);
    struct side *s = &v->sides[v->side_count++];
    struct loading loading = {o, dir};
    struct model_opts opts = {.tokens_max = STEP_TOKENS,
                              .seqs_max = 1,
                              .logits_max = STEP_TOKENS,
                              .context = o->context,
                              .device = o->device,
                              .parent = o->parent,
                              .device_parent = o->device_parent,
                              .progress = tell_load,
                              .progress_arg = &loading};
    opts.parts = parts;
    int r = model_load(files, &opts, &s->model, e);
    if (r < 0)
        return r;
    s->shape = model_shape(s->model);
    s->logits = ARENA_ARRAY(v->arena, float, (size_t)STEP_TOKENS * s->shape->vocab);
    r = s->logits ? make_room(v, s) : -ENOMEM;
    return r < 0 ? err_set(e, r, "no memory for the pages of %s", dir) : 0;
}

static void close_side(struct side *s)
{
    if (s->room_bytes) {
        const struct domain *d = model_domain(s->model);
        (void)domain_decommit(d, s->room, s->room_bytes);
        (void)domain_release(d, s->room, s->room_bytes);
        account_release(s->memory, s->room_bytes);
    }
    model_free(s->model);
}

/* ---- the text ---- */

/* The token that the tokenizer puts before a text. */
static int find_begin(struct evaluation *v, const struct tokenizer *t, struct arena *scratch, struct err *e)
{
    struct tokenizer_opts opts = {.add_special = true};
    uint32_t ids[16];
    size_t count;
    int r = tokenizer_encode(t, scratch, SLICE(""), &opts, ids, COUNT_OF(ids), &count, e);
    if (r == 0 && count > 0) {
        v->has_begin = true;
        v->begin = ids[0];
    }
    return r;
}

static int tokenize(struct evaluation *v, struct err *e)
{
    const struct evaluation_opts *o = v->opts;
    struct charge charge = account_charge(o->parent);
    struct tokenizer *t;
    struct arena *scratch = NULL;
    size_t count = 0, most = o->text.len + 1;
    int r = tokenizer_load(v->arena, v->files[0], &t, e);
    if (r < 0)
        return r == -ENOENT ? err_set(e, r, "%s has no tokenizer: it cannot read a text", o->dir) : r;
    v->tokens = ARENA_ARRAY(v->arena, uint32_t, most);
    if (!v->tokens || arena_create(&(struct arena_opts){TEXT_SPACE, 0, &charge}, &scratch) < 0)
        return err_set(e, -ENOMEM, "no memory for the text's tokens");
    r = find_begin(v, t, scratch, e);
    if (r == 0)
        r = tokenizer_encode(t, scratch, o->text, &(struct tokenizer_opts){0}, v->tokens, most, &count, e);
    arena_free(scratch);
    v->token_count = count;
    if (r == 0 && count < o->context)
        return err_set(
            e, -EINVAL,
            "the text has %zu tokens, fewer than a chunk of %u; give a longer one or a smaller --ctx", count,
            o->context);
    return r;
}

static uint32_t chunk_count(const struct evaluation *v)
{
    uint64_t chunks = v->token_count / v->opts->context;
    return (uint32_t)(v->opts->chunks_max ? MIN_OF(chunks, (uint64_t)v->opts->chunks_max) : chunks);
}

static int check_tokens(const struct evaluation *v, struct err *e)
{
    const uint32_t vocab = v->sides[0].shape->vocab;
    if (v->side_count == 2 && v->sides[1].shape->vocab != vocab)
        return err_set(e, -EINVAL,
                       "the reference has %u tokens and the model %u: their logits cannot be compared",
                       v->sides[1].shape->vocab, vocab);
    for (uint64_t i = 0; i < v->token_count; i++)
        if (v->tokens[i] >= vocab)
            return err_set(e, -EINVAL, "token %u of the text is not one of the model's %u", v->tokens[i],
                           vocab);
    return 0;
}

/* ---- the chunks ---- */

static uint32_t scored_from(const struct evaluation *v)
{
    return v->opts->context / 2;
}

/* Tokens [from, from + count) of the chunk; a row of logits for each that is scored. */
static int step(struct evaluation *v, struct side *s, uint32_t from, uint32_t count)
{
    const uint32_t first = scored_from(v);
    struct model_seq seq = {.tokens = v->chunk + from,
                            .token_count = count,
                            .position = from,
                            .state_in = from ? 0 : NONE,
                            .state_out = 0,
                            .logits_from = MIN_OF(first > from ? first - from : 0, count)};
    for (uint32_t g = 0; g < PAGE_GROUPS_MAX; g++)
        seq.pages[g] = v->page_ids;
    struct model_step in = {.seqs = &seq, .seq_count = 1, .states = s->state, .logits = s->logits};
    memcpy(in.pages, s->pages, sizeof(in.pages));
    device_turn_begin(v->opts->device);
    int r = model_forward(s->model, &in);
    device_turn_end(v->opts->device);
    return r;
}

/* The last token of a chunk predicts one of the next chunk: it is not scored. */
static void score(struct evaluation *v, uint32_t from, uint32_t count)
{
    const uint32_t vocab = v->sides[0].shape->vocab;
    const uint32_t begin = MAX_OF(from, scored_from(v)), end = MIN_OF(from + count, v->opts->context - 1);
    for (uint32_t i = begin; i < end; i++) {
        size_t row = (size_t)(i - begin) * vocab;
        divergence_add(v->divergence, v->sides[0].logits + row,
                       v->side_count == 2 ? v->sides[1].logits + row : NULL, vocab, v->chunk[i + 1]);
    }
}

static int run_chunk(struct evaluation *v, uint32_t index, struct err *e)
{
    const uint32_t context = v->opts->context;
    memcpy(v->chunk, v->tokens + (size_t)index * context, context * sizeof(v->chunk[0]));
    if (v->has_begin)
        v->chunk[0] = v->begin;
    for (uint32_t from = 0; from < context; from += STEP_TOKENS) {
        uint32_t count = MIN_OF(context - from, (uint32_t)STEP_TOKENS);
        for (uint32_t i = 0; i < v->side_count; i++) {
            int r = step(v, &v->sides[i], from, count);
            if (r < 0)
                return err_set(e, r, "the device failed: %s", strerror(-r));
        }
        score(v, from, count);
    }
    return 0;
}

static int run_chunks(struct evaluation *v, struct evaluation_result *ret, struct err *e)
{
    const struct evaluation_opts *o = v->opts;
    const uint32_t chunks = chunk_count(v);
    v->chunk = ARENA_ARRAY(v->arena, uint32_t, o->context);
    v->page_ids = ARENA_ARRAY(v->arena, uint32_t, page_count(o));
    v->divergence = divergence_create(v->arena, (uint64_t)chunks * (o->context - scored_from(v)));
    if (!v->chunk || !v->page_ids || !v->divergence)
        return err_set(e, -ENOMEM, "no memory for a chunk");
    for (uint32_t i = 0; i < page_count(o); i++)
        v->page_ids[i] = i;
    for (uint32_t i = 0; i < chunks; i++) {
        int r = run_chunk(v, i, e);
        if (r == 0 && o->progress)
            r = o->progress(o->arg, NULL, i + 1, chunks);
        if (r < 0)
            return r;
    }
    ret->chunks = chunks;
    ret->tokens = v->token_count;
    divergence_end(v->divergence, &ret->numbers);
    return 0;
}

static void describe(const struct evaluation *v, struct evaluation_result *ret)
{
    const struct model_shape *s = v->sides[0].shape, *base = v->sides[1].shape;
    ret->bytes = s->checkpoint_bytes;
    ret->weight_bytes = s->weight_bytes;
    memcpy(ret->form, s->form, sizeof(ret->form));
    if (v->side_count < 2)
        return;
    ret->reference_bytes = base->checkpoint_bytes;
    memcpy(ret->reference_form, base->form, sizeof(ret->reference_form));
}

int evaluation_run(const struct evaluation_opts *o, struct evaluation_result *ret, struct err *e)
{
    struct evaluation v = {.opts = o};
    struct charge charge = account_charge(o->parent);
    *ret = (struct evaluation_result){0};
    if (!utf8_valid(o->text))
        return err_set(e, -EINVAL, "the text is not valid UTF-8");
    int r = open_files(&v, e);
    if (r == 0)
        r = check_memory(&v, e);
    if (r == 0 && arena_create(&(struct arena_opts){TEXT_SPACE, 0, &charge}, &v.arena) < 0)
        r = err_set(e, -ENOMEM, "no memory for the text");
    if (r == 0)
        r = tokenize(&v, e);
    if (r == 0)
        r = open_side(&v, parts_of(o, false), e);
    if (r == 0 && o->reference)
        r = open_side(&v, parts_of(o, true), e);
    if (r == 0)
        r = check_tokens(&v, e);
    if (r == 0)
        r = run_chunks(&v, ret, e);
    if (r == 0)
        describe(&v, ret);
    for (uint32_t i = 0; i < v.side_count; i++)
        close_side(&v.sides[i]);
    arena_free(v.arena);
    for (int i = 0; i < 2; i++)
        model_files_close(v.files[i]);
    return r;
}
