/* config_file.h - the lines of an INI file, as libinih reads them, but none cut and none joined.
 *
 * libinih reads lines into a fixed buffer: the rest of a longer one would be a line of its own. It takes an
 * indented line for more of the value above, and ends a line at a zero byte. Here a line that is too long or
 * has a zero byte is refused, blanks before a line say nothing, and a comment may have any length. */
#ifndef PLATEAU_CLI_CONFIG_FILE_H
#define PLATEAU_CLI_CONFIG_FILE_H

#include "base/err.h"

#include <stdio.h>

/* `section` is "" at the head. 1 to go on; the callee keeps its error. */
typedef int config_file_entry_fn(void *arg, const char *section, const char *name, const char *value);

/* 0, -EINVAL (a line is not "name = value" or a section, or is too long; e names it), -ENOMEM, -ENOENT (the
 * file cannot be read). */
int config_file_read(const char *path, config_file_entry_fn *entry, void *arg, struct err *e);

#endif
