/* test_media_parts.c - what of the media service is a function: addresses, URLs, which frames are looked at,
 * results in prompts. */
#include "test.h"

#include "api/reject_http.h"
#include "base/check.h"
#include "base/public_address.h"
#include "engine/engine.h"
#include "engine/job_spec.h"
#include "gen/media_prompt.h"
#include "gen/reject.h"
#include "media/media.h"
#include "media/media_address.h"
#include "media/media_sample.h"
#include "model/model.h"
#include "template/chat_cuts.h"
#include "vision/image.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

/* ---- addresses ---- */

static bool is_public(const char *text)
{
    struct sockaddr_in six_or_four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &six_or_four.sin_addr) == 1)
        return public_address_is((struct sockaddr *)&six_or_four, sizeof(six_or_four));
    assert_int_equal(inet_pton(AF_INET6, text, &six.sin6_addr), 1);
    return public_address_is((struct sockaddr *)&six, sizeof(six));
}

TEST(addresses_of_the_public_internet_pass)
{
    static const char *const all[] = {
        "1.1.1.1",         "8.8.8.8",         "9.255.255.255",   "11.0.0.0",        "100.63.255.255",
        "100.128.0.0",     "126.255.255.255", "128.0.0.1",       "169.253.255.255", "169.255.0.0",
        "172.15.255.255",  "172.32.0.0",      "192.167.255.255", "192.169.0.0",     "198.17.255.255",
        "198.20.0.0",      "223.255.255.255", "2606:4700::1111", "2a00:1450::1",    "2001:4860:4860::8888",
        "64:ff9b::8.8.8.8"};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (!is_public(all[i]))
            fail_msg("%s is refused", all[i]);
}

TEST(all_others_are_refused)
{
    static const char *const all[] = {"0.0.0.0",
                                      "0.1.2.3",
                                      "10.0.0.1",
                                      "10.255.255.255",
                                      "100.64.0.1",
                                      "100.127.255.255",
                                      "127.0.0.1",
                                      "127.255.255.255",
                                      "169.254.169.254",
                                      "172.16.0.1",
                                      "172.31.255.255",
                                      "192.0.0.1",
                                      "192.0.2.1",
                                      "192.88.99.1",
                                      "192.168.0.1",
                                      "192.168.255.255",
                                      "198.18.0.1",
                                      "198.19.255.255",
                                      "198.51.100.1",
                                      "203.0.113.1",
                                      "224.0.0.1",
                                      "239.255.255.255",
                                      "240.0.0.1",
                                      "255.255.255.255",
                                      "::",
                                      "::1",
                                      "::ffff:127.0.0.1",
                                      "::ffff:8.8.8.8",
                                      "::127.0.0.1",
                                      "64:ff9b::127.0.0.1",
                                      "64:ff9b::10.1.1.1",
                                      "64:ff9b:1::1",
                                      "100::1",
                                      "2001::1",
                                      "2001:2::1",
                                      "2001:db8::1",
                                      "2002:7f00:1::1",
                                      "2002:808:808::1",
                                      "3fff::1",
                                      "fc00::1",
                                      "fdff::1",
                                      "fe80::1",
                                      "febf::1",
                                      "fec0::1",
                                      "ff02::1",
                                      "4000::1"};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (is_public(all[i]))
            fail_msg("%s passes", all[i]);
}

TEST(what_is_no_internet_address_is_refused)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr = {htonl(0x08080808)}};
    struct sockaddr_in6 scoped = {.sin6_family = AF_INET6, .sin6_scope_id = 1};
    struct sockaddr other = {.sa_family = AF_UNIX};
    assert_int_equal(inet_pton(AF_INET6, "2606:4700::1111", &scoped.sin6_addr), 1);
    assert_false(public_address_is((struct sockaddr *)&scoped, sizeof(scoped)));
    assert_false(public_address_is((struct sockaddr *)&four, sizeof(four) - 1));
    assert_false(public_address_is(&other, sizeof(other)));
}

TEST(urls_are_looked_at_before_they_are_tried)
{
    assert_null(media_url_fault(SLICE("http://example.org/a.png")));
    assert_null(media_url_fault(SLICE("HTTPS://example.org:8443/a.png?x=1@2#f")));
    assert_null(media_url_fault(SLICE("http://[2606:4700::1111]/a")));
    assert_non_null(media_url_fault(SLICE("")));
    assert_non_null(media_url_fault(SLICE("x")));
    assert_non_null(media_url_fault(SLICE("ftp://example.org/a")));
    assert_non_null(media_url_fault(SLICE("http://")));
    assert_non_null(media_url_fault(SLICE("http:///a")));
    assert_non_null(media_url_fault(SLICE("http://user@example.org/")));
    assert_non_null(media_url_fault(SLICE("http://user:word@example.org")));
    assert_non_null(media_url_fault(SLICE("http://example.org/a b")));
    assert_non_null(media_url_fault(SLICE("http://example.org\\@127.0.0.1/")));
    assert_non_null(media_url_fault(SLICE("http://example.org/\n")));
    assert_non_null(media_url_fault(SLICE("http://ex\xc3\xa4mple.org/")));
}

/* ---- frames ---- */

static uint32_t count_of(uint32_t frames, double fps, double wanted, uint32_t least, uint32_t most)
{
    struct media_sample s = {frames, fps, wanted, least, most};
    return media_sample_count(&s);
}

TEST(frames_are_counted_as_the_reference_counts_them)
{
    assert_int_equal(count_of(300, 30, 2, 4, 768), 20);
    assert_int_equal(count_of(30, 30, 2, 4, 768), 4);
    assert_int_equal(count_of(3, 30, 2, 4, 768), 3);
    assert_int_equal(count_of(1, 30, 2, 4, 768), 1);
    assert_int_equal(count_of(100000, 25, 2, 4, 768), 768);
    assert_int_equal(count_of(299, 29.97, 2, 4, 768), 19);
    assert_int_equal(count_of(100, 1, 2, 4, 768), 100);
    assert_int_equal(count_of(1000, 1e9, 0.001, 4, 2), 2);
}

TEST(frames_are_spread_as_the_reference_spreads_them)
{
    /* numpy.linspace(0, 29, 6).round(); halves go to the even neighbour. */
    static const uint32_t six[] = {0, 6, 12, 17, 23, 29}, four[] = {0, 3, 6, 9}, halves[] = {0, 2, 5, 8, 10};
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(media_sample_index(30, 6, i), six[i]);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(media_sample_index(10, 4, i), four[i]);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(media_sample_index(11, 5, i), halves[i]);
    assert_int_equal(media_sample_index(7, 1, 0), 0);
    assert_int_equal(media_sample_index(7, 7, 6), 6);
}

static void timed_are(uint32_t frames, double fps, double wanted, uint32_t most, uint32_t count,
                      const uint32_t *indices)
{
    const struct media_sample s = {frames, fps, wanted, 1, most, 300};
    assert_int_equal(media_sample_count(&s), count);
    for (uint32_t i = 0; indices && i < count; i++)
        assert_int_equal(media_sample_frame(&s, count, i), indices[i]);
}

/* Glm4vVideoProcessor.sample_frames() of transformers 5.24, without the last frame's repetition. */
TEST(frames_at_fixed_times_are_those_of_the_reference)
{
    static const uint32_t second[] = {0, 15}, four[] = {0, 13, 25, 38, 50, 63, 75, 88},
                          all[] = {0, 1, 2, 3, 4, 5, 6}, odd[] = {0, 15, 30, 45, 60, 75};
    timed_are(30, 30, 2, 600, 2, second);
    timed_are(100, 25, 2, 600, 8, four);
    timed_are(7, 2, 2, 600, 7, all);
    timed_are(7, 1, 2, 600, 7, all);
    timed_are(101, 29.97, 2, 600, 6, odd);
    timed_are(1, 30, 2, 600, 1, NULL);
    timed_are(400, 1, 2, 600, 400, NULL);
    static const uint32_t long_ones[] = {0, 34, 67, 101, 134, 167};
    const struct media_sample hour = {20000, 30, 2, 1, 600, 300};
    for (uint32_t i = 0; i < COUNT_OF(long_ones); i++)
        assert_int_equal(media_sample_frame(&hour, 600, i), long_ones[i]);
    assert_int_equal(media_sample_count(&hour), 600);
    /* A longer video, or a limit of the server, spreads that many frames. */
    const struct media_sample s = {9000, 25, 2, 1, 100, 300};
    assert_int_equal(media_sample_count(&s), 100);
    assert_int_equal(media_sample_frame(&s, 100, 0), 0);
    assert_int_equal(media_sample_frame(&s, 100, 99), 8999);
}

TEST(frames_at_fixed_times_ascend)
{
    static const double rates[] = {0.1, 1, 23.976, 29.97, 60, 1e4},
                        wanted[] = {0.01, 1, 2, 23.976, 29.97, 500};
    static const uint32_t frames[] = {1, 2, 99, 1000, 20000}, most[] = {1, 2, 600};
    for (uint32_t n = 0; n < COUNT_OF(rates) * COUNT_OF(wanted) * COUNT_OF(frames) * COUNT_OF(most); n++) {
        const struct media_sample s = {.frames = frames[n % 5],
                                       .fps = rates[n / 5 % 6],
                                       .wanted = wanted[n / 30 % 6],
                                       .most = most[n / 180],
                                       .longest = 300};
        const uint32_t count = media_sample_count(&s);
        assert_true(count >= 1 && count <= s.most && count <= s.frames);
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t at = media_sample_frame(&s, count, i);
            assert_true(at < s.frames && (i == 0 || at > media_sample_frame(&s, count, i - 1)));
        }
    }
}

/* ---- results ---- */

static const struct model_vision vision = {.present = true, .patch = 16, .merge = 2};
static const struct media_marks marks = {.image = {"<I>", 3},
                                         .video = {"<V>", 3},
                                         .start = {"[", 1},
                                         .end = {"]", 1},
                                         .image_id = 100,
                                         .video_id = 101,
                                         .vision = &vision};

struct scene {
    struct image images[8];
    struct image *pointers[8];
    double seconds[8];
    struct media_result parts[4];
    uint32_t images_count, part_count;
};

static void add(struct scene *s, enum media_kind kind, uint32_t count, uint32_t width, uint32_t height)
{
    uint32_t first = s->images_count;
    for (uint32_t i = 0; i < count; i++) {
        s->images[first + i].width = width;
        s->images[first + i].height = height;
        s->pointers[first + i] = &s->images[first + i];
        s->seconds[first + i] = 0.25 + i;
    }
    s->parts[s->part_count++] = (struct media_result){kind, s->pointers + first, s->seconds + first, count};
    s->images_count += count;
}

static struct media_results results_of(const struct scene *s)
{
    return (struct media_results){s->parts, s->part_count, "input"};
}

static void text_becomes(const struct scene *s, const char *text, const char *expected)
{
    struct media_results results = results_of(s);
    struct reject why = {0};
    struct buf ret;
    buf_init(&ret, 1024, NULL);
    bool ok = media_prompt_text(&marks, &results, slice_of(text), NULL, &ret, &why);
    buf_putc(&ret, 0);
    if (expected && (!ok || strcmp(ret.ptr, expected) != 0))
        fail_msg("\"%s\" became \"%s\" (%s)", text, ret.ptr, why.message);
    if (!expected) {
        assert_false(ok);
        assert_int_equal(reject_status(&why), 400);
        assert_string_equal(reject_code(&why), "media_mismatch");
        assert_string_equal(why.param, "input");
    }
    buf_done(&ret);
}

TEST(a_video_becomes_a_group_for_each_pair)
{
    struct scene s = {0};
    add(&s, MEDIA_IMAGE, 1, 64, 32);
    add(&s, MEDIA_VIDEO, 2, 32, 32);
    text_becomes(&s, "a[<I>]b[<V>]c", "a[<I>]b<0.2 seconds>[<V>]<1.2 seconds>[<V>]c");
    text_becomes(&s, "<I><V>", "<I><0.2 seconds>[<V>]<1.2 seconds>[<V>]");
    text_becomes(&s, "[<I>][<V>", "[<I>][<0.2 seconds>[<V>]<1.2 seconds>[<V>]");
}

TEST(a_video_of_images_becomes_one_for_each_pair)
{
    const struct model_vision images = {.present = true, .patch = 16, .merge = 2, .video_images = true};
    struct media_marks m = marks;
    struct scene s = {0};
    struct reject why = {0};
    struct buf ret;
    static const uint32_t ids[] = {1, 100, 2, 100, 3};
    uint64_t tokens;
    uint32_t count;
    m.vision = &images;
    add(&s, MEDIA_VIDEO, 2, 64, 32);
    const struct media_results results = results_of(&s);
    buf_init(&ret, 1024, NULL);
    assert_true(media_prompt_text(&m, &results, SLICE("a<<V>>b"), NULL, &ret, &why));
    buf_putc(&ret, 0);
    assert_string_equal(ret.ptr, "a<[<I>]0[<I>]1>b");
    buf_done(&ret);
    assert_true(media_prompt_count(&m, &results, ids, COUNT_OF(ids), &tokens, &count, &why));
    assert_true(count == 2 && tokens == 3 + 2 * 2);
}

TEST(places_that_do_not_fit_the_parts_are_refused)
{
    struct scene s = {0};
    add(&s, MEDIA_IMAGE, 1, 64, 32);
    add(&s, MEDIA_VIDEO, 2, 32, 32);
    text_becomes(&s, "", NULL);
    text_becomes(&s, "<I>", NULL);
    text_becomes(&s, "<V><I>", NULL);
    text_becomes(&s, "<I><V><I>", NULL);
    text_becomes(&s, "<I><I>", NULL);
}

TEST(cuts_of_the_text_go_along)
{
    struct scene s = {0};
    struct chat_cuts cuts = {.bytes = {1, 4, 7, 8, 9}, .count = 5};
    struct reject why = {0};
    struct buf ret;
    add(&s, MEDIA_VIDEO, 1, 32, 32);
    add(&s, MEDIA_IMAGE, 1, 32, 32);
    struct media_results results = results_of(&s);
    buf_init(&ret, 1024, NULL);
    /*                                                    0123456789 */
    assert_true(media_prompt_text(&marks, &results, SLICE("ab[<V>]cd<I>"), &cuts, &ret, &why));
    assert_memory_equal(ret.ptr, "ab<0.2 seconds>[<V>]cd<I>", ret.len);
    static const size_t expected[] = {1, 2, 20, 21, 22};
    for (int i = 0; i < 5; i++)
        assert_int_equal(cuts.bytes[i], expected[i]);
    buf_done(&ret);
}

TEST(placeholders_become_as_many_tokens_as_their_images_take)
{
    struct scene s = {0};
    struct reject why = {0};
    uint64_t total = 0;
    uint32_t images = 0, to[32], cuts[] = {0, 1, 2, 3, 6};
    struct job_image jobs[8];
    static const uint32_t ids[] = {1, 100, 2, 101, 101, 3};
    static const uint32_t expected[] = {1, 100, 100, 100, 100, 100, 100, 2, 101, 101, 101, 101, 3};
    static const uint32_t moved[] = {0, 1, 7, 8, 13};
    add(&s, MEDIA_IMAGE, 1, 96, 64);
    add(&s, MEDIA_VIDEO, 2, 64, 32);
    struct media_results results = results_of(&s);
    assert_true(media_prompt_count(&marks, &results, ids, 6, &total, &images, &why));
    assert_int_equal(total, COUNT_OF(expected));
    assert_int_equal(images, 3);
    media_prompt_expand(&marks, &results, ids, 6, to, jobs, cuts, 5);
    assert_memory_equal(to, expected, sizeof(expected));
    assert_memory_equal(cuts, moved, sizeof(moved));
    assert_int_equal(jobs[0].first, 1);
    assert_int_equal(jobs[1].first, 8);
    assert_int_equal(jobs[2].first, 10);
    assert_ptr_equal(jobs[2].image, &s.images[2]);
}

TEST(rows_of_image_tokens_may_have_ends)
{
    static const struct model_image_marks ends = {.row_end = "<B>", .end = "<E>"};
    static const struct model_vision rows = {.present = true, .patch = 16, .merge = 2, .marks = &ends};
    struct media_marks m = marks;
    struct scene s = {0};
    struct reject why = {0};
    uint64_t total = 0;
    uint32_t images = 0, to[16], cuts[] = {1, 2};
    struct job_image jobs[1];
    static const uint32_t ids[] = {1, 100, 2}, expected[] = {1, 100, 100, 100, 7, 100, 100, 100, 8, 2};
    m.vision = &rows;
    m.row_end_id = 7;
    m.last_id = 8;
    add(&s, MEDIA_IMAGE, 1, 96, 64);
    struct media_results results = results_of(&s);
    assert_true(media_prompt_count(&m, &results, ids, 3, &total, &images, &why));
    assert_int_equal(total, COUNT_OF(expected));
    media_prompt_expand(&m, &results, ids, 3, to, jobs, cuts, 2);
    assert_memory_equal(to, expected, sizeof(expected));
    assert_true(cuts[0] == 1 && cuts[1] == 9 && jobs[0].first == 1);
}

TEST(a_mark_of_the_template_may_become_a_text_with_the_image_token)
{
    static const struct model_image_marks around = {.mark = "<S>", .before = "n<S>", .after = "<T>n"};
    static const struct model_vision vision_of_marks = {.patch = 16, .merge = 2, .marks = &around};
    const struct media_marks m = {
        .image = {"<S>", 3}, .token = {"<I>", 3}, .image_id = 100, .vision = &vision_of_marks};
    struct scene s = {0};
    struct reject why = {0};
    struct buf ret;
    add(&s, MEDIA_IMAGE, 1, 32, 32);
    add(&s, MEDIA_IMAGE, 1, 32, 32);
    struct media_results results = results_of(&s);
    buf_init(&ret, 1024, NULL);
    assert_true(media_prompt_text(&m, &results, SLICE("a<S>b<S>"), NULL, &ret, &why));
    assert_memory_equal(ret.ptr, "an<S><I><T>nbn<S><I><T>n", ret.len);
    buf_done(&ret);
    json_t *text = json_string("x<I>");
    assert_non_null(media_prompt_forged(&m, text));
    json_decref(text);
}

TEST(tokens_that_do_not_fit_the_images_are_refused)
{
    struct scene s = {0};
    struct reject why = {0};
    uint64_t total;
    uint32_t images;
    static const uint32_t few[] = {1, 2}, many[] = {100, 100}, other[] = {101}, right[] = {100};
    add(&s, MEDIA_IMAGE, 1, 64, 32);
    struct media_results results = results_of(&s);
    assert_false(media_prompt_count(&marks, &results, few, 2, &total, &images, &why));
    assert_false(media_prompt_count(&marks, &results, many, 2, &total, &images, &why));
    assert_false(media_prompt_count(&marks, &results, other, 1, &total, &images, &why));
    assert_true(media_prompt_count(&marks, &results, right, 1, &total, &images, &why));
}

TEST(what_only_looks_like_a_place_is_found)
{
    json_t *clean = json_pack("[{ss}, i, [s, n]]", "a", "b", 5, "I>");
    json_t *text = json_pack("[{s[s]}]", "a", "x <I> y"), *key = json_pack("{s{si}}", "a", "k<V>", 1);
    assert_null(media_prompt_forged(&marks, clean));
    assert_non_null(media_prompt_forged(&marks, text));
    assert_non_null(media_prompt_forged(&marks, key));
    json_decref(clean);
    json_decref(text);
    json_decref(key);
}

TEST_MAIN()
