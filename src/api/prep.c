/* prep.c - one exchange at a time, from its body to its jobs; `stage` says where it goes on after a wait. */
#include "api/prep.h"

#include "api/api.h"
#include "api/api_state.h"
#include "api/exchange.h"
#include "api/memory_refusal.h"
#include "api/prep_arena.h"
#include "api/prep_queue.h"
#include "api/render.h"
#include "api/reply.h"
#include "api/request/later_tools.h"
#include "api/request/utility_form.h"
#include "api/turns/agent_key.h"
#include "api/turns/prompt_parts.h"
#include "api/utility.h"
#include "api/wait.h"
#include "api/wire/responses_list.h"
#include "api/wire/wire.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/threads/mailbox.h"
#include "base/threads/thread_nice.h"
#include "base/threads/thread_stack.h"
#include "gen/choice.h"
#include "gen/gen.h"
#include "gen/reject.h"
#include "gen/request_memory.h"

#include <errno.h>

static bool out_of_memory(struct exchange *x)
{
    return memory_refusal_of(x->api, &x->gen.memory, &x->gen.reject);
}

static bool parse(struct exchange *x)
{
    const struct request_form *form = x->wire ? &x->wire->form : utility_form(x->kind);
    struct request_limits limits = x->api->limits;
    limits.tenant = x->gen.tenant;
    limits.id = x->id_text;
    bool ok = request_parse(form, buf_slice(&x->body), &limits, &x->gen.memory, &x->request, &x->gen.reject);
    x->request.gen.renders = x->kind == REQUEST_RENDER;
    buf_done(&x->body);
    if (!ok && x->gen.reject.kind == REJECT_BUSY) {
        /* The parser knows the memory of its request only, not that of other requests. */
        x->gen.reject = (struct reject){0};
        return out_of_memory(x);
    }
    return ok;
}

/* The rest of a request whose model and images are here. */
static bool answer(struct exchange *x, struct arena *scratch)
{
    switch (x->kind) {
    case REQUEST_TOKENIZE:
        return utility_tokenize(x, scratch);
    case REQUEST_COUNT_TOKENS:
    case REQUEST_INPUT_TOKENS:
        return utility_count_tokens(x, scratch);
    case REQUEST_DETOKENIZE:
        return utility_detokenize(x);
    case REQUEST_TEMPLATE:
        return utility_template(x, scratch);
    case REQUEST_RENDER:
        return render_write(x);
    default:
        break;
    }
    if (x->compared) {
        const struct prompt_ids *p = &x->gen.prompts[0];
        prompt_turn_tokens(&x->compared->turn, p->ids, p->count);
        prompt_parts_match(x->api->parts, &x->compared->turn, p->ids, &x->compared->loss);
        /* The last cut is the end of the last message, the one before it that of the turn before. */
        x->compared->earlier_tokens = p->cut_count > 1 ? p->cuts[p->cut_count - 2] : 0;
    }
    for (uint32_t i = 0; i < x->gen.choice_count; i++) {
        reply_init(&x->replies[i], x, &x->gen.choices[i],
                   x->own ? (char *)x->own + i * x->wire->own_bytes : NULL);
        if (x->wire->open)
            x->wire->open(&x->replies[i]);
    }
    if (!x->request.return_token_ids && x->request.gen.output == GEN_TOKENS)
        gen_drop_ids(&x->gen);
    return true;
}

static uint32_t max_tokens_default(const struct exchange *x)
{
    uint32_t own = x->gen.model->max_tokens_default;
    return own ? own : atomic_load(&x->api->max_tokens_default);
}

/* Tools that came after the conversation's first turn leave the head of its prompt as it was. */
static bool place_later_tools(struct exchange *x)
{
    if (x->kind != REQUEST_GENERATE && x->kind != REQUEST_COUNT_TOKENS && x->kind != REQUEST_INPUT_TOKENS &&
        x->kind != REQUEST_RENDER)
        return true;
    struct later_tools_opts opts = {.conversations = x->api->conversations,
                                    .tenant = x->gen.tenant,
                                    .model = x->gen.model->id,
                                    .keeps = x->kind == REQUEST_GENERATE};
    return later_tools_insert(&x->request, &opts, &x->gen.memory, x->arrived_ns) || out_of_memory(x);
}

/* Returns the hash of the request's id in a reply's id, "msg_..."; 0 without one. */
static uint64_t previous_of(const char *id)
{
    const char *at = id ? strchr(id, '_') : NULL;
    return at ? hash_bytes(at + 1, strlen(at + 1)) : id ? 1 : 0;
}

/* The parts of a conversation's prompt, while its messages are there. */
static bool read_parts(struct exchange *x)
{
    if (!x->api->parts || x->kind != REQUEST_GENERATE || !x->request.gen.messages)
        return true;
    ASSERT(!x->compared);
    x->compared = request_memory_alloc(&x->gen.memory, sizeof(*x->compared));
    if (!x->compared)
        return out_of_memory(x);
    struct prompt_turn *t = &x->compared->turn;
    prompt_turn_read(&x->request.gen, x->gen.tenant, x->gen.model->id, t);
    t->id = hash_bytes(x->id_text, strlen(x->id_text));
    t->previous = previous_of(x->request.previous_message);
    prompt_parts_compare(x->api->parts, t, &x->request.gen, &x->compared->loss);
    return true;
}

/* ---- one exchange ---- */

static enum prepare work(struct exchange *x, struct arena *scratch)
{
    enum prepare r = PREPARE_REFUSED;
    if (atomic_load(&x->cancelled)) {
        reject_unwanted(&x->gen.reject, -ECANCELED);
        return PREPARE_REFUSED;
    }
    switch (x->stage) {
    case EXCHANGE_AT_BODY:
        if (x->kind == REQUEST_ITEMS)
            return responses_list_write(x) ? PREPARE_DONE : PREPARE_REFUSED;
        if (!parse(x))
            return PREPARE_REFUSED;
        x->stage = EXCHANGE_AT_MODEL;
        if (request_reclaims(x->kind))
            return utility_reclaim(x) ? PREPARE_DONE : PREPARE_REFUSED;
        if (x->kind == REQUEST_LOAD || x->kind == REQUEST_UNLOAD)
            return wait_order(x);
        /* fall through */
    case EXCHANGE_AT_MODEL:
        r = wait_find_model(x);
        if (r != PREPARE_DONE)
            return r;
        x->gen.max_tokens_default = max_tokens_default(x);
        x->request.gen.agent = agent_key_find(x);
        if (!sessions_check(x) || !place_later_tools(x) || !read_parts(x))
            return PREPARE_REFUSED;
        x->stage = EXCHANGE_AT_GEN;
        /* fall through */
    case EXCHANGE_AT_GEN:
        r = gen_prepare(&x->gen, scratch);
        x->waits = r != PREPARE_WAITS               ? WAIT_NONE
                   : x->gen.stage == GEN_AT_GRAMMAR ? WAIT_GRAMMAR
                                                    : WAIT_IMAGES;
    }
    if (r != PREPARE_DONE)
        return r;
    return answer(x, scratch) ? PREPARE_DONE : PREPARE_REFUSED;
}

/* Drops a reply that the refused request has begun. Some refusals of a stream are events; without memory for
 * these it is an HTTP error. */
static void write_refusal(struct exchange *x)
{
    if (x->gen.reject.kind == REJECT_NONE || x->waits)
        return;
    buf_clear(&x->reply);
    if (x->kind == REQUEST_GENERATE && x->wire->refuse && x->request.stream)
        x->wire->refuse(x, &x->gen.reject, &x->reply);
    if (x->reply.error || x->reply.len == 0)
        buf_done(&x->reply);
}

/* Frees the memory of a refused request here, where its destruction delays no other request. */
static void drop_refused(struct exchange *x)
{
    if (x->gen.reject.kind == REJECT_NONE || x->gen.choice_count > 0 || x->waits)
        return;
    buf_done(&x->body);
    request_drop_all(&x->request);
    if (wanted_check(&x->gen.wanted) < 0)
        atomic_fetch_add(&x->api->prep_stopped, 1);
}

/* Prepares one exchange. Afterwards its reject has an error, or x->reply is written, or its choices are with
 * the engine, or it waits. */
static void work_on(struct exchange *x)
{
    struct prep_arena scratch;
    x->gen.wanted.deadline_ns = clock_now_ns() + REJECT_PREPARATION_S * NS_PER_S;
    x->gen.memory.still = &x->gen.wanted;
    if (prep_arena_open(&scratch, &x->api->prep_arena_bytes, &x->gen.memory) < 0)
        out_of_memory(x);
    else
        work(x, scratch.arena);
    prep_arena_close(&scratch);
    write_refusal(x);
    drop_refused(x);
    x->gen.memory.still = NULL;
}

/* ---- threads ---- */

uint32_t prep_threads(const struct api_opts *opts)
{
    return opts->prep_threads + PREP_LANES - 1;
}

void prep_put(struct exchange *x, size_t bytes)
{
    /* An order may run for seconds: it does not go to the lane of short texts. */
    if (request_reclaims(x->kind))
        bytes = MAX_OF(bytes, PREP_SHORT_BYTES);
    x->phase = EXCHANGE_PREPARING;
    x->entry.bytes = bytes;
    x->entry.fair.tenant = x->gen.tenant;
    prep_queue_put(&x->api->to_prepare, &x->entry, clock_now_ns());
}

static void run_lane(struct api *a, enum prep_lane lane)
{
    struct prep_entry *e;
    while ((e = prep_queue_wait(&a->to_prepare, lane))) {
        struct exchange *x = CONTAINER(e, struct exchange, entry);
        uint64_t tenant = e->fair.tenant, began_ns = clock_thread_ns();
        size_t bytes = e->bytes;
        atomic_fetch_sub(&a->prep_queue_bytes, x->body.len);
        work_on(x);
        prep_queue_took(&a->to_prepare, tenant, bytes, clock_thread_ns() - began_ns);
        /* It has room: its capacity is the limit on requests. */
        ASSERT(mailbox_put(a->prepared, &x) == 0);
    }
}

static void *run_short(void *arg)
{
    run_lane(arg, PREP_SHORT);
    return NULL;
}

static void *run_medium(void *arg)
{
    thread_nice(5);
    run_lane(arg, PREP_MEDIUM);
    return NULL;
}

static void *run_long(void *arg)
{
    thread_nice(10);
    run_lane(arg, PREP_LONG);
    return NULL;
}

int prep_start(struct api *a)
{
    static void *(*const mains[PREP_LANES])(void *) = {run_short, run_medium, run_long};
    struct charge charge = account_charge(a->opts.threads ? a->opts.threads : a->opts.text);
    int r = 0;
    while (r == 0 && a->thread_count < prep_threads(&a->opts)) {
        uint32_t i = a->thread_count;
        enum prep_lane lane = MIN_OF(i, (uint32_t)PREP_LONG);
        r = thread_stack_init(&a->stacks[i], PREP_STACK_BYTES, &charge);
        if (r == 0)
            r = thread_stack_start(&a->stacks[i], mains[lane], a, &a->threads[i]);
        if (r < 0) {
            thread_stack_done(&a->stacks[i]);
            return r;
        }
        pthread_setname_np(a->threads[a->thread_count++], "prep");
    }
    return r;
}

void prep_stop(struct api *a)
{
    prep_queue_close(&a->to_prepare);
    while (a->thread_count > 0) {
        pthread_join(a->threads[--a->thread_count], NULL);
        thread_stack_done(&a->stacks[a->thread_count]);
    }
}
