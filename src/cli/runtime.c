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

int runtime_find_model(const char *model, const char *alias, char *dir, char *id, struct err *e)
{
    if (!model) {
        int r = find_bundled(dir, RUNTIME_DIR_BYTES, e);
        if (r < 0)
            return r;
    } else if ((size_t)snprintf(dir, RUNTIME_DIR_BYTES, "%s", model) >= RUNTIME_DIR_BYTES) {
        return err_set(e, -ENAMETOOLONG, "the model's path is longer than %d bytes", RUNTIME_DIR_BYTES - 1);
    }
    size_t len = strlen(dir);
    while (len > 1 && dir[len - 1] == '/')
        dir[--len] = 0;
    const char *slash = strrchr(dir, '/');
    snprintf(id, RUNTIME_ID_BYTES, "%s", alias ? alias : slash ? slash + 1 : dir);
    return 0;
}

uint32_t runtime_workers(const struct options *o)
{
    return o->threads ? (uint32_t)o->threads : workers_default_count();
}

static int open_account(struct runtime *rt, const char *name, struct account **ret)
{
    uint64_t limit = planning_limit(&rt->planning, name);
    int r = account_open(ledger_root(rt->ledger), name, ACCOUNT_ANON, limit, ret);
    if (r == 0)
        account_set_planned(*ret, limit);
    return r;
}

const struct runtime_faults *runtime_faults;

/* What the allocator keeps is nobody's to take, but it has to have its place below the ceiling. */
static int reserve_heap(struct runtime *rt)
{
    uint64_t bytes = planning_limit(&rt->planning, "heap");
    int r = open_account(rt, "heap", &rt->heap);
    if (r == 0)
        r = account_reserve(rt->heap, bytes);
    rt->heap_bytes = r == 0 ? bytes : 0;
    return r;
}

static int open_ledger(struct runtime *rt)
{
    int r = ledger_create(rt->planning.plan.ceiling_bytes, &rt->ledger);
    if (r == 0)
        account_set_planned(ledger_root(rt->ledger), rt->planning.plan.limit_bytes);
    if (r == 0 && runtime_faults)
        ledger_set_faults(rt->ledger, &runtime_faults->ledger);
    if (r == 0)
        r = reserve_heap(rt);
    if (r == 0)
        r = open_account(rt, "threads", &rt->threads);
    if (r == 0)
        r = open_account(rt, "network", &rt->network);
    return r == 0 ? open_account(rt, "text", &rt->text) : r;
}

int runtime_open(const struct options *o, const struct runtime_opts *opts, struct runtime *ret, struct err *e)
{
    *ret = (struct runtime){.options = o};
    ret->planning = (struct planning){.options = o,
                                      .rows = opts->rows,
                                      .queue = opts->queue,
                                      .workers = runtime_workers(o),
                                      .serves = opts->serves};
    int r = runtime_find_model(o->model, o->alias, ret->model_dir, ret->model_id, e);
    if (r == 0)
        r = planning_make(&ret->planning, ret->model_dir, ret->model_id, e);
    if (r < 0)
        return r;
    r = open_ledger(ret);
    if (r == 0)
        r = workers_create(ret->planning.workers, ret->threads, &ret->workers);
    if (r < 0) {
        err_set(e, r, "accounts and worker threads could not be opened: %s", strerror(-r));
        runtime_close(ret);
    }
    kern_ops_init(&ret->ops, kern_cpu_flags());
    return r;
}

static int load_text(struct runtime *rt, struct err *e)
{
    uint64_t limit = planning_limit(&rt->planning, "tokenizer");
    int r = account_open(rt->model_account, "tokenizer", ACCOUNT_ANON, limit, &rt->tokenizer_account);
    struct charge charge = r == 0 ? account_charge(rt->tokenizer_account) : (struct charge){0};
    if (r == 0)
        r = arena_create(&(struct arena_opts){RUNTIME_TEXT_BYTES_MAX, 0, &charge}, &rt->model_text);
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

static int load_model(struct runtime *rt, int (*progress)(void *, uint64_t, uint64_t), void *arg,
                      struct err *e)
{
    uint32_t rows = rt->planning.rows;
    struct model_opts opts = {.tokens_max = planning_step_tokens(rows),
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

static int start_engine(struct runtime *rt, struct err *e)
{
    const struct options *o = rt->options;
    const struct plan *plan = &rt->planning.plan;
    struct engine_opts opts = planning_engine_opts(o, plan->rows, plan->queue);
    opts.name = rt->model_id;
    opts.model = rt->model;
    opts.tokenizer = rt->tokenizer;
    opts.workers = rt->workers;
    opts.parent = rt->model_account;
    opts.max_model_len = plan->max_model_len;
    opts.kv_bytes_max = (uint64_t)plan->pages_max * plan->model.page_bytes;
    opts.pools_bytes_max = plan->pools_bytes;
    opts.requests_bytes_max = plan->requests_bytes;
    opts.host_cache_bytes = plan->host_cache_bytes;
    opts.keep_units = o->trim && strcmp(o->trim, "off") == 0;
    opts.queue_timeout_ns = o->queue_timeout_s * NS_PER_S;
    opts.slow_client_ns = o->slow_client_s * NS_PER_S;
    opts.step_ns = o->step_ms * NS_PER_MS;
    opts.step_alone_ns = RUNTIME_STEP_ALONE_NS;
    opts.faults = runtime_faults ? &runtime_faults->engine : NULL;
    int r = engine_create(&opts, &rt->engine, e);
    if (r < 0)
        return r;
    r = engine_start(rt->engine);
    return r < 0 ? err_set(e, r, "the engine's thread could not be started") : 0;
}

/* What was planned is from now on what each account may hold. */
static void apply_plan(struct runtime *rt)
{
    const struct plan *plan = &rt->planning.plan;
    for (uint32_t i = 0; i < plan->line_count; i++) {
        const struct plan_line *l = &plan->lines[i];
        struct account *a = l->depth > 0 ? account_find(rt->model_account, l->name) : NULL;
        if (!a)
            continue;
        account_set_planned(a, l->limit_bytes);
        account_set_limit(a, l->limit_bytes);
    }
}

int runtime_load(struct runtime *rt, int (*progress)(void *arg, uint64_t done, uint64_t total),
                 void *progress_arg, struct err *e)
{
    uint64_t limit = rt->planning.plan.model_bytes;
    int r = account_open(ledger_root(rt->ledger), rt->model_id, ACCOUNT_ANON, limit, &rt->model_account);
    if (r < 0)
        return err_set(e, r, "no memory for an account");
    account_set_planned(rt->model_account, limit);
    r = load_text(rt, e);
    if (r == 0)
        r = load_model(rt, progress, progress_arg, e);
    if (r == 0)
        r = start_engine(rt, e);
    if (r == 0)
        apply_plan(rt);
    return r;
}

void runtime_close(struct runtime *rt)
{
    engine_close(rt->engine);
    model_free(rt->model);
    tokenizer_done(rt->tokenizer);
    arena_free(rt->model_text);
    account_close(rt->tokenizer_account);
    account_close(rt->model_account);
    workers_free(rt->workers);
    account_close(rt->text);
    account_close(rt->network);
    account_close(rt->threads);
    if (rt->heap_bytes)
        account_release(rt->heap, rt->heap_bytes);
    account_close(rt->heap);
    ledger_free(rt->ledger);
    *rt = (struct runtime){0};
}
