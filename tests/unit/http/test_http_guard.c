/* Which Host and Origin a server without keys believes. */
#include "test.h"

#include "base/check.h"
#include "http/http_guard.h"

TEST(loopback_names_pass_with_and_without_port)
{
    static const char *const hosts[] = {"localhost",   "LocalHost:8080",    "127.0.0.1",
                                        "127.0.0.1:1", "127.9.9.9",         "[::1]",
                                        "[::1]:65535", "[0:0:0:0:0:0:0:1]", "localhost:0"};
    for (size_t i = 0; i < COUNT_OF(hosts); i++) {
        if (!http_guard_host_is_loopback(slice_of(hosts[i])))
            fail_msg("%s was refused", hosts[i]);
    }
}

TEST(everything_else_does_not)
{
    static const char *const hosts[] = {"",
                                        "example.com",
                                        "localhost.example.com",
                                        "localhost:",
                                        "127.0.0.1.",
                                        "127.0.0.1.nip.io",
                                        "localhost:99999",
                                        "localhost:80:80",
                                        "[::1",
                                        "[::1]x",
                                        "::1",
                                        "[127.0.0.1]",
                                        "128.0.0.1",
                                        "0.0.0.0",
                                        "localhost@evil.com",
                                        "127.1",
                                        "[::]",
                                        "localhost ",
                                        " localhost",
                                        "user@localhost",
                                        "[]",
                                        ":80",
                                        "localhost:+1",
                                        "evil.com#localhost"};
    for (size_t i = 0; i < COUNT_OF(hosts); i++) {
        if (http_guard_host_is_loopback(slice_of(hosts[i])))
            fail_msg("%s passed", hosts[i]);
    }
    assert_false(http_guard_host_is_loopback((struct slice){"127.0.0.1\0.x", 12}));
}

TEST(an_origin_is_its_host_or_foreign)
{
    struct slice host = SLICE("localhost:8080");
    assert_true(http_guard_origin_is_host(SLICE("http://localhost:8080"), host));
    assert_true(http_guard_origin_is_host(SLICE("HTTPS://LOCALHOST:8080"), host));
    static const char *const origins[] = {"null",
                                          "",
                                          "http://",
                                          "http://localhost",
                                          "http://localhost:3000",
                                          "http://evil.com",
                                          "ftp://localhost:8080",
                                          "http://localhost:8080/",
                                          "http://localhost:8080.evil.com",
                                          "localhost:8080"};
    for (size_t i = 0; i < COUNT_OF(origins); i++)
        assert_false(http_guard_origin_is_host(slice_of(origins[i]), host));
    assert_false(http_guard_origin_is_host(SLICE("http://"), SLICE("")));
}

TEST_MAIN()
