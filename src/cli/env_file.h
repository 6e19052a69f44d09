/* env_file.h - lines of NAME=VALUE, as systemd's EnvironmentFile= and a shell's `set -a` read them alike.
 *
 * Blank lines, and those that begin with # or ;, say nothing. A value may stand in single or double quotes.
 * What the two would read differently (a backslash, a dollar, a quote inside) is refused. */
#ifndef PLATEAU_CLI_ENV_FILE_H
#define PLATEAU_CLI_ENV_FILE_H

#include "base/err.h"
#include "base/slice.h"

#define ENV_FILE_BYTES_MAX ((size_t)1 << 20)

/* Nonzero ends the reading with it. */
typedef int env_file_fn(void *arg, struct slice name, struct slice value, struct err *e);

/* 0, -EINVAL (a line is none of these; e names it and does not quote it), or what `entry` returned, with the
 * line before its words. */
int env_file_parse(struct slice text, env_file_fn *entry, void *arg, struct err *e);
/* As env_file_parse, and as small_file_read. */
int env_file_read(const char *path, env_file_fn *entry, void *arg, struct err *e);

#endif
