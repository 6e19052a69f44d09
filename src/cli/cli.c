/* cli.c - from a command line to settings, and from a result to an exit status. */
#include "cli/cli.h"

#include <errno.h>

int cli_run(enum setting_command command, int argc, char **argv, command_fn *run)
{
    struct settings o;
    struct err e = {{0}};
    int r = options_parse(command, argc, argv, &o, &e);
    if (r == 0 && o.help)
        help_command(command, stdout);
    else if (r == 0)
        r = run(&o, &e);
    settings_done(&o);
    if (r >= 0)
        return r;
    cli_status(r, &e);
    return 2;
}

int cli_status(int r, const struct err *e)
{
    if (r >= 0)
        return r;
    if (r == -ECANCELED)
        return EXIT_INTERRUPTED;
    if (e->text[0])
        fprintf(stderr, "plateau: %s\n", e->text);
    return 1;
}
