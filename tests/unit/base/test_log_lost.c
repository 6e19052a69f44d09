/* A log on a disk that is full for a while: later lines are whole, and count the lines that were lost. The
 * disk is a limit of file size. */
#include "test.h"
#include "test_files.h"

#include "base/log.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static void set_room(uint64_t bytes)
{
    struct rlimit now;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &now), 0);
    now.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
}

TEST(lines_are_counted_while_the_disk_is_full)
{
    char path[512], text[4096];
    snprintf(path, sizeof(path), "%s/log", test_dir());
    int before = dup(STDERR_FILENO), fd = open(path, O_RDWR | O_CREAT | O_APPEND, 0600);
    signal(SIGXFSZ, SIG_IGN);
    fflush(stderr);
    assert_true(fd >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO);
    LOG_INFO("first", "x=1");
    const uint64_t one = (uint64_t)lseek(fd, 0, SEEK_END);
    set_room(one + 10);
    for (int i = 0; i < 3; i++)
        LOG_INFO("lost", "x=%d", i);
    set_room(RLIM_INFINITY);
    LOG_INFO("later", "x=2");
    LOG_INFO("last", "x=3");
    dup2(before, STDERR_FILENO);
    ssize_t n = pread(fd, text, sizeof(text) - 1, (off_t)one);
    assert_true(n > 10);
    text[n] = 0;
    assert_true(text[10] == '\n'); /* the part of a line that there was room for */
    char *later = text + 11, *last = strchr(later, '\n');
    assert_true(last && strstr(later, "event=later lines_lost=3 x=2\n"));
    assert_true(strstr(last, "event=last x=3\n") && !strstr(last + 1, "lines_lost"));
    close(fd);
    close(before);
}

TEST_MAIN()
