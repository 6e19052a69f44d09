/* footprint.c - a few small files of the kernel, read whole. */
#include "memory/footprint.h"

#include "base/check.h"
#include "memory/footprint_text.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The file's text in `ret`, terminated; empty when it cannot be read. */
static void read_small(const char *path, char *ret, size_t bytes_max)
{
    ASSERT(bytes_max > 1);
    ret[0] = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = read(fd, ret, bytes_max - 1);
    close(fd);
    ret[n > 0 ? n : 0] = 0;
}

/* This process's cgroup (v2). Empty without one. */
static void cgroup_dir(char *ret, size_t bytes_max)
{
    char text[8192];
    read_small("/proc/self/cgroup", text, sizeof(text));
    footprint_cgroup_dir(text, ret, bytes_max);
    ASSERT(!ret[0] || strncmp(ret, FOOTPRINT_CGROUPS, sizeof(FOOTPRINT_CGROUPS) - 1) == 0);
}

static void cgroup_read(const char *dir, const char *name, char *ret, size_t bytes_max)
{
    char path[4200];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    read_small(path, ret, bytes_max);
}

static void take_least(const char *dir, const char *name, uint64_t *least)
{
    char text[64];
    cgroup_read(dir, name, text, sizeof(text));
    uint64_t limit = footprint_number(text); /* "max" parses as 0 */
    if (limit && (*least == 0 || limit < *least))
        *least = limit;
}

/* The lowest limits of the cgroup and its ancestors; 0: no limit. Cuts `dir` short on its way up. */
static void read_cgroup_limits(char *dir, struct footprint *ret)
{
    while (dir[0]) {
        take_least(dir, "memory.max", &ret->cgroup_limit_bytes);
        take_least(dir, "memory.high", &ret->cgroup_high_bytes);
        size_t len = strlen(dir);
        footprint_cgroup_up(dir);
        ASSERT(strlen(dir) < len);
    }
}

static void read_stalls(const char *dir, struct footprint *ret)
{
    char text[256];
    cgroup_read(dir, "memory.pressure", text, sizeof(text));
    /* The root cgroup's figure is the machine's. */
    ret->stalled_is_own = text[0] && strcmp(dir, "/sys/fs/cgroup/") != 0;
    if (!text[0])
        read_small("/proc/pressure/memory", text, sizeof(text));
    ret->stalled_some = footprint_stalled(text, "some ");
    ret->stalled_full = footprint_stalled(text, "full ");
    ASSERT(ret->stalled_some <= 100 && ret->stalled_full <= 100);
}

static void footprint_read_cgroup(struct footprint *ret)
{
    char dir[4096], text[8192];
    cgroup_dir(dir, sizeof(dir));
    cgroup_read(dir, "memory.current", text, sizeof(text));
    uint64_t current = footprint_number(text);
    cgroup_read(dir, "memory.stat", text, sizeof(text));
    uint64_t file_bytes = footprint_field(text, "\nfile ");
    ret->cgroup_bytes = current > file_bytes ? current - file_bytes : 0;
    read_stalls(dir, ret);
    read_cgroup_limits(dir, ret);
}

/* The number of arenas of the heap. Requests allocate on the network thread and on at most four others. The
 * default is four arenas per processor: that heap is larger, and opening an arena late can fail. */
#define ARENAS 4

/* jemalloc reads this by its name before main(). Its background thread returns free memory to the system
 * within 250 ms, also without further allocations. The default is 10 s of further allocations, and an idle
 * server makes none. No other code refers to it. */
extern const char *malloc_conf __attribute__((visibility("default")));
const char *malloc_conf =
    "narenas:4,background_thread:true,max_background_threads:1,dirty_decay_ms:250,muzzy_decay_ms:0";

/* jemalloc's function, where the program links it; NULL with another allocator. */
extern int mallctl(const char *name, void *ret, size_t *ret_bytes, void *set, size_t set_bytes)
    __attribute__((weak));

static uint64_t heap_resident_bytes(void)
{
    /* Statistics are as old as the epoch; setting it renews them. */
    uint64_t epoch = 1;
    size_t resident = 0, bytes = sizeof(resident);
    if (!mallctl || mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch)) != 0)
        return 0;
    return mallctl("stats.resident", &resident, &bytes, NULL, 0) == 0 ? resident : 0;
}

void footprint_open_heap(void)
{
    unsigned own = 0;
    size_t bytes = sizeof(own);
    if (!mallctl || mallctl("thread.arena", &own, &bytes, NULL, 0) != 0)
        return;
    for (unsigned i = 0; i < ARENAS; i++)
        (void)mallctl("thread.arena", NULL, NULL, &i, sizeof(i));
    (void)mallctl("thread.arena", NULL, NULL, &own, sizeof(own));
}

void footprint_purge_heap(void)
{
    /* 4096 is jemalloc's name for all arenas. */
    if (mallctl)
        (void)mallctl("arena.4096.purge", NULL, NULL, NULL, 0);
}

void footprint_read(struct footprint *ret)
{
    char text[8192];
    *ret = (struct footprint){0};
    read_small("/proc/self/status", text, sizeof(text));
    ret->rss_anon_bytes = footprint_kib(text, "\nRssAnon:");
    ret->rss_file_bytes = footprint_kib(text, "\nRssFile:");
    ret->rss_shmem_bytes = footprint_kib(text, "\nRssShmem:");
    ret->swap_bytes = footprint_kib(text, "\nVmSwap:");
    read_small("/proc/meminfo", text, sizeof(text));
    ret->ram_bytes = footprint_kib(text, "MemTotal:");
    ret->ram_available_bytes = footprint_kib(text, "\nMemAvailable:");
    ret->heap_bytes = heap_resident_bytes();
    footprint_read_cgroup(ret);
}

uint64_t footprint_reserve(const struct footprint *f)
{
    return MIN_OF(MAX_OF((uint64_t)1 << 30, f->ram_bytes / 20), f->ram_bytes / 2);
}

uint64_t footprint_ceiling(const struct footprint *f, uint64_t wanted_bytes)
{
    ASSERT(footprint_reserve(f) <= f->ram_bytes);
    uint64_t ceiling = f->ram_bytes - footprint_reserve(f);
    if (f->cgroup_limit_bytes)
        ceiling = MIN_OF(ceiling, f->cgroup_limit_bytes);
    if (wanted_bytes)
        ceiling = MIN_OF(ceiling, wanted_bytes);
    return ceiling;
}
