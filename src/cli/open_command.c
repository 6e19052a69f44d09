/* open_command.c - the command open. The browser gets a private file that leads to the page: an argument with
 * the key would stand in the process list. */
#include "cli/admin_client.h"
#include "cli/cli.h"
#include "cli/page_address.h"
#include "host/socket_dir.h"

#include "host/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the browser ---- */

static int write_file(const char *path, const char *address)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f)
        return -errno;
    fprintf(f,
            "<!doctype html><meta charset=utf-8><meta name=referrer content=no-referrer>"
            "<meta http-equiv=refresh content=\"0;url=%s\"><title>Plateau</title>\n",
            address);
    return fclose(f) == 0 ? 0 : -EIO;
}

static bool start_browser(const char *file)
{
    char name[] = "xdg-open";
    char *argv[] = {name, (char *)file, NULL};
    posix_spawn_file_actions_t quiet;
    posix_spawnattr_t attributes;
    sigset_t pipe;
    int status = 1;
    pid_t child;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &pipe);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    bool started = posix_spawnp(&child, name, &quiet, &attributes, argv, environ) == 0;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&quiet);
    return started && waitpid(child, &status, 0) == child && status == 0;
}

static bool has_desktop(void)
{
    const char *x = getenv("DISPLAY"), *wayland = getenv("WAYLAND_DISPLAY");
    return (x && x[0]) || (wayland && wayland[0]);
}

static bool browse(const char *socket, const char *address)
{
    char file[128];
    socket_path_beside(socket, ".html", file, sizeof(file));
    return has_desktop() && write_file(file, address) == 0 && start_browser(file);
}

/* ---- the command ---- */

static int open_page(const struct settings *o, const struct admin_client *c, struct err *e)
{
    char key[PAGE_KEY_BYTES];
    struct page_address page;
    page_key(c->socket, key);
    int r = page_address_find(c, key, &page, e);
    if (r == 0 && !o->print && browse(c->socket, page.text))
        printf("The browser opens %.*s\n", (int)strcspn(page.text, "#"), page.text);
    else if (r == 0)
        printf("%s\n", page.text);
    if (r == 0 && !key[0])
        fprintf(stderr, "plateau: the page asks for one of the admin keys that the server was given\n");
    explicit_bzero(key, sizeof(key));
    explicit_bzero(&page, sizeof(page));
    return r;
}

static int run(struct settings *o, struct err *e)
{
    struct admin_client c;
    int r = admin_client_open(o, &c, e);
    if (r == 0)
        r = open_page(o, &c, e);
    admin_client_close(&c);
    return cli_status(r, e);
}

int command_open(int argc, char **argv)
{
    return cli_run(COMMAND_OPEN, argc, argv, run);
}
