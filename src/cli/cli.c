/* cli.c - from a command line to settings, and from a result to an exit status. */
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"

#include "base/err.h"
#include "host/setting_command.h"
#include "host/settings.h"

#include <errno.h>

bool cli_help(enum setting_command command, const struct settings *o)
{
    if (o->help || o->help_all)
        help_command(command, o->help_all, stdout);
    return o->help || o->help_all;
}

/* Command line of the one command that runs. */
static struct {
    enum setting_command command;
    int argc;
    char **argv;
} line;

void cli_hide_secrets(void)
{
    options_hide(line.command, line.argc, line.argv);
}

int cli_run(enum setting_command command, int argc, char **argv, command_fn *run)
{
    struct settings o;
    struct err e = {{0}};
    line.command = command;
    line.argc = argc;
    line.argv = argv;
    int r = options_parse(command, argc, argv, &o, &e);
    if (r == 0)
        r = options_log_format(&o, &e);
    options_check_environment();
    if (r == 0 && !cli_help(command, &o))
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
        plain_error(e->text);
    return 1;
}
