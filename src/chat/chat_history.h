/* chat_history.h - earlier calls of a conversation in the form that its template takes. */
#ifndef PLATEAU_CHAT_CHAT_HISTORY_H
#define PLATEAU_CHAT_CHAT_HISTORY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct chat_mark;
struct chat_syntax;

/* Changes the messages: several texts of one message become one, reasoning_content gets the name that the
 * template reads, arguments become text where the template wants text, and the empty content of a message
 * with calls becomes null where it wants that. 0 or -ENOMEM. */
int chat_history_adapt(const struct chat_syntax *s, json_t *messages);
/* Arguments that are a text become the object {"arguments": text}, for a template that takes objects only.
 * True: some were. */
bool chat_history_wrap(json_t *messages);
/* Messages of the system after the first turn join the user's turn at their place, an empty line between
 * them. The marks keep to their messages. `*ret`: some did. 0 or -ENOMEM. */
int chat_history_join_system(json_t *messages, struct chat_mark *marks, uint32_t count, bool *ret);
/* Whether a message has that role. */
bool chat_history_has_role(const json_t *message, const char *role);
/* Two contents, of text or parts, with an empty line between them. A new reference; NULL: no memory. */
json_t *chat_history_joined(json_t *a, json_t *b);
/* A content, of text or parts, between two texts, which join the texts at its ends. A new reference; NULL: no
 * memory. */
json_t *chat_history_between(json_t *content, const char *before, const char *after);

#endif
