/* spawn_attributes.c - SIGKILL and SIGSTOP are left out: their action is always the default. */
#include "base/threads/spawn_attributes.h"

#include <signal.h>

int spawn_attributes_set(posix_spawnattr_t *a)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    int r = posix_spawnattr_setsigmask(a, &none);
    if (r == 0)
        r = posix_spawnattr_setsigdefault(a, &all);
    if (r == 0)
        r = posix_spawnattr_setpgroup(a, 0);
    if (r == 0)
        r = posix_spawnattr_setflags(a,
                                     POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    return r;
}
