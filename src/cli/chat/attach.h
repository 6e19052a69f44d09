/* attach.h - images and videos of a conversation, in the order of its messages; the last go with the next
 * message. Main thread. */
#ifndef PLATEAU_CLI_ATTACH_H
#define PLATEAU_CLI_ATTACH_H

#include "base/slice.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct err;
struct remote;

#define ATTACH_MAX       64                 /* images and videos of a conversation */
#define ATTACH_BYTES_MAX ((size_t)48 << 20) /* limit of a file that is sent; a body has 64 MiB by default */

struct attach {
    const struct remote *remote;
    bool (*stopped)(void);     /* asked while a server reads one */
    json_t *parts[ATTACH_MAX]; /* parts of messages */
    uint32_t count;
};

/* stopped: NULL, it is never stopped. */
void attach_init(struct attach *a, const struct remote *r, bool (*stopped)(void));
/* Zeroed is fine. */
void attach_done(struct attach *a);

/* Adds a file (a path, ~/path, or file:///path), or an http or https address; the path may stand in quotes.
 * The server that this process started reads it now, and again with each message: *ret is its tokens. Other
 * servers get the bytes of a file as a data URL, and read them with the message: *ret is 0. 0; -EINVAL,
 * -E2BIG (there are ATTACH_MAX), -ENOMEM, an error of the request; -ECANCELED: stopped() said so. */
int attach_add(struct attach *a, bool video, struct slice what, uint32_t *ret, struct err *e);
/* Forgets all but the first `count`. */
void attach_cut(struct attach *a, uint32_t count);

/* A message's content: those from `first` on, then the text. NULL: no memory, or the text is not UTF-8. A new
 * reference. */
json_t *attach_content(const struct attach *a, uint32_t first, struct slice text);
/* How many of them these messages name. */
uint32_t attach_count(const json_t *messages);

#endif
