/* Streams: what the two halves of a request promise each other, and stop strings in text that comes in
 * pieces. */
#include "test_rng.h"
#include "test_ledger.h"

#include "base/check.h"
#include "engine/stop_match.h"
#include "engine/stream.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

static struct mailbox *make_mailbox(uint32_t messages)
{
    struct mailbox *m = NULL;
    struct mailbox_opts opts = {.messages_max = messages, .message_bytes = sizeof(void *)};
    assert_int_equal(mailbox_create(&opts, &m), 0);
    return m;
}

static struct stream *make_stream(struct mailbox *wake, uint32_t top, const struct charge *charge)
{
    struct stream *s = NULL;
    struct stream_opts opts = {
        .id = request_id_new(), .top_max = top, .wake = wake, .user = &s, .charge = charge};
    assert_int_equal(stream_create(&opts, &s), 0);
    return s;
}

TEST(a_request_id_is_32_digits)
{
    struct request_id a = request_id_new(), b = request_id_new(), c;
    char text[33];
    assert_memory_not_equal(&a, &b, sizeof(a));
    request_id_text(a, text);
    assert_int_equal(strlen(text), 32);
    assert_true(request_id_parse(text, 32, &c));
    assert_memory_equal(&a, &c, sizeof(a));
    assert_false(request_id_parse(text, 31, &c));
    text[7] = 'g';
    assert_false(request_id_parse(text, 32, &c));
    text[7] = 0;
    assert_false(request_id_parse(text, 32, &c));
}

TEST(tokens_come_out_as_they_went_in_with_their_alternatives)
{
    struct stream *s = make_stream(NULL, 3, NULL);
    struct stream_token t = {.id = 7, .logprob = -0.5f, .top_count = 3}, got;
    for (uint32_t i = 0; i < 3; i++)
        t.top[i] = (struct sampler_alternative){i + 100, -(float)i};
    for (uint32_t i = 0; i < STREAM_TOKENS; i++) {
        assert_int_equal(stream_free_tokens(s), STREAM_TOKENS - i);
        t.id = i;
        assert_true(stream_put(s, &t));
    }
    assert_false(stream_put(s, &t));
    assert_int_equal(stream_free_tokens(s), 0);
    for (uint32_t i = 0; i < STREAM_TOKENS; i++) {
        assert_true(stream_take(s, &got));
        assert_int_equal(got.id, i);
        assert_int_equal(got.top_count, 3);
        assert_int_equal(got.top[2].id, 102);
    }
    assert_false(stream_take(s, &got));
    t.top_count = 4;
    assert_stops(stream_put(s, &t));
    stream_release(s);
    stream_release(s);
}

TEST(an_admission_is_known_before_the_end)
{
    struct stream *s = make_stream(NULL, 0, NULL);
    struct stream_admission a = {7, 7};
    assert_false(stream_admitted(s, &a));
    assert_int_equal(a.cached_tokens + a.queued_ns, 0);
    stream_admit(s, &(struct stream_admission){.cached_tokens = 96, .queued_ns = 5});
    assert_true(stream_admitted(s, &a));
    assert_int_equal(a.cached_tokens, 96);
    assert_int_equal(a.queued_ns, 5);
    assert_stops(stream_admit(s, &a));
    assert_int_equal(stream_first_token_ns(s), 0);
    stream_note_first_token(s, 77);
    assert_int_equal(stream_first_token_ns(s), 77);
    assert_stops(stream_note_first_token(s, 78));
    stream_release(s);
    stream_release(s);
}

TEST(the_end_is_seen_after_the_last_token_and_once_told)
{
    struct mailbox *m = make_mailbox(2);
    struct stream *s = make_stream(m, 0, NULL), *who = NULL;
    struct stream_token t = {.id = 1};
    struct stream_finish f;
    assert_true(stream_put(s, &t));
    stream_wake(s);
    stream_wake(s);
    assert_int_equal(mailbox_count(m), 1);
    stream_finish(s, &(struct stream_finish){.reason = FINISH_LENGTH, .completion_tokens = 1});
    stream_release(s);
    /* A message is pending already: no second one. */
    assert_int_equal(mailbox_count(m), 1);
    assert_false(stream_finished(s, &f));
    assert_true(mailbox_take(m, &who));
    assert_ptr_equal(who, s);
    stream_wake_clear(s);
    assert_false(stream_finished(s, &f));
    assert_true(stream_take(s, &t));
    assert_true(stream_finished(s, &f));
    assert_int_equal(f.reason, FINISH_LENGTH);
    assert_int_equal(f.completion_tokens, 1);
    stream_release(s);
    mailbox_free(m);
}

TEST(an_end_after_the_last_look_tells_once_more)
{
    struct mailbox *m = make_mailbox(2);
    struct stream *s = make_stream(m, 0, NULL), *who = NULL;
    struct stream_finish f;
    stream_wake(s);
    assert_true(mailbox_take(m, &who));
    stream_wake_clear(s);
    stream_finish(s, &(struct stream_finish){.reason = FINISH_STOP});
    /* Its message is under way, so the exchange may not release it yet. */
    assert_int_equal(mailbox_count(m), 1);
    assert_false(stream_finished(s, &f));
    assert_true(mailbox_take(m, &who));
    stream_wake_clear(s);
    assert_true(stream_finished(s, &f));
    stream_release(s);
    stream_release(s);
    mailbox_free(m);
}

TEST(a_closed_mailbox_is_nobody_to_tell)
{
    struct mailbox *m = make_mailbox(1);
    struct stream *s = make_stream(m, 0, NULL);
    struct stream_finish f;
    mailbox_close(m);
    stream_wake(s);
    stream_finish(s, &(struct stream_finish){.reason = FINISH_ABORTED});
    assert_true(stream_finished(s, &f));
    assert_string_equal(stream_finish_name(f.reason), "aborted");
    stream_release(s);
    stream_release(s);
    mailbox_free(m);
}

TEST(the_last_half_gives_the_bytes_back)
{
    struct account *a = test_account(64 << 10);
    struct charge charge = account_charge(a);
    struct stream *s = make_stream(NULL, SAMPLER_TOP_MAX, &charge), *none = NULL;
    uint64_t bytes = account_numbers(a).used;
    assert_in_range(bytes, STREAM_TOKENS * sizeof(struct stream_token), 48 << 10);
    struct stream_opts opts = {.top_max = SAMPLER_TOP_MAX, .charge = &charge};
    assert_int_equal(stream_create(&opts, &none), -ENOMEM);
    assert_null(none);
    stream_close(s);
    assert_true(stream_closed(s) && *stream_closed_flag(s));
    stream_release(s);
    assert_int_equal(account_numbers(a).used, bytes);
    stream_release(s);
    assert_int_equal(account_numbers(a).used, 0);
}

/* ---- both threads ---- */

enum { STREAMS = 8, TOKENS = 4000 };

static void *produce(void *arg)
{
    struct stream **streams = arg;
    uint32_t sent[STREAMS] = {0};
    for (uint32_t over = 0; over < STREAMS;) {
        for (uint32_t i = 0; i < STREAMS; i++) {
            struct stream_token t = {.id = sent[i]};
            if (sent[i] > TOKENS || stream_free_tokens(streams[i]) < 2)
                continue;
            if (sent[i] < TOKENS) {
                assert_true(stream_put(streams[i], &t));
                stream_wake(streams[i]);
            } else {
                stream_finish(streams[i], &(struct stream_finish){.completion_tokens = sent[i]});
                stream_release(streams[i]);
                over++;
            }
            sent[i]++;
        }
    }
    return NULL;
}

TEST(nothing_is_lost_between_two_threads)
{
    struct account *a = test_account(ACCOUNT_NO_LIMIT);
    struct charge charge = account_charge(a);
    struct mailbox *m = make_mailbox(STREAMS);
    struct stream *streams[STREAMS], *made[STREAMS];
    uint32_t next[STREAMS] = {0};
    for (int i = 0; i < STREAMS; i++)
        made[i] = streams[i] = make_stream(m, 0, &charge);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, produce, streams), 0);
    for (uint32_t over = 0; over < STREAMS;) {
        struct stream *s = NULL;
        struct stream_token t;
        struct stream_finish f;
        assert_true(mailbox_wait(m, &s, 60000000000ull));
        uint32_t i = 0;
        while (made[i] != s)
            i++;
        stream_wake_clear(s);
        while (stream_take(s, &t))
            assert_int_equal(t.id, next[i]++);
        if (!stream_finished(s, &f))
            continue;
        assert_int_equal(f.completion_tokens, TOKENS);
        assert_int_equal(next[i], TOKENS);
        stream_release(s);
        over++;
    }
    pthread_join(thread, NULL);
    assert_int_equal(mailbox_count(m), 0);
    assert_int_equal(account_numbers(a).used, 0);
    mailbox_free(m);
}

/* ---- stop strings ---- */

static struct stop_match *make_match(struct arena **a, const struct slice *stops, uint32_t count)
{
    struct stop_match *m = NULL;
    struct arena_opts opts = {.bytes_max = stop_match_arena_bytes(stops, count)};
    assert_int_equal(arena_create(&opts, a), 0);
    assert_int_equal(stop_match_create(*a, stops, count, &m), 0);
    return m;
}

TEST(what_may_be_a_beginning_is_held)
{
    struct arena *a = NULL;
    struct slice stops[] = {SLICE("END."), SLICE("abab!")};
    struct stop_match *m = make_match(&a, stops, 2);
    struct stop_hit hit;
    assert_false(stop_match_feed(m, SLICE("see E"), &hit));
    assert_int_equal(stop_match_held(m), 1);
    assert_false(stop_match_feed(m, SLICE("ND"), &hit));
    assert_int_equal(stop_match_held(m), 3);
    assert_false(stop_match_feed(m, SLICE("? ababab"), &hit));
    assert_int_equal(stop_match_held(m), 4);
    assert_true(stop_match_feed(m, SLICE("!!"), &hit));
    assert_int_equal(hit.index, 1);
    assert_int_equal(hit.text_bytes, strlen("see END? ab"));
    arena_free(a);
}

TEST(skipped_text_is_no_beginning)
{
    struct arena *a = NULL;
    struct slice stops[] = {SLICE("stop")};
    struct stop_match *m = make_match(&a, stops, 1);
    struct stop_hit hit;
    assert_false(stop_match_feed(m, SLICE("st"), &hit));
    stop_match_skip(m, 4);
    assert_int_equal(stop_match_held(m), 0);
    assert_false(stop_match_feed(m, SLICE("op"), &hit));
    assert_true(stop_match_feed(m, SLICE("stop"), &hit));
    assert_int_equal(hit.text_bytes, 8);
    arena_free(a);
}

/* The definition: the first byte at which any string ends, and the longest string that ends there. */
static bool find_plainly(struct slice text, const struct slice *stops, uint32_t count, struct stop_hit *ret)
{
    for (size_t end = 1; end <= text.len; end++) {
        bool found = false;
        for (uint32_t i = 0; i < count; i++) {
            if (!slice_ends(slice_sub(text, 0, end), stops[i]))
                continue;
            if (!found || stops[i].len > stops[ret->index].len)
                *ret = (struct stop_hit){i, end - stops[i].len};
            found = true;
        }
        if (found)
            return true;
    }
    return false;
}

static uint32_t held_plainly(struct slice text, const struct slice *stops, uint32_t count)
{
    size_t held = 0;
    for (uint32_t i = 0; i < count; i++)
        for (size_t n = held + 1; n < stops[i].len && n <= text.len; n++)
            if (slice_ends(text, slice_sub(stops[i], 0, n)))
                held = n;
    return (uint32_t)held;
}

PROPERTY(the_cut_into_pieces_does_not_matter, seed)
{
    struct rng rng = {seed, 0};
    char text[200], strings[4][12];
    struct slice stops[4];
    struct arena *a = NULL;
    uint32_t letters = 2 + (uint32_t)rng_below(&rng, 2), count = 1 + (uint32_t)rng_below(&rng, 4);
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)('a' + rng_below(&rng, letters));
    for (uint32_t i = 0; i < count; i++) {
        stops[i] = (struct slice){strings[i], 2 + rng_below(&rng, 11)};
        for (size_t k = 0; k < stops[i].len; k++)
            strings[i][k] = (char)('a' + rng_below(&rng, letters));
    }
    struct stop_match *m = make_match(&a, stops, count);
    struct slice all = {text, sizeof(text)};
    struct stop_hit want = {0, 0}, got = {0, 0};
    bool wanted = find_plainly(all, stops, count, &want), found = false;
    for (size_t at = 0; at < all.len && !found;) {
        struct slice piece = slice_sub(all, at, rng_below(&rng, 9));
        found = stop_match_feed(m, piece, &got);
        at += piece.len;
        if (!found)
            assert_int_equal(stop_match_held(m), held_plainly(slice_sub(all, 0, at), stops, count));
    }
    assert_int_equal(found, wanted);
    if (found) {
        assert_int_equal(got.text_bytes, want.text_bytes);
        assert_int_equal(stops[got.index].len, stops[want.index].len);
    }
    arena_free(a);
}

TEST_MAIN()
