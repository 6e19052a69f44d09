/* answer.c - the scratch of a prompt is given back before its answer begins: only the engine holds memory
 * then. */
#include "cli/answer.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "text/detok.h"

#include <errno.h>

#define ANSWER_SCRATCH_BYTES ((size_t)1 << 30) /* address space */
#define ANSWER_LOOK_NS       (50 * NS_PER_MS)  /* how long an interrupt may go unseen */
#define ANSWER_TEXT_MAX      ((size_t)1 << 20) /* bytes taken from the stream at once */

int answerer_init(struct answerer *a, struct runtime *rt, struct err *e)
{
    struct charge charge = account_charge(rt->text);
    *a = (struct answerer){.rt = rt};
    buf_init(&a->rendered, ANSWER_PROMPT_BYTES_MAX, &charge);
    int r = mailbox_create(&(struct mailbox_opts){4, sizeof(void *), false, &charge}, &a->wake);
    return r < 0 ? err_set(e, r, "no memory for a mailbox") : 0;
}

static void drop_scratch(struct answerer *a)
{
    arena_free(a->scratch);
    a->scratch = NULL;
    a->ids = NULL;
    a->images = NULL;
    a->count = a->image_count = 0;
}

void answerer_done(struct answerer *a)
{
    drop_scratch(a);
    mailbox_free(a->wake);
    buf_done(&a->rendered);
    a->wake = NULL;
}

/* --- messages to tokens --- */

static int begin_prompt(struct answerer *a, struct err *e)
{
    struct charge charge = account_charge(a->rt->text);
    drop_scratch(a);
    buf_clear(&a->rendered);
    int r = arena_create(&(struct arena_opts){ANSWER_SCRATCH_BYTES, 0, &charge}, &a->scratch);
    return r < 0 ? err_set(e, r, "no memory for a prompt") : 0;
}

static int too_long(const struct answerer *a, struct err *e)
{
    return err_set(e, -E2BIG, "the prompt does not fit: prompt and answer have %u tokens (--max-model-len)",
                   a->rt->planning.plan.max_model_len);
}

static int encode(struct answerer *a, bool raw, struct err *e)
{
    uint32_t max = a->rt->planning.plan.max_model_len;
    if (a->rendered.error)
        return err_set(e, a->rendered.error, "the prompt is longer than %zu bytes", ANSWER_PROMPT_BYTES_MAX);
    a->ids = ARENA_ARRAY(a->scratch, uint32_t, max);
    if (!a->ids)
        return err_set(e, -ENOMEM, "no memory for the prompt's tokens");
    int r = tokenizer_encode(a->rt->served.tokenizer, a->scratch, buf_slice(&a->rendered),
                             &(struct tokenizer_opts){.added_tokens = true, .add_special = raw}, a->ids, max,
                             &a->count, e);
    if (r == -E2BIG || (r == 0 && a->count >= max))
        return too_long(a, e);
    return r == 0 && a->count == 0 ? err_set(e, -EINVAL, "the prompt is empty") : r;
}

/* --- images --- */

static int refused(const struct reject *why, struct err *e)
{
    return err_set(e, -EINVAL, "%s", why->message);
}

/* The text with videos written out. */
static int place_text(struct answerer *a, const struct media_marks *m, const struct media_places *places,
                      struct err *e)
{
    struct charge charge = account_charge(a->rt->text);
    struct reject why = {0};
    struct buf written;
    buf_init(&written, ANSWER_PROMPT_BYTES_MAX, &charge);
    bool ok = media_prompt_text(m, places, buf_slice(&a->rendered), NULL, &written, &why);
    buf_done(ok ? &a->rendered : &written);
    if (ok)
        a->rendered = written;
    return ok ? 0 : refused(&why, e);
}

/* Each placeholder becomes as many tokens as its image takes. */
static int place_tokens(struct answerer *a, const struct media_marks *m, const struct media_places *places,
                        struct err *e)
{
    struct reject why = {0};
    uint64_t total;
    uint32_t images;
    if (!media_prompt_count(m, places, a->ids, (uint32_t)a->count, &total, &images, &why))
        return refused(&why, e);
    if (total >= a->rt->planning.plan.max_model_len)
        return too_long(a, e);
    uint32_t *ids = ARENA_ARRAY(a->scratch, uint32_t, total);
    a->images = ARENA_ARRAY(a->scratch, struct job_image, images);
    if (!ids || !a->images)
        return err_set(e, -ENOMEM, "no memory for the prompt's tokens");
    media_prompt_expand(m, places, a->ids, (uint32_t)a->count, ids, a->images, NULL, 0);
    a->ids = ids;
    a->count = total;
    a->image_count = images;
    return 0;
}

static int encode_with(struct answerer *a, const json_t *messages, const struct attach *attached,
                       struct err *e)
{
    struct media_result results[ATTACH_MAX];
    struct media_places places = {results, attached ? attach_count(messages) : 0};
    if (places.count == 0)
        return encode(a, false, e);
    struct media_marks m = media_marks_of(&a->rt->planning.model.shape.vision, a->rt->served.tokenizer);
    if (media_prompt_forged(&m, messages))
        return err_set(e, -EINVAL,
                       "a text of the conversation has \"%.*s\" in it, which stands for images in this "
                       "model's prompts",
                       SLICE_ARGS(m.image));
    attach_results(attached, places.count, results);
    int r = place_text(a, &m, &places, e);
    if (r == 0)
        r = encode(a, false, e);
    return r == 0 ? place_tokens(a, &m, &places, e) : r;
}

int answerer_prompt(struct answerer *a, const json_t *messages, const struct attach *attached, struct err *e)
{
    int r = begin_prompt(a, e);
    if (r < 0)
        return r;
    json_t *kwargs = json_pack("{s:b}", "enable_thinking", a->rt->options->think);
    struct chat_template_input in = {.messages = messages,
                                     .kwargs = kwargs,
                                     .add_generation_prompt = true,
                                     .bos_token = tokenizer_bos(a->rt->served.tokenizer),
                                     .eos_token = tokenizer_eos(a->rt->served.tokenizer),
                                     .now_s = (int64_t)clock_wall_s()};
    r = kwargs ? chat_template_render(a->rt->served.template, a->scratch, &in, &CHAT_TEMPLATE_LIMITS_DEFAULT,
                                      &a->rendered, e)
               : err_set(e, -ENOMEM, "no memory for a prompt");
    json_decref(kwargs);
    return r < 0 ? r : encode_with(a, messages, attached, e);
}

int answerer_prompt_raw(struct answerer *a, struct slice text, struct err *e)
{
    int r = begin_prompt(a, e);
    if (r < 0)
        return r;
    buf_put_slice(&a->rendered, text);
    return encode(a, true, e);
}

/* --- tokens to text --- */

uint64_t answer_seed(const struct options *o)
{
    uint64_t seed = o->seed;
    if (seed == 0)
        rng_secret(&seed, sizeof(seed));
    return seed;
}

/* What the options say, else the model's own generation_config.json. */
static void sampling(const struct runtime *rt, struct sampler_params *p)
{
    const struct options *o = rt->options;
    const struct generation_defaults *d = &rt->served.defaults;
    sampler_params_default(p);
    bool samples = d->do_sample;
    p->temperature = o->temperature >= 0 ? (float)o->temperature : samples ? (float)d->temperature : 0;
    p->top_p = o->top_p > 0 ? (float)o->top_p : samples ? (float)d->top_p : 1;
    p->top_k = o->top_k > 0 ? (uint32_t)o->top_k : samples ? d->top_k : 0;
    p->min_p = samples ? (float)d->min_p : 0;
    p->repetition_penalty = (float)d->repetition_penalty;
    for (uint32_t i = 0; !o->ignore_eos && i < d->eos_count; i++)
        p->stop_ids[p->stop_count++] = d->eos_ids[i];
}

/* Tokens to the sink until the job is over. */
static void follow(struct answerer *a, struct stream *s, answer_sink_fn *sink, void *sink_arg,
                   struct stream_finish *ret)
{
    struct charge charge = account_charge(a->rt->text);
    struct detok detok;
    struct stream_token token;
    struct buf text;
    void *message;
    detok_init(&detok, a->rt->served.tokenizer, true);
    buf_init(&text, ANSWER_TEXT_MAX, &charge);
    for (bool over = false; !over; buf_clear(&text)) {
        mailbox_wait(a->wake, &message, ANSWER_LOOK_NS);
        stream_wake_clear(s);
        if (interrupt_pending() || output_failed()) {
            stream_close(s);
            engine_wake(a->rt->served.engine);
        }
        while (stream_take(s, &token))
            detok_push(&detok, token.id, &text);
        over = stream_finished(s, ret);
        if (over)
            detok_flush(&detok, &text);
        if (text.len)
            sink(sink_arg, buf_slice(&text));
    }
    buf_done(&text);
}

int answerer_run(struct answerer *a, uint64_t seed, answer_sink_fn *sink, void *sink_arg,
                 struct stream_finish *ret, struct err *e)
{
    struct job_spec job = {.prompt = a->ids,
                           .prompt_count = (uint32_t)a->count,
                           .images = a->images,
                           .image_count = a->image_count,
                           .speculative = true};
    struct charge charge = account_charge(a->rt->text);
    uint64_t room = a->rt->planning.plan.max_model_len - a->count, wanted = a->rt->options->max_tokens;
    struct stream *s;
    uint32_t retry_after_s;
    ASSERT(a->count > 0 && a->count < a->rt->planning.plan.max_model_len);
    sampling(a->rt, &job.sampling);
    job.sampling.seed = seed;
    job.max_tokens = (uint32_t)(wanted ? MIN_OF(wanted, room) : room);
    struct stream_opts opts = {.id = request_id_draw(), .wake = a->wake, .charge = &charge};
    int r = stream_create(&opts, &s);
    if (r < 0)
        return err_set(e, r, "no memory for a stream");
    r = engine_submit(a->rt->served.engine, &job, s, &retry_after_s, e);
    drop_scratch(a);
    if (r < 0) {
        stream_release(s); /* the job half was never taken */
    } else {
        follow(a, s, sink, sink_arg, ret);
        if (ret->reason == FINISH_ERROR)
            r = err_set(e, -EIO, "%s", ret->error);
    }
    stream_release(s);
    return r;
}
