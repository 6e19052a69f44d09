/* cpus.c - sched_getaffinity (which a cpuset narrows), sysfs for the cores, the cgroup files for the quota.
 *
 * Both cgroup versions are read: version 2 from "0::/path" upwards, version 1 from the line with the cpu
 * controller. In a container the path may not exist below the mount; then only the mount's root counts, which
 * is our group there. */
#include "kernel/cpus.h"

#include "base/check.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CPUS_MAX 4096

static long read_long(const char *path, long otherwise)
{
    FILE *f = fopen(path, "re");
    long value;
    if (!f)
        return otherwise;
    if (fscanf(f, "%ld", &value) != 1)
        value = otherwise;
    fclose(f);
    return value;
}

/* Package and core as one number; a processor without topology is a core of its own. */
static uint64_t core_of(uint32_t cpu)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/physical_package_id", cpu);
    long package = read_long(path, -1);
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/core_id", cpu);
    long core = read_long(path, -1);
    if (package < 0 || core < 0)
        return UINT64_MAX - cpu;
    return (uint64_t)package << 32 | (uint64_t)core;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

uint32_t cpus_physical(void)
{
    cpu_set_t sets[CPUS_MAX / CPU_SETSIZE];
    uint64_t cores[CPUS_MAX];
    uint32_t count = 0, different = 0;
    memset(sets, 0, sizeof sets);
    if (sched_getaffinity(0, sizeof sets, sets) != 0)
        return 1;
    for (uint32_t cpu = 0; cpu < CPUS_MAX; cpu++) {
        if (CPU_ISSET_S(cpu, sizeof sets, sets))
            cores[count++] = core_of(cpu);
    }
    qsort(cores, count, sizeof cores[0], by_value);
    for (uint32_t i = 0; i < count; i++)
        different += i == 0 || cores[i] != cores[i - 1];
    return MAX_OF(different, 1);
}

static uint32_t quota_of(long quota_us, long period_us)
{
    if (quota_us <= 0 || period_us <= 0)
        return UINT32_MAX;
    long long cpus = ((long long)quota_us + period_us - 1) / period_us;
    return cpus < UINT32_MAX ? (uint32_t)cpus : UINT32_MAX;
}

/* The quota that one group's folder states. */
static uint32_t folder_quota(const char *folder)
{
    char path[1024 + 64];
    long quota = -1, period = -1;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    FILE *f = fopen(path, "re");
    if (f) { /* "max 100000" does not scan: no quota */
        if (fscanf(f, "%ld %ld", &quota, &period) != 2)
            quota = -1;
        fclose(f);
        return quota_of(quota, period);
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    quota = read_long(path, -1);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    return quota_of(quota, read_long(path, -1));
}

/* The smallest quota from `mount` + `group` up to the mount itself. */
static uint32_t chain_quota(const char *mount, const char *group)
{
    char folder[1024];
    size_t root = strlen(mount);
    int length = snprintf(folder, sizeof folder, "%s%s", mount, group);
    if (length < 0 || (size_t)length >= sizeof folder)
        return folder_quota(mount);
    uint32_t least = UINT32_MAX;
    for (;;) {
        uint32_t quota = folder_quota(folder);
        least = MIN_OF(least, quota);
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= root || !slash)
            return least;
        *slash = 0;
    }
}

/* One line of /proc/self/cgroup: "0::/path" or "4:cpu,cpuacct:/path". */
static uint32_t line_quota(char *line)
{
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
        return UINT32_MAX;
    *group++ = 0;
    group[strcspn(group, "\n")] = 0;
    controllers++;
    if (*controllers == 0)
        return chain_quota("/sys/fs/cgroup", group);
    if (strcmp(controllers, "cpu") != 0 && strncmp(controllers, "cpu,", 4) != 0 &&
        !strstr(controllers, ",cpu,"))
        return UINT32_MAX;
    return chain_quota("/sys/fs/cgroup/cpu", group);
}

uint32_t cpus_quota(void)
{
    char line[1024];
    uint32_t least = UINT32_MAX;
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f)
        return UINT32_MAX;
    while (fgets(line, sizeof line, f)) {
        uint32_t quota = line_quota(line);
        least = MIN_OF(least, quota);
    }
    fclose(f);
    return least;
}
