/* report_attention.c - one row for each alert, in the order of the document. */
#include "api/report/report_attention.h"

#include "base/check.h"
#include "base/clock.h"

#include <math.h>

#define UNACCOUNTED_MAX  33554432
#define FIRST_TOKEN_S    5.0
#define PREP_WAITING_MAX 10

/* Input of an alert's condition: current figures, and increases of counters per second. */
struct look {
    const struct attention_facts *now;
    double rates[ATTENTION_COUNTERS]; /* a second */
};

typedef bool condition_fn(const struct look *l);

static bool is_stuck(const struct look *l)
{
    return l->now->stuck;
}

static bool is_unaccounted(const struct look *l)
{
    int64_t bytes = l->now->unaccounted_bytes;
    return bytes > UNACCOUNTED_MAX || bytes + (int64_t)l->now->untouched_bytes < -UNACCOUNTED_MAX;
}

static bool has_orphans(const struct look *l)
{
    return l->now->orphans > 0;
}

static bool waits_for_trim(const struct look *l)
{
    return l->now->pending_trim_bytes > 0;
}

static bool is_pressed(const struct look *l)
{
    return l->now->stage > 0;
}

static bool refuses_loads(const struct look *l)
{
    return l->now->lacks_memory && l->rates[ATTENTION_LOADS_REFUSED] > 0;
}

static bool steps_fail(const struct look *l)
{
    return l->rates[ATTENTION_STEP_ERRORS] > 0;
}

static bool is_overloaded(const struct look *l)
{
    return l->rates[ATTENTION_REFUSED_429] > 0.1;
}

static bool keys_are_tried(const struct look *l)
{
    return l->rates[ATTENTION_REFUSED_401] > 1;
}

static bool is_pressed_hard(const struct look *l)
{
    return l->now->stage > 2;
}

static bool ssd_fails(const struct look *l)
{
    return l->now->ssd_off || l->rates[ATTENTION_SSD_ERRORS] > 0;
}

static bool prep_waits(const struct look *l)
{
    return l->now->prep_waiting > PREP_WAITING_MAX;
}

static bool media_waits(const struct look *l)
{
    return l->now->media_waiting > 0;
}

static bool queue_stays(const struct look *l)
{
    return l->now->waiting > 0;
}

static bool first_tokens_are_late(const struct look *l)
{
    return l->now->first_token_s > FIRST_TOKEN_S; /* not with NAN */
}

static const struct {
    const char *id, *level;
    condition_fn *holds;
    uint32_t for_s;
    const char *what, *remedy;
} rows[] = {
    {"engine_stuck", "bad", is_stuck, 0, "A model has work and makes no progress",
     "Look at event=stuck in the log; the service manager's watchdog restarts the server."},
    {"memory_unaccounted", "warn", is_unaccounted, 300, "More than 32 MiB of memory belong to no account",
     "Compare the memory table with what the system counts, and report it: it is a fault of the program."},
    {"orphans", "warn", has_orphans, 0, "The memory of an unloaded model could not be returned",
     "Clear the prefix cache, which tries again; restart the server when it stays."},
    {"pending_trim", "warn", waits_for_trim, 60, "Free memory has not gone back to the system in time",
     "Return free memory. If it comes again, look for a model that is always in a long step."},
    {"memory_pressure", "warn", is_pressed, 60, "Other programs use memory that the plan counts on",
     "End other programs, or lower --memory-limit."},
    {"loads_refused", "warn", refuses_loads, 0, "A model could not be loaded for lack of memory",
     "Unload or unpin models that are not needed, or raise --memory-limit."},
    {"step_errors", "bad", steps_fail, 0, "Steps of a model fail; their requests got 500",
     "Look at event=step_failed in the log, and report it."},
    {"overload", "warn", is_overloaded, 0, "Requests are refused because the server is full",
     "Raise --max-num-seqs, --max-queue or memory, or add a machine."},
    {"keys_tried", "warn", keys_are_tried, 0, "A client tries keys that are not valid",
     "Look at event=refused in the log: it has the client's address."},
    {"memory_exhausted", "bad", is_pressed_hard, 60,
     "Memory is so short that idle models unload or new requests are refused",
     "End other programs on this machine, or unload a model."},
    {"ssd", "warn", ssd_fails, 0, "The SSD tier is off, or its disk fails",
     "Look at event=ssd_off and event=ssd_error in the log; check the disk and its free space."},
    {"prep_waiting", "warn", prep_waits, 60, "Requests arrive faster than they are parsed and tokenized",
     "Raise --prep-threads."},
    {"media_waiting", "warn", media_waits, 60, "Images arrive faster than they are decoded",
     "Raise --media-threads."},
    {"queue_waiting", "warn", queue_stays, 600, "The queue has not been empty for ten minutes",
     "Raise --max-num-seqs if memory allows, send fewer requests at once, or add a machine."},
    {"first_token_late", "warn", first_tokens_are_late, 0, "First tokens take more than 5 seconds",
     "Look at queued and cached tokens of event=request_ended: long prompts, a full queue, or few cache "
     "hits."},
};
_Static_assert(COUNT_OF(rows) == ATTENTION_ROWS, "the rows of the list");

/* Since the oldest mark that is no older than five minutes. A counter of models that are gone falls: no
 * rate. */
static void read_rates(const struct attention *a, const struct attention_facts *facts,
                       double ret[ATTENTION_COUNTERS])
{
    uint64_t count = MIN_OF(a->mark_count, (uint64_t)ATTENTION_MARKS);
    uint64_t oldest = (a->mark_count - count) % ATTENTION_MARKS;
    for (uint32_t i = 0; i < ATTENTION_COUNTERS; i++) {
        uint64_t before = count > 0 ? a->marks[oldest].counters[i] : facts->counters[i];
        uint64_t after = MAX_OF(facts->counters[i], before);
        /* Over the whole time, also after a start: one refusal in the first second is not a flood. */
        ret[i] = (double)(after - before) / ((ATTENTION_MARKS - 1) * (ATTENTION_MARK_NS / (double)NS_PER_S));
    }
}

static void mark(struct attention *a, uint64_t now_ns, const struct attention_facts *facts)
{
    uint64_t last = (a->mark_count + ATTENTION_MARKS - 1) % ATTENTION_MARKS;
    if (a->mark_count > 0 && now_ns < a->marks[last].at_ns + ATTENTION_MARK_NS)
        return;
    uint64_t at = a->mark_count++ % ATTENTION_MARKS;
    a->marks[at].at_ns = now_ns;
    for (uint32_t i = 0; i < ATTENTION_COUNTERS; i++)
        a->marks[at].counters[i] = facts->counters[i];
}

void attention_update(struct attention *a, uint64_t now_ns, const struct attention_facts *facts)
{
    struct look look = {.now = facts};
    read_rates(a, facts, look.rates);
    a->lacks_memory = facts->lacks_memory;
    mark(a, now_ns, facts);
    for (uint32_t i = 0; i < ATTENTION_ROWS; i++) {
        if (!rows[i].holds(&look))
            a->since_ns[i] = 0;
        else if (a->since_ns[i] == 0)
            a->since_ns[i] = MAX_OF(now_ns, (uint64_t)1);
        a->listed[i] = a->since_ns[i] && now_ns - a->since_ns[i] >= rows[i].for_s * NS_PER_S;
    }
}

static struct attention_item item_of(uint32_t row)
{
    ASSERT(row < ATTENTION_ROWS);
    return (struct attention_item){
        .id = rows[row].id, .level = rows[row].level, .what = rows[row].what, .remedy = rows[row].remedy};
}

bool attention_at(const struct attention *a, uint32_t row, struct attention_item *ret)
{
    *ret = item_of(row);
    ret->since_ns = a->since_ns[row];
    if (rows[row].holds == refuses_loads)
        ret->model = a->lacks_memory;
    return a->listed[row];
}
