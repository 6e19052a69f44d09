/* chat_tool_words.h - what a chat template writes for a tool, as a text of its own.
 *
 * A conversation whose tools change keeps the head of its prompt. A tool that comes later is text in the
 * message that brings it, in the words that the model was trained to read. The words are what a
 * rendering with the tool has more than one without it. */
#ifndef PLATEAU_CHAT_CHAT_TOOL_WORDS_H
#define PLATEAU_CHAT_CHAT_TOOL_WORDS_H

#include "template/chat_template.h"

struct chat_tool_words {
    const struct chat_template *template;
    struct chat_template_input input; /* without messages and tools */
    struct chat_template_limits limits;
    const struct charge *charge; /* account of the renderings */
    bool generic;                /* chat_syntax.generic: chat_generic.c writes the tools */
};

/* Appends the words of the tools, which begin a new line each. 0. -ENOENT: a rendering with one more tool is
 * not the one without it and a text in between that names the tool. -ECANCELED or -ETIME from limits.wanted.
 * -ENOMEM. On failure `ret` may have some words. */
int chat_tool_words_write(const struct chat_tool_words *w, struct arena *scratch, const json_t *tools,
                          struct buf *ret);

#endif
