/* runtime.c - opening is a list, closing is the list backwards. */
#include "host/runtime.h"

#include "host/device_choice.h"
#include "host/models/catalog_names.h"
#include "host/models/catalog.h"
#include "host/settings.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "memory/footprint.h"
#include "memory/units.h"
#include "reclaim/guard.h"
#include "reclaim/holders.h"
#include "sample/repetition.h"
#include "store/shared_tier.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#define RUNTIME_STEP_ALONE_NS NS_PER_S

int runtime_find_model(const char *model, const char *alias, char *dir, char *id, struct err *e)
{
    int r = model ? catalog_find(model, dir, e) : catalog_bundled(dir, e);
    if (r < 0)
        return r;
    size_t len = strlen(dir);
    while (len > 1 && dir[len - 1] == '/')
        dir[--len] = 0;
    const char *slash = strrchr(dir, '/'), *last = slash ? slash + 1 : dir;
    if (alias)
        snprintf(id, RUNTIME_ID_BYTES, "%s", alias);
    else if (model && strncmp(last, "sha256-", 7) == 0 && !strstr(model, last))
        snprintf(id, RUNTIME_ID_BYTES, "%s", model); /* Ollama's store names files by their sums */
    else
        catalog_name_of(dir, id, RUNTIME_ID_BYTES);
    return 0;
}

uint32_t runtime_workers(const struct settings *o)
{
    return o->process.threads ? o->process.threads : device_default_workers();
}

int runtime_settings(const struct settings *o, const char *dir, const char *id, uint32_t seqs, uint32_t queue,
                     struct model_settings *ret, struct err *e)
{
    struct model_settings s = {
        .options = o->model,
        .engine = o->model.engine,
        .sampling = {.temperature = NAN, .top_p = NAN, .min_p = NAN, .repetition_penalty = NAN, .top_k = -1}};
    struct model_parts parts = {0};
    int r = planning_arithmetic(o, &parts, e);
    if (r < 0)
        return r;
    enum speculation_mode way;
    if (!speculation_parse(o->model.spec ? o->model.spec : "auto", &way))
        return err_set(e, -EINVAL, "--spec %s: auto, mtp, ngram or off is expected", o->model.spec);
    const char *loops = o->model.repetition_detection;
    if (!repetition_params_named(loops ? loops : "off", &s.repetition))
        return err_set(e, -EINVAL, "--repetition-detection %s: off, reply or reasoning is expected", loops);
    snprintf(s.dir, sizeof(s.dir), "%s", dir);
    snprintf(s.id, sizeof(s.id), "%s", id);
    s.engine.max_num_seqs = seqs;
    s.engine.max_queue = queue;
    s.engine.shows_prefixes = o->model.replicas > 1;
    s.engine.keep_units = o->model.trim && strcmp(o->model.trim, "off") == 0;
    s.engine.slow_client_ns = o->api.live.slow_client_s * NS_PER_S;
    s.engine.step_alone_ns = RUNTIME_STEP_ALONE_NS;
    *ret = s;
    return 0;
}

void runtime_set_plan(const struct planning *p, struct model_settings *s)
{
    s->plan = p->plan;
    s->shape = p->model.shape;
    s->parts = p->model.parts;
    s->draft = p->model.draft;
    s->engine.drafting = p->model.drafting;
    s->engine.max_num_seqs = p->plan.seqs;
    s->engine.tokens_max = model_plan_tokens(&p->model, p->plan.seqs);
    s->tokens_max = s->engine.tokens_max;
    s->planned = true;
}

/* ---- the process ---- */

static int open_account(struct runtime *rt, enum account_id id, uint64_t limit, struct account **ret)
{
    int r = accounts_open(ledger_root(rt->ledger), id, limit, ret);
    if (r == 0)
        account_set_planned(*ret, limit);
    return r;
}

const struct runtime_faults *runtime_faults;

/* The heap cannot be limited, but needs its place below the ceiling. */
static int reserve_heap(struct runtime *rt)
{
    uint64_t bytes = rt->process.heap_bytes;
    int r = open_account(rt, ACCOUNT_HEAP, bytes, &rt->heap);
    if (r == 0)
        r = account_reserve(rt->heap, bytes);
    rt->heap_bytes = r == 0 ? bytes : 0;
    return r;
}

static int open_ledger(struct runtime *rt)
{
    const struct plan_process *p = &rt->process;
    int r = ledger_create(p->ceiling_bytes, &rt->ledger);
    if (r == 0)
        account_set_planned(ledger_root(rt->ledger), p->ceiling_bytes);
    if (r == 0 && runtime_faults) {
        ledger_set_faults(rt->ledger, &runtime_faults->ledger);
        units_set_faults(&runtime_faults->units);
    }
    if (r == 0)
        r = reserve_heap(rt);
    if (r == 0)
        r = open_account(rt, ACCOUNT_THREADS, p->threads_bytes, &rt->threads);
    if (r == 0)
        r = open_account(rt, ACCOUNT_NETWORK, p->network_bytes + p->body_bytes, &rt->network);
    if (r == 0)
        r = open_account(rt, ACCOUNT_TEXT, p->text_bytes, &rt->text);
    if (r == 0 && p->responses_bytes > 0)
        r = open_account(rt, ACCOUNT_RESPONSES, p->responses_bytes, &rt->responses);
    if (r == 0 && p->conversations_bytes > 0)
        r = open_account(rt, ACCOUNT_CONVERSATIONS, p->conversations_bytes, &rt->conversations);
    if (r == 0 && p->history_bytes > 0)
        r = open_account(rt, ACCOUNT_HISTORY, p->history_bytes, &rt->history);
    if (r == 0 && p->pull_bytes > 0)
        r = open_account(rt, ACCOUNT_PULL, p->pull_bytes, &rt->pull);
    if (r == 0 && p->media_bytes > 0)
        r = open_account(rt, ACCOUNT_MEDIA, p->media_bytes, &rt->media);
    /* Pinned memory below the caches of devices is a cache of the machine's, too. */
    const struct engine_opts *o = &rt->settings->model.engine;
    uint64_t cache = MIN_OF(o->prefix_cache_bytes, p->ceiling_bytes);
    struct holders_opts holders = {rt->ledger,
                                   cache + MIN_OF(o->pinned_cache_bytes, p->ceiling_bytes - cache)};
    return r == 0 ? holders_create(&holders, &rt->holders) : r;
}

/* A directory that cannot be made is a mistake in the options, or lacks its disk. One that fails or is in use
 * later only turns the tier off. */
static int make_ssd_dir(const char *dir, struct err *e)
{
    struct stat st;
    if (mkdir(dir, 0700) == 0)
        return 0;
    if (stat(dir, &st) == 0 && S_ISDIR(st.st_mode)) {
        /* The tier takes each file with the right name and checksums. */
        if (st.st_mode & S_IWOTH)
            LOG_WARN("ssd_dir_exposed", "dir=\"%s\" problem=\"everybody may write to it\"", dir);
        return 0;
    }
    const int error = errno == EEXIST ? ENOTDIR : errno;
    return err_set(e, -error, "--ssd-dir %s cannot be made: %s", dir, strerror(error));
}

static int open_store(struct runtime *rt, struct err *e)
{
    const struct plan_process *p = &rt->process;
    const struct settings *o = rt->settings;
    if (p->ssd_staging_bytes == 0)
        return 0;
    int r = make_ssd_dir(o->store.dir, e);
    if (r < 0)
        return r;
    r = open_account(rt, ACCOUNT_SSD_STAGING, p->ssd_staging_bytes, &rt->ssd_staging);
    if (r == 0)
        r = open_account(rt, ACCOUNT_SSD_TABLE, p->ssd_table_bytes, &rt->ssd_table);
    if (r < 0)
        return err_set(e, r, "no memory for the SSD tier's accounts");
    struct store_opts opts = o->store;
    opts.staging = rt->ssd_staging;
    opts.table = rt->ssd_table;
    opts.threads = rt->threads;
    return store_open(&opts, &rt->store, e);
}

static int open_shared(struct runtime *rt, struct err *e)
{
    const struct plan_process *p = &rt->process;
    const struct shared_settings *o = &rt->settings->shared;
    struct shared_tier_opts opts = {.address = o->address,
                                    .secret_file = o->secret_file,
                                    .limit_bytes = o->limit_bytes,
                                    .staging_bytes = o->staging_bytes};
    if (p->shared_bytes == 0)
        return 0;
    int r = open_account(rt, ACCOUNT_SHARED_CACHE, p->shared_bytes, &rt->shared_memory);
    if (r < 0)
        return err_set(e, r, "no memory for the shared cache's account");
    opts.memory = rt->shared_memory;
    opts.threads = rt->threads;
    return shared_tier_open(&opts, &rt->shared, e);
}

/* The context is there as long as the device is open. */
static int charge_context(struct runtime *rt, uint32_t i)
{
    uint64_t bytes = plan_process_bytes(&rt->process, i);
    if (bytes == 0)
        return 0;
    int r = accounts_open(rt->device_roots[i], ACCOUNT_CONTEXT, bytes, &rt->contexts[i]);
    if (r < 0)
        return r;
    account_set_planned(rt->contexts[i], bytes);
    struct charge charge = account_charge(rt->contexts[i]);
    return charge_take(&charge, bytes);
}

static void close_context(struct account *a)
{
    if (!a)
        return;
    struct charge charge = account_charge(a);
    charge_give(&charge, account_numbers(a).used);
    account_close(a);
}

/* The root account of a device's memory, and a budget for the caches there. */
static int open_device_memory(struct runtime *rt, uint32_t i)
{
    const struct domain *domain = rt->devices[i]->domain;
    if (domain == domain_machine())
        return 0;
    uint64_t ceiling = plan_ceiling_bytes(&rt->process, i);
    int r = ledger_open_root(rt->ledger, domain, ceiling, &rt->device_roots[i]);
    if (r == 0)
        account_set_planned(rt->device_roots[i], ceiling);
    if (r == 0)
        r = charge_context(rt, i);
    if (r < 0)
        return r;
    holders_add_domain(rt->holders, domain, MIN_OF(rt->settings->model.engine.prefix_cache_bytes, ceiling));
    return 0;
}

/* Models on devices may have experts in the machine's memory. */
static int open_cpu(struct runtime *rt, uint32_t workers, struct err *e)
{
    struct device_choice cpu = {.backend = &backend_cpu};
    int r = device_choice_open(&cpu, workers, rt->threads, &rt->devices[0]);
    return r < 0 ? device_choice_refuse(&cpu, r, e) : 0;
}

static int open_devices(struct runtime *rt, struct device_choices *c, uint32_t workers, struct err *e)
{
    for (uint32_t k = 0; k < c->count; k++) {
        uint32_t i;
        struct err ignored;
        if (device_choice_domain(&c->list[k], &rt->process, &i, &ignored) < 0)
            continue; /* no model that is served has it */
        int r = device_choice_open(&c->list[k], workers, rt->threads, &rt->devices[i]);
        if (r == 0)
            r = open_device_memory(rt, i);
        if (r < 0)
            return device_choice_refuse(&c->list[k], r, e);
    }
    return rt->devices[0] ? 0 : open_cpu(rt, workers, e);
}

/* Takes the devices; who gave them closes the others. */
static int open_process(struct runtime *rt, struct device_choices *devices, uint32_t workers, struct err *e)
{
    footprint_open_heap();
    int r = open_ledger(rt);
    if (r < 0)
        err_set(e, r, "accounts could not be opened: %s", strerror(-r));
    if (r == 0)
        r = open_devices(rt, devices, workers, e);
    if (r == 0)
        r = open_store(rt, e);
    if (r == 0)
        r = open_shared(rt, e);
    if (r < 0)
        runtime_close(rt);
    return r;
}

int runtime_open_process(const struct settings *o, const struct plan_process *process,
                         struct device_choices *devices, uint32_t workers, struct runtime *ret, struct err *e)
{
    *ret = (struct runtime){.settings = o, .process = *process};
    return open_process(ret, devices, workers, e);
}

int runtime_guard(struct runtime *rt, struct err *e)
{
    struct guard_opts opts = {
        .ledger = rt->ledger, .holders = rt->holders, .threads = rt->threads, .watches_system = true};
    if (runtime_faults) {
        opts.read = runtime_faults->footprint;
        opts.read_arg = runtime_faults->footprint_arg;
    }
    int r = guard_create(&opts, &rt->guard);
    return r < 0 ? err_set(e, r, "the guard's thread could not be started") : 0;
}

void runtime_close(struct runtime *rt)
{
    shared_tier_close(rt->shared);
    account_close(rt->shared_memory);
    store_close(rt->store);
    account_close(rt->ssd_table);
    account_close(rt->ssd_staging);
    guard_free(rt->guard);
    holders_free(rt->holders);
    for (uint32_t i = 0; i < COUNT_OF(rt->devices); i++) {
        close_context(rt->contexts[i]);
        account_close(rt->device_roots[i]);
        device_close(rt->devices[i]);
    }
    account_close(rt->media);
    account_close(rt->pull);
    account_close(rt->history);
    account_close(rt->conversations);
    account_close(rt->responses);
    account_close(rt->text);
    account_close(rt->network);
    account_close(rt->threads);
    if (rt->heap_bytes)
        account_release(rt->heap, rt->heap_bytes);
    account_close(rt->heap);
    ledger_free(rt->ledger);
    *rt = (struct runtime){0};
}
