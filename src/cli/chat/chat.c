/* chat.c - the messages are a JSON array in the form of templates and of /save. The model's context bounds
 * it: a message that does not fit is removed. */
#include "cli/chat/chat.h"

#include "cli/chat/chat_screen.h"
#include "cli/interrupt.h"
#include "cli/output.h"

#include "base/clock.h"
#include "base/rng.h"
#include "host/settings.h"

#include <errno.h>
#include <string.h>

/* --- messages --- */

int chat_open(struct chat *c, const struct remote *remote, struct chat_screen *screen, struct err *e)
{
    const char *system = remote->settings->answer.system;
    int r = 0;
    *c = (struct chat){.remote = remote, .screen = screen, .seed = remote_seed(remote->settings)};
    attach_init(&c->attached, remote, interrupt_pending);
    c->messages = json_array();
    if (!c->messages)
        r = err_set(e, -ENOMEM, "no memory for a conversation");
    else if (system)
        r = chat_set_system(c, slice_of(system), e);
    if (r < 0)
        chat_close(c);
    return r;
}

void chat_close(struct chat *c)
{
    json_decref(c->messages);
    c->messages = NULL;
    attach_done(&c->attached);
}

static json_t *message_of(const char *role, struct slice text)
{
    return json_pack("{s:s, s:s%}", "role", role, "content", text.ptr ? text.ptr : "", text.len);
}

static bool has_role(const json_t *message, const char *role)
{
    const char *found = json_string_value(json_object_get(message, "role"));
    return found && strcmp(found, role) == 0;
}

static int refuse_text(struct err *e)
{
    return err_set(e, -EINVAL, "the message is not valid UTF-8 text");
}

int chat_set_system(struct chat *c, struct slice text, struct err *e)
{
    json_t *message = text.len ? message_of("system", text) : NULL;
    if (text.len && !message)
        return refuse_text(e);
    if (has_role(json_array_get(c->messages, 0), "system"))
        json_array_remove(c->messages, 0);
    if (message && json_array_insert_new(c->messages, 0, message) < 0)
        return err_set(e, -ENOMEM, "no memory for the message");
    return 0;
}

static void cut(struct chat *c, size_t count)
{
    while (json_array_size(c->messages) > count)
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

void chat_reset(struct chat *c)
{
    cut(c, has_role(json_array_get(c->messages, 0), "system"));
    attach_cut(&c->attached, 0);
}

uint32_t chat_waiting(const struct chat *c)
{
    return c->attached.count - attach_count(c->messages);
}

void chat_detach(struct chat *c)
{
    attach_cut(&c->attached, attach_count(c->messages));
}

/* With the attachments before the text. */
static json_t *message_of_user(const struct chat *c, struct slice text)
{
    if (chat_waiting(c) == 0)
        return message_of("user", text);
    json_t *content = attach_content(&c->attached, attach_count(c->messages), text);
    return content ? json_pack("{s:s, s:o}", "role", "user", "content", content) : NULL;
}

/* --- an answer --- */

struct telling {
    struct chat_screen *screen;
    struct buf reasoning, content;
};

static void on_text(void *arg, bool reasoning, struct slice text)
{
    struct telling *t = arg;
    buf_put_slice(reasoning ? &t->reasoning : &t->content, text);
    if (reasoning)
        chat_screen_reasoning(t->screen, text);
    else
        chat_screen_content(t->screen, text);
}

/* The answer joins the conversation, with its reasoning: which of it the model sees again is the template's
 * business. */
static int remember(struct chat *c, const struct telling *t, struct err *e)
{
    json_t *message = message_of("assistant", buf_slice(&t->content));
    if (message && t->reasoning.len &&
        json_object_set_new(message, "reasoning_content", json_stringn(t->reasoning.ptr, t->reasoning.len)) <
            0) {
        json_decref(message);
        message = NULL;
    }
    if (!message || t->reasoning.error || t->content.error || json_array_append_new(c->messages, message) < 0)
        return err_set(e, -ENOMEM, "no memory for the answer");
    return 0;
}

static void tell_end(struct chat *c)
{
    const struct remote_answer *f = &c->last;
    const uint32_t context = c->remote->context;
    bool full = context && f->prompt_tokens + f->completion_tokens >= context;
    if (f->end == REMOTE_LENGTH && full)
        chat_screen_note(
            c->screen,
            "[The context of %u tokens is full (--max-model-len). /reset begins a new conversation.]",
            context);
    else if (f->end == REMOTE_LENGTH)
        chat_screen_note(c->screen, "[Cut at %u tokens: --max-tokens.]", f->completion_tokens);
    else if (f->end == REMOTE_LOOP)
        chat_screen_note(c->screen, "[Ended at a loop: --repetition-detection.]");
    else if (f->end == REMOTE_STOPPED && !output_failed())
        chat_screen_note(c->screen, "[Stopped. What was said stays in the conversation.]");
}

static void tell_speed(struct chat *c)
{
    const struct remote_answer *f = &c->last;
    const double first_s = (double)f->first_ns / NS_PER_S, rest_s = (double)f->rest_ns / NS_PER_S;
    char speed[48] = "";
    /* The first token comes with the prompt. */
    if (f->completion_tokens > 1 && rest_s > 0)
        snprintf(speed, sizeof(speed), ", %.1f tokens/s", (f->completion_tokens - 1) / rest_s);
    chat_screen_note(c->screen, "[%u tokens (%u cached), first after %.2f s; %u tokens written%s.]",
                     f->prompt_tokens, f->cached_tokens, first_s, f->completion_tokens, speed);
}

static int ask(struct chat *c, struct telling *t, struct err *e)
{
    const struct remote_question q = {.messages = c->messages,
                                      .seed = c->draws ? rng_at(c->seed, c->draws) : c->seed,
                                      .stopped = interrupt_ends_answer,
                                      .text = on_text,
                                      .arg = t};
    return remote_ask(c->remote, &q, &c->last, e);
}

static int run_answer(struct chat *c, struct err *e)
{
    struct telling t = {.screen = c->screen};
    buf_init(&t.reasoning, CHAT_MESSAGE_BYTES_MAX, NULL);
    buf_init(&t.content, CHAT_MESSAGE_BYTES_MAX, NULL);
    int r = ask(c, &t, e);
    if (r == 0) {
        c->answers++;
        chat_screen_end(c->screen);
        r = remember(c, &t, e);
    }
    buf_done(&t.content);
    buf_done(&t.reasoning);
    if (r == 0)
        tell_end(c);
    if (r == 0 && c->remote->settings->stats)
        tell_speed(c);
    return r;
}

static int answer(struct chat *c, struct err *e)
{
    int r = run_answer(c, e);
    if (r != -E2BIG)
        return r;
    return err_set(e, r,
                   "the conversation with this message does not fit into the context of %u tokens "
                   "(--max-model-len). Nothing was sent and nothing is lost: shorten the message, or /reset",
                   c->remote->context);
}

int chat_say(struct chat *c, struct slice text, struct err *e)
{
    size_t before = json_array_size(c->messages);
    json_t *message = message_of_user(c, text);
    if (!message)
        return refuse_text(e);
    int r = json_array_append_new(c->messages, message);
    r = r < 0 ? err_set(e, -ENOMEM, "no memory for the message") : answer(c, e);
    if (r < 0)
        cut(c, before);
    return r;
}

int chat_retry(struct chat *c, struct err *e)
{
    size_t count = json_array_size(c->messages);
    if (count == 0 || !has_role(json_array_get(c->messages, count - 1), "assistant"))
        return err_set(e, -ENOENT, "there is no answer to make again");
    json_t *old = json_incref(json_array_get(c->messages, count - 1));
    cut(c, count - 1);
    c->draws++;
    int r = answer(c, e);
    if (r < 0) {
        cut(c, count - 1);
        json_array_append(c->messages, old); /* the room is there: it was its own */
    }
    json_decref(old);
    return r;
}
