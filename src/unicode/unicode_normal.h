/* unicode_normal.h - the normalisation forms of Unicode 9, as the `tokenizers` library computes them.
 *
 * Pure functions; any thread. */
#ifndef PLATEAU_UNICODE_UNICODE_NORMAL_H
#define PLATEAU_UNICODE_UNICODE_NORMAL_H

#include "base/arena.h"
#include "base/slice.h"
#include "base/wanted.h"

enum unicode_form { UNICODE_NFC, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD };

/* `text`, which is valid UTF-8, in a normalisation form: `text` itself when it is in that form already, else
 * a copy in `scratch`. The copy has at most three times the size, in NFKC and NFKD at most eleven times.
 * Linear time. Polls `w` (may be NULL) every 64 KiB, but orders and composes a run of marks without polling.
 * 0, -ENOMEM, or the result of `w`; on failure `scratch` is unchanged. */
int unicode_normal(struct arena *scratch, struct slice text, enum unicode_form form, const struct wanted *w,
                   struct slice *ret);

#endif
