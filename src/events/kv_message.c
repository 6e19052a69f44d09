/* kv_message.c - the six forms of msgpack that a message needs, written into a buffer of fixed size.
 *
 * msgpack-c would write them too, but its development package brings 140 MB of others. */
#include "events/kv_message.h"

#include "base/check.h"

#include <string.h>

/* The medium whose pages cost nothing to use; routers know it by this name. */
#define MEDIUM "GPU"

struct writer {
    uint8_t *at;
    size_t len;
};

/* A form's first byte, and its number in `bytes` bytes, big-endian. */
static void put_form(struct writer *w, uint8_t form, uint64_t number, uint32_t bytes)
{
    ASSERT(w->len + 1 + bytes <= KV_MESSAGE_BYTES);
    w->at[w->len++] = form;
    while (bytes-- > 0)
        w->at[w->len++] = (uint8_t)(number >> 8 * bytes);
}

static void put_nil(struct writer *w)
{
    put_form(w, 0xc0, 0, 0);
}

static void put_array(struct writer *w, uint32_t count)
{
    put_form(w, 0xdd, count, 4);
}

static void put_map(struct writer *w, uint32_t count)
{
    ASSERT(count < 16);
    put_form(w, (uint8_t)(0x80 | count), 0, 0);
}

static void put_number(struct writer *w, uint64_t n)
{
    if (n < 128)
        put_form(w, (uint8_t)n, 0, 0);
    else if (n <= UINT16_MAX)
        put_form(w, 0xcd, n, 2);
    else if (n <= UINT32_MAX)
        put_form(w, 0xce, n, 4);
    else
        put_form(w, 0xcf, n, 8);
}

static void put_double(struct writer *w, double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof(bits));
    put_form(w, 0xcb, bits, 8);
}

static void put_text(struct writer *w, const char *text)
{
    size_t len = strlen(text);
    ASSERT(len < 32 && w->len + 1 + len <= KV_MESSAGE_BYTES);
    put_form(w, (uint8_t)(0xa0 | len), 0, 0);
    memcpy(w->at + w->len, text, len);
    w->len += len;
}

static void put_hash(struct writer *w, uint64_t hash)
{
    if (hash)
        put_number(w, hash);
    else
        put_nil(w);
}

/* Counts the records from the first one on that are one event. */
static uint32_t run_of(const struct prefix_event *r, uint32_t count)
{
    uint32_t run = 1;
    ASSERT(count > 0);
    while (run < count && r[run].kind == r->kind && r->kind != PREFIX_CLEARED &&
           (r->kind != PREFIX_STORED || r[run].parent == r[run - 1].hash))
        run++;
    return run;
}

static void put_hashes(struct writer *w, const struct prefix_event *r, uint32_t run)
{
    put_text(w, "block_hashes");
    put_array(w, run);
    for (uint32_t i = 0; i < run; i++)
        put_hash(w, r[i].hash);
}

static void put_tokens(struct writer *w, const struct prefix_event *r, uint32_t run)
{
    put_text(w, "token_ids");
    put_array(w, run * PAGE_TOKENS);
    for (uint32_t i = 0; i < run; i++)
        for (uint32_t k = 0; k < PAGE_TOKENS; k++)
            put_number(w, r[i].tokens[k]);
    put_text(w, "block_size");
    put_number(w, PAGE_TOKENS);
}

/* The pages are of the group without a window. */
static void put_group(struct writer *w)
{
    put_text(w, "group_idx");
    put_number(w, 0);
}

static void put_medium(struct writer *w)
{
    put_text(w, "medium");
    put_text(w, MEDIUM);
}

static void put_stored(struct writer *w, const struct prefix_event *r, uint32_t run)
{
    put_map(w, 10);
    put_text(w, "type");
    put_text(w, "BlockStored");
    put_hashes(w, r, run);
    put_text(w, "parent_block_hash");
    put_hash(w, r->parent);
    put_tokens(w, r, run);
    put_text(w, "lora_id");
    put_nil(w);
    put_medium(w);
    put_text(w, "lora_name");
    put_nil(w);
    put_group(w);
    put_text(w, "kv_cache_spec_kind");
    put_text(w, "full_attention");
}

static void put_removed(struct writer *w, const struct prefix_event *r, uint32_t run)
{
    put_map(w, 4);
    put_text(w, "type");
    put_text(w, "BlockRemoved");
    put_hashes(w, r, run);
    put_medium(w);
    put_group(w);
}

static void put_cleared(struct writer *w)
{
    put_map(w, 1);
    put_text(w, "type");
    put_text(w, "AllBlocksCleared");
}

size_t kv_message_write(const struct prefix_event *records, uint32_t count, double seconds, uint8_t *ret)
{
    struct writer w = {ret, 0};
    uint32_t events = 0;
    ASSERT(count > 0 && count <= KV_MESSAGE_RECORDS);
    for (uint32_t i = 0; i < count; i += run_of(records + i, count - i))
        events++;
    put_array(&w, 3);
    put_double(&w, seconds);
    put_array(&w, events);
    for (uint32_t i = 0, run; i < count; i += run) {
        run = run_of(records + i, count - i);
        if (records[i].kind == PREFIX_STORED)
            put_stored(&w, records + i, run);
        else if (records[i].kind == PREFIX_REMOVED)
            put_removed(&w, records + i, run);
        else
            put_cleared(&w);
    }
    put_number(&w, 0);
    return w.len;
}
