/* attach.h - images and videos attached to a conversation: read by the media service, kept until the
 * conversation drops them.
 *
 * They stand in the order of the conversation, as its messages name them. The service starts with the
 * first of them, so a chat with text only has no threads for it. A file is read once, when it is attached.
 * Main thread only. */
#ifndef PLATEAU_HOST_ATTACH_H
#define PLATEAU_HOST_ATTACH_H

#include "base/threads/mailbox.h"
#include "media/media.h"

#include <jansson.h>
#include <limits.h>

struct runtime;

#define ATTACH_MAX 64 /* media of a conversation */

struct attach_item {
    json_t *part; /* its part of a message */
    struct media_task *task;
};

struct attach {
    struct runtime *rt;
    bool (*stopped)(void); /* asked while a file is read: the user wants it no longer */
    struct media *media;   /* NULL: nothing was attached yet */
    struct mailbox *wake;  /* with it */
    struct attach_item items[ATTACH_MAX];
    uint32_t count;
};

/* stopped: NULL, it is never stopped. */
void attach_init(struct attach *a, struct runtime *rt, bool (*stopped)(void));
/* No answer is running. Fine on a zeroed struct. */
void attach_done(struct attach *a);

/* Reads a file (a path, ~/path, or file:///path), or an http or https address; the path may stand in
 * quotes. Returns when it is read. 0 and its tokens; -EINVAL, -E2BIG (there are ATTACH_MAX), -ENOMEM;
 * -ECANCELED: stopped() said so. */
int attach_add(struct attach *a, enum media_kind kind, struct slice what, uint32_t *ret, struct err *e);
/* A typed name without the quotes around it. */
struct slice attach_unquote(struct slice what);
/* Its path: "~/" is the home directory. 0 or -EINVAL (too long). */
int attach_path(struct slice what, char ret[PATH_MAX], struct err *e);
/* Forgets all but the first `count`. */
void attach_cut(struct attach *a, uint32_t count);

/* A message's content: those from `first` on, then the text. NULL: no memory, or the text is no UTF-8. A new
 * reference. */
json_t *attach_content(const struct attach *a, uint32_t first, struct slice text);
/* How many of them these messages name. */
uint32_t attach_count(const json_t *messages);

/* Writes the results of the first `count` of them, for the prompt. */
void attach_results(const struct attach *a, uint32_t count, struct media_result ret[ATTACH_MAX]);

#endif
