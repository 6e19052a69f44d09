/* main.c - which command. */
#include "cli/cli.h"
#include "cli/nearest.h"
#include "cli/output.h"
#include "cli/source_commit.h" /* PLATEAU_COMMIT, "commit 1a2b3c4d5e, " or "", written by the build */

#include "base/check.h"
#include "base/log.h"
#include "host/device_choice.h"
#include "host/runtime.h"
#include "host/settings.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#if defined(__clang__)
#define PLATEAU_COMPILER "clang " __clang_version__
#else
#define PLATEAU_COMPILER "gcc " __VERSION__
#endif

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"serve", command_serve},       {"chat", command_chat},
    {"generate", command_generate}, {"models", command_models},
    {"plan", command_plan},         {"cache", command_cache},
    {"status", command_admin},      {"load", command_admin},
    {"unload", command_admin},      {"clear", command_admin},
    {"trim", command_admin},        {"parse", command_parse},
    {"pull", command_pull},         {"open", command_open},
    {"bench", command_bench},       {"completion", command_completion},
    {"manual", command_manual},     {"schema", command_schema},
    {"eval", command_eval},         {"pack", command_pack},
    {"launch", command_launch},     {"why", command_why},
};

static bool is_one_of(const char *word, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

static int run_command(int argc, char **argv)
{
    struct nearest n = nearest_begin(slice_of(argv[0]));
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        if (strcmp(argv[0], commands[i].name) == 0)
            return commands[i].run(argc, argv);
        nearest_try(&n, commands[i].name);
    }
    plain_printf(stderr, "plateau: there is no command %s%s; plateau --help lists them\n", argv[0],
                 nearest_question(&n, "").text);
    return 2;
}

/* Prints the version as a report of a fault begins. */
static void print_version(void)
{
    printf("plateau " PLATEAU_VERSION " (" PLATEAU_COMMIT PLATEAU_COMPILER ", kernels %s, %u cores, %s)\n",
           device_choice_tier(), runtime_workers(&(struct settings){0}), device_choice_gpu());
}

/* Stack of the main thread: with 128, generate was a fault. */
#define STACK_LEAST_KIB 512u

static bool has_stack(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_STACK, &l) < 0 || l.rlim_cur / 1024 >= STACK_LEAST_KIB)
        return true;
    fprintf(stderr, "plateau: a stack has %llu KiB here (ulimit -s), and %u are needed\n",
            (ull)l.rlim_cur / 1024, STACK_LEAST_KIB);
    return false;
}

static int run(int argc, char **argv)
{
    static const char *const version[] = {"--version", "-V", "version"};
    static const char *const help[] = {"--help", "-h", "help", "--help-all"};
    if (argc < 2) {
        help_program(stderr);
        return 2;
    }
    if (is_one_of(argv[1], version, COUNT_OF(version))) {
        print_version();
        return 0;
    }
    if (!is_one_of(argv[1], help, COUNT_OF(help)))
        return has_stack() ? run_command(argc - 1, argv + 1) : 1;
    if (argc == 2) {
        help_program(stdout);
        return 0;
    }
    return run_command(2, (char *[]){argv[2], (char[]){"--help"}, NULL});
}

int main(int argc, char **argv)
{
    output_begin();
    log_set_format(LOG_FORMAT_AUTO);
    /* A file at its size limit is a write that fails with EFBIG, not the end of the process. */
    signal(SIGXFSZ, SIG_IGN);
    /* A reader that has left is a write that fails with EPIPE: status 1 and a message, as for a full disk. */
    signal(SIGPIPE, SIG_IGN);
    return output_end(run(argc, argv));
}
