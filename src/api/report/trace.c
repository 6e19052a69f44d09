/* trace.c - records in no order, found by their numbers.
 *
 * A number is the time of the end in microseconds since the server's start, so that it tells a tenant nothing
 * about how many requests others have sent. */
#include "api/report/trace.h"

#include "api/access/line_limit.h"
#include "api/reject_http.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "gen/reject.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define PERIOD_NS (60 * NS_PER_S)
#define OTHERS    UINT64_MAX /* a tenant that no key and no address is */

struct slot {
    struct trace_record record;
    uint32_t of_tenant; /* records of the same tenant, this one included */
    uint32_t period;    /* interval of the limit in which the record came */
};

struct trace {
    struct account *account;
    uint64_t started_ns, period_ns; /* period: when the limit's period began */
    uint64_t last;                  /* the newest number */
    uint32_t count, periods;
    struct line_limit limit;
    struct slot slots[TRACE_RECORDS];
};

_Static_assert(sizeof(struct trace) <= 200 << 10, "trace.h says how many bytes it takes");

const char *trace_phase_name(enum trace_phase p)
{
    static const char *const names[] = {"receiving", "preparing",  "media",    "loading",
                                        "queued",    "prefilling", "decoding", "sending"};
    _Static_assert(COUNT_OF(names) == TRACE_PHASES, "a name for each phase");
    ASSERT((size_t)p < COUNT_OF(names));
    return names[p];
}

void trace_turn_to(struct trace_clock *c, enum trace_phase phase, uint64_t now_ns)
{
    if (c->since_ns > 0 && now_ns > c->since_ns)
        c->ns[c->phase] += now_ns - c->since_ns;
    c->phase = phase;
    c->since_ns = now_ns;
}

/* ---- memory ---- */

size_t trace_bytes(void)
{
    return (sizeof(struct trace) + 4095) / 4096 * 4096;
}

int trace_create(struct account *account, struct trace **ret)
{
    struct charge charge = account_charge(account);
    int r = charge_take(&charge, trace_bytes());
    if (r < 0)
        return r;
    /* Resident from the start, as the account says, and apart from the heap. */
    struct trace *t =
        mmap(NULL, trace_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (t == MAP_FAILED) {
        charge_give(&charge, trace_bytes());
        return -ENOMEM;
    }
    t->account = account;
    t->started_ns = clock_now_ns();
    *ret = t;
    return 0;
}

void trace_free(struct trace *t)
{
    if (!t)
        return;
    struct charge charge = account_charge(t->account);
    munmap(t, trace_bytes());
    charge_give(&charge, trace_bytes());
}

/* ---- records ---- */

/* The oldest record of the tenant that has most. */
static struct slot *find_victim(struct trace *t)
{
    struct slot *found = &t->slots[0];
    for (uint32_t i = 1; i < t->count; i++) {
        struct slot *s = &t->slots[i];
        if (s->of_tenant > found->of_tenant ||
            (s->of_tenant == found->of_tenant && s->record.number < found->record.number))
            found = s;
    }
    return found;
}

/* Each record of the tenant knows how many there are. Returns that. */
static uint32_t count_tenant(struct trace *t, uint64_t tenant, int change)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->count; i++)
        if (t->slots[i].record.tenant == tenant)
            count = t->slots[i].of_tenant = (uint32_t)((int)t->slots[i].of_tenant + change);
    return count;
}

static void set_number(struct trace *t, struct slot *s, uint64_t now_ns)
{
    t->last = MAX_OF(t->last + 1, (now_ns - t->started_ns) / 1000);
    s->record.number = t->last;
    s->period = t->periods;
}

void trace_add(struct trace *t, const struct trace_record *r, uint64_t now_ns)
{
    struct slot *s;
    if (!t)
        return;
    if (t->count < TRACE_RECORDS) {
        s = &t->slots[t->count];
    } else {
        s = find_victim(t);
        count_tenant(t, s->record.tenant, -1);
        s->record.tenant = ~r->tenant;
    }
    uint32_t others = count_tenant(t, r->tenant, 1);
    t->count = MAX_OF(t->count, (uint32_t)(s - t->slots) + 1);
    s->record = *r;
    s->of_tenant = MAX_OF(others, (uint32_t)1);
    set_number(t, s, now_ns);
    s->record.first = s->record.number;
    ASSERT(s->of_tenant <= t->count && t->count <= TRACE_RECORDS);
}

const struct trace_record *trace_next(const struct trace *t, uint64_t after, const uint64_t *tenant)
{
    const struct trace_record *found = NULL;
    for (uint32_t i = 0; t && i < t->count; i++) {
        const struct trace_record *r = &t->slots[i].record;
        if (r->number > after && (!tenant || r->tenant == *tenant) && (!found || r->number < found->number))
            found = r;
    }
    return found;
}

uint64_t trace_last(const struct trace *t, const uint64_t *tenant)
{
    uint64_t last = 0;
    for (uint32_t i = 0; t && i < t->count; i++)
        if (!tenant || t->slots[i].record.tenant == *tenant)
            last = MAX_OF(last, t->slots[i].record.number);
    return last;
}

/* ---- refusals ---- */

/* The JSON parser quotes what stands at the fault, which may be a prompt's text: only the place is kept. */
static void drop_quote(char *message)
{
    char *quote = strstr(message, " near '"), *place = strrchr(message, '(');
    if (quote && place && place > quote)
        memmove(quote + 1, place, strlen(place) + 1);
}

void trace_refusal_of(struct trace_refusal *ret, unsigned status, const struct reject *why)
{
    struct reject copy = *why;
    *ret = (struct trace_refusal){.status = status, .code = reject_code(why)};
    if (why->kind == REJECT_INVALID_JSON)
        drop_quote(copy.message);
    snprintf(ret->param, sizeof(ret->param), "%s", copy.param);
    snprintf(ret->message, sizeof(ret->message), "%s", copy.message);
}

/* A text of a client stands between quotes in the log: it ends none, and has printable ASCII alone. */
static const char *quoted(const char *text, char *ret, size_t bytes_max)
{
    snprintf(ret, bytes_max, "%s", text);
    for (char *c = ret; *c; c++)
        if (*c == '"' || *c == '\\')
            *c = '\'';
        else if (*c < ' ' || *c > '~')
            *c = '?';
    return ret;
}

static void log_refusal(const struct trace_record *r, const char *model)
{
    char param[sizeof(r->refusal.param)], message[TRACE_MESSAGE_BYTES];
    LOG_INFO("request_refused",
             "id=%s key=%s client=%s action=\"%s\" model=%s status=%u code=%s param=\"%s\" message=\"%s\" "
             "client_id=%s traceparent=%s",
             r->id[0] ? r->id : "-", r->who.key, r->who.client, r->who.action, model ? model : "-",
             r->refusal.status, r->refusal.code ? r->refusal.code : "-",
             quoted(r->refusal.param, param, sizeof(param)),
             quoted(r->refusal.message, message, sizeof(message)), client_ids_logged(r->given.request),
             client_ids_logged(r->given.trace));
}

/* The record of this period that counts such refusals; NULL: there is none. */
static struct slot *find_untold(struct trace *t, uint64_t tenant)
{
    for (uint32_t i = 0; i < t->count; i++) {
        struct slot *s = &t->slots[i];
        if (s->record.untold > 0 && s->record.tenant == tenant && s->period == t->periods)
            return s;
    }
    return NULL;
}

/* Clients without a place in the limit's table share a record, which no tenant sees. */
static void count_untold(struct trace *t, const struct trace_record *last, uint64_t now_ns)
{
    struct trace_record r = *last;
    bool others;
    r.untold = line_limit_untold(&t->limit, r.tenant, &others);
    if (others) {
        r.tenant = OTHERS;
        snprintf(r.who.key, sizeof(r.who.key), "-");
        snprintf(r.who.client, sizeof(r.who.client), "others");
    }
    struct slot *s = find_untold(t, r.tenant);
    if (!s) {
        trace_add(t, &r, now_ns);
        return;
    }
    r.first = s->record.first;
    s->record = r;
    set_number(t, s, now_ns);
}

void trace_refused(struct trace *t, const struct trace_record *r, const char *model, uint64_t now_ns)
{
    char name[LINE_LIMIT_NAME_BYTES];
    bool owned = strcmp(r->who.key, "-") != 0;
    ASSERT(r->refusal.status > 0);
    if (!t)
        return;
    snprintf(name, sizeof(name), owned ? "key=%s" : "client=%s", owned ? r->who.key : r->who.client);
    if (!line_limit_take(&t->limit, r->tenant, name)) {
        count_untold(t, r, now_ns);
        return;
    }
    /* A request without its key has the line of audit_refused(). */
    if (r->refusal.status != 401)
        log_refusal(r, model);
    trace_add(t, r, now_ns);
}

static void tell_untold(void *arg, const char *name, uint32_t untold)
{
    (void)arg;
    LOG_INFO("refusals_untold", "%s requests=%u", name ? name : "client=others", untold);
}

void trace_tick(struct trace *t, uint64_t now_ns)
{
    if (!t || now_ns < t->period_ns + PERIOD_NS)
        return;
    line_limit_end(&t->limit, tell_untold, NULL);
    t->period_ns = now_ns;
    t->periods++;
}
