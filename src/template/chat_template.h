/* chat_template.h - renders messages to the prompt format that a model was trained on.
 *
 * A checkpoint's chat template is an untrusted program. It runs here in a subset of Jinja without access to
 * anything else, bounded in steps, nesting, output and memory. Semantics equal transformers' environment
 * (immutable sandbox, trim_blocks, lstrip_blocks, loop controls, its tojson). A compiled template is
 * read-only and used from any thread at once. */
#ifndef PLATEAU_TEMPLATE_CHAT_TEMPLATE_H
#define PLATEAU_TEMPLATE_CHAT_TEMPLATE_H

#include "template/chat_cuts.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/wanted.h"

#include <jansson.h>

struct chat_template;
struct model_files;

struct chat_template_limits {
    /* Nodes evaluated, items visited, and units of 64 bytes of text read; 50 to 100 ns each. */
    uint32_t steps_max;
    uint32_t depth_max;          /* nesting of the evaluation, a call twice; up to a kilobyte of stack each */
    size_t output_bytes_max;     /* limit of any text that is built */
    size_t prompt_bytes_max;     /* limit of the prompt; 0: output_bytes_max */
    const struct wanted *wanted; /* polled every 0.4 ms or so; NULL: never cancelled */
};
/* Upper bound on the stack of a rendering within the default limits; 0.4 MiB measured with gcc's -O2. */
#define CHAT_TEMPLATE_STACK_BYTES ((size_t)(CHAT_TEMPLATE_FRAMES_LARGE ? 2048 : 512) << 10)
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHAT_TEMPLATE_FRAMES_LARGE 1
#elif defined(__has_feature)
#define CHAT_TEMPLATE_FRAMES_LARGE (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define CHAT_TEMPLATE_FRAMES_LARGE 0
#endif
#define CHAT_TEMPLATE_LIMITS_DEFAULT                                                                         \
    ((struct chat_template_limits){                                                                          \
        .steps_max = 20 * 1000 * 1000, .depth_max = 400, .output_bytes_max = (size_t)32 << 20})

/* The result lives in `a`. 0, -EINVAL (e names the line), -E2BIG (over 1 MiB, or nested over 200 deep),
 * -ENOMEM. */
int chat_template_compile(struct arena *a, struct slice source, struct chat_template **ret, struct err *e);

/* The template of a model: chat_template.jinja (and CHAT_TEMPLATE_TOOL_USE when a rendering has
 * tools), else chat_template.json, else tokenizer_config.json (a string, or a list of {name, template}:
 * "default", and "tool_use"). -ENOENT when there is none of these. */
#define CHAT_TEMPLATE_TOOL_USE "additional_chat_templates/tool_use.jinja"
int chat_template_load(struct arena *a, struct model_files *files, struct chat_template **ret, struct err *e);

struct chat_template_input {
    const json_t *messages;          /* array */
    const json_t *tools, *documents; /* arrays; NULL: not given */
    const json_t *kwargs;            /* object of further variables; NULL: not given */
    struct chat_marks marks;         /* for the cuts */
    bool add_generation_prompt;
    struct slice bos_token, eos_token;
    int64_t now_s; /* the time of strftime_now, seconds since 1970 */
};

/* Appends the prompt to ret. 0. -EINVAL: the template refused, and e has its message: the client's mistake.
 * -E2BIG: over a limit. -EMSGSIZE: over prompt_bytes_max. -ECANCELED or -ETIME from limits->wanted. -ENOMEM.
 * Scratch comes from `scratch`, whose size bounds the rendering; it is rewound. `cuts` (NULL: not
 * needed): where to cut the prompt; byte 0 is its first byte in ret. */
int chat_template_render_cuts(const struct chat_template *t, struct arena *scratch,
                              const struct chat_template_input *in, const struct chat_template_limits *limits,
                              struct buf *ret, struct chat_cuts *cuts, struct err *e);

/* Lines end in LF alone. Lives as long as the template. */
struct slice chat_template_source(const struct chat_template *t);
/* True when its source contains this text ("enable_thinking", "<function="). */
bool chat_template_mentions(const struct chat_template *t, struct slice word);

#endif
