/* pull_plan.h - describes a model before its weights are fetched. */
#ifndef PLATEAU_CLI_PULL_PLAN_H
#define PLATEAU_CLI_PULL_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct hub_variants;
struct hub_name;
struct settings;

/* One line: family, form, bytes to fetch, what serving takes at least, whether it fits. `path` as in
 * hub_pull_opts.planned. 0; or, unless `anyway`, -ENOTSUP (it is not served here) and -ENOMEM (it does not
 * fit). */
int pull_plan_show(const struct settings *o, const char *model, const char *path, uint64_t bytes, bool anyway,
                   struct err *e);

/* Lists the GGUF models of a repository on standard error, with their sizes and which fit in memory by size
 * alone. The last line is `command` with the model to take if in doubt. JSON: an event on standard output. */
void pull_plan_show_several(const struct settings *o, const char *command, const struct hub_name *name,
                            const struct hub_variants *g);

/* `text` without the directory of headers in it. */
void pull_plain_reason(const char *text, const char *dir, char *ret, size_t bytes_max);

#endif
