/* gguf_head.h - the head of an open GGUF file, in memory. */
#ifndef PLATEAU_GGUF_GGUF_HEAD_H
#define PLATEAU_GGUF_GGUF_HEAD_H

#include "gguf/gguf.h"

#include "base/files/regular_file.h"
#include "memory/ledger.h"

struct gguf_head {
    struct arena *arena; /* arena of text and tables */
    const struct regular_file *at;
    struct gguf head;
    const struct gguf *encoder; /* head of the vision encoder's file beside it; NULL: none */
};
#define GGUF_HEAD_NONE ((struct gguf_head){.arena = NULL})

/* `at` outlives the head. `account` (may be NULL) is charged until gguf_head_done(). 0, -EINVAL, -ENOTSUP,
 * -ENOMEM, -ESTALE, or what reading said; e does not name the file. */
int gguf_head_read(const struct regular_file *at, struct account *account, struct gguf_head *ret,
                   struct err *e);
/* GGUF_HEAD_NONE is fine. */
void gguf_head_done(struct gguf_head *h);

#endif
