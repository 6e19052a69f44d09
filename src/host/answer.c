/* answer.c - a typed request from the options, and the loop that takes its parts. The scratch of a prompt is
 * given back before its answer begins: only the engine holds memory then. */
#include "host/answer.h"

#include "host/attach.h"
#include "host/runtime.h"
#include "host/settings.h"

#include "base/clock.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "gen/gen.h"
#include "gen/gen_request.h"
#include "gen/media_prompt.h"
#include "gen/reject.h"
#include "gen/request_memory.h"
#include "registry/model_settings.h"

#include <errno.h>
#include <math.h>

#define ANSWER_BYTES_MAX ((size_t)1 << 30) /* bytes of one question and its scratch */
#define ANSWER_LOOK_NS   (50 * NS_PER_MS)  /* how long a stop may go unseen */

int answerer_init(struct answerer *a, struct runtime *rt, bool (*stopped)(void), struct err *e)
{
    struct charge charge = account_charge(rt->text);
    *a = (struct answerer){.rt = rt, .model = rt->served, .stopped = stopped};
    int r = mailbox_create(&(struct mailbox_opts){4, sizeof(void *), false, &charge}, &a->wake);
    return r < 0 ? err_set(e, r, "no memory for a mailbox") : 0;
}

void answerer_done(struct answerer *a)
{
    mailbox_free(a->wake);
    a->wake = NULL;
}

uint64_t answer_seed(const struct settings *o)
{
    uint64_t seed = o->answer.seed;
    if (seed == 0)
        rng_secret(&seed, sizeof(seed));
    return seed;
}

/* ---- the host of its generation ---- */

static bool refuse_memory(struct gen *g, struct account *account, uint64_t bytes)
{
    (void)account, (void)bytes;
    return reject_set(&g->reject, REJECT_OUT_OF_MEMORY, NULL, "no memory for the prompt");
}

static bool agree(struct gen *g)
{
    (void)g;
    return true;
}

static void give_stream(struct gen *g)
{
    (void)g;
}

static const struct gen_host host = {refuse_memory, agree, agree, give_stream};

/* ---- the request ---- */

/* Sampling of the options, else of the model's own generation_config.json. */
static struct gen_sampling sampling_of(const struct answerer *a, uint64_t seed)
{
    const struct sampling_defaults *given = &a->rt->settings->model.sampling;
    bool samples = a->model.defaults.do_sample;
    return (struct gen_sampling){.temperature = given->temperature >= 0 ? given->temperature
                                                : samples               ? NAN
                                                                        : 0,
                                 .top_p = given->top_p > 0 ? given->top_p : NAN,
                                 .min_p = NAN,
                                 .repetition_penalty = NAN,
                                 .top_k = given->top_k > 0 ? given->top_k : -1,
                                 .has_seed = true,
                                 .seed = (int64_t)seed,
                                 .max_tokens = -1,
                                 .prompt_logprobs = -1};
}

static struct gen_request request_of(const struct answerer *a, const struct question *q)
{
    const struct settings *o = a->rt->settings;
    return (struct gen_request){.messages = q->messages,
                                .add_generation_prompt = true,
                                .parallel_tool_calls = true,
                                .enable_thinking = q->messages ? o->answer.think : -1,
                                .thinking_budget = -1,
                                .parses = !q->raw,
                                .prompt = q->prompt,
                                .prompt_count = 1,
                                .add_special_tokens = -1,
                                .sampling = sampling_of(a, q->seed),
                                .n = 1,
                                .ignore_eos = o->answer.ignore_eos,
                                .speculative = true,
                                .skip_special_tokens = true};
}

/* A client's sentence, without its full stop. */
static int refused(const struct gen *g, struct err *e)
{
    struct slice text = slice_of(g->reject.message);
    if (g->reject.kind == REJECT_CONTEXT_LENGTH)
        return err_set(e, -E2BIG,
                       "the prompt does not fit: prompt and answer have %u tokens (--max-model-len)",
                       g->model->max_model_len);
    text.len -= text.len > 0 && text.ptr[text.len - 1] == '.';
    return err_set(e, g->reject.kind == REJECT_OUT_OF_MEMORY ? -ENOMEM : -EINVAL, "%.*s", SLICE_ARGS(text));
}

static int prepare(struct gen *g, struct err *e)
{
    struct charge charge = request_memory_charge(&g->memory);
    struct arena *scratch = NULL;
    if (arena_create(&(struct arena_opts){.bytes_max = ANSWER_BYTES_MAX, .charge = &charge}, &scratch) < 0)
        return err_set(e, -ENOMEM, "no memory for a prompt");
    enum prepare r = gen_prepare(g, scratch);
    arena_free(scratch);
    if (r != PREPARE_DONE)
        return refused(g, e);
    gen_drop_ids(g);
    return 0;
}

/* ---- the answer ---- */

/* Parts to the sink until the job is over. */
static void follow(struct answerer *a, struct choice *c)
{
    void *message;
    while (!c->over) {
        mailbox_wait(a->wake, &message, ANSWER_LOOK_NS);
        stream_wake_clear(c->stream);
        if (a->stopped && a->stopped()) {
            stream_close(c->stream);
            engine_wake(a->model.engine);
        }
        choice_take(c, UINT32_MAX);
    }
}

static int check_texts(const struct gen *g, const json_t *messages, struct err *e)
{
    if (g->result_count == 0)
        return 0;
    struct media_marks m = media_marks_of(&g->model->shape->vision, g->model->tokenizer);
    if (!media_prompt_forged(&m, messages))
        return 0;
    return err_set(e, -EINVAL,
                   "a text of the conversation has \"%.*s\" in it, which stands for images in this model's "
                   "prompts",
                   SLICE_ARGS(m.image));
}

int answerer_run(struct answerer *a, const struct question *q, part_sink_fn *sink, void *sink_arg,
                 struct stream_finish *ret, struct err *e)
{
    struct media_result results[ATTACH_MAX];
    struct gen_request request = request_of(a, q);
    uint32_t max_tokens = a->rt->settings->answer.max_tokens;
    struct gen g = {.host = &host,
                    .request = &request,
                    .results = results,
                    .result_count = q->attached ? attach_count(q->messages) : 0,
                    .text = a->rt->text,
                    .wakes = a->wake,
                    .id = request_id_new(),
                    .created_s = (int64_t)clock_wall_s(),
                    .max_tokens_default = max_tokens ? max_tokens : UINT32_MAX,
                    .model = &a->model};
    if (g.result_count > 0)
        attach_results(q->attached, g.result_count, results);
    request_memory_init(&g.memory, a->rt->text, ANSWER_BYTES_MAX);
    int r = check_texts(&g, q->messages, e);
    r = r == 0 ? prepare(&g, e) : r;
    json_decref(request.template_kwargs);
    if (r == 0) {
        struct choice *c = &g.choices[0];
        c->sink = sink;
        c->sink_arg = sink_arg;
        follow(a, c);
        *ret = c->finish;
        if (ret->reason == FINISH_ERROR)
            r = err_set(e, -EIO, "%s", ret->error);
        else if (c->error)
            r = err_set(e, c->error, "no memory for an answer");
    }
    gen_done(&g);
    request_memory_done(&g.memory);
    return r;
}
