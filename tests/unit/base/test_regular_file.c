/* The opener of all files that others write: refusals, and the result of reading a file that changes. */
#include "test_files.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/files/bundle.h"
#include "base/files/regular_file.h"
#include "base/files/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void refuses(const char *path, int code, const char *says)
{
    struct regular_file f = REGULAR_FILE_NONE;
    struct small_file s = {0};
    struct err e = {{0}};
    assert_int_equal(regular_file_open(path, &f, &e), code);
    if (!strstr(e.text, says))
        print_message("%s\n", e.text);
    assert_non_null(strstr(e.text, says));
    assert_int_equal(strncmp(e.text, path, strlen(path)), 0);
    assert_int_equal(f.fd, -1);
    assert_int_equal(small_file_read(path, 100, &s, &e), code);
    assert_null(s.bytes);
}

TEST(what_is_no_file_is_refused_by_its_kind_and_not_waited_for)
{
    const char *dir = test_dir();
    char path[100];
    refuses(dir, -EINVAL, "is a directory, not a regular file");
    refuses("/dev/null", -EINVAL, "is a device, not a regular file");
    snprintf(path, sizeof(path), "%s/pipe", dir);
    refuses(path, -ENOENT, "cannot be opened: No such file");
    assert_int_equal(mkfifo(path, 0600), 0);
    refuses(path, -EINVAL, "is a pipe, not a regular file");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/socket", dir);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof(a)), 0);
    refuses(a.sun_path, -EINVAL, "socket");
    close(s);
}

static void open_ten(const char **dir, char path[100], struct regular_file *ret)
{
    *dir = test_dir();
    snprintf(path, 100, "%s/ten", *dir);
    test_write_text(*dir, "ten", "0123456789");
    assert_int_equal(regular_file_open(path, ret, NULL), 0);
    assert_int_equal(ret->bytes, 10);
}

TEST(a_read_brings_all_bytes_or_says_that_the_file_became_shorter)
{
    struct regular_file f;
    struct err e = {{0}};
    const char *dir;
    char path[100], bytes[10];
    open_ten(&dir, path, &f);
    assert_int_equal(regular_file_read(&f, 3, bytes, 7, &e), 0);
    assert_memory_equal(bytes, "3456789", 7);
    assert_int_equal(regular_file_read(&f, 10, bytes, 0, &e), 0);
    assert_int_equal(regular_file_check(&f, &e), 0);
    assert_int_equal(truncate(path, 5), 0);
    assert_int_equal(regular_file_read(&f, 0, bytes, 5, &e), 0);
    assert_int_equal(regular_file_read(&f, 0, bytes, 6, &e), -ESTALE);
    assert_non_null(strstr(e.text, "became shorter while it was read"));
    assert_int_equal(regular_file_check(&f, &e), -ESTALE);
    assert_non_null(strstr(e.text, "became shorter while it was read: it has 5 bytes of 10"));
    regular_file_drop(&f, 0, 5);
    regular_file_close(&f);
    assert_int_equal(f.fd, -1);
    regular_file_close(&f);
}

TEST(a_change_of_the_same_length_is_seen_and_another_file_of_that_name_is_not)
{
    struct regular_file f;
    struct err e = {{0}};
    const char *dir;
    char path[100], other[100], byte;
    open_ten(&dir, path, &f);
    snprintf(other, sizeof(other), "%s/other", dir);
    assert_int_equal(rename(path, other), 0);
    test_write_text(dir, "ten", "abc");
    assert_int_equal(regular_file_check(&f, &e), 0);
    assert_int_equal(regular_file_read(&f, 9, &byte, 1, &e), 0);
    assert_int_equal(byte, '9');
    const struct timespec times[2] = {{1000, 0}, {1000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, other, times, 0), 0);
    assert_int_equal(regular_file_check(&f, &e), -ESTALE);
    assert_non_null(strstr(e.text, "was changed while it was read"));
    regular_file_close(&f);
}

TEST(a_small_file_is_whole_or_refused)
{
    struct small_file s;
    struct err e = {{0}};
    const char *dir = test_dir();
    char path[100];
    snprintf(path, sizeof(path), "%s/small", dir);
    test_write_text(dir, "small", "hello");
    assert_int_equal(small_file_read(path, 5, &s, &e), 0);
    assert_int_equal(s.len, 5);
    assert_string_equal(s.bytes, "hello");
    small_file_done(&s);
    assert_int_equal(small_file_read(path, 4, &s, &e), -EFBIG);
    assert_non_null(strstr(e.text, "is larger than 4 bytes"));
}

static int open_files(void)
{
    int count = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

TEST(neither_a_refused_path_nor_a_closed_file_stays_open)
{
    struct regular_file f;
    char path[100];
    const char *dir;
    open_ten(&dir, path, &f);
    regular_file_close(&f);
    int before = open_files();
    for (int i = 0; i < 10; i++) {
        assert_int_equal(regular_file_open(dir, &f, NULL), -EINVAL);
        assert_int_equal(regular_file_open(path, &f, NULL), 0);
        regular_file_close(&f);
        assert_int_equal(f.fd, -1);
    }
    assert_int_equal(open_files(), before);
}

/* Checking a part takes memory of its size. */
TEST(parts_of_a_bundle_have_a_bound)
{
    for (int beyond = 0; beyond < 2; beyond++) {
        struct buf table;
        struct bundle b = {0};
        struct err e = {{0}};
        const struct file_part part = {0, BUNDLE_PART_BYTES_MAX, BUNDLE_PAGE, 0};
        buf_init(&table, 1024, NULL);
        bundle_put_count(&table, 1);
        bundle_put_file(&table, "config.json", (uint64_t)1 << 30, 1);
        bundle_put_part(&table, &part);
        /* The part's bytes are the third number from the end. */
        char *bytes = table.ptr + table.len - 24;
        assert_memory_equal(bytes, &part.bytes, sizeof(part.bytes));
        memcpy(bytes, &(uint64_t){part.bytes + (uint64_t)beyond}, sizeof(part.bytes));
        int r = bundle_parse_table(buf_slice(&table), (uint64_t)1 << 30, &b, &e);
        assert_int_equal(r, beyond ? -EINVAL : 0);
        bundle_free(&b);
        buf_done(&table);
    }
}

TEST_MAIN()
