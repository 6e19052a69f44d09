/* chat_user_turn.h - what a chat template writes for one more turn of the user, as a text of its own.
 *
 * Some templates drop the reasoning of a turn as soon as the user writes again, which changes the prompt of
 * the conversation. With a text of its own the further turn follows an unchanged prompt. */
#ifndef PLATEAU_CHAT_CHAT_USER_TURN_H
#define PLATEAU_CHAT_CHAT_USER_TURN_H

#include "template/chat_template.h"

struct chat_user_turn {
    const struct chat_template *template;
    struct chat_template_input input; /* without messages and tools */
    struct chat_template_limits limits;
    const struct charge *charge; /* account of the renderings */
};

/* Appends the turn with this content, a string, and the generation prompt after it. 0. -ENOENT: a short
 * conversation's rendering does not begin the one with a further turn, so it has no text of its
 * own. -ECANCELED or -ETIME from limits.wanted. -ENOMEM. On failure `ret` does not change. */
int chat_user_turn_write(const struct chat_user_turn *t, struct arena *scratch, json_t *content,
                         struct buf *ret);

#endif
