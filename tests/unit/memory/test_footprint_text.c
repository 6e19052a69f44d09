/* Memory by the kernel, read from its text. */
#include "memory/footprint_text.h"
#include "test.h"

TEST(numbers_behind_their_names)
{
    const char *text = "Name:\tx\nRssAnon:\t   12 kB\nVmSwap:\t0 kB\nfile 4096\n";
    assert_int_equal(footprint_kib(text, "\nRssAnon:"), 12288);
    assert_int_equal(footprint_kib(text, "\nVmSwap:"), 0);
    assert_int_equal(footprint_field(text, "\nfile "), 4096);
    assert_int_equal(footprint_field(text, "\nnone "), 0);
    assert_int_equal(footprint_number("max\n"), 0);
    assert_int_equal(footprint_number("-5"), 0);
    assert_true(footprint_kib("x 18446744073709551615 kB", "x ") == UINT64_MAX);
}

TEST(stalls_are_of_their_own_line_and_a_share)
{
    const char *text = "some avg10=12.50 avg60=1.00\nfull avg10=0.25 avg60=0.00\n";
    assert_true(footprint_stalled(text, "some ") == 12.5 && footprint_stalled(text, "full ") == 0.25);
    assert_true(footprint_stalled("some total=5\nfull avg10=3.00\n", "some ") == 0);
    assert_true(footprint_stalled("some avg10=1e9\n", "some ") == 100);
    assert_true(footprint_stalled("some avg10=nan\n", "some ") == 0);
    assert_true(footprint_stalled("", "some ") == 0);
}

static void assert_dir(const char *text, const char *expected)
{
    char dir[64] = "x";
    footprint_cgroup_dir(text, dir, sizeof(dir));
    assert_string_equal(dir, expected);
}

TEST(the_cgroup_is_that_of_the_second_version)
{
    assert_dir("0::/\n", "/sys/fs/cgroup/");
    assert_dir("12:cpu:/a/0::/b\n1:name=systemd:/c\n0::/system.slice/x\n", "/sys/fs/cgroup/system.slice/x");
    assert_dir("10::/x\n", "");
    assert_dir("", "");
    assert_dir("0::/cut", "");
    assert_dir("0::/a-name-that-is-too-long-for-the-room-that-there-is-in-this-test\n", "");
}

static void assert_dir1(const char *text, const char *expected)
{
    char dir[64] = "x";
    footprint_cgroup1_dir(text, dir, sizeof(dir));
    assert_string_equal(dir, expected);
}

TEST(the_first_version_has_a_folder_for_memory)
{
    assert_dir1("9:cpu:/c\n7:memory:/docker/1\n0::/\n", "/sys/fs/cgroup/memory/docker/1");
    assert_dir1("3:cpu,memory:/a\n", "/sys/fs/cgroup/memory/a");
    assert_dir1("3:memory,cpu:/a\n", "/sys/fs/cgroup/memory/a");
    assert_dir1("3:memory_x,xmemory,name=memory:/a\n0::/b\n", "");
    assert_dir1("memory:/a\n:memory:/a\n1:memory\n/a\n", "");
    assert_dir("3:memory:/a\n", "");
}

TEST(the_way_up_ends_at_the_root)
{
    char dir[] = "/sys/fs/cgroup/a/b";
    footprint_cgroup_up(dir);
    assert_string_equal(dir, "/sys/fs/cgroup/a");
    footprint_cgroup_up(dir);
    assert_string_equal(dir, "/sys/fs/cgroup");
    footprint_cgroup_up(dir);
    assert_string_equal(dir, "");
}

TEST_MAIN()
