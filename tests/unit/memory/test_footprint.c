/* footprint_read() over control groups in a directory of the test: the linker puts __wrap_open in place of
 * open (--wrap). */
#include "memory/footprint.h"
#include "test.h"
#include "test_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const char *root;
static bool no_proc;

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    char ours[512];
    bool theirs = strcmp(path, "/proc/self/cgroup") != 0 && strncmp(path, "/sys/fs/cgroup/", 15) != 0 &&
                  strncmp(path, "/proc/pressure/", 15) != 0;
    if (no_proc && strncmp(path, "/proc/", 6) == 0) {
        errno = ENOENT;
        return -1;
    }
    if (!root || theirs)
        return __real_open(path, flags, 0600);
    snprintf(ours, sizeof(ours), "%s%s", root, path);
    return __real_open(ours, flags);
}

static void make(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof(path), "%s%s", root, name);
    for (char *at = strchr(path + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(path, 0700);
        *at = '/';
    }
    int fd = __real_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static struct footprint read_all(void)
{
    struct footprint f;
    footprint_read(&f);
    root = NULL;
    return f;
}

static bool is_limited_at(rlim_t data, uint64_t bytes)
{
    struct rlimit usual;
    assert_int_equal(getrlimit(RLIMIT_DATA, &usual), 0);
    struct rlimit low = {data, usual.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_DATA, &low), 0);
    bool limited = footprint_is_limited(bytes);
    assert_int_equal(setrlimit(RLIMIT_DATA, &usual), 0);
    return limited;
}

TEST(a_limit_of_the_process_is_told_from_a_full_machine)
{
    assert_false(is_limited_at(RLIM_INFINITY, (uint64_t)1 << 60));
    assert_true(is_limited_at((rlim_t)1 << 50, (uint64_t)1 << 50));
    assert_false(is_limited_at((rlim_t)1 << 50, (uint64_t)1 << 20));
    assert_true(is_limited_at(4096, 4096));
}

TEST(limits_are_the_least_on_the_way_up)
{
    root = test_dir();
    make("/proc/self/cgroup", "0::/a/b\n");
    make("/sys/fs/cgroup/a/b/memory.max", "5000\n");
    make("/sys/fs/cgroup/a/b/memory.high", "2000\n");
    make("/sys/fs/cgroup/a/memory.max", "3000\n");
    make("/sys/fs/cgroup/a/memory.high", "2500\n");
    make("/sys/fs/cgroup/memory.max", "max\n");
    make("/sys/fs/cgroup/memory.high", "max\n");
    struct footprint f = read_all();
    assert_int_equal(f.cgroup_limit_bytes, 3000);
    assert_int_equal(f.cgroup_high_bytes, 2000);
}

TEST(limits_that_are_none_are_0)
{
    root = test_dir();
    make("/proc/self/cgroup", "0::/a\n");
    make("/sys/fs/cgroup/a/memory.max", "max\n");
    make("/sys/fs/cgroup/a/memory.high", "max\n");
    struct footprint f = read_all();
    assert_true(f.cgroup_limit_bytes == 0 && f.cgroup_high_bytes == 0 && f.cgroup_bytes == 0);
    assert_true(f.rss_anon_bytes > 0 && f.rss_file_bytes > 0);
    assert_true(f.ram_bytes > f.ram_available_bytes && f.ram_available_bytes > 0);
}

TEST(files_in_memory_do_not_count)
{
    root = test_dir();
    make("/proc/self/cgroup", "0::/a\n");
    make("/sys/fs/cgroup/a/memory.current", "9000\n");
    make("/sys/fs/cgroup/a/memory.stat", "anon 1\nfile 4000\nkernel 2\n");
    assert_int_equal(read_all().cgroup_bytes, 5000);
    root = test_dir();
    make("/proc/self/cgroup", "0::/a\n");
    make("/sys/fs/cgroup/a/memory.current", "9000\n");
    make("/sys/fs/cgroup/a/memory.stat", "anon 1\nfile 4000\nshmem 1500\n");
    assert_int_equal(read_all().cgroup_bytes, 6500); /* files of a tmpfs stay */
    /* The kernel wrote the two files at different times. */
    root = test_dir();
    make("/proc/self/cgroup", "0::/a\n");
    make("/sys/fs/cgroup/a/memory.current", "3000\n");
    make("/sys/fs/cgroup/a/memory.stat", "anon 1\nfile 4000\n");
    assert_int_equal(read_all().cgroup_bytes, 0);
}

TEST(the_first_version_of_cgroups_counts_where_the_second_has_no_memory)
{
    root = test_dir();
    make("/proc/self/cgroup", "4:memory:/a/b\n3:cpu:/c\n0::/\n");
    make("/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "9000\n");
    make("/sys/fs/cgroup/memory/a/b/memory.stat",
         "cache 1\nrss 5000\nhierarchical_memory_limit 20000\ntotal_cache 4000\ntotal_shmem 300\n");
    struct footprint f = read_all();
    assert_int_equal(f.cgroup_limit_bytes, 20000);
    assert_int_equal(f.cgroup_bytes, 5300);
    /* None; and a container that sees its own cgroup as the root. */
    root = test_dir();
    make("/proc/self/cgroup", "4:memory:/a/b\n0::/\n");
    make("/sys/fs/cgroup/memory/memory.usage_in_bytes", "9000\n");
    make("/sys/fs/cgroup/memory/memory.stat",
         "cache 1\nhierarchical_memory_limit 9223372036854771712\ntotal_cache 0\n");
    f = read_all();
    assert_true(f.cgroup_limit_bytes == 0 && f.cgroup_bytes == 9000);
}

TEST(a_container_sees_its_cgroup_as_the_root)
{
    root = test_dir();
    make("/proc/self/cgroup", "0::/docker/1\n");
    make("/sys/fs/cgroup/memory.max", "5000\n");
    make("/sys/fs/cgroup/memory.current", "900\n");
    make("/sys/fs/cgroup/memory.stat", "anon 1\nfile 400\n");
    struct footprint f = read_all();
    assert_int_equal(f.cgroup_limit_bytes, 5000);
    assert_int_equal(f.cgroup_bytes, 500);
}

TEST(the_machine_has_its_memory_without_proc)
{
    struct footprint with, without;
    footprint_read(&with);
    no_proc = true;
    footprint_read(&without);
    no_proc = false;
    assert_int_equal(without.ram_bytes, with.ram_bytes);
    assert_true(without.rss_anon_bytes == 0 && without.ram_available_bytes == 0);
    assert_true(footprint_ceiling(&without, 0) > 0);
}

TEST(stalls_are_of_the_cgroup_or_of_the_machine)
{
    static const char own[] = "some avg10=12.50 avg60=1.00\nfull avg10=0.25 avg60=0.00\n",
                      machine[] = "some avg10=50.00 avg60=1.00\nfull avg10=25.00 avg60=0.00\n";
    root = test_dir();
    make("/proc/self/cgroup", "0::/a\n");
    make("/proc/pressure/memory", machine);
    struct footprint f;
    footprint_read(&f);
    assert_true(f.stalled_some == 50 && f.stalled_full == 25 && !f.stalled_is_own);
    make("/sys/fs/cgroup/a/memory.pressure", own);
    footprint_read(&f);
    assert_true(f.stalled_some == 12.5 && f.stalled_full == 0.25 && f.stalled_is_own);
    /* The root's pressure is the machine's. */
    make("/proc/self/cgroup", "0::/\n");
    make("/sys/fs/cgroup/memory.pressure", machine);
    f = read_all();
    assert_true(f.stalled_some == 50 && !f.stalled_is_own);
}

TEST_MAIN()
