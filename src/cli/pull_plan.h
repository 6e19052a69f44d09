/* pull_plan.h - what is said of a model before its weights are fetched. */
#ifndef PLATEAU_CLI_PULL_PLAN_H
#define PLATEAU_CLI_PULL_PLAN_H

#include "hub/hub_pull.h"
#include "host/settings.h"

/* One line: family, form, bytes to fetch, what serving takes at least, whether it fits. 0; or, unless
 * `anyway`, -ENOTSUP (it is not served here) and -ENOMEM (it does not fit). */
int pull_plan_show(const struct settings *o, const char *model, const char *dir, uint64_t bytes, bool anyway,
                   struct err *e);

/* `text` without the directory of headers in it. */
void pull_plain_reason(const char *text, const char *dir, char *ret, size_t bytes_max);

#endif
