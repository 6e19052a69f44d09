/* chat_template.h - a conversation as the text a model was trained to read.
 *
 * A model's directory brings the template; messages, tools and options of a request are its variables. A template
 * is compiled at load into the model's arena and is then read-only: any number of threads may render at once. Cost and
 * size of a rendering are bounded (jinja.h says how); a conversation that the template refuses is the
 * client's mistake and says so in the template's own words. */
#ifndef PLATEAU_TEXT_CHAT_TEMPLATE_H
#define PLATEAU_TEXT_CHAT_TEMPLATE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

struct chat_template;

struct chat_template_limits {
    uint32_t steps_max;      /* evaluations; a message costs some tens, 64 bytes of text one */
    uint32_t depth_max;      /* evaluations inside each other; a level costs less than 1 KiB of stack */
    size_t output_bytes_max; /* of the prompt */
    size_t memory_bytes_max; /* of scratch */
};
#define CHAT_TEMPLATE_LIMITS_DEFAULT                                                                         \
    ((struct chat_template_limits){.steps_max = 4000000,                                                     \
                                   .depth_max = 200,                                                         \
                                   .output_bytes_max = (size_t)32 << 20,                                     \
                                   .memory_bytes_max = (size_t)128 << 20})

/* Compiles; the result lies in `a`. 0, -EINVAL (e names line and reason), -E2BIG, -ENOMEM. */
int chat_template_compile(struct arena *a, struct slice source, struct chat_template **ret, struct err *e);

/* Finds and compiles the templates of a model's directory: chat_template.jinja (and, beside it,
 * additional_chat_templates/tool_use.jinja), else chat_template.json, else what tokenizer_config.json holds: a text, or
 * a list of named ones, of which "default" counts, and "tool_use" when a request brings tools.
 * 0, -ENOENT (there is none), -EINVAL, -E2BIG, -ENOMEM, and what open and read say. */
int chat_template_load(struct arena *a, const char *dir, struct chat_template **ret, struct err *e);

struct chat_template_input {
    const json_t *messages;  /* an array */
    const json_t *tools;     /* NULL: none, and the template does not see the name */
    const json_t *documents; /* the same */
    const json_t *kwargs;    /* an object of further variables, which hold over all others; NULL: none */
    bool add_generation_prompt;
    struct slice bos_token, eos_token, pad_token, unk_token; /* NULL ptr: the name is not defined */
    int64_t now_s; /* for strftime_now: seconds since 1970, read as UTC */
};

/* Appends the prompt to ret, which is as it was on failure; memory comes from `scratch` and is given back.
 * 0; -EINVAL: refused, e is what to tell the client; -E2BIG: a limit; -ENOMEM: scratch or ret has no room. */
int chat_template_render(const struct chat_template *t, struct arena *scratch,
                         const struct chat_template_input *in, const struct chat_template_limits *limits,
                         struct buf *ret, struct err *e);

/* Whether the source of any variant contains this text: "enable_thinking", "<tool_call>". */
bool chat_template_mentions(const struct chat_template *t, struct slice word);

#endif
