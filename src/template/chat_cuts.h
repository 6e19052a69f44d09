/* chat_cuts.h - where later prompts of a conversation may differ from this one.
 *
 * In order of usefulness:
 * 1. After system and tools, where other conversations of the same agent differ.
 * 2. After the first of several system messages.
 * 3. Where the client says so.
 * 4. After the last user message, where a template starts to drop earlier reasoning.
 * 5. Before the generation prompt.
 * 6. Where the turns change, the last ones first. */
#ifndef PLATEAU_TEMPLATE_CHAT_CUTS_H
#define PLATEAU_TEMPLATE_CHAT_CUTS_H

#include "base/slice.h"

#include <jansson.h>

#define CHAT_CUTS_MAX 32

struct tmpl_trace;

/* Byte offsets in the rendered prompt, ascending, none twice, none 0. */
struct chat_cuts {
    size_t bytes[CHAT_CUTS_MAX];
    uint32_t count;
    uint32_t head; /* the count of cuts up to the one after system and tools; 0: there is no such cut */
};

/* A place that the client named: after this many bytes of a message's text, of all its parts; SIZE_MAX: after
 * the message. */
struct chat_mark {
    uint32_t message;
    size_t bytes;
};

struct chat_marks {
    const struct chat_mark *list;
    uint32_t count;
};

/* From the `trace` of rendering `messages` to `text`. A mark that is not found in the text gives no cut. */
void chat_cuts_choose(const struct tmpl_trace *trace, const json_t *messages, const struct chat_marks *marks,
                      struct slice text, struct chat_cuts *ret);

#endif
