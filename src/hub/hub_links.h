/* hub_links.h - writes a model's folder in the hub's cache: directories, links of a snapshot, references,
 * and the lock that one pull holds. */
#ifndef PLATEAU_HUB_HUB_LINKS_H
#define PLATEAU_HUB_HUB_LINKS_H

#include "hub/hub_cache.h"

/* Makes models--ORG--NAME/{blobs,refs,snapshots} below `cache`; `folder` gets its path. 0, or what the
 * system said. */
int hub_links_make_folder(const char *cache, const struct hub_name *n, char folder[HUB_PATH_BYTES],
                          struct err *e);
/* Takes .locks/models--ORG--NAME/plateau.lock. A descriptor, -EBUSY, or what the system said. */
int hub_links_lock(const char *cache, const struct hub_name *n, struct err *e);
/* Removes the folder again where nothing was put into it. Under its lock. */
void hub_links_drop_empty(const char *folder);
/* snapshots/COMMIT/NAME becomes a link to blobs/ETAG. Folders in `name` are made, and never followed if
 * they are links. 0 or what the system said. */
int hub_links_add(const char *folder, const char *commit, const char *name, const char *etag, struct err *e);
/* refs/REVISION gets the commit. */
int hub_links_set_ref(const char *folder, const char *revision, const char *commit, struct err *e);

#endif
