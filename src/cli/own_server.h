/* own_server.h - a server that this process starts for itself, asks, and ends: the kernel ends it with its
 * parent. Main thread. */
#ifndef PLATEAU_CLI_OWN_SERVER_H
#define PLATEAU_CLI_OWN_SERVER_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct settings;

#define OWN_SERVER_ID_BYTES 256

struct own_server_opts {
    /* Settings of chat or generate: their model for one request at a time, behind a socket without a name
     * that this user's processes alone may open. NULL: `plateau serve MODEL`, with the settings of the
     * environment, at a free port of the loopback address. */
    const struct settings *talk;
    bool needs_template;   /* with talk: a model without a chat template is an error */
    bool no_images;        /* with talk: its vision encoder is not loaded */
    const char *model;     /* without talk: its MODEL; NULL: the server's own ones */
    const char *log_level; /* without talk, where the environment names none */
    /* The server says nothing, Ctrl-C of the terminal does not reach it, and it goes on in the program that
     * this process becomes by exec(). */
    bool outlives_exec;
    bool (*stopped)(void); /* asked while it starts */
};

struct own_server {
    pid_t pid;       /* 0: none */
    int reports;     /* pipe of its reports */
    char socket[64]; /* abstract, "@NAME"; "": at `url` */
    char url[64];
    char key[65]; /* the admin key at `url` */
    /* Its first model, loaded. */
    char model[OWN_SERVER_ID_BYTES];
    uint32_t context;
    bool chats, text_only; /* it has a chat template; it takes neither images nor videos */
};

/* Starts it, and waits until its model is loaded; a slow load shows its progress on standard error. 0; the
 * error that ended it, with its sentence; -ECHILD: it ended without one; -ECANCELED: stopped() said so. On
 * failure there is no server. */
int own_server_start(const struct own_server_opts *o, struct own_server *ret, struct err *e);
/* After a connection was cut: whether the server has ended by itself, or does within a second. `e` then says
 * how. */
bool own_server_is_gone(struct own_server *s, struct err *e);
/* Ends it: at once if it serves one conversation, else in the order of SIGTERM. Zeroed is fine. */
void own_server_stop(struct own_server *s);

#endif
