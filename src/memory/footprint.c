/* footprint.c - a few small files of the kernel, read whole. */
#include "memory/footprint.h"

#include "base/check.h"
#include "memory/footprint_text.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define CGROUP_BYTES 4096

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

static void cgroup_read(const char *dir, const char *name, char *ret, size_t bytes_max)
{
    char path[CGROUP_BYTES + 64];
    ASSERT(strlen(dir) < CGROUP_BYTES && name[0] != '/');
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    read_small(path, ret, bytes_max);
}

static uint64_t cgroup_number(const char *dir, const char *name)
{
    char text[64];
    cgroup_read(dir, name, text, sizeof(text));
    return footprint_number(text); /* "max" parses as 0 */
}

/* Version 1 says "none" with the largest multiple of a page. */
#define LIMITS_NOTHING ((uint64_t)1 << 62)

static void take_least(uint64_t limit, uint64_t *least)
{
    if (limit && limit < LIMITS_NOTHING && (*least == 0 || limit < *least))
        *least = limit;
}

/* The lowest limits of the cgroup and its ancestors; 0: no limit. */
static void read_limits(const char *cgroup, struct footprint *ret)
{
    char dir[CGROUP_BYTES];
    snprintf(dir, sizeof(dir), "%s", cgroup);
    while (dir[0]) {
        take_least(cgroup_number(dir, "memory.max"), &ret->cgroup_limit_bytes);
        take_least(cgroup_number(dir, "memory.high"), &ret->cgroup_high_bytes);
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

/* Names of a version: what the cgroup uses, and the parts of it that are files. The kernel counts those of a
 * tmpfs among them, and cannot drop these. */
struct use_names {
    const char *current, *file, *shmem;
};

static const struct use_names version1 = {"memory.usage_in_bytes", "\ntotal_cache ", "\ntotal_shmem "},
                              version2 = {"memory.current", "\nfile ", "\nshmem "};

static void read_use(const char *dir, const struct use_names *names, struct footprint *ret)
{
    char text[8192];
    uint64_t bytes = cgroup_number(dir, names->current);
    cgroup_read(dir, "memory.stat", text, sizeof(text));
    uint64_t file_bytes = footprint_field(text, names->file), shmem = footprint_field(text, names->shmem);
    file_bytes -= MIN_OF(shmem, file_bytes);
    ret->cgroup_bytes = bytes > file_bytes ? bytes - file_bytes : 0;
    ASSERT(dir[0] && ret->cgroup_bytes <= bytes);
    take_least(footprint_field(text, "\nhierarchical_memory_limit "), &ret->cgroup_limit_bytes);
}

/* The cgroup, or the nearest above that has the file. A container may see only its own cgroup, as the root,
 * while /proc/self/cgroup has the path on the host. Empty: none has it. */
static void find_cgroup(char *dir, const char *name)
{
    while (dir[0] && cgroup_number(dir, name) == 0) {
        size_t len = strlen(dir);
        footprint_cgroup_up(dir);
        ASSERT(strlen(dir) < len);
    }
}

/* Version 2 where it has the controller memory; else version 1, which has limits and use, and no stalls. */
static void footprint_read_cgroup(struct footprint *ret)
{
    char text[8192], dir[CGROUP_BYTES], first[CGROUP_BYTES];
    read_small("/proc/self/cgroup", text, sizeof(text));
    footprint_cgroup_dir(text, dir, sizeof(dir));
    footprint_cgroup1_dir(text, first, sizeof(first));
    read_limits(dir, ret);
    read_stalls(dir, ret);
    find_cgroup(dir, version2.current);
    find_cgroup(first, version1.current);
    if (dir[0])
        read_use(dir, &version2, ret);
    else if (first[0])
        read_use(first, &version1, ret);
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

/* In a root directory without /proc. Files in memory are not known, so what is available is not either. */
static void read_without_proc(struct footprint *ret)
{
    struct sysinfo s;
    if (sysinfo(&s) == 0)
        ret->ram_bytes = (uint64_t)s.totalram * s.mem_unit;
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
    if (ret->ram_bytes == 0)
        read_without_proc(ret);
    ret->heap_bytes = heap_resident_bytes();
    footprint_read_cgroup(ret);
}

bool footprint_is_limited(uint64_t bytes)
{
    struct rlimit limit;
    char text[128];
    unsigned long long data_pages = 0;
    ASSERT(bytes > 0);
    if (getrlimit(RLIMIT_DATA, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
        return false;
    read_small("/proc/self/statm", text, sizeof(text));
    /* Writable memory that is not shared, with the first thread's stack. */
    (void)sscanf(text, "%*u %*u %*u %*u %*u %llu", &data_pages);
    return data_pages * (uint64_t)sysconf(_SC_PAGESIZE) + bytes > limit.rlim_cur;
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
