/* chat_calls_text.h - calls as the text that a model writes for them, for the history of templates that write
 * no calls. */
#ifndef PLATEAU_CHAT_CHAT_CALLS_TEXT_H
#define PLATEAU_CHAT_CHAT_CALLS_TEXT_H

#include <jansson.h>
#include <stdbool.h>

struct buf;
struct chat_syntax;

/* Whether chat_calls_text_write() knows the format: a section, or calls, of JSON or Python. */
bool chat_calls_text_knows(const struct chat_syntax *s);
/* Appends OpenAI's list of calls as a reply has them. Arguments are objects, or text that stands for
 * itself. */
void chat_calls_text_write(const struct chat_syntax *s, const json_t *calls, struct buf *ret);

#endif
