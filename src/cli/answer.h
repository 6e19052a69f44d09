/* answer.h - one answer at a time: messages to a prompt, the prompt to tokens, tokens to text while they
 * come.
 *
 * What generate and chat share; the same way as a request over HTTP, without the network. Between two answers
 * it holds nothing but the prompt's text. Main thread only. */
#ifndef PLATEAU_CLI_ANSWER_H
#define PLATEAU_CLI_ANSWER_H

#include "base/buf.h"
#include "base/mailbox.h"
#include "cli/attach.h"

#include <jansson.h>

#define ANSWER_PROMPT_BYTES_MAX ((size_t)16 << 20)

struct answerer {
    struct runtime *rt;
    struct mailbox *wake;
    struct buf rendered;   /* the prompt as the model reads it */
    struct arena *scratch; /* holds `ids`; NULL between answers */
    uint32_t *ids;
    size_t count;
    struct job_image *images; /* there as well; of the prompt's attachments */
    uint32_t image_count;
};

/* On failure nothing remains. */
int answerer_init(struct answerer *a, struct runtime *rt, struct err *e);
void answerer_done(struct answerer *a);

/* Makes the next prompt of these messages by the model's template, with the attachments that they name
 * (NULL: none), which stay until it is answered. 0; -E2BIG: no room for an answer after it; -EINVAL: the
 * template refused, or has no place for an image; -ENOMEM. */
int answerer_prompt(struct answerer *a, const json_t *messages, const struct attach *attached, struct err *e);
/* The same of a plain text. */
int answerer_prompt_raw(struct answerer *a, struct slice text, struct err *e);

typedef void answer_sink_fn(void *arg, struct slice text);
/* Answers the prompt: text goes to the sink as it comes, valid UTF-8. An interrupt stops the answer
 * (FINISH_ABORTED) and stays pending; so does a failed standard output. 0, or why there is no answer, or
 * -EIO (ret is filled: some text may have come). */
int answerer_run(struct answerer *a, uint64_t seed, answer_sink_fn *sink, void *sink_arg,
                 struct stream_finish *ret, struct err *e);

/* The seed of the first answer: --seed, or with 0 a random one. */
uint64_t answer_seed(const struct options *o);

#endif
