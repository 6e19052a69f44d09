/* Connections that come when the process has no descriptor for them. */
#include "test_http_app.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>

#define GET(path)   "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"
#define CLIENTS_MAX 8

/* Takes every descriptor below the limit, which is lowered first. */
static struct {
    struct rlimit usual;
    int taken[256];
    int count;
} descriptors;

static void descriptors_take(void)
{
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &descriptors.usual), 0);
    struct rlimit low = {COUNT_OF(descriptors.taken), descriptors.usual.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    descriptors.count = 0;
    for (int fd; (fd = fcntl(0, F_DUPFD_CLOEXEC, 0)) >= 0;)
        descriptors.taken[descriptors.count++] = fd;
    assert_int_equal(errno, EMFILE);
}

static void descriptors_give(int count)
{
    while (count-- > 0 && descriptors.count > 0)
        close(descriptors.taken[--descriptors.count]);
}

static void descriptors_give_all(void)
{
    descriptors_give(descriptors.count);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &descriptors.usual), 0);
}

/* Sockets that are connected later, when there are no descriptors. */
static void make_sockets(int *ret, int count)
{
    for (int i = 0; i < count; i++) {
        ret[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(ret[i] >= 0);
    }
}

static void connect_socket(int fd)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(http_server_port(app.server))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
}

static void close_sockets(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

/* Measures this process's share over 300 ms. */
static double cpu_share(void)
{
    struct timespec before, after;
    uint64_t start = clock_now_ns();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    usleep(300000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    double ns = (double)(after.tv_sec - before.tv_sec) * 1e9 + (double)(after.tv_nsec - before.tv_nsec);
    return ns / (double)(clock_now_ns() - start);
}

TEST(without_descriptors_a_client_is_told_503)
{
    app_start((struct http_server_opts){0});
    int fds[CLIENTS_MAX];
    make_sockets(fds, CLIENTS_MAX);
    descriptors_take();
    for (int i = 0; i < CLIENTS_MAX; i++)
        connect_socket(fds[i]);
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct answer a = client_answer(fds[i], false);
        assert_int_equal(a.status, 503);
        assert_non_null(strstr(a.body, "no_descriptors"));
        assert_non_null(answer_header(&a, "Retry-After: 1\r\n"));
        answer_done(&a);
        client_expect_close(fds[i]);
    }
    assert_true(cpu_share() < 0.25);
    descriptors_give_all();
    close_sockets(fds, CLIENTS_MAX);
    expect_once(GET("/echo"), 200, "GET /echo");
    assert_int_equal(http_server_counters(app.server).refused[103], CLIENTS_MAX);
    app_stop();
}

TEST(without_descriptors_the_longest_resting_connection_makes_room)
{
    app_start((struct http_server_opts){0});
    int fds[3];
    make_sockets(fds, 3);
    descriptors_take();
    descriptors_give(2);
    for (int i = 0; i < 2; i++) {
        connect_socket(fds[i]);
        client_expect(fds[i], GET("/echo"), 200, "GET /echo");
    }
    connect_socket(fds[2]);
    client_expect(fds[2], GET("/echo"), 200, "GET /echo");
    client_expect_close(fds[0]);
    client_expect(fds[1], GET("/echo"), 200, "GET /echo");
    assert_true(cpu_share() < 0.25);
    descriptors_give_all();
    close_sockets(fds, 3);
    app_stop();
}

TEST(without_descriptors_open_requests_stay)
{
    app_start((struct http_server_opts){0});
    int fds[2];
    make_sockets(fds, 2);
    descriptors_take();
    descriptors_give(1);
    connect_socket(fds[0]);
    client_send(fds[0], GET("/hold"));
    app_wait(&app.ready, 1);
    connect_socket(fds[1]);
    struct answer a = client_answer(fds[1], false);
    assert_int_equal(a.status, 503);
    answer_done(&a);
    assert_int_equal(app.broken, 0);
    descriptors_give_all();
    close_sockets(fds, 2);
    app_stop();
}

TEST_MAIN()
