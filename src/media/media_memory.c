/* media_memory.c - the charge of images and of clients' bytes; each thread remembers its last refusal. */
#include "media/media_task.h"

#include <errno.h>

static _Thread_local size_t refused_bytes;

size_t media_memory_refused(void)
{
    return refused_bytes;
}

static int take(void *owner, size_t bytes)
{
    struct media *m = owner;
    if (account_reserve(m->opts.account, bytes) < 0) {
        refused_bytes = bytes;
        return -ENOMEM;
    }
    account_use(m->opts.account, bytes);
    return 0;
}

static void give(void *owner, size_t bytes)
{
    struct media *m = owner;
    account_unuse(m->opts.account, bytes);
    account_release(m->opts.account, bytes);
}

struct charge media_memory_charge(struct media *m)
{
    return (struct charge){take, give, m};
}
