/* figures.c - samples. A rate is the rise of a counter over ten seconds; counters of models that are unloaded
 * fall: that is not a rate. Quantiles come from the histogram's rise over five minutes, as the alert's do. */
#include "api/report/figures.h"

#include "api/access/owners.h"
#include "api/api_state.h"
#include "api/report/report_attention.h"
#include "api/report/metrics.h"
#include "api/report/report.h"

#include "base/check.h"
#include "base/clock.h"
#include "engine/engine_numbers.h"
#include "http/http_server.h"
#include "memory/footprint.h"
#include "reclaim/guard.h"
#include "reclaim/holders.h"
#include "store/store.h"

#include <errno.h>
#include <math.h>
#include <sys/mman.h>

#define SECONDS            11 /* seconds in the ring of counters: ten differences */
#define SPANS              31 /* spans of 10 s: five minutes */
#define SPAN_NS            (10 * NS_PER_S)
#define BUCKETS            (METRICS_BUCKETS_MAX + 1)
#define REFUSED_OF(status) ((status)-400)

struct counters {
    uint64_t at_ns, generated, prompt, cached, refused;
};

struct first_tokens {
    uint64_t at_ns, counts[BUCKETS];
};

struct figures {
    struct account *account;
    uint64_t sampled_s; /* second of the last sample */
    struct attention attention;
    struct counters seconds[SECONDS];
    uint64_t second_count;
    struct first_tokens spans[SPANS], now; /* now: at the last sample */
    uint64_t span_count;
    const double *bounds; /* bucket bounds of the histogram */
    uint32_t bound_count;
    double first_sum; /* sum of all first tokens' times at the last sample */
    struct history *history;
};

/* ---- memory ---- */

static size_t head_bytes(void)
{
    return (sizeof(struct figures) + 63) / 64 * 64;
}

size_t figures_bytes(void)
{
    return (head_bytes() + history_bytes() + 4095) / 4096 * 4096;
}

int figures_create(struct account *account, struct figures **ret)
{
    struct charge charge = account_charge(account);
    int r = charge_take(&charge, figures_bytes());
    if (r < 0)
        return r;
    /* Resident from the start, as the account says, and apart from the heap. */
    void *memory = mmap(NULL, figures_bytes(), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        charge_give(&charge, figures_bytes());
        return -ENOMEM;
    }
    struct figures *f = memory;
    f->account = account;
    f->history = history_make((char *)memory + head_bytes());
    *ret = f;
    return 0;
}

void figures_free(struct figures *f)
{
    if (!f)
        return;
    struct charge charge = account_charge(f->account);
    munmap(f, figures_bytes());
    charge_give(&charge, figures_bytes());
}

const struct history *figures_history(const struct figures *f)
{
    return f->history;
}

const struct attention *figures_attention(const struct figures *f)
{
    return &f->attention;
}

/* ---- sampling ---- */

struct sample {
    float values[HISTORY_SERIES_COUNT];
    struct attention_facts facts;
    struct counters counters;
    struct first_tokens first;
    double first_sum;
};

static void read_models(struct api *a, struct figures *f, struct sample *s)
{
    uint64_t running = 0, waiting = 0;
    for (uint32_t i = 0; i < api_model_count(a); i++) {
        struct engine_numbers n;
        const struct metrics_histogram *h = &a->metrics[i].histograms[METRICS_TTFT];
        struct registry_info info;
        registry_info(a->opts.registry, i, &info);
        if (info.lacks_memory)
            s->facts.lacks_memory = api_model_id(a, i);
        api_engine_numbers(a, i, &n);
        running += n.running;
        waiting += n.waiting;
        s->counters.generated += n.completion_tokens;
        s->counters.prompt += n.prompt_tokens;
        s->counters.cached += n.cached_tokens;
        s->facts.counters[ATTENTION_STEP_ERRORS] += n.step_errors;
        s->facts.pending_trim_bytes += n.pending_trim_bytes;
        f->bounds = h->bounds;
        f->bound_count = h->bound_count;
        s->first_sum += h->sum;
        for (uint32_t b = 0; b <= h->bound_count; b++)
            s->first.counts[b] += h->counts[b];
    }
    s->facts.stuck = api_stuck_model(a) != NULL;
    s->facts.waiting = (uint32_t)waiting;
    s->values[HISTORY_RUNNING] = (float)running;
    s->values[HISTORY_WAITING] = (float)waiting;
    s->values[HISTORY_PENDING_TRIM] = (float)s->facts.pending_trim_bytes;
}

static void read_memory(struct api *a, struct sample *s)
{
    struct owners owners;
    struct owner all = {0};
    struct footprint p;
    footprint_read(&p);
    owners_read(a, 0, &owners);
    for (uint32_t i = 0; i < owners.count; i++) {
        all.fixed += owners.models[i].fixed;
        all.active += owners.models[i].active;
        all.kept += owners.models[i].kept;
    }
    uint64_t resident = p.rss_anon_bytes + p.rss_shmem_bytes + p.swap_bytes;
    s->values[HISTORY_USED] = (float)owners.root->used;
    s->values[HISTORY_SERVER] = (float)owners.server;
    s->values[HISTORY_FIXED] = (float)all.fixed;
    s->values[HISTORY_ACTIVE] = (float)all.active;
    s->values[HISTORY_KEPT] = (float)all.kept;
    s->values[HISTORY_RESIDENT] = (float)resident;
    s->values[HISTORY_STEADY] = (float)((double)resident - (double)all.kept - (double)all.fixed);
    struct unaccounted un = report_unaccounted(a);
    s->facts.unaccounted_bytes = un.bytes;
    s->facts.untouched_bytes = un.untouched_bytes;
    s->values[HISTORY_UNACCOUNTED] = (float)un.bytes;
}

static void read_services(struct api *a, struct sample *s)
{
    struct prep_queue_numbers prep;
    struct holders_numbers holders = {0};
    struct guard_numbers guard = {0};
    struct store_numbers store = {0};
    struct media_numbers media = {0};
    prep_queue_numbers(&a->to_prepare, &prep);
    if (a->opts.holders)
        holders_numbers(a->opts.holders, NULL, &holders);
    if (a->opts.guard)
        guard_numbers(a->opts.guard, &guard);
    if (a->opts.store)
        store_numbers(a->opts.store, &store);
    if (a->media)
        media_numbers(a->media, &media);
    s->facts.prep_waiting = prep.count;
    s->facts.orphans = holders.orphans;
    s->facts.stage = (uint32_t)guard.stage;
    s->facts.media_waiting = media.waiting;
    s->facts.ssd_off = a->opts.store && store.state == STORE_OFF;
    s->facts.counters[ATTENTION_LOADS_REFUSED] = guard.rooms_refused;
    s->facts.counters[ATTENTION_SSD_ERRORS] = store.errors;
}

static void read_http(struct api *a, struct sample *s)
{
    struct http_counters c = {0};
    if (a->server)
        c = http_server_counters(a->server);
    s->facts.counters[ATTENTION_REFUSED_429] = c.refused[REFUSED_OF(429)];
    s->facts.counters[ATTENTION_REFUSED_401] = c.refused[REFUSED_OF(401)];
    for (uint32_t i = 0; i < HTTP_REFUSED_STATUSES; i++)
        s->counters.refused += c.refused[i];
}

/* ---- rates ---- */

static const struct counters *second_before(const struct figures *f, uint64_t back)
{
    uint64_t there = MIN_OF(f->second_count, (uint64_t)SECONDS);
    return there == 0 ? NULL : &f->seconds[(f->second_count - 1 - MIN_OF(back, there - 1)) % SECONDS];
}

static double rate(uint64_t before, uint64_t after, uint64_t ns)
{
    return after > before && ns > 0 ? (double)(after - before) * (double)NS_PER_S / (double)ns : 0;
}

static void fill_rates(const struct figures *f, struct sample *s)
{
    const struct counters *before = second_before(f, 0), *now = &s->counters;
    uint64_t first = 0;
    s->values[HISTORY_GENERATED] = s->values[HISTORY_PREFILLED] = NAN;
    s->values[HISTORY_CACHED] = s->values[HISTORY_REFUSED] = s->values[HISTORY_FIRST_TOKEN] = NAN;
    if (!before)
        return;
    uint64_t ns = now->at_ns - before->at_ns;
    s->values[HISTORY_GENERATED] = (float)rate(before->generated, now->generated, ns);
    s->values[HISTORY_CACHED] = (float)rate(before->cached, now->cached, ns);
    s->values[HISTORY_PREFILLED] =
        (float)rate(before->prompt - before->cached, now->prompt - now->cached, ns);
    s->values[HISTORY_REFUSED] = (float)rate(before->refused, now->refused, ns);
    for (uint32_t b = 0; b < BUCKETS; b++)
        first += s->first.counts[b] - f->now.counts[b];
    if (first > 0)
        s->values[HISTORY_FIRST_TOKEN] = (float)((s->first_sum - f->first_sum) / (double)first);
}

/* Interpolates a quantile like Prometheus' histogram_quantile(): linear within the bucket; the largest bound
 * beyond it. */
static double quantile(const struct figures *f, const uint64_t counts[BUCKETS], uint64_t total, double q)
{
    double rank = q * (double)total, below = 0;
    for (uint32_t b = 0; b < f->bound_count; b++) {
        if (below + (double)counts[b] >= rank && counts[b] > 0) {
            double low = b > 0 ? f->bounds[b - 1] : 0;
            return low + (f->bounds[b] - low) * (rank - below) / (double)counts[b];
        }
        below += (double)counts[b];
    }
    return f->bounds[f->bound_count - 1];
}

void figures_rates(const struct figures *f, struct figures_rates *ret)
{
    const struct counters *before = second_before(f, SECONDS - 1), *now = second_before(f, 0);
    uint64_t counts[BUCKETS], total = 0;
    *ret = (struct figures_rates){.first_token_p50 = NAN, .first_token_p95 = NAN};
    if (!before)
        return;
    uint64_t ns = now->at_ns - before->at_ns;
    ret->generated = rate(before->generated, now->generated, ns);
    ret->cached = rate(before->cached, now->cached, ns);
    ret->prefilled = rate(before->prompt - before->cached, now->prompt - now->cached, ns);
    uint64_t there = MIN_OF(f->span_count, (uint64_t)SPANS);
    const struct first_tokens *oldest = &f->spans[(f->span_count - there) % SPANS];
    for (uint32_t b = 0; b < BUCKETS; b++) {
        counts[b] = f->now.counts[b] - (there > 0 ? oldest->counts[b] : 0);
        total += counts[b];
    }
    ret->first_tokens = total;
    if (total == 0)
        return;
    ret->first_token_p50 = quantile(f, counts, total, 0.5);
    ret->first_token_p95 = quantile(f, counts, total, 0.95);
}

/* ---- the sample ---- */

static void keep(struct figures *f, const struct sample *s, uint64_t now_ns)
{
    f->seconds[f->second_count++ % SECONDS] = s->counters;
    f->now = s->first;
    f->now.at_ns = now_ns;
    f->first_sum = s->first_sum;
    const struct first_tokens *last = &f->spans[(f->span_count + SPANS - 1) % SPANS];
    if (f->span_count == 0 || now_ns >= last->at_ns + SPAN_NS)
        f->spans[f->span_count++ % SPANS] = f->now;
}

void figures_tick(struct figures *f, struct api *a, uint64_t now_ns)
{
    struct sample s = {.counters = {.at_ns = now_ns}};
    struct figures_rates rates;
    if (!f || f->sampled_s == now_ns / NS_PER_S + 1)
        return;
    f->sampled_s = now_ns / NS_PER_S + 1;
    read_models(a, f, &s);
    read_memory(a, &s);
    read_services(a, &s);
    read_http(a, &s);
    fill_rates(f, &s);
    keep(f, &s, now_ns);
    history_add(f->history, now_ns, s.values);
    figures_rates(f, &rates);
    s.facts.first_token_s = rates.first_token_p95;
    attention_update(&f->attention, now_ns, &s.facts);
}
