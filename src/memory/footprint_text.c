/* footprint_text.c - no allocation and no system calls, so that any bytes may be tried. */
#include "memory/footprint_text.h"

#include "base/check.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t footprint_number(const char *text)
{
    while (*text == ' ' || *text == '\t')
        text++;
    return isdigit((unsigned char)*text) ? strtoull(text, NULL, 10) : 0;
}

uint64_t footprint_field(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at ? footprint_number(at + strlen(key)) : 0;
}

uint64_t footprint_kib(const char *text, const char *key)
{
    uint64_t kib = footprint_field(text, key);
    return kib > UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024;
}

double footprint_stalled(const char *text, const char *who)
{
    const char *line = strstr(text, who), *at = line ? strstr(line, "avg10=") : NULL;
    if (!at || memchr(line, '\n', (size_t)(at - line)))
        return 0;
    double percent = isdigit((unsigned char)at[6]) ? strtod(at + 6, NULL) : 0;
    ASSERT(percent >= 0);
    return percent <= 100 ? percent : 100;
}

/* Whether the names "cpu,memory" of a line have the controller memory. */
static bool has_memory(const char *names, size_t len)
{
    static const char memory[] = "memory";
    ASSERT(!memchr(names, '\n', len) && !memchr(names, ':', len));
    for (const char *end = names + len; names < end; names++) {
        size_t n = strcspn(names, ",:\n");
        if (n == sizeof(memory) - 1 && strncmp(names, memory, n) == 0)
            return true;
        ASSERT(names + n <= end);
        names += n;
    }
    return false;
}

/* The path in the line of a hierarchy, up to the line's end: "NUMBER:NAMES:/path". That of version 2 has the
 * number 0 and no names. */
static const char *find_path(const char *text, unsigned version)
{
    ASSERT(version == 1 || version == 2);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        ASSERT(line == text || line[-1] == '\n');
        const char *names = line + strspn(line, "0123456789");
        if (*names != ':' || names == line)
            continue;
        size_t len = strcspn(++names, ":\n");
        if (strncmp(names + len, ":/", 2) != 0)
            continue;
        if (version == 2 ? len == 0 && strncmp(line, "0:", 2) == 0 : has_memory(names, len))
            return names + len + 1;
    }
    return NULL;
}

static void make_dir(const char *mount, const char *path, char *ret, size_t bytes_max)
{
    ASSERT(bytes_max > 0);
    ret[0] = 0;
    if (!path)
        return;
    size_t len = strcspn(path, "\n");
    ASSERT(path[0] == '/' && len > 0);
    if (path[len] == '\n' && strlen(mount) + len < bytes_max)
        snprintf(ret, bytes_max, "%s%.*s", mount, (int)len, path);
}

void footprint_cgroup_dir(const char *text, char *ret, size_t bytes_max)
{
    make_dir(FOOTPRINT_CGROUPS, find_path(text, 2), ret, bytes_max);
}

void footprint_cgroup1_dir(const char *text, char *ret, size_t bytes_max)
{
    make_dir(FOOTPRINT_CGROUPS "/memory", find_path(text, 1), ret, bytes_max);
}

void footprint_cgroup_up(char *dir)
{
    char *slash = strrchr(dir, '/');
    if (slash && slash >= dir + sizeof(FOOTPRINT_CGROUPS) - 1)
        *slash = 0;
    else
        dir[0] = 0;
}
