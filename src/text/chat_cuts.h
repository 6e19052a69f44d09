/* chat_cuts.h - where the next prompts of a conversation may begin to differ from this one.
 *
 * In order of use: behind system and tools, where other conversations of the same agent differ; behind the
 * last user message, where a template begins to drop what the model thought; before the generation prompt;
 * and where the turns change, the last ones first. */
#ifndef PLATEAU_TEXT_CHAT_CUTS_H
#define PLATEAU_TEXT_CHAT_CUTS_H

#include "base/slice.h"

#include <jansson.h>

#define CHAT_CUTS_MAX 32

struct tmpl_trace;

/* Bytes of the rendered prompt, ascending, none twice, none 0. */
struct chat_cuts {
    size_t bytes[CHAT_CUTS_MAX];
    uint32_t count;
};

/* From what the rendering of `messages` to `text` has left in `trace`. */
void chat_cuts_choose(const struct tmpl_trace *trace, const json_t *messages, struct slice text,
                      struct chat_cuts *ret);

#endif
