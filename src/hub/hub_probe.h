/* hub_probe.h - a stand-in for the model before its weights are there: a directory with links to the
 * small files, and weights that consist of their headers and holes. Whatever reads headers can plan it. */
#ifndef PLATEAU_HUB_HUB_PROBE_H
#define PLATEAU_HUB_HUB_PROBE_H

#include "hub/hub_cache.h"

struct err;
struct hub_work;

/* Removes those that killed pulls left in the model's folder. Under its lock, so that no pull uses one. */
void hub_probe_remove_stale(const char *folder);
/* Makes it in the model's folder. 0, or what a request or the system said; hub_probe_remove() either way. */
int hub_probe_make(struct hub_work *w, char ret[HUB_PATH_BYTES], struct err *e);
/* "" is fine. */
void hub_probe_remove(const char *dir);

#endif
