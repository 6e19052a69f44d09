/* remote_attach.h - images and videos for a conversation with a server: a file goes in the message itself,
 * as a data URL. Main thread. */
#ifndef PLATEAU_CLI_REMOTE_ATTACH_H
#define PLATEAU_CLI_REMOTE_ATTACH_H

#include "media/media.h"

struct attach;
struct err;
struct slice;

#define REMOTE_ATTACH_BYTES_MAX ((size_t)48 << 20) /* limit of one file; a body has 64 MiB by default */

/* As `attach_add()`, but for a server: a path, or an http or https address, which the server fetches. The
 * server decodes it with the message, and refuses the message if it cannot. 0, -EINVAL, -E2BIG (there are
 * ATTACH_MAX), -ENOMEM. */
int remote_attach(struct attach *a, enum media_kind kind, struct slice what, struct err *e);

#endif
