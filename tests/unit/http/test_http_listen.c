/* Servers that share a loop: what fills one takes no place of the other, and both end together. */
#include "test_http_app.h"

#include "test_files.h"

#include <sys/un.h>
#include <sys/wait.h>

static const char *socket_dir;
static char socket_path[sizeof(((struct sockaddr_un *)0)->sun_path)];

static struct sockaddr_un socket_address(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, socket_path, sizeof(a.sun_path));
    return a;
}

static int listen_on_socket(void)
{
    snprintf(socket_path, sizeof(socket_path), "%s/s", socket_dir = test_dir());
    struct sockaddr_un a = socket_address();
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

static int socket_open(void)
{
    struct sockaddr_un a = socket_address();
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

/* Two places each; the joined one is listener 7 on a Unix socket. */
static void start_two(void)
{
    struct http_server_opts other = {
        .listen_fd = listen_on_socket(), .connections_max = 2, .listener = 7, .own_user_only = true};
    app_start_with((struct http_server_opts){.connections_max = 2}, &other);
}

static const char which[] = "GET /listener HTTP/1.1\r\nHost: a\r\n\r\n";

TEST(each_request_knows_where_it_came_in)
{
    start_two();
    int local = socket_open(), tcp = client_open();
    for (int i = 0; i < 3; i++) {
        client_expect(local, which, 200, "7");
        client_expect(tcp, which, 200, "0");
    }
    close(local);
    close(tcp);
    app_stop();
}

/* Its two places, and the places for refusals when it is full. */
static void fill(int (*open)(void), int fds[10])
{
    for (int i = 0; i < 10; i++)
        fds[i] = open();
    usleep(50000);
}

static void close_all(const int fds[10])
{
    for (int i = 0; i < 10; i++)
        close(fds[i]);
}

TEST(who_fills_one_takes_no_place_of_the_other)
{
    int fds[10];
    start_two();
    fill(client_open, fds);
    int local = socket_open();
    client_expect(local, which, 200, "7");
    close(local);
    close_all(fds);
    fill(socket_open, fds);
    int tcp = client_open();
    client_expect(tcp, which, 200, "0");
    close(tcp);
    close_all(fds);
    app_stop();
}

/* The handler answers and writes from the other server's turn. */
TEST(an_answer_may_come_later)
{
    start_two();
    int local = socket_open();
    client_expect(local, "GET /later HTTP/1.1\r\nHost: a\r\n\r\n", 200, "now");
    client_send(local, "GET /stream?count=200&bytes=1000 HTTP/1.1\r\nHost: a\r\n\r\n");
    struct answer a = client_answer(local, false);
    assert_int_equal(a.status, 200);
    assert_int_equal(a.body_bytes, 200000);
    free(a.body);
    close(local);
    app_stop();
}

TEST(a_client_that_leaves_is_noticed)
{
    start_two();
    int local = socket_open();
    client_send(local, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    app_wait(&app.ready, 1);
    close(local);
    app_wait(&app.broken, 1);
    app_stop();
}

TEST(the_end_waits_for_both_and_tells_both)
{
    start_two();
    int local = socket_open();
    client_send(local, "GET /last HTTP/1.1\r\nHost: a\r\n\r\n");
    app_wait(&app.ready, 1);
    http_server_stop(app.server, 200 * NS_PER_MS);
    client_expect(local, "", 503, "the end");
    close(local);
    app_stop();
    assert_int_equal(app.completed, 1);
}

TEST(of_a_unix_socket_the_own_user_and_root_are_served)
{
    int status;
    if (geteuid() != 0)
        skip();
    start_two();
    assert_int_equal(chmod(socket_path, 0777), 0);
    assert_int_equal(chmod(socket_dir, 0777), 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        if (setuid(65534) < 0)
            _exit(2);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        struct sockaddr_un a = socket_address();
        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
            _exit(3);
        (void)!send(fd, which, sizeof(which) - 1, MSG_NOSIGNAL);
        _exit(recv(fd, &byte, 1, 0) > 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    int local = socket_open();
    client_expect(local, which, 200, "7");
    close(local);
    app_stop();
    assert_int_equal(app.begun, 1);
}

TEST_MAIN()
