/* predict.c - predictions: the terminals that begin at a row, and the rules that it predicts.
 *
 * Rows hold no predicted items. A prediction depends only on the symbols that the row's items expect, so it
 * is kept by these symbols and shared by all rows. The rules that one symbol predicts are a window of bits.
 * */
#include "grammar/matcher_state.h"

#include "base/check.h"
#include "rx/rx_store.h"

#include <errno.h>

/* Rules that `rule` predicts, itself among them, to t->stack; stamps them. Returns how many. */
static uint32_t spread(struct matcher_tables *t, uint32_t rule, uint32_t from)
{
    const struct grammar *g = t->grammar;
    uint32_t count = from;
    ASSERT(rule < g->rule_count && from <= g->rule_count);
    if (t->stamps[rule] == t->stamp)
        return count;
    t->stamps[rule] = t->stamp;
    t->stack[count++] = rule;
    for (uint32_t i = from; i < count; i++) {
        uint32_t now = t->stack[i];
        for (uint32_t a = g->alternatives_of[now]; a < g->alternatives_of[now + 1]; a++)
            for (uint32_t at = g->alternatives[a];; at++) {
                uint32_t next = g->symbols[at];
                if (next & (DOT_END | DOT_TERMINAL))
                    break;
                if (t->stamps[next] != t->stamp) {
                    t->stamps[next] = t->stamp;
                    t->stack[count++] = next;
                }
                if (!g->nullable[next])
                    break;
            }
        t->work++;
    }
    return count;
}

static void stamp_new(struct matcher_tables *t)
{
    if (++t->stamp == 0) {
        memset(t->stamps, 0,
               ((size_t)t->grammar->rule_count + t->grammar->terminal_count) * sizeof(uint32_t));
        t->stamp = 1;
    }
}

static bool closure_make(struct matcher_tables *t, uint32_t expected)
{
    stamp_new(t);
    uint32_t count = spread(t, expected, 0), low = UINT32_MAX, high = 0;
    for (uint32_t i = 0; i < count; i++) {
        low = MIN_OF(low, t->stack[i] / 32);
        high = MAX_OF(high, t->stack[i] / 32);
    }
    ASSERT(count > 0 && low <= high);
    uint32_t at = lexer_take(t, 2 + high - low + 1);
    if (!at)
        return false;
    t->pool[at] = low;
    t->pool[at + 1] = high - low + 1;
    for (uint32_t i = 0; i < count; i++)
        t->pool[at + 2 + t->stack[i] / 32 - low] |= 1u << t->stack[i] % 32;
    t->closures[expected] = at;
    return true;
}

int predict_closure(struct matcher_tables *t, uint32_t expected, uint32_t rule)
{
    ASSERT(expected < t->grammar->rule_count && rule < t->grammar->rule_count);
    if (!t->closures[expected] && !closure_make(t, expected))
        return -1;
    const uint32_t *c = t->pool + t->closures[expected];
    uint32_t word = rule / 32 - c[0];
    return word < c[1] ? (int)(c[2 + word] >> rule % 32 & 1) : 0;
}

/* Terminals that may stand first in the rules of t->stack, and expected ones, to t->list. */
static uint32_t first_terminals(struct matcher_tables *t, uint32_t rules, uint32_t count)
{
    const struct grammar *g = t->grammar;
    for (uint32_t i = 0; i < rules; i++)
        for (uint32_t a = g->alternatives_of[t->stack[i]]; a < g->alternatives_of[t->stack[i] + 1]; a++) {
            uint32_t at = g->alternatives[a];
            while (!(g->symbols[at] & (DOT_END | DOT_TERMINAL)) && g->nullable[g->symbols[at]])
                at++;
            uint32_t next = g->symbols[at], terminal = next & DOT_INDEX;
            if (!(next & DOT_TERMINAL) || t->stamps[g->rule_count + terminal] == t->stamp)
                continue;
            t->stamps[g->rule_count + terminal] = t->stamp;
            t->list[count++] = terminal;
        }
    ASSERT(count <= g->terminal_count);
    return count;
}

/* Symbols that the row's items expect, sorted, to t->list. */
static uint32_t expected_symbols(struct matcher_tables *t, struct chart_row *row)
{
    uint32_t count = 0;
    stamp_new(t);
    for (uint32_t i = 0; i < row->count; i++) {
        uint32_t symbol = grammar_symbol(t->grammar, t->grammar->symbols[chart_row_items(row)[i].dot]);
        if (t->stamps[symbol] == t->stamp)
            continue;
        t->stamps[symbol] = t->stamp;
        t->list[count++] = symbol;
    }
    ASSERT(count <= t->list_room);
    return rx_sort(t->list, count, &t->work);
}

static uint32_t predict_find(const struct matcher_tables *t, uint32_t hash, uint32_t count)
{
    for (uint32_t at = t->predict_buckets[hash % t->bucket_count]; at; at = t->pool[at + PREDICT_NEXT])
        if (t->pool[at + PREDICT_HASH] == hash && t->pool[at + PREDICT_KEYS] == count &&
            memcmp(t->pool + at + PREDICT_HEAD, t->list, count * sizeof(uint32_t)) == 0)
            return at;
    return 0;
}

/* The state and special tokens of the terminals in t->list [0, count), written to the prediction at `at`. */
static uint32_t predict_fill(struct matcher_tables *t, uint32_t count, uint32_t *tokens)
{
    uint32_t kept = 0;
    ASSERT(count <= t->pairs_room);
    *tokens = 0;
    for (uint32_t i = 0; i < count; i++) {
        rx_id rx = t->grammar->terminals[t->list[i]].rx;
        if (rx == RX_NONE) {
            /* Special tokens stay in the list, in front. */
            t->list[(*tokens)++] = t->list[i];
            continue;
        }
        t->pairs[2 * kept] = t->list[i];
        t->pairs[2 * kept++ + 1] = rx;
    }
    return lexer_state(t, t->pairs, kept);
}

static uint32_t predict_make(struct matcher_tables *t, uint32_t keys, uint32_t hash)
{
    uint32_t at = lexer_take(t, PREDICT_HEAD + keys), rules = 0, terminals = 0, tokens;
    if (!at)
        return STATE_FULL;
    memcpy(t->pool + at + PREDICT_HEAD, t->list, keys * sizeof(uint32_t));
    stamp_new(t);
    for (uint32_t i = 0; i < keys; i++) {
        uint32_t symbol = t->pool[at + PREDICT_HEAD + i];
        if (symbol < t->grammar->rule_count)
            rules = spread(t, symbol, rules);
        else if (t->stamps[symbol] != t->stamp) {
            t->stamps[symbol] = t->stamp;
            t->list[terminals++] = symbol - t->grammar->rule_count;
        }
    }
    terminals = rx_sort(t->list, first_terminals(t, rules, terminals), &t->work);
    t->work += terminals;
    uint32_t state = predict_fill(t, terminals, &tokens);
    if (state != STATE_DEAD && state < STATE_FIRST)
        return state;
    uint32_t more = tokens ? lexer_take(t, tokens + 1) : 0;
    if (tokens && !more)
        return STATE_FULL;
    if (tokens) {
        t->pool[more] = tokens;
        memcpy(t->pool + more + 1, t->list, tokens * sizeof(uint32_t));
    }
    uint32_t *words = t->pool + at, *bucket = &t->predict_buckets[hash % t->bucket_count];
    words[PREDICT_HASH] = hash;
    words[PREDICT_KEYS] = keys;
    words[PREDICT_STATE] = state & ~STATE_ACCEPTS;
    words[PREDICT_TOKENS] = more;
    words[PREDICT_NEXT] = *bucket;
    *bucket = at;
    return at;
}

uint32_t predict_row(struct matcher_tables *t, struct chart_row *row)
{
    if (row->generation == t->generation)
        return row->predict;
    uint32_t count = expected_symbols(t, row), hash = count * 2654435761u;
    for (uint32_t i = 0; i < count; i++)
        hash = (hash ^ t->list[i]) * 2654435761u, hash ^= hash >> 15;
    uint32_t at = predict_find(t, hash, count);
    if (!at)
        at = predict_make(t, count, hash);
    if (at >= STATE_FIRST) {
        row->predict = at;
        row->generation = t->generation;
    }
    return at;
}
