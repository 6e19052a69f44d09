/* Files of the kernel below /proc and /sys. Invariants: no crash; shares between 0 and 100; a cgroup's
 * directory lies below the root of all, and reaches it in as many steps as it has parts. */
#include "memory/footprint_text.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_numbers(const char *text)
{
    static const char *const keys[] = {"\nRssAnon:", "\nVmSwap:", "MemTotal:", "\nMemAvailable:", "\nfile "};
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        uint64_t number = footprint_field(text, keys[i]), bytes = footprint_kib(text, keys[i]);
        ASSERT(bytes >= number && (strstr(text, keys[i]) || number == 0));
    }
    double some = footprint_stalled(text, "some "), full = footprint_stalled(text, "full ");
    ASSERT(some >= 0 && some <= 100 && full >= 0 && full <= 100);
    if (text[0] == 'm') /* "max" */
        ASSERT(footprint_number(text) == 0);
}

static void check_cgroup(const char *text, size_t bytes_max,
                         void (*find)(const char *text, char *ret, size_t bytes_max))
{
    char *dir = malloc(bytes_max);
    ASSERT(dir);
    find(text, dir, bytes_max);
    size_t parts = 0, steps = 0;
    ASSERT(strlen(dir) < bytes_max && !strchr(dir, '\n'));
    if (dir[0])
        ASSERT(strncmp(dir, FOOTPRINT_CGROUPS "/", sizeof(FOOTPRINT_CGROUPS)) == 0);
    for (const char *c = dir; *c; c++)
        parts += *c == '/';
    for (; dir[0]; steps++)
        footprint_cgroup_up(dir);
    ASSERT(parts == 0 ? steps == 0 : steps == parts - 2);
    free(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    ASSERT(text);
    memcpy(text, data, size);
    text[size] = 0;
    check_numbers(text);
    static const size_t rooms[] = {4096, 31, 24, 1};
    for (size_t i = 0; i < COUNT_OF(rooms); i++) {
        check_cgroup(text, rooms[i], footprint_cgroup_dir);
        check_cgroup(text, rooms[i], footprint_cgroup1_dir);
    }
    free(text);
    return 0;
}
