/* runtime.c - opening is a list, closing is the list backwards. */
#include "cli/runtime.h"

#include "base/check.h"
#include "base/clock.h"
#include "memory/footprint.h"
#include "memory/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUNTIME_TEXT_BYTES_MAX ((size_t)512 << 20) /* address space for tokenizer and template of a model */
#define RUNTIME_STEP_TOKENS    512                 /* of one step; what a step takes of workspace */
#define RUNTIME_STEP_ALONE_NS  NS_PER_S

/* The bundled model: beside the program's folder (build/plateau in a checkout), or where the build was made. */
static int find_bundled(char *ret, size_t bytes_max, struct err *e)
{
    char exe[4000];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = 0;
    for (int up = 0; up < 2 && strrchr(exe, '/'); up++)
        *strrchr(exe, '/') = 0;
    snprintf(ret, bytes_max, "%s/models/canary", exe);
    if (access(ret, R_OK) == 0)
        return 0;
    return err_set(e, -ENOENT, "no bundled model at %s: name a model's directory", ret);
}

static int find_model(const struct options *o, struct runtime *rt, struct err *e)
{
    if (!o->model) {
        int r = find_bundled(rt->model_dir, sizeof(rt->model_dir), e);
        if (r < 0)
            return r;
    } else if ((size_t)snprintf(rt->model_dir, sizeof(rt->model_dir), "%s", o->model) >=
               sizeof(rt->model_dir)) {
        return err_set(e, -ENAMETOOLONG, "the model's path is longer than %zu bytes",
                       sizeof(rt->model_dir) - 1);
    }
    size_t len = strlen(rt->model_dir);
    while (len > 1 && rt->model_dir[len - 1] == '/')
        rt->model_dir[--len] = 0;
    const char *slash = strrchr(rt->model_dir, '/');
    snprintf(rt->model_id, sizeof(rt->model_id), "%s",
             o->alias ? o->alias
             : slash  ? slash + 1
                      : rt->model_dir);
    return 0;
}

int runtime_open(const struct options *o, struct runtime *ret, struct err *e)
{
    struct footprint f;
    *ret = (struct runtime){.options = o};
    int r = find_model(o, ret, e);
    if (r < 0)
        return r;
    footprint_read(&f);
    ret->ceiling_bytes = footprint_ceiling(&f, o->memory_limit);
    r = ledger_create(ret->ceiling_bytes, &ret->ledger);
    struct account *root = r == 0 ? ledger_root(ret->ledger) : NULL;
    if (r == 0)
        r = account_open(root, "text", ACCOUNT_ANON, ACCOUNT_NO_LIMIT, &ret->text);
    if (r == 0)
        r = account_open(root, "network", ACCOUNT_ANON, ACCOUNT_NO_LIMIT, &ret->network);
    if (r == 0)
        r = workers_create(o->threads ? (uint32_t)o->threads : workers_default_count(), ret->text,
                           &ret->workers);
    if (r < 0) {
        err_set(e, r, "the worker threads could not be started: %s", strerror(-r));
        runtime_close(ret);
    }
    kern_ops_init(&ret->ops, kern_cpu_flags());
    return r;
}

static int load_text(struct runtime *rt, struct err *e)
{
    struct charge charge = account_charge(rt->model_account);
    int r = arena_create(&(struct arena_opts){RUNTIME_TEXT_BYTES_MAX, 0, &charge}, &rt->model_text);
    if (r < 0)
        return err_set(e, r, "no memory for the tokenizer");
    r = tokenizer_load(rt->model_text, rt->model_dir, &rt->tokenizer, e);
    if (r < 0 && r != -ENOENT)
        return r;
    r = rt->tokenizer ? chat_template_load(rt->model_text, rt->model_dir, &rt->template, e) : 0;
    if (r < 0 && r != -ENOENT)
        return r;
    if (rt->needs_tokenizer && !rt->tokenizer)
        return err_set(e, -ENOENT, "%s has no tokenizer.json: it cannot read text", rt->model_dir);
    if (rt->needs_template && !rt->template)
        return err_set(e, -ENOENT, "%s has no chat template; plateau generate completes a text with it",
                       rt->model_dir);
    return generation_config_load(rt->model_dir, &rt->defaults, e);
}

/* The longest sequence: what was asked for or the model's own, cut to what the ceiling leaves for its pages. */
static int plan_length(struct runtime *rt, uint32_t rows, uint64_t *kv_bytes, struct err *e)
{
    const struct model_shape *s = model_shape(rt->model);
    struct account_numbers now = account_numbers(ledger_root(rt->ledger));
    uint64_t left = rt->ceiling_bytes > now.reserved ? rt->ceiling_bytes - now.reserved : 0;
    uint64_t slots = (uint64_t)s->slot_bytes * rows * (rt->options->host_cache ? 2 : 1) + 2 * UNIT_BYTES;
    left = left > slots ? left - slots : 0;
    uint64_t wanted = rt->options->max_model_len ? rt->options->max_model_len : s->context_max;
    /* A quarter of what is left stays for texts, connections and logits. */
    uint64_t pages_fit = left / 4 * 3 / s->page_bytes, tokens_fit = pages_fit * KERN_PAGE_TOKENS;
    if (wanted > s->context_max)
        return err_set(e, -EINVAL, "--max-model-len %llu: the model was made for %u tokens",
                       (unsigned long long)wanted, s->context_max);
    if (rt->options->max_model_len > tokens_fit || tokens_fit < KERN_PAGE_TOKENS)
        return err_set(e, -ENOMEM,
                       "a sequence of %llu tokens does not fit: %llu bytes are left of the ceiling of %llu, "
                       "room for %llu "
                       "tokens; see --memory-limit and --max-model-len",
                       (unsigned long long)wanted, (unsigned long long)left,
                       (unsigned long long)rt->ceiling_bytes, (unsigned long long)tokens_fit);
    rt->max_model_len = (uint32_t)MIN_OF(wanted, tokens_fit);
    uint64_t all_rows = DIV_UP((uint64_t)rt->max_model_len, KERN_PAGE_TOKENS) * rows;
    *kv_bytes = MIN_OF(all_rows, pages_fit) * s->page_bytes;
    return 0;
}

static int load_model(struct runtime *rt, uint32_t rows, int (*progress)(void *, uint64_t, uint64_t),
                      void *arg, struct err *e)
{
    struct model_opts opts = {.tokens_max = MAX_OF(RUNTIME_STEP_TOKENS, engine_tokens_min(rows)),
                              .rows_max = rows,
                              .logits_max = engine_logits_max(rows),
                              .ops = &rt->ops,
                              .workers = rt->workers,
                              .parent = rt->model_account,
                              .progress = progress,
                              .progress_arg = arg};
    if (!compute_mode_parse(rt->options->compute, &opts.compute))
        return err_set(e, -EINVAL, "--compute %s: auto or f32 is expected", rt->options->compute);
    return model_load(rt->model_dir, &opts, &rt->model, e);
}

static int start_engine(struct runtime *rt, uint32_t rows, uint32_t queue, struct err *e)
{
    const struct options *o = rt->options;
    struct engine_opts opts = {.name = rt->model_id,
                               .model = rt->model,
                               .tokenizer = rt->tokenizer,
                               .workers = rt->workers,
                               .parent = rt->model_account,
                               .max_num_seqs = rows,
                               .max_queue = queue,
                               .tokens_max = MAX_OF(RUNTIME_STEP_TOKENS, engine_tokens_min(rows)),
                               .host_cache_bytes = o->host_cache,
                               .keep_units = o->trim && strcmp(o->trim, "off") == 0,
                               .queue_timeout_ns = o->queue_timeout_s * NS_PER_S,
                               .slow_client_ns = o->slow_client_s * NS_PER_S,
                               .step_ns = o->step_ms * NS_PER_MS,
                               .step_alone_ns = RUNTIME_STEP_ALONE_NS};
    int r = plan_length(rt, rows, &opts.kv_bytes_max, e);
    if (r < 0)
        return r;
    opts.max_model_len = rt->max_model_len;
    r = engine_create(&opts, &rt->engine, e);
    return r < 0 ? r : engine_start(rt->engine);
}

int runtime_load(struct runtime *rt, uint32_t rows, uint32_t queue,
                 int (*progress)(void *arg, uint64_t done, uint64_t total), void *progress_arg, struct err *e)
{
    int r = account_open(ledger_root(rt->ledger), rt->model_id, ACCOUNT_ANON, ACCOUNT_NO_LIMIT,
                         &rt->model_account);
    if (r < 0)
        return err_set(e, r, "no memory for an account");
    r = load_text(rt, e);
    if (r == 0)
        r = load_model(rt, rows, progress, progress_arg, e);
    if (r == 0)
        r = start_engine(rt, rows, queue, e);
    return r;
}

void runtime_close(struct runtime *rt)
{
    engine_close(rt->engine);
    model_free(rt->model);
    tokenizer_done(rt->tokenizer);
    arena_free(rt->model_text);
    account_close(rt->model_account);
    workers_free(rt->workers);
    account_close(rt->network);
    account_close(rt->text);
    ledger_free(rt->ledger);
    *rt = (struct runtime){0};
}
