/* spawn_attributes.h - how a process of another program begins. */
#ifndef PLATEAU_BASE_SPAWN_ATTRIBUTES_H
#define PLATEAU_BASE_SPAWN_ATTRIBUTES_H

#include <spawn.h>

/* The process leads a group of its own, and no signal is blocked or ignored in it, whatever the caller
 * blocks. `a` is initialised. 0, or an error number (positive, as posix_spawn has them). */
int spawn_attributes_set(posix_spawnattr_t *a);

#endif
