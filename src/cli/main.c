/* main.c - which command. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"serve", command_serve, "serve a model over HTTP"},
    {"generate", command_generate, "answer one prompt on standard output"},
};

static void usage(FILE *f)
{
    fprintf(f, "Plateau " PLATEAU_VERSION
               ": an LLM inference server whose memory is planned, bounded and returned.\n\n"
               "usage: plateau COMMAND [ARGUMENT...]\n\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].help);
    fprintf(f, "\nplateau COMMAND --help tells its options; plateau --version the version.\n");
}

int main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        usage(argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("plateau " PLATEAU_VERSION);
        return 0;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "plateau: there is no command %s; see plateau --help\n", argv[1]);
    return 2;
}
