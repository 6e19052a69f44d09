/* The history file of plateau chat. Invariants: no crash; no more entries than the limit; a message appended
 * to any content is the last one read again. */
#include "base/check.h"
#include "cli/chat/line_history.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void clean(void)
{
    unlink(path);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    snprintf(path, sizeof(path), "/tmp/plateau-fuzz-XXXXXX");
    int fd = mkstemp(path);
    ASSERT(fd >= 0);
    close(fd);
    atexit(clean);
    return 0;
}

static void write_file(const uint8_t *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    ASSERT(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
}

/* How many there are; the newest in `ret`. */
static int load(char *ret, size_t bytes_max)
{
    HistEvent event;
    History *h = history_init();
    int count = 0;
    ASSERT(h);
    line_history_load(h, path);
    ret[0] = 0;
    for (int r = history(h, &event, H_FIRST); r >= 0; r = history(h, &event, H_NEXT))
        if (count++ == 0)
            snprintf(ret, bytes_max, "%s", event.str);
    history_end(h);
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char newest[128];
    write_file(data, size);
    ASSERT(load(newest, sizeof(newest)) <= LINE_HISTORY_ENTRIES);
    /* A file that libedit does not accept as a history is read as empty. After a history that ends in the
     * middle of a line the message is the end of that line. */
    if (size < 1 || data[size - 1] != '\n' || load(newest, sizeof(newest)) == 0)
        return 0;
    line_history_append(path, "what\nwas typed \\ \xc3\xa9");
    int count = load(newest, sizeof(newest));
    ASSERT(count >= 1 && count <= LINE_HISTORY_ENTRIES);
    ASSERT(memchr(data, 0, size) || strcmp(newest, "what\nwas typed \\ \xc3\xa9") == 0);
    return 0;
}
