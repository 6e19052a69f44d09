/* memory_refusal.c - the numbers are read after the fact, so they may have changed already: they explain,
 * nothing is decided by them but whether waiting can help. */
#include "api/memory_refusal.h"

#include "api/api_state.h"

#include "base/check.h"
#include "base/slice.h"
#include "engine/engine.h"
#include "engine/engine_numbers.h"
#include "gen/reject.h"
#include "gen/request_memory.h"
#include "memory/domain.h"
#include "memory/ledger.h"
#include "reclaim/guard.h"
#include "registry/registry.h"

#include <ctype.h>
#include <string.h>

/* The memory of one domain. */
struct scene {
    struct api *api;
    const struct domain *domain;
    char holder_bytes[DOMAIN_HOLDER_BYTES];
    const char *holder; /* "the server", or which device */
    uint32_t depth;     /* depth of the domain's root account */
    uint64_t process_bytes, ceiling_bytes;
    uint64_t models_bytes;   /* bytes of all models, their pools and jobs included */
    uint64_t freeable_bytes; /* bytes of caches, and of units that wait for a trim */
};

static void see_account(void *arg, const struct account_numbers *n)
{
    struct scene *s = arg;
    if (n->domain != s->domain)
        return;
    if (n->is_root) {
        s->depth = n->depth;
        s->process_bytes = n->reserved;
        s->ceiling_bytes = n->limit;
    }
    for (uint32_t i = 0; n->depth == s->depth + 1 && i < api_model_count(s->api); i++)
        if (strncmp(n->name, api_model_id(s->api, i), ACCOUNT_NAME_MAX - 1) == 0)
            s->models_bytes += n->reserved;
}

static struct scene look(struct api *a, const struct domain *domain)
{
    struct scene s = {.api = a, .domain = domain};
    s.holder = domain_holder(domain, s.holder_bytes);
    ledger_walk(a->opts.ledger, see_account, &s);
    for (uint32_t i = 0; i < api_model_count(a); i++) {
        struct engine_numbers n;
        api_engine_numbers(a, i, &n);
        if (n.domain == domain)
            s.freeable_bytes += n.cache_bytes + n.pending_trim_bytes;
    }
    return s;
}

uint32_t memory_refusal_retry_s(struct api *a)
{
    uint32_t longest = 1;
    struct model_lease look;
    for (uint32_t i = 0; i < api_model_count(a); i++) {
        if (registry_peek(a->opts.registry, i, &look) < 0)
            continue;
        longest = MAX_OF(longest, engine_retry_after_s(look.model->engine));
        registry_release_peek(&look);
    }
    return longest;
}

static bool busy(struct api *a, const struct account_numbers *binding, uint64_t bytes, struct reject *why)
{
    why->retry_after_s = memory_refusal_retry_s(a);
    return reject_set(why, REJECT_BUSY, NULL,
                      "Other requests use the memory that this request needs: %llu bytes more were refused "
                      "while the account %s held %llu of %llu. Try again in %u s.",
                      (ull)bytes, binding->name, (ull)binding->reserved, (ull)binding->limit,
                      why->retry_after_s);
}

/* The system refused although the ledger did not. */
static bool refuse_by_system(struct api *a, struct reject *why)
{
    struct scene s = look(a, domain_machine());
    return reject_set(why, REJECT_OUT_OF_MEMORY, NULL,
                      "The operating system refused memory: the server holds %llu bytes, %llu of them for "
                      "models. Add memory to the machine, or lower --memory-limit.",
                      (ull)s.process_bytes, (ull)s.models_bytes);
}

bool memory_refusal(struct api *a, struct account *at, uint64_t bytes, uint32_t others, struct reject *why)
{
    struct account_numbers binding = account_numbers(at);
    struct scene s = look(a, account_domain(at));
    bool full = account_refuses(at, bytes, &binding);
    /* Each holds something, and will end; or it has ended since, and there is room again. */
    if (others > 0 || !full)
        return busy(a, &binding, bytes, why);
    if (full && binding.domain != s.domain)
        s = look(a, binding.domain);
    if (binding.is_root && s.freeable_bytes > 0) {
        api_reclaim(a);
        return busy(a, &binding, bytes, why);
    }
    return reject_set(
        why, REJECT_OUT_OF_MEMORY, NULL,
        "There is not enough memory for this request, and no other request is running that would release "
        "any: the account %s would hold %llu bytes, and its limit is %llu. %c%s holds %llu of %llu "
        "bytes, %llu of them for models; caches could release %llu. Ask for less, or raise %s.",
        binding.name, (ull)(binding.reserved + bytes), (ull)binding.limit, toupper(s.holder[0]), s.holder + 1,
        (ull)s.process_bytes, (ull)s.ceiling_bytes, (ull)s.models_bytes, (ull)s.freeable_bytes,
        domain_limit_option(s.domain));
}

bool memory_refusal_of(struct api *a, const struct request_memory *m, struct reject *why)
{
    uint32_t others = atomic_load(&a->requests_now) - 1;
    if (m->too_large || !m->account)
        return request_memory_reject(m, why);
    if (!m->refused && others == 0)
        return refuse_by_system(a, why);
    return memory_refusal(a, m->account, m->wanted + m->spare, others, why);
}

bool memory_refusal_by_guard(struct api *a, struct reject *why)
{
    struct err e = {""};
    if (!a->opts.guard || !guard_refuses_work(a->opts.guard, &e, &why->retry_after_s))
        return false;
    reject_set(why, REJECT_MEMORY_SHORT, NULL, "%s", e.text);
    return true;
}
