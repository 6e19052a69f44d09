/* Which task is decoded next: tenants in turn, small before large, and large ones within a bound. */
#include "test.h"

#include "media/media_queue.h"
#include "base/check.h"

#define MS ((uint64_t)1000000)
#define S  (1000 * MS)

struct scene {
    struct fair_queue q;
    struct media_entry entries[256];
    uint32_t count;
    uint64_t now_ns;
};

static void scene_begin(struct scene *s)
{
    *s = (struct scene){.now_ns = 100 * S};
    fair_queue_init(&s->q);
}

static struct media_entry *put(struct scene *s, uint64_t tenant, uint64_t cost_ns)
{
    ASSERT(s->count < COUNT_OF(s->entries));
    struct media_entry *e = &s->entries[s->count++];
    *e = (struct media_entry){
        .fair.tenant = tenant, .arrived_ns = s->now_ns++, .cost_ns = cost_ns, .turn_ns = cost_ns};
    list_init(&e->fair.link);
    media_queue_put(&s->q, e);
    return e;
}

static struct media_entry *take(struct scene *s)
{
    return media_queue_take(&s->q, MEDIA_LANE_ALL);
}

TEST(small_ones_go_first_and_equals_in_the_order_of_arrival)
{
    struct scene s;
    scene_begin(&s);
    struct media_entry *big = put(&s, 1, 2 * S), *a = put(&s, 1, MS), *b = put(&s, 1, MS),
                       *mid = put(&s, 1, S);
    assert_ptr_equal(take(&s), a);
    assert_ptr_equal(take(&s), b);
    assert_ptr_equal(take(&s), mid);
    assert_ptr_equal(take(&s), big);
    assert_null(take(&s));
    assert_int_equal(s.q.count, 0);
}

/* Small ones come all the time; each takes 500 ms. */
TEST(a_large_one_waits_10_s_at_most)
{
    struct scene s;
    scene_begin(&s);
    struct media_entry *big = put(&s, 1, 3600 * S), *e;
    uint64_t came_ns = s.now_ns;
    put(&s, 1, MS);
    while ((e = take(&s)) != big) {
        assert_non_null(e);
        s.now_ns += 500 * MS;
        put(&s, 1, MS);
    }
    assert_in_range(s.now_ns - came_ns, 9 * S, 11 * S);
    while (take(&s))
        ;
}

TEST(a_tenant_does_not_wait_for_anothers_queue)
{
    struct scene s;
    scene_begin(&s);
    for (int i = 0; i < 100; i++)
        put(&s, 1, 8 * S);
    assert_int_equal(take(&s)->fair.tenant, 1);
    struct media_entry *other = put(&s, 2, 9 * S);
    assert_ptr_equal(take(&s), other);
    while (take(&s))
        ;
}

/* Has as many tenants as counters: each newcomer goes before the one that was charged. More tenants share
 * counters, and every entry is still taken once. */
TEST(each_of_many_tenants_has_its_own_counter)
{
    struct scene s;
    scene_begin(&s);
    put(&s, 1000, 8 * S);
    put(&s, 1000, 8 * S);
    assert_int_equal(take(&s)->fair.tenant, 1000);
    for (uint64_t i = 1; i < FAIR_QUEUE_TENANTS; i++)
        put(&s, i, 9 * S);
    for (uint64_t i = 1; i < FAIR_QUEUE_TENANTS; i++)
        assert_int_equal(take(&s)->fair.tenant, i);
    assert_int_equal(take(&s)->fair.tenant, 1000);
    for (uint64_t i = 0; i < 2 * FAIR_QUEUE_TENANTS; i++)
        put(&s, 2000 + i, S);
    for (uint64_t i = 0; i < 2 * FAIR_QUEUE_TENANTS; i++)
        assert_non_null(take(&s));
    assert_null(take(&s));
}

/* Equal tenants get equal time, whatever the sizes. */
TEST(tenants_get_equal_time)
{
    struct scene s;
    uint64_t served[2] = {0};
    scene_begin(&s);
    for (int i = 0; i < 100; i++)
        put(&s, 0, 2 * S);
    for (int i = 0; i < 100; i++)
        put(&s, 1, S / 2);
    for (int i = 0; i < 60; i++) {
        struct media_entry *e = take(&s);
        served[e->fair.tenant] += e->cost_ns;
    }
    assert_in_range(served[0], served[1] - 2 * S, served[1] + 2 * S);
    while (take(&s))
        ;
}

/* A task of 16 parts is put again after each; one of a single small part comes meanwhile. */
TEST(a_task_gives_way_between_its_parts)
{
    struct scene s;
    scene_begin(&s);
    struct media_entry *big = put(&s, 1, 32 * S);
    big->turn_ns = 2 * S;
    assert_ptr_equal(take(&s), big);
    struct media_entry *small = put(&s, 1, MS);
    big->cost_ns -= 2 * S;
    media_queue_put(&s.q, big);
    assert_ptr_equal(take(&s), small);
    assert_ptr_equal(take(&s), big);
}

TEST(videos_stay_when_only_images_may_begin)
{
    struct scene s;
    scene_begin(&s);
    struct media_entry *video = put(&s, 1, MS), *still = put(&s, 1, S);
    video->video = true;
    assert_ptr_equal(media_queue_take(&s.q, MEDIA_LANE_IMAGES), still);
    assert_null(media_queue_take(&s.q, MEDIA_LANE_IMAGES));
    assert_ptr_equal(media_queue_take(&s.q, MEDIA_LANE_ALL), video);
}

TEST(the_lane_of_small_images_leaves_large_ones)
{
    struct scene s;
    scene_begin(&s);
    struct media_entry *big = put(&s, 1, MEDIA_SMALL_NS + 1), *video = put(&s, 1, MS);
    video->video = true;
    assert_null(media_queue_take(&s.q, MEDIA_LANE_SMALL));
    struct media_entry *small = put(&s, 1, MEDIA_SMALL_NS);
    assert_ptr_equal(media_queue_take(&s.q, MEDIA_LANE_SMALL), small);
    assert_null(media_queue_take(&s.q, MEDIA_LANE_SMALL));
    assert_ptr_equal(take(&s), video);
    assert_ptr_equal(take(&s), big);
}

TEST(what_leaves_is_not_taken)
{
    struct scene s;
    scene_begin(&s);
    struct media_entry *a = put(&s, 1, MS), *b = put(&s, 1, MS);
    fair_queue_remove(&s.q, &a->fair);
    assert_int_equal(s.q.count, 1);
    assert_ptr_equal(take(&s), b);
    assert_null(take(&s));
}

TEST(pixels_count_where_they_are_known)
{
    uint64_t bomb = media_queue_cost_ns(60000, 64000000), photo = media_queue_cost_ns(60000, 300000);
    assert_true(bomb > S && photo < 20 * MS);
    assert_true(media_queue_cost_ns(60000, 0) > media_queue_cost_ns(600, 0));
    assert_true(media_queue_cost_ns(0, 0) > 0);
}

TEST_MAIN()
