/* env_file.h - lines of NAME=VALUE, which systemd's EnvironmentFile= and a shell's `set -a` read alike.
 *
 * Blank lines, and lines that begin with # or ;, are skipped. A value may stand in single or double
 * quotes. Characters that the two would read differently (a backslash, a dollar, a quote inside) are
 * refused. */
#ifndef PLATEAU_CLI_ENV_FILE_H
#define PLATEAU_CLI_ENV_FILE_H

#include "base/err.h"
#include "base/slice.h"

#define ENV_FILE_BYTES_MAX ((size_t)1 << 20)

/* Nonzero ends the reading with it. */
typedef int env_file_fn(void *arg, struct slice name, struct slice value, struct err *e);

/* 0, -EINVAL (an invalid line; e names it and does not quote it), or the result of `entry`, with the line
 * before its message. */
int env_file_parse(struct slice text, env_file_fn *entry, void *arg, struct err *e);
/* As `env_file_parse()`, but of the file at `path`. Also the errors of small_file_read(). */
int env_file_read(const char *path, env_file_fn *entry, void *arg, struct err *e);

#endif
