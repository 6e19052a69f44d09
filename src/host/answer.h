/* answer.h - one answer at a time, for generate and chat: the way of a request over HTTP, without the
 * network. Between two answers it holds no prompt. Main thread only. */
#ifndef PLATEAU_HOST_ANSWER_H
#define PLATEAU_HOST_ANSWER_H

#include "base/threads/mailbox.h"
#include "gen/choice.h"
#include "registry/registry.h"

#include <jansson.h>

struct attach;
struct settings;

#define ANSWER_PROMPT_BYTES_MAX ((size_t)16 << 20)

struct answerer {
    struct runtime *rt;
    struct served_model model; /* the runtime's, which also finds reasoning by <think> */
    struct mailbox *wake;
    bool (*stopped)(void); /* asked while an answer runs: the user wants no more of it */
};

/* stopped: NULL, no answer is stopped. On failure nothing remains. */
int answerer_init(struct answerer *a, struct runtime *rt, bool (*stopped)(void), struct err *e);
void answerer_done(struct answerer *a);

struct question {
    json_t *messages;              /* rendered by the model's template; the reply is parsed as a message */
    const struct attach *attached; /* media that the messages name; NULL: nothing */
    json_t *prompt;                /* without messages: a text, sent as it is */
    bool raw;                      /* the reply's text is not parsed: reasoning is part of it */
    uint64_t seed;
};

/* Parts of the answer go to the sink as they come. stopped() ends the answer (FINISH_ABORTED). 0; -E2BIG: no
 * room for an answer after the prompt; -EINVAL: the template refused, or has no place for an image; -ENOMEM;
 * -EIO (ret is filled: some text may have come). */
int answerer_run(struct answerer *a, const struct question *q, part_sink_fn *sink, void *sink_arg,
                 struct stream_finish *ret, struct err *e);

/* The seed of the first answer: --seed, or with 0 a random one. */
uint64_t answer_seed(const struct settings *o);

#endif
