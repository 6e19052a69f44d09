/* cache_miss.c - joins a turn's parts and tokens, the engine's count, and its record of the eviction.
 *
 * Pages that both turns have and that were not found were evicted, whatever else differs. A model with
 * recurrent layers finds no more than a snapshot, so there only a record of the cache says it, or that all
 * parts are the same. */
#include "api/turns/cache_miss.h"

#include "api/api_state.h"
#include "api/exchange.h"
#include "api/turns/prompt_parts.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/json/json_out.h"
#include "base/page_tokens.h"
#include "cache/prefix_losses.h"
#include "gen/choice.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SLACK_PAGES 2
#define RECENT_NS   (1800 * NS_PER_S) /* a conversation that rests for longer is not missed */

static const char *const causes[] = {[PREFIX_LOSS_NONE] = "unrecorded", [PREFIX_LOSS_PAGES] = "pages",
                                     [PREFIX_LOSS_LIMIT] = "limit",     [PREFIX_LOSS_SHARE] = "other_caches",
                                     [PREFIX_LOSS_MODEL] = "model",     [PREFIX_LOSS_PRESSURE] = "pressure",
                                     [PREFIX_LOSS_IMAGES] = "images",   [PREFIX_LOSS_CLEARED] = "cleared"};

static uint32_t seconds_since(uint64_t at_ns)
{
    uint64_t now_ns = clock_now_ns();
    return now_ns > at_ns ? (uint32_t)((now_ns - at_ns) / NS_PER_S) : 0;
}

/* ---- evictions ---- */

/* The cache's own record, if it is later than the turn before. */
static bool find_record(const struct exchange *x, const struct stream_lost *l, struct cache_miss *ret)
{
    if (l->cause == PREFIX_LOSS_NONE || l->at_ns < x->compared->loss.before_ns)
        return false;
    ret->cause = causes[l->cause];
    ret->seconds = seconds_since(l->at_ns);
    if (l->cause == PREFIX_LOSS_PAGES || l->cause == PREFIX_LOSS_LIMIT)
        snprintf(ret->whom, sizeof(ret->whom), "%s", l->whom == x->gen.tenant ? "own" : "another_tenant");
    for (uint32_t i = 0; l->cause == PREFIX_LOSS_MODEL && i < api_model_count(x->api); i++) {
        const char *id = api_model_id(x->api, i);
        if (hash_bytes(id, strlen(id)) == l->whom)
            snprintf(ret->whom, sizeof(ret->whom), "%s", id);
    }
    return true;
}

/* The model was unloaded after the turn before, and its cache with it. */
static bool find_unload(const struct exchange *x, struct cache_miss *ret)
{
    struct registry_info info;
    registry_info(x->api->opts.registry, (uint32_t)x->model_index, &info);
    if (info.unloads == 0 || info.unloaded_ns > clock_now_ns() - x->compared->loss.before_ns)
        return false;
    ret->cause = "unload";
    ret->seconds = (uint32_t)(info.unloaded_ns / NS_PER_S);
    snprintf(ret->whom, sizeof(ret->whom), "%s", info.unloaded_for ? info.unloaded_for : "");
    return true;
}

/* ---- the answer ---- */

static uint32_t less(uint32_t a, uint32_t b)
{
    return a > b ? a - b : 0;
}

static void find_unknown(const struct prompt_compared *c, uint32_t cached, struct cache_miss *ret)
{
    bool recent = clock_now_ns() - c->loss.since_ns < RECENT_NS;
    if (!c->turn.replied || !recent || cached + SLACK_PAGES * PAGE_TOKENS >= c->earlier_tokens)
        return;
    ret->lost_tokens = less(c->earlier_tokens, cached);
    if (c->loss.begins_anew) {
        snprintf(ret->part, sizeof(ret->part), "messages[%u]", c->turn.skipped);
        ret->side = "client";
        return;
    }
    snprintf(ret->part, sizeof(ret->part), "unknown");
    ret->cause = c->loss.displaced ? "displaced" : "restart";
    ret->seconds = seconds_since(c->loss.since_ns);
}

static void find_part(const struct prompt_loss *l, struct cache_miss *ret)
{
    snprintf(ret->part, sizeof(ret->part), "%s", l->part[0] ? l->part : "rendering");
    ret->side = l->part[0] && l->side == PROMPT_SIDE_CLIENT ? "client" : "server";
    snprintf(ret->at, sizeof(ret->at), "%s", l->difference.at);
    ret->character = l->difference.character;
    ret->within = l->difference.within;
}

static void find(const struct exchange *x, uint32_t cached, const struct stream_lost *lost,
                 struct cache_miss *ret)
{
    const struct prompt_loss *l = &x->compared->loss;
    uint32_t slack = SLACK_PAGES * PAGE_TOKENS + (l->stride > PAGE_TOKENS ? l->stride : 0);
    *ret = (struct cache_miss){.part = ""};
    if (!l->known) {
        find_unknown(x->compared, cached, ret);
        return;
    }
    if (cached + slack >= l->before)
        return;
    ret->lost_tokens = less(l->before, cached);
    bool had = cached + slack < l->common, differs = l->part[0] || l->common + slack < l->before;
    bool recorded = had && (find_record(x, lost, ret) || find_unload(x, ret));
    if (!recorded && differs) {
        find_part(l, ret);
        return;
    }
    snprintf(ret->part, sizeof(ret->part), "evicted");
    if (!recorded)
        ret->cause = causes[PREFIX_LOSS_NONE];
}

bool cache_miss_find(const struct exchange *x, struct cache_miss *ret)
{
    struct stream_admission a;
    if (!x->compared || x->gen.choice_count == 0 || !choice_admitted(&x->gen.choices[0], &a))
        return false;
    find(x, a.cached_tokens, &a.lost, ret);
    return true;
}

/* ---- texts ---- */

struct text {
    char *bytes;
    size_t count;
};

static void put(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct text *t, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(t->bytes + t->count, CACHE_MISS_TEXT_BYTES - t->count, format, ap);
    va_end(ap);
    t->count = MIN_OF(t->count + (size_t)MAX_OF(n, 0), (size_t)CACHE_MISS_TEXT_BYTES - 1);
}

/* A model's name is an operator's text. */
static void put_name(struct text *t, const char *name)
{
    put(t, ";for=");
    for (const char *c = name; *c; c++)
        put(t, "%c", isgraph((uint8_t)*c) && !strchr(";,=\"\\", *c) ? *c : '?');
}

void cache_miss_text(const struct cache_miss *m, char ret[CACHE_MISS_TEXT_BYTES])
{
    struct text t = {ret, 0};
    put(&t, "%s", m->part);
    if (!m->part[0])
        return;
    if (m->at[0])
        put(&t, ";at=%s", m->at);
    if (m->within > 0)
        put(&t, ";character=%u;within=%u", m->character, m->within);
    if (m->side)
        put(&t, ";side=%s", m->side);
    if (m->cause)
        put(&t, ";cause=%s", m->cause);
    if (m->whom[0])
        put_name(&t, m->whom);
    if (m->cause)
        put(&t, ";seconds=%u", m->seconds);
    put(&t, ";lost=%u", m->lost_tokens);
}

/* Anthropic's types; the last one is for what is none of the others. */
static const char *type_of(const struct cache_miss *m)
{
    if (strcmp(m->part, "model") == 0)
        return "model_changed";
    if (strcmp(m->part, "system") == 0)
        return "system_changed";
    if (strncmp(m->part, "tools", 5) == 0)
        return "tools_changed";
    if (strncmp(m->part, "messages", 8) == 0)
        return "messages_changed";
    return strcmp(m->part, "unknown") == 0 ? "previous_message_not_found" : "unavailable";
}

static void put_known(struct json_out *j, const char *key, const char *text)
{
    if (text && text[0])
        json_put_string(j, key, text);
}

void cache_miss_write(const struct cache_miss *m, const char *key, struct json_out *j)
{
    if (!m->part[0]) {
        json_put_null(j, key);
        return;
    }
    json_open(j, key);
    json_put_string(j, "type", type_of(m));
    json_put_u64(j, "cache_missed_input_tokens", m->lost_tokens);
    json_put_string(j, "part", m->part);
    put_known(j, "at", m->at);
    if (m->within > 0)
        JSON_PUT_U64S(j, {"character", m->character}, {"within", m->within});
    put_known(j, "side", m->side);
    put_known(j, "cause", m->cause);
    put_known(j, "for", m->whom);
    if (m->cause)
        json_put_u64(j, "seconds", m->seconds);
    json_close(j);
}

static struct cache_miss now_of(const struct exchange *x)
{
    struct cache_miss ret = x->cache_miss;
    (void)cache_miss_find(x, &ret);
    return ret;
}

void cache_miss_write_usage(const struct exchange *x, struct json_out *j)
{
    if (!x->request.include_diagnostics)
        return;
    struct cache_miss m = now_of(x);
    cache_miss_write(&m, "cache_miss_reason", j);
}

/* The client names a message of which there is no record. */
static bool lacks_named(const struct exchange *x)
{
    return x->compared && x->compared->turn.previous && !x->compared->loss.named;
}

void cache_miss_write_diagnostics(const struct exchange *x, struct json_out *j)
{
    struct cache_miss m = now_of(x);
    if (!x->request.diagnoses || (!m.part[0] && !lacks_named(x))) {
        json_put_null(j, "diagnostics");
        return;
    }
    json_open(j, "diagnostics");
    if (lacks_named(x)) {
        json_open(j, "cache_miss_reason");
        json_put_string(j, "type", "previous_message_not_found");
        json_close(j);
    } else {
        cache_miss_write(&m, "cache_miss_reason", j);
    }
    json_close(j);
}
