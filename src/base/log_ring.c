/* log_ring.c - a slot's turn is odd while it is written, and even with the number of its line afterwards.
 *
 * The text is kept in atomic words, so that a reader beside a writer reads nonsense at worst, which the turn
 * tells, and never races. */
#include "base/log_ring.h"

#include <stdatomic.h>
#include <string.h>

#define WORDS (LOG_RING_LINE_BYTES / 8)

struct slot {
    _Atomic uint64_t turn; /* 2 * number, + 1 while it is written; 0: empty */
    _Atomic uint64_t head; /* len << 8 | level */
    _Atomic uint64_t words[WORDS];
};
_Static_assert(sizeof(struct slot) * LOG_RING_LINES == LOG_RING_BYTES, "the size of the ring");

static struct slot slots[LOG_RING_LINES];
static _Atomic uint64_t last;
static atomic_bool on;

void log_ring_start(void)
{
    for (size_t i = 0; i < LOG_RING_LINES; i++) {
        uint64_t was = atomic_load(&slots[i].turn);
        atomic_compare_exchange_strong(&slots[i].turn, &was, was);
    }
    atomic_store(&on, true);
}

void log_ring_stop(void)
{
    atomic_store(&on, false);
}

uint64_t log_ring_last(void)
{
    return atomic_load(&last);
}

/* Not within a character. */
static size_t cut(const char *line, size_t len)
{
    if (len <= LOG_RING_LINE_BYTES)
        return len;
    len = LOG_RING_LINE_BYTES;
    while (len > 0 && ((unsigned char)line[len] & 0xc0) == 0x80)
        len--;
    return len;
}

void log_ring_put(int level, const char *line, size_t len)
{
    if (!atomic_load_explicit(&on, memory_order_relaxed))
        return;
    uint64_t number = atomic_fetch_add(&last, 1) + 1;
    struct slot *s = &slots[number % LOG_RING_LINES];
    uint64_t was = atomic_load_explicit(&s->turn, memory_order_relaxed), word;
    if (was & 1 || was > 2 * number ||
        !atomic_compare_exchange_strong_explicit(&s->turn, &was, 2 * number + 1, memory_order_acq_rel,
                                                 memory_order_relaxed))
        return;
    len = cut(line, len);
    atomic_store_explicit(&s->head, (uint64_t)len << 8 | (unsigned)level, memory_order_release);
    for (size_t i = 0; i * 8 < len; i++) {
        word = 0;
        memcpy(&word, line + i * 8, len - i * 8 < 8 ? len - i * 8 : 8);
        atomic_store_explicit(&s->words[i], word, memory_order_release);
    }
    atomic_store_explicit(&s->turn, 2 * number, memory_order_release);
}

static bool copy(const struct slot *s, uint64_t number, struct log_ring_line *ret)
{
    if (atomic_load_explicit(&s->turn, memory_order_acquire) != 2 * number)
        return false;
    uint64_t head = atomic_load_explicit(&s->head, memory_order_acquire);
    ret->number = number;
    ret->level = (int)(head & 0xff);
    ret->len = (size_t)(head >> 8);
    if (ret->len > LOG_RING_LINE_BYTES)
        return false;
    for (size_t i = 0; i * 8 < ret->len; i++) {
        uint64_t word = atomic_load_explicit(&s->words[i], memory_order_acquire);
        memcpy(ret->text + i * 8, &word, 8);
    }
    return atomic_load_explicit(&s->turn, memory_order_relaxed) == 2 * number;
}

bool log_ring_next(uint64_t after, struct log_ring_line *ret)
{
    uint64_t end = log_ring_last(), first = after + 1;
    if (end >= LOG_RING_LINES && first + LOG_RING_LINES <= end)
        first = end + 1 - LOG_RING_LINES;
    for (uint64_t n = first; n <= end; n++)
        if (copy(&slots[n % LOG_RING_LINES], n, ret))
            return true;
    return false;
}
