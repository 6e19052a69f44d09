/* Lists, and the queues between threads: rings and mailboxes. */
#include "test.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/rng.h"
#include "base/threads/mailbox.h"
#include "base/threads/ring.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

struct item {
    int value;
    struct list link;
};

static void list_expect(const struct list *head, const int *values, size_t count)
{
    size_t i = 0;
    LIST_EACH(it, head) {
        assert_true(i < count);
        assert_int_equal(LIST_ENTRY(it, struct item, link)->value, values[i]);
        i++;
    }
    assert_int_equal(i, count);
}

TEST(a_list_keeps_its_order_and_lets_members_go)
{
    struct list head;
    struct item items[4];
    list_init(&head);
    assert_true(list_empty(&head));
    for (int i = 0; i < 4; i++) {
        items[i].value = i;
        list_init(&items[i].link);
    }
    for (int i = 0; i < 3; i++)
        list_push_back(&head, &items[i].link);
    list_expect(&head, (int[]){0, 1, 2}, 3);
    assert_int_equal(LIST_FIRST(&head, struct item, link)->value, 0);
    list_remove(&items[1].link);
    list_remove(&items[1].link);
    list_remove(&items[3].link);
    list_expect(&head, (int[]){0, 2}, 2);
    LIST_EACH(it, &head)
        list_remove(it);
    assert_true(list_empty(&head));
}

TEST(a_member_is_in_one_list_at_most)
{
    struct list head;
    struct item item;
    list_init(&head);
    list_init(&item.link);
    list_push_back(&head, &item.link);
    assert_stops(list_push_back(&head, &item.link));
}

TEST(a_full_ring_says_so)
{
    uint32_t memory[4], v = 0;
    struct ring r;
    ring_init(&r, 4, sizeof(uint32_t), memory);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 4; i++)
            assert_true(ring_put(&r, &(uint32_t){round * 10 + i}));
        assert_false(ring_put(&r, &(uint32_t){99}));
        assert_int_equal(ring_count(&r), 4);
        for (uint32_t i = 0; i < 4; i++) {
            assert_true(ring_take(&r, &v));
            assert_int_equal(v, round * 10 + i);
        }
        assert_false(ring_take(&r, &v));
    }
    assert_stops(ring_init(&r, 3, 4, memory));
}

TEST(a_ring_works_across_the_wrap_of_its_indices)
{
    uint32_t memory[8], v = 0;
    struct ring r;
    ring_init(&r, 8, sizeof(uint32_t), memory);
    atomic_store(&r.head, UINT32_MAX - 3);
    atomic_store(&r.tail, UINT32_MAX - 3);
    for (uint32_t i = 0; i < 8; i++)
        assert_true(ring_put(&r, &i));
    assert_false(ring_put(&r, &v));
    assert_int_equal(ring_count(&r), 8);
    for (uint32_t i = 0; i < 8; i++)
        assert_true(ring_take(&r, &v) && v == i);
    assert_false(ring_take(&r, &v));
}

enum { RING_MESSAGES = 200000 };

struct wide {
    uint64_t number, twice, thrice;
};

static void *ring_producer(void *arg)
{
    struct ring *r = arg;
    for (uint64_t i = 1; i <= RING_MESSAGES;) {
        if (ring_put(r, &(struct wide){i, 2 * i, 3 * i}))
            i++;
        else
            sched_yield();
    }
    return NULL;
}

TEST(two_threads_see_every_element_once_in_order)
{
    static struct wide memory[64];
    static struct ring r;
    ring_init(&r, 64, sizeof(struct wide), memory);
    pthread_t producer;
    assert_int_equal(pthread_create(&producer, NULL, ring_producer, &r), 0);
    for (uint64_t i = 1; i <= RING_MESSAGES;) {
        struct wide w;
        if (!ring_take(&r, &w)) {
            sched_yield();
            continue;
        }
        assert_true(w.number == i && w.twice == 2 * i && w.thrice == 3 * i);
        assert_true(ring_count(&r) <= 64);
        i++;
    }
    pthread_join(producer, NULL);
    assert_int_equal(ring_count(&r), 0);
}

static struct mailbox *mailbox_of(uint32_t messages_max, uint32_t message_bytes, bool eventfd)
{
    struct mailbox *m = NULL;
    struct mailbox_opts opts = {
        .messages_max = messages_max, .message_bytes = message_bytes, .eventfd = eventfd};
    assert_int_equal(mailbox_create(&opts, &m), 0);
    return m;
}

TEST(a_mailbox_is_first_in_first_out_and_bounded)
{
    struct mailbox *m = mailbox_of(3, sizeof(int), false);
    int v = 0;
    assert_false(mailbox_take(m, &v));
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 3; i++)
            assert_int_equal(mailbox_put(m, &(int){round * 10 + i}), 0);
        assert_int_equal(mailbox_put(m, &v), -EAGAIN);
        assert_int_equal(mailbox_count(m), 3);
        for (int i = 0; i < 3; i++)
            assert_true(mailbox_take(m, &v) && v == round * 10 + i);
    }
    assert_int_equal(mailbox_fd(m), -1);
    mailbox_free(m);
    mailbox_free(NULL);
}

TEST(a_mailbox_without_room_is_refused)
{
    struct mailbox *m = NULL;
    assert_int_equal(mailbox_create(&(struct mailbox_opts){.messages_max = 0, .message_bytes = 4}, &m),
                     -EINVAL);
    assert_int_equal(mailbox_create(&(struct mailbox_opts){.messages_max = 4, .message_bytes = 0}, &m),
                     -EINVAL);
    assert_null(m);
}

static size_t mailbox_paid;

static int mailbox_pay(void *owner, size_t bytes)
{
    size_t *limit = owner;
    if (bytes > *limit - mailbox_paid)
        return -ENOMEM;
    mailbox_paid += bytes;
    return 0;
}

static void mailbox_unpay(void *owner, size_t bytes)
{
    (void)owner;
    mailbox_paid -= bytes;
}

TEST(a_mailbox_is_paid_whole_at_creation)
{
    size_t limit = 10000;
    struct charge charge = {mailbox_pay, mailbox_unpay, &limit};
    struct mailbox_opts opts = {.messages_max = 100, .message_bytes = 64, .charge = &charge};
    struct mailbox *m = NULL, *second = NULL;
    assert_int_equal(mailbox_create(&opts, &m), 0);
    assert_true(mailbox_paid >= 6400);
    assert_int_equal(mailbox_create(&opts, &second), -ENOMEM);
    assert_null(second);
    mailbox_free(m);
    assert_int_equal(mailbox_paid, 0);
}

TEST(a_wait_ends_in_time)
{
    struct mailbox *m = mailbox_of(1, sizeof(int), false);
    int v = 0;
    uint64_t began = clock_now_ns();
    assert_false(mailbox_wait(m, &v, 20 * NS_PER_MS));
    assert_true(clock_now_ns() - began >= 20 * NS_PER_MS);
    assert_false(mailbox_wait(m, &v, 0));
    mailbox_free(m);
}

TEST(a_closed_mailbox_gives_what_it_holds_and_takes_no_more)
{
    struct mailbox *m = mailbox_of(2, sizeof(int), false);
    int v = 5;
    assert_int_equal(mailbox_put(m, &v), 0);
    mailbox_close(m);
    assert_int_equal(mailbox_put(m, &v), -EPIPE);
    v = 0;
    assert_true(mailbox_wait(m, &v, UINT64_MAX) && v == 5);
    assert_false(mailbox_wait(m, &v, UINT64_MAX));
    mailbox_free(m);
}

static bool readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

TEST(the_descriptor_is_readable_while_messages_may_be_inside)
{
    struct mailbox *m = mailbox_of(4, sizeof(int), true);
    int v = 1;
    assert_false(readable(mailbox_fd(m)));
    assert_int_equal(mailbox_put(m, &v), 0);
    assert_int_equal(mailbox_put(m, &v), 0);
    assert_true(readable(mailbox_fd(m)));
    mailbox_fd_clear(m);
    assert_false(readable(mailbox_fd(m)));
    mailbox_fd_clear(m);
    while (mailbox_take(m, &v))
        ;
    assert_int_equal(mailbox_put(m, &v), 0);
    assert_true(readable(mailbox_fd(m)));
    mailbox_fd_clear(m);
    mailbox_close(m);
    assert_true(readable(mailbox_fd(m)));
    mailbox_free(m);
}

enum { SENDERS = 4, LETTERS = 20000 };

struct letter {
    uint32_t sender, number;
};

struct sender {
    struct mailbox *mailbox;
    uint32_t index, refused;
};

static void *send_letters(void *arg)
{
    struct sender *s = arg;
    for (uint32_t i = 0; i < LETTERS;) {
        int r = mailbox_put(s->mailbox, &(struct letter){s->index, i});
        if (r == -EPIPE)
            break;
        if (r == 0) {
            i++;
        } else {
            s->refused++;
            sched_yield();
        }
    }
    return NULL;
}

TEST(letters_of_many_senders_all_arrive_each_in_its_order)
{
    struct mailbox *m = mailbox_of(32, sizeof(struct letter), true);
    struct sender senders[SENDERS];
    pthread_t threads[SENDERS];
    uint32_t next[SENDERS] = {0};
    for (uint32_t i = 0; i < SENDERS; i++) {
        senders[i] = (struct sender){m, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, send_letters, &senders[i]), 0);
    }
    for (uint32_t got = 0; got < SENDERS * LETTERS; got++) {
        struct letter l;
        assert_true(mailbox_wait(m, &l, 30 * NS_PER_S));
        assert_true(l.sender < SENDERS);
        assert_int_equal(l.number, next[l.sender]);
        next[l.sender]++;
    }
    for (uint32_t i = 0; i < SENDERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(mailbox_count(m), 0);
    mailbox_free(m);
}

static void *close_later(void *arg)
{
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    mailbox_close(arg);
    return NULL;
}

TEST(a_close_wakes_who_waits)
{
    struct mailbox *m = mailbox_of(1, sizeof(int), false);
    pthread_t closer;
    int v = 0;
    assert_int_equal(pthread_create(&closer, NULL, close_later, m), 0);
    assert_false(mailbox_wait(m, &v, UINT64_MAX));
    pthread_join(closer, NULL);
    mailbox_free(m);
}

TEST(senders_learn_of_a_close_while_they_send)
{
    struct mailbox *m = mailbox_of(8, sizeof(struct letter), false);
    struct sender s = {m, 0, 0};
    pthread_t thread;
    struct letter l;
    assert_int_equal(pthread_create(&thread, NULL, send_letters, &s), 0);
    for (uint32_t i = 0; i < 100; i++)
        assert_true(mailbox_wait(m, &l, 30 * NS_PER_S) && l.number == i);
    mailbox_close(m);
    uint32_t next = 100;
    while (mailbox_wait(m, &l, UINT64_MAX))
        assert_int_equal(l.number, next++);
    pthread_join(thread, NULL);
    mailbox_free(m);
}

TEST(deadlines_lie_ahead_and_do_not_overflow)
{
    struct timespec soon = clock_deadline(5 * NS_PER_S), never = clock_deadline(UINT64_MAX);
    uint64_t now = clock_now_ns();
    uint64_t soon_ns = (uint64_t)soon.tv_sec * NS_PER_S + (uint64_t)soon.tv_nsec;
    assert_true(soon_ns > now && soon_ns <= now + 5 * NS_PER_S);
    assert_true(never.tv_sec > soon.tv_sec + 3600 && never.tv_nsec < (long)NS_PER_S);
    assert_true(clock_wall_s() > 1.6e9);
}

TEST_MAIN()
