/* The file of --config, for each command. Invariants: no crash; a refusal has a sentence that starts with the
 * file's name; accepted values lie within their bounds; the options of every section can be read. */
#include "cli/options.h"

#include "base/check.h"
#include "base/clock.h"
#include "host/settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct settings *o)
{
    struct settings own;
    struct err e = {{0}};
    const char *section;
    ASSERT(o->http.port <= 65535 && o->model.engine.max_num_seqs <= 256);
    for (uint32_t i = 0; (section = settings_section(o, i)); i++) {
        int r = settings_of_model(o, section, &own, &e);
        ASSERT(r == 0 || (r == -EINVAL && e.text[0]));
        ASSERT(r < 0 || own.model.ttl_ns <= 100000000 * NS_PER_S);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum setting_command commands[] = {COMMAND_SERVE, COMMAND_PLAN, COMMAND_CHAT,
                                                    COMMAND_GENERATE};
    char path[64], name[] = "plateau";
    int fd = memfd_create("config", MFD_CLOEXEC);
    if (size == 0 || fd < 0 || write(fd, data + 1, size - 1) != (ssize_t)(size - 1))
        return 0;
    snprintf(path, sizeof(path), "--config=/proc/self/fd/%d", fd);
    struct settings o;
    struct err e = {{0}};
    int r = options_parse(commands[data[0] % COUNT_OF(commands)], 2, (char *[]){name, path, NULL}, &o, &e);
    ASSERT(r == 0 || (r == -EINVAL && strncmp(e.text, "--config /proc", 14) == 0));
    if (r == 0)
        check(&o);
    settings_done(&o);
    close(fd);
    return 0;
}
