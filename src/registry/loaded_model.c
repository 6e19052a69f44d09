/* loaded_model.c - two tables, read forwards to load and backwards to unload.
 *
 * An entry of the second undoes an entry of the first, done in whole, in part or not at all. So a load
 * that fails anywhere runs all of them. */
#include "registry/loaded_model.h"

#include "registry/model_plan.h"
#include "registry/model_settings.h"
#include "registry/registry.h"

#include "base/charge.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "chat/chat_syntax.h"
#include "compute/backend.h"
#include "compute/device.h"
#include "constraint/grammar_cache.h"
#include "engine/engine.h"
#include "engine/fingerprint.h"
#include "events/kv_events.h"
#include "grammar/matcher.h"
#include "memory/accounts.h"
#include "memory/domain.h"
#include "memory/plan.h"
#include "model/config/generation_config.h"
#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"
#include "weights/model_files.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES_MAX    ((size_t)512 << 20) /* address space for tokenizer and template */
#define SCRATCH_BYTES_MAX ((size_t)64 << 20)  /* address space for rendering it */

/* ---- loading ---- */

struct load {
    const struct loaded_model_opts *opts;
    struct loaded_model *h;
    struct err *e;
    struct model_files *files; /* open as long as the load lasts */
};

static const struct plan_line *find_line(const struct plan *plan, enum account_id id)
{
    for (uint32_t i = 0; i < plan->line_count; i++)
        if (plan->lines[i].depth > 0 && plan->lines[i].account == id)
            return &plan->lines[i];
    ASSERT(!"an account that no plan has");
    return NULL;
}

static uint64_t limit_of(const struct plan *plan, enum account_id id)
{
    return find_line(plan, id)->limit_bytes;
}

/* The model's account in the domain of the line. */
static struct account *account_of(const struct loaded_model *h, const struct plan_line *line)
{
    return line->domain > 0 ? h->device_account : h->account;
}

/* The account of a line of any of its devices. */
static struct account *account_on(const struct loaded_model *h, const struct plan *plan,
                                  const struct plan_line *line)
{
    for (uint32_t i = 0; i < plan->model.beside_count; i++)
        if (plan->beside[i].domain == line->domain)
            return h->beside_accounts[i];
    return account_of(h, line);
}

static int open_root(struct load *l, struct account *root, uint64_t limit_bytes, struct account **ret)
{
    int r = root ? account_open(root, l->opts->settings->id, ACCOUNT_ANON, limit_bytes, ret) : -ENOMEM;
    if (r < 0)
        return err_set(l->e, r, "no memory for an account");
    account_set_planned(*ret, limit_bytes);
    return 0;
}

/* "cuda:0,cuda:1": its devices, in the order of its layers. */
static void name_devices(struct loaded_model *h)
{
    size_t len = (size_t)snprintf(h->devices, sizeof(h->devices), "%s",
                                  h->device_account ? account_domain(h->device_account)->name : "cpu");
    for (uint32_t i = 0; i < COUNT_OF(h->beside_accounts) && h->beside_accounts[i]; i++)
        len += (size_t)snprintf(h->devices + len, sizeof(h->devices) - len, ",%s",
                                account_domain(h->beside_accounts[i])->name);
    ASSERT(len < sizeof(h->devices));
}

static int open_account(struct load *l)
{
    struct ledger *ledger = l->opts->ledger;
    const struct plan *plan = &l->opts->settings->plan;
    const struct domain *domain = l->opts->device->domain;
    int r = open_root(l, ledger_root(ledger), plan->model_bytes, &l->h->account);
    ASSERT((domain != domain_machine()) == (plan->device.name != NULL));
    if (r == 0 && plan->device.name)
        r = open_root(l, ledger_root_of(ledger, domain), plan->device.model_bytes, &l->h->device_account);
    for (uint32_t i = 0; i < plan->model.beside_count && r == 0; i++)
        r = open_root(l, ledger_root_of(ledger, l->opts->beside[i]->domain), plan->beside[i].model_bytes,
                      &l->h->beside_accounts[i]);
    if (r == 0)
        name_devices(l->h);
    return r;
}

static int make_room_in(struct load *l, struct account *account, uint64_t bytes)
{
    const struct loaded_model_opts *o = l->opts;
    if (o->make_room)
        return o->make_room(o->arg, account, bytes, l->e);
    int r = account_set_floor(account, bytes);
    return r < 0 ? err_set(l->e, r, "%llu bytes for %s are more than is left", (ull)bytes, o->settings->id)
                 : 0;
}

/* A refusal in the second domain closes the accounts, and with them the floor in the first. */
static int make_room(struct load *l)
{
    const struct plan *plan = &l->opts->settings->plan;
    int r = make_room_in(l, l->h->account, plan->load_bytes);
    if (r == 0 && l->h->device_account)
        r = make_room_in(l, l->h->device_account, plan->device.load_bytes);
    for (uint32_t i = 0; i < plan->model.beside_count && r == 0; i++)
        r = make_room_in(l, l->h->beside_accounts[i], plan->beside[i].load_bytes);
    return r;
}

static int load_tokenizer(struct load *l)
{
    struct loaded_model *h = l->h;
    const struct model_settings *s = l->opts->settings;
    int r = accounts_open(h->account, ACCOUNT_TOKENIZER, limit_of(&s->plan, ACCOUNT_TOKENIZER),
                          &h->tokenizer_account);
    struct charge charge = r == 0 ? account_charge(h->tokenizer_account) : (struct charge){0};
    if (r == 0)
        r = arena_create(&(struct arena_opts){TEXT_BYTES_MAX, 0, &charge}, &h->text);
    if (r < 0)
        return err_set(l->e, r, "no memory for the tokenizer");
    r = tokenizer_load(h->text, l->files, &h->tokenizer, l->e);
    if (r == -ENOENT && s->needs_tokenizer)
        return err_set(l->e, r, "%s has no tokenizer.json: it cannot read text", s->dir);
    return r == -ENOENT ? 0 : r;
}

static int load_template(struct load *l)
{
    struct loaded_model *h = l->h;
    const struct model_settings *s = l->opts->settings;
    int r = h->tokenizer ? chat_template_load(h->text, l->files, &h->template, l->e) : -ENOENT;
    if (r == -ENOENT && s->needs_template)
        return err_set(l->e, r, "%s has no chat template; plateau generate completes a text with it", s->dir);
    return r == -ENOENT ? 0 : r;
}

/* Renders the template a few times. */
static int find_syntax(struct load *l)
{
    struct loaded_model *h = l->h;
    const struct model_options *o = &l->opts->settings->options;
    struct chat_syntax_opts opts = {.template = h->template,
                                    .tokenizer = h->tokenizer,
                                    .vocab = l->opts->settings->shape.vocab,
                                    .tool_format = o->tool_format,
                                    .reasoning_format = o->reasoning_format};
    struct charge charge = account_charge(h->tokenizer_account);
    struct arena *scratch = NULL;
    h->syntax = ARENA_NEW(h->text, struct chat_syntax);
    if (!h->syntax || arena_create(&(struct arena_opts){SCRATCH_BYTES_MAX, 0, &charge}, &scratch) < 0)
        return err_set(l->e, -ENOMEM, "no memory for the chat template");
    int r = chat_syntax_find(h->text, scratch, &opts, h->syntax, l->e);
    arena_free(scratch);
    return r;
}

static void override(double given, bool *has, double *value)
{
    if (isnan(given))
        return;
    *has = true;
    *value = given;
}

/* generation_config.json, and what the model's section says instead. */
static int load_defaults(struct load *l)
{
    const struct sampling_defaults *s = &l->opts->settings->sampling;
    struct generation_defaults *d = &l->h->defaults;
    int r = generation_config_load(l->files, d, l->e);
    if (r < 0)
        return r;
    bool samples = !isnan(s->temperature) || !isnan(s->top_p) || !isnan(s->min_p) || s->top_k >= 0;
    const bool greedy = l->opts->settings->greedy && !d->do_sample;
    /* A file that says "do not sample" is about its own numbers: the section's are meant to be used. */
    if ((samples || greedy) && !d->do_sample)
        d->has_temperature = d->has_top_p = d->has_min_p = d->has_top_k = false;
    d->do_sample = d->do_sample || samples || greedy;
    if (greedy) {
        d->has_temperature = true;
        d->temperature = 0;
    }
    override(s->temperature, &d->has_temperature, &d->temperature);
    override(s->top_p, &d->has_top_p, &d->top_p);
    override(s->min_p, &d->has_min_p, &d->min_p);
    override(s->repetition_penalty, &d->has_repetition_penalty, &d->repetition_penalty);
    if (s->top_k >= 0) {
        d->has_top_k = true;
        d->top_k = (uint32_t)s->top_k;
    }
    return 0;
}

static bool ends_texts(const struct generation_defaults *d, uint32_t id)
{
    for (uint32_t i = 0; i < d->eos_count; i++)
        if (d->eos_ids[i] == id)
            return true;
    return false;
}

/* Tokens that a prompt has around images. */
static bool check_image_marks(struct load *l, const struct model_image_marks *m)
{
    static const struct model_image_marks none;
    m = m ? m : &none;
    const char *const texts[] = {m->mark,      m->row_end,   m->end,      m->tokens[0],
                                 m->tokens[1], m->tokens[2], m->tokens[3]};
    uint32_t id;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        if (!texts[i] || tokenizer_find(l->h->tokenizer, slice_of(texts[i]), &id))
            continue;
        err_set(l->e, -EINVAL,
                "the tokenizer has no token '%s', which this model's prompts have for an image; "
                "--max-image-pixels 0 serves the text alone",
                texts[i]);
        return false;
    }
    return true;
}

/* Tokens by which prompts are searched for the places of images: what the template or a text writes in
 * another sense may not be one of them. */
static int check_image_tokens(struct load *l)
{
    const struct model_vision *v = &l->opts->settings->shape.vision;
    const struct tokenizer *t = l->h->tokenizer;
    const size_t count = v->linear ? 1 : 4;
    const struct {
        const char *key;
        uint32_t id;
    } tokens[] = {{"image_token_id", v->image_token},
                  {"video_token_id", v->video_token},
                  {"vision_start_token_id", v->start_token},
                  {"vision_end_token_id", v->end_token}};
    const char *hint = "--max-image-pixels 0 serves the text alone";
    if (v->present && t && !check_image_marks(l, v->marks))
        return -EINVAL;
    for (size_t i = 0; v->present && t && i < count; i++) {
        struct slice text = tokenizer_token_text(t, tokens[i].id);
        if (!tokenizer_is_special(t, tokens[i].id) || ends_texts(&l->h->defaults, tokens[i].id))
            return err_set(l->e, -EINVAL,
                           "config.json: %s is %u, which is %s%.*s%s and not a special token for images; %s",
                           tokens[i].key, tokens[i].id, text.len ? "'" : "not in the tokenizer",
                           (int)MIN_OF(text.len, (size_t)40), text.ptr, text.len ? "'" : "", hint);
        for (size_t k = 0; k < i; k++)
            if (tokens[k].id == tokens[i].id)
                return err_set(l->e, -EINVAL, "config.json: %s and %s are both %u; %s", tokens[k].key,
                               tokens[i].key, tokens[i].id, hint);
    }
    return 0;
}

static int find_use(struct load *l)
{
    struct loaded_model *h = l->h;
    const struct model_settings *s = l->opts->settings;
    struct charge charge = account_charge(h->tokenizer_account);
    struct arena *scratch = NULL;
    if (arena_create(&(struct arena_opts){SCRATCH_BYTES_MAX, 0, &charge}, &scratch) < 0)
        return err_set(l->e, -ENOMEM, "no memory for the tokenizer");
    int r = model_use_load(s, l->files, &s->shape, h->tokenizer, scratch, &h->use, l->e);
    arena_free(scratch);
    return r;
}

static struct model_opts model_opts_of(const struct load *l)
{
    const struct loaded_model_opts *o = l->opts;
    const struct model_settings *s = o->settings;
    struct model_parts parts = s->parts;
    if (parts.eagle)
        parts.eagle = s->draft.dir;
    struct model_opts opts = {.tokens_max = s->tokens_max,
                              .seqs_max = s->plan.seqs,
                              .logits_max = engine_logits_max(s->plan.seqs, s->engine.drafting.drafts_max),
                              .context = s->plan.max_model_len,
                              .parts = parts,
                              .device = o->device,
                              .cpu = o->cpu,
                              .parent = l->h->account,
                              .device_parent = l->h->device_account,
                              .progress = o->progress,
                              .progress_arg = o->arg};
    for (uint32_t i = 0; i < s->plan.model.beside_count; i++)
        opts.beside[i] = (struct model_beside){o->beside[i], l->h->beside_accounts[i]};
    return opts;
}

static int load_weights(struct load *l)
{
    const struct model_opts opts = model_opts_of(l);
    return model_load(l->files, &opts, &l->h->model, l->e);
}

static int load_draft(struct load *l)
{
    const struct model_settings *s = l->opts->settings;
    const struct model_opts opts = model_opts_of(l);
    return s->engine.drafting.by != DRAFTING_MODEL
               ? 0
               : draft_model_load(&l->h->draft, &s->draft, &opts, &s->shape, l->h->tokenizer, l->e);
}

/* On a device whose products are not the CPU's, experts in the machine's memory decide bits. */
static unsigned experts_mark(const struct load *l)
{
    const struct placement *p = &l->opts->settings->parts.placement;
    unsigned mark = l->opts->cpu ? l->opts->cpu->flags : 0;
    if (!placement_any_apart(p) || l->opts->device->backend->integers)
        return 0;
    for (uint32_t i = 0; i < p->layers; i++)
        mark = (mark ^ placement_is_apart(p, i)) * 16777619u; /* FNV-1 */
    ASSERT(l->opts->cpu);
    return mark | 1;
}

/* Finds the model's identity. False: it has none, so no tier keeps its pages. */
static bool find_identity(struct load *l, struct store_identity *ret)
{
    const struct model_settings *s = l->opts->settings;
    struct err e = {{0}};
    if (!l->opts->store && !l->opts->shared)
        return false;
    const struct fingerprint_opts opts = {
        .given = s->options.fingerprint, .experts = experts_mark(l), .namespace = s->options.cache_namespace};
    int r = fingerprint_make(l->files, model_shape(l->h->model), l->opts->device->flags, &opts, ret, &e);
    if (r == 0 && (l->h->draft.model || s->parts.eagle))
        r = draft_model_mark(&s->draft, ret, &e);
    if (r == 0)
        return true;
    LOG_WARN("no_fingerprint", "model=%s error=\"%s\"", s->id, e.text);
    return false;
}

/* A model without a feed serves, too. Returns `ret` with the taker of events; NULL: none. */
static const struct prefix_events_opts *open_feed(struct load *l, struct prefix_events_opts *ret)
{
    const char *id = l->opts->settings->id;
    int r = l->opts->events ? kv_feed_open(l->opts->events, id, &l->h->feed, ret) : -ENOENT;
    if (r < 0 && r != -ENOENT)
        LOG_WARN("no_kv_events", "model=%s error=\"%s\"", id,
                 r == -ENOSPC   ? "as many models are published as can be"
                 : r == -EINVAL ? "the topic with the model's name is too long"
                                : strerror(-r));
    return r == 0 ? ret : NULL;
}

static int create_engine(struct load *l)
{
    struct prefix_events_opts events;
    const struct model_settings *s = l->opts->settings;
    const struct plan *plan = &s->plan;
    struct engine_opts opts = s->engine;
    opts.name = s->id;
    opts.model = l->h->model;
    opts.draft = l->h->draft.model;
    opts.tokenizer = l->h->tokenizer;
    opts.device = l->opts->device;
    opts.holders = l->opts->holders;
    opts.parent = l->h->account;
    opts.device_parent = l->h->device_account;
    const bool has_identity = find_identity(l, &opts.identity);
    opts.store = has_identity ? l->opts->store : NULL;
    opts.shared = has_identity ? l->opts->shared : NULL;
    opts.ends_ns = l->opts->ends_ns;
    for (uint32_t i = 0; i < plan->model.beside_count; i++)
        opts.beside[i] = (struct engine_beside){l->h->beside_accounts[i], plan->beside[i].pools_bytes};
    opts.tells_prefixes = l->opts->events != NULL;
    opts.events = open_feed(l, &events);
    opts.max_model_len = plan->max_model_len;
    opts.kv_bytes_max = (uint64_t)plan->pages_max * plan->model.page_bytes;
    opts.pools_bytes_max = plan->pools_bytes;
    opts.requests_bytes_max = plan->requests_bytes;
    opts.prefix_cache_bytes = plan->prefix_cache_bytes;
    opts.agents = plan->agents;
    opts.agent_tokens = plan->agent_tokens;
    opts.pinned_cache_bytes = plan->pinned_cache_bytes;
    opts.image_cache_bytes = plan->image_cache_bytes;
    opts.faults = l->opts->engine_faults;
    opts.failed = l->opts->failed;
    opts.failed_arg = l->opts->arg;
    return engine_create(&opts, &l->h->engine, l->e);
}

static int set_floor(const struct load *l, enum account_id id, uint64_t bytes)
{
    const struct plan_line *line = find_line(&l->opts->settings->plan, id);
    struct account *a = accounts_find(account_of(l->h, line), id);
    return a ? account_set_floor(a, MIN_OF(bytes, line->limit_bytes)) : 0;
}

/* From now on the plan's figures are the accounts' limits. Beside other models, the need of one request is
 * also reserved in the model's floor, so that neither pools nor blocks can take the memory that the other
 * needs to run. */
static int apply_plan(struct load *l)
{
    const struct model_settings *s = l->opts->settings;
    const struct plan *plan = &s->plan;
    int r = 0;
    for (uint32_t i = 0; i < plan->line_count; i++) {
        const struct plan_line *line = &plan->lines[i];
        struct account *a =
            line->depth > 0 ? accounts_find(account_on(l->h, plan, line), line->account) : NULL;
        if (!a)
            continue;
        account_set_planned(a, line->limit_bytes);
        account_set_limit(a, line->limit_bytes);
    }
    if (s->shares)
        r = set_floor(l, ACCOUNT_POOLS, plan->pools_floor_bytes);
    if (r == 0 && s->shares)
        r = set_floor(l, ACCOUNT_REQUESTS, plan->job_bytes);
    if (r == 0 && s->shares)
        r = set_floor(l, ACCOUNT_VISION, plan->model.vision_bytes);
    if (r == 0 && s->shares)
        r = set_floor(l, ACCOUNT_IMAGES, plan->model.image_bytes);
    for (uint32_t i = 0; i < plan->model.beside_count && r == 0 && s->shares; i++)
        r = account_set_floor(accounts_find(l->h->beside_accounts[i], ACCOUNT_POOLS),
                              plan->beside[i].pools_floor_bytes);
    return r < 0 ? err_set(l->e, r, "no memory for one request of %u tokens", plan->max_model_len) : 0;
}

/* Added tokens are in a text only where the model's format has them. */
static struct slice grammar_bytes_of(void *tokenizer, uint32_t id)
{
    return tokenizer_is_added(tokenizer, id) ? (struct slice){0} : tokenizer_token_bytes(tokenizer, id);
}

static int create_vocab(struct load *l)
{
    struct loaded_model *h = l->h;
    const struct generation_defaults *d = &h->defaults;
    struct charge charge = account_charge(accounts_find(h->account, ACCOUNT_TABLES));
    struct grammar_vocab_opts opts = {.bytes = grammar_bytes_of, .arg = h->tokenizer, .charge = &charge};
    uint32_t ends[GENERATION_EOS_MAX];
    opts.size = MIN_OF(model_shape(h->model)->vocab, tokenizer_vocab_size(h->tokenizer));
    opts.ends = ends;
    for (uint32_t i = 0; i < d->eos_count; i++)
        if (d->eos_ids[i] < opts.size)
            ends[opts.end_count++] = d->eos_ids[i];
    return grammar_vocab_create(&opts, &h->vocab);
}

/* After the limits. A vocabulary that takes more than was planned turns constrained decoding off. */
static int create_grammars(struct load *l)
{
    struct loaded_model *h = l->h;
    const struct plan *plan = &l->opts->settings->plan;
    if (!h->tokenizer || plan->grammars_bytes == 0)
        return 0;
    int r = create_vocab(l);
    if (r < 0) {
        LOG_WARN("no_grammars", "model=%s error=\"%s\"", l->opts->settings->id, strerror(-r));
        return 0;
    }
    r = accounts_open(h->account, ACCOUNT_GRAMMARS, plan->grammars_bytes, &h->grammars_account);
    struct charge charge = r == 0 ? account_charge(h->grammars_account) : (struct charge){0};
    struct grammar_cache_opts opts = {h->vocab, plan->grammars_bytes, &charge};
    if (r == 0)
        account_set_planned(h->grammars_account, plan->grammars_bytes);
    if (r == 0)
        r = grammar_cache_create(&opts, &h->grammars);
    return r < 0 ? err_set(l->e, r, "no memory for the cache of grammars") : 0;
}

static int start_engine(struct load *l)
{
    int r = engine_start(l->h->engine);
    return r < 0 ? err_set(l->e, r, "the engine's thread could not be started") : 0;
}

static const struct load_step {
    const char *name;
    int (*run)(struct load *l);
} load_steps[] = {{"account", open_account},      {"room", make_room},       {"tokenizer", load_tokenizer},
                  {"template", load_template},    {"syntax", find_syntax},   {"defaults", load_defaults},
                  {"images", check_image_tokens}, {"use", find_use},         {"weights", load_weights},
                  {"draft model", load_draft},    {"engine", create_engine}, {"limits", apply_plan},
                  {"grammars", create_grammars},  {"start", start_engine}};

static int fault_at(const struct registry_faults *f, const char *step)
{
    return f && f->step ? f->step(f->arg, step) : 0;
}

int loaded_model_load(const struct loaded_model_opts *opts, struct loaded_model *ret, struct err *e)
{
    const struct model_settings *s = opts->settings;
    struct loaded_model h = {0};
    struct load l = {.opts = opts, .h = &h, .files = opts->files, .e = e};
    ASSERT(s->planned);
    int r = l.files ? 0 : model_plan_open_files(s->dir, s->options.mmproj, &l.files, e);
    for (size_t i = 0; r == 0 && i < COUNT_OF(load_steps); i++) {
        if (opts->step)
            opts->step(opts->arg, load_steps[i].name);
        r = load_steps[i].run(&l);
        if (r == 0 && (r = fault_at(opts->faults, load_steps[i].name)) < 0)
            err_set(e, r, "step %s of the load failed: %s", load_steps[i].name, strerror(-r));
    }
    model_files_close(l.files);
    if (r < 0)
        loaded_model_close(&h, NULL, NULL);
    else
        *ret = h;
    return r;
}

struct account *loaded_model_account(const struct loaded_model *h, const struct domain *domain)
{
    if (domain == domain_machine())
        return h->account;
    if (h->device_account && account_domain(h->device_account) == domain)
        return h->device_account;
    for (uint32_t i = 0; i < COUNT_OF(h->beside_accounts) && h->beside_accounts[i]; i++)
        if (account_domain(h->beside_accounts[i]) == domain)
            return h->beside_accounts[i];
    return NULL;
}

void loaded_model_bytes(const struct loaded_model *h, uint64_t *reserved, uint64_t *used)
{
    ASSERT(h->account);
    struct account_numbers n = account_numbers(h->account), on_device = {0};
    if (h->device_account)
        on_device = account_numbers(h->device_account);
    *reserved = n.reserved + on_device.reserved;
    *used = n.used + on_device.used;
    for (uint32_t i = 0; i < COUNT_OF(h->beside_accounts) && h->beside_accounts[i]; i++) {
        n = account_numbers(h->beside_accounts[i]);
        *reserved += n.reserved;
        *used += n.used;
    }
}

void loaded_model_describe(const struct loaded_model *h, const struct model_settings *s,
                           struct served_model *ret)
{
    ASSERT(h->model && h->engine);
    *ret = (struct served_model){.id = s->id,
                                 .engine = h->engine,
                                 .shape = model_shape(h->model),
                                 .tokenizer = h->tokenizer,
                                 .template = h->template,
                                 .template_kwargs = s->template_kwargs,
                                 .defaults = h->defaults,
                                 .repetition = s->repetition,
                                 .use = h->use,
                                 .max_model_len = plan_context(&s->plan),
                                 .compaction_reserve = s->plan.reserve,
                                 .max_tokens_default = s->max_tokens_default,
                                 .syntax = h->syntax,
                                 .grammars = h->grammars,
                                 .created_s = (int64_t)clock_wall_s(),
                                 .compute = compute_mode_name(model_shape(h->model)->compute),
                                 .device = h->devices,
                                 .drafting = s->engine.drafting,
                                 .exact = !s->engine.drafting.optimistic};
}

/* ---- unloading ---- */

static void close_engine(struct loaded_model *h)
{
    engine_close(h->engine);
    kv_feed_close(h->feed);
}

static void close_grammars(struct loaded_model *h)
{
    grammar_cache_free(h->grammars);
    account_close(h->grammars_account);
    grammar_vocab_free(h->vocab);
}

static void close_draft(struct loaded_model *h)
{
    draft_model_close(&h->draft);
}

static void close_weights(struct loaded_model *h)
{
    model_free(h->model);
}

static void close_tokenizer(struct loaded_model *h)
{
    arena_free(h->text);
    account_close(h->tokenizer_account);
}

/* Demands that nothing is left in them: a leak stops here. */
static void close_account(struct loaded_model *h)
{
    for (uint32_t i = 0; i < COUNT_OF(h->beside_accounts); i++)
        account_close(h->beside_accounts[i]);
    account_close(h->device_account);
    account_close(h->account);
}

static const struct close_step {
    const char *name;
    void (*run)(struct loaded_model *h);
} close_steps[] = {{"close engine", close_engine},      {"free grammars", close_grammars},
                   {"free draft model", close_draft},   {"free weights", close_weights},
                   {"free tokenizer", close_tokenizer}, {"close account", close_account}};

static void note(char *trouble, const char *step, int error)
{
    ASSERT(error < 0);
    size_t len = trouble ? strlen(trouble) : LOADED_MODEL_TROUBLE_BYTES;
    if (len < LOADED_MODEL_TROUBLE_BYTES)
        snprintf(trouble + len, LOADED_MODEL_TROUBLE_BYTES - len, "%s%s: %s", len ? ", " : "", step,
                 strerror(-error));
}

void loaded_model_close(struct loaded_model *h, const struct registry_faults *faults, char *trouble)
{
    if (trouble)
        trouble[0] = 0;
    for (size_t i = 0; i < COUNT_OF(close_steps); i++) {
        close_steps[i].run(h);
        int r = fault_at(faults, close_steps[i].name);
        if (r < 0)
            note(trouble, close_steps[i].name, r);
    }
    *h = (struct loaded_model){0};
}
