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

/* The line of the v2 hierarchy, which has no number and no names of controllers. */
static const char *find_line(const char *text)
{
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        ASSERT(line == text || line[-1] == '\n');
        if (strncmp(line, "0::/", 4) == 0)
            return line;
    }
    return NULL;
}

void footprint_cgroup_dir(const char *text, char *ret, size_t bytes_max)
{
    ASSERT(bytes_max > 0);
    const char *line = find_line(text);
    ret[0] = 0;
    if (!line)
        return;
    size_t len = strcspn(line + 3, "\n");
    bool whole = line[3 + len] == '\n' && sizeof(FOOTPRINT_CGROUPS) + len <= bytes_max;
    if (whole)
        snprintf(ret, bytes_max, FOOTPRINT_CGROUPS "%.*s", (int)len, line + 3);
}

void footprint_cgroup_up(char *dir)
{
    char *slash = strrchr(dir, '/');
    if (slash && slash >= dir + sizeof(FOOTPRINT_CGROUPS) - 1)
        *slash = 0;
    else
        dir[0] = 0;
}
