/* test_admin_socket.c - directories of admin sockets that another process has locked. */
#include "test.h"
#include "test_files.h"

#include "host/admin_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#define PORT 8080

/* A lock of another open file: flock() treats it as another process's. */
static int lock_of_another(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    return fd;
}

TEST(a_locked_directory_is_given_up)
{
    struct socket_dir d = {.given = true};
    struct err e = {""};
    snprintf(d.path, sizeof(d.path), "%s", test_dir());
    int other = lock_of_another(d.path);
    assert_int_equal(socket_dir_open(&d, &e), -EBUSY);
    assert_non_null(strstr(e.text, d.path));
    close(other);
    int fd = socket_dir_open(&d, &e);
    assert_true(fd >= 0);
    close(fd);
}

TEST(the_socket_goes_to_the_next_directory)
{
    struct admin_socket s;
    struct err e = {""};
    const char *first = test_dir(), *second = test_dir();
    int fd = -1, other = lock_of_another(first);
    setenv("RUNTIME_DIRECTORY", first, 1);
    setenv("XDG_RUNTIME_DIR", second, 1);
    assert_int_equal(admin_socket_open(&s, NULL, PORT, &fd, &e), 0);
    assert_int_equal(strncmp(s.socket.path, second, strlen(second)), 0);
    assert_non_null(strstr(s.skipped.text, first));
    close(fd);
    admin_socket_close(&s);
    close(other);

    assert_int_equal(admin_socket_open(&s, NULL, PORT, &fd, &e), 0);
    assert_int_equal(strncmp(s.socket.path, first, strlen(first)), 0);
    assert_string_equal(s.skipped.text, "");
    close(fd);
    admin_socket_close(&s);
}

TEST(a_named_socket_needs_no_lock)
{
    struct admin_socket s;
    struct err e = {""};
    char path[128];
    const char *dir = test_dir();
    int fd = -1, other = lock_of_another(dir);
    snprintf(path, sizeof(path), "%s/named.sock", dir);
    assert_int_equal(admin_socket_open(&s, path, PORT, &fd, &e), 0);
    assert_string_equal(s.socket.path, path);
    close(fd);
    admin_socket_close(&s);
    close(other);
}

TEST_MAIN()
