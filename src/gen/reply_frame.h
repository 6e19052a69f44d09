/* reply_frame.h - what a chat model writes around the text of a reply, as the frame of a grammar. Pure. */
#ifndef PLATEAU_GEN_REPLY_FRAME_H
#define PLATEAU_GEN_REPLY_FRAME_H

#include "chat/chat_syntax.h"

struct grammar_frame;
struct prompt_ids;

/* Reasoning first, where this prompt leaves it open or the reply may begin with it; then the markers around
 * content, which a reply may leave out. Slices point into `s`. */
void reply_frame_make(const struct chat_syntax *s, const struct prompt_ids *prompt,
                      struct grammar_frame *ret);

#endif
