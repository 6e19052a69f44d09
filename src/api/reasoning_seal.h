/* reasoning_seal.h - reasoning that a client keeps and does not show: encrypted_content of Responses, the
 * signature of an omitted block of Messages.
 *
 * The text in base64 after a signature of this process. It is not secret: clients may have the same text
 * openly. Any thread. */
#ifndef PLATEAU_API_REASONING_SEAL_H
#define PLATEAU_API_REASONING_SEAL_H

#include "base/buf.h"

/* Appends ASCII without quotes or backslashes. */
void reasoning_seal(struct slice text, struct buf *ret);
/* Returns false if the text was not sealed by this process or is damaged; `ret` is empty then. */
bool reasoning_unseal(struct slice sealed, struct buf *ret);

#endif
