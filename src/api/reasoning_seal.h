/* reasoning_seal.h - texts that a client keeps and does not show: reasoning and summaries in
 * encrypted_content of Responses, reasoning in the signature of an omitted block of Messages.
 *
 * The text in base64 after a signature. It is not secret: clients may have the same text openly. The
 * signature of reasoning is one of this process; that of a summary, without which the conversation would be
 * lost, outlasts a restart. Any thread. */
#ifndef PLATEAU_API_REASONING_SEAL_H
#define PLATEAU_API_REASONING_SEAL_H

#include "base/buf.h"

/* Appends ASCII without quotes or backslashes. */
void reasoning_seal(struct slice text, struct buf *ret);
/* Returns false if the text was not sealed by this process or is damaged; `ret` is empty then. */
bool reasoning_unseal(struct slice sealed, struct buf *ret);

/* As `reasoning_seal()` and `reasoning_unseal()`, for a summary of any Plateau. */
void summary_seal(struct slice text, struct buf *ret);
bool summary_unseal(struct slice sealed, struct buf *ret);

#endif
