/* admin_show.h - prints a server's replies for people. Control characters of its texts are replaced: a
 * model's name may have some. */
#ifndef PLATEAU_CLI_ADMIN_SHOW_H
#define PLATEAU_CLI_ADMIN_SHOW_H

#include "cli/admin_client.h"
#include "cli/terminal.h"

/* The unchanged body, and a line feed. */
void admin_show_json(const struct admin_reply *r);
void admin_show_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* On standard error, after "plateau: ". */
void admin_show_error(const char *text);
/* Prints /api/status and /api/memory. Missing fields show as 0 or "-". */
void admin_show_status(const char *where, const json_t *status, const json_t *memory);

#endif
