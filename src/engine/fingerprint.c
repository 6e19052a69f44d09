/* fingerprint.c - the text of a layout, beside the fingerprint of the files. */
#include "engine/fingerprint.h"

#include "base/check.h"
#include "base/files/bundle.h"
#include "base/hex.h"
#include "base/slice.h"
#include "cache/prefix_key.h"
#include "model/model.h"
#include "store/store_file.h"
#include "tensor/quantise.h"
#include "weights/model_fingerprint.h"

#include <stdio.h>
#include <string.h>

/* Version of the layout of a page and a recurrent state, and of the arithmetic that fills them. */
#define LAYOUT_VERSION 4
#define GROUPS_BYTES   128
#define SHARDS_BYTES   24

/* "4096", or "4096+128:8192": bytes of a page of the first group, then the window and the bytes of each
 * other. */
static void groups_text(const struct model_shape *shape, char ret[GROUPS_BYTES])
{
    int len = snprintf(ret, GROUPS_BYTES, "%zu", shape->groups[0].page_bytes);
    for (uint32_t g = 1; g < shape->group_count; g++)
        len += snprintf(ret + len, (size_t)(GROUPS_BYTES - len), "+%u:%zu", shape->groups[g].window,
                        shape->groups[g].page_bytes);
    ASSERT(len < GROUPS_BYTES); /* 20 digits, and 32 for each of three windows, at most */
}

/* A model on several devices has parts of a page on each: which ones follows from their bytes. */
static void shards_text(const struct model_shape *shape, char ret[SHARDS_BYTES])
{
    uint64_t bytes[SHARDS_MAX * (PAGE_GROUPS_MAX + 1)];
    uint32_t count = 0;
    ret[0] = 0;
    for (uint32_t i = 0; i + 1 < shape->shard_count; i++) {
        bytes[count++] = shape->beside[i].state_bytes;
        for (uint32_t g = 0; g < shape->group_count; g++)
            bytes[count++] = shape->beside[i].page_bytes[g];
    }
    if (count > 0)
        snprintf(ret, SHARDS_BYTES, " on=%llx", (ull)bundle_check_of(bytes, count * sizeof(bytes[0])));
}

/* Behind the arithmetic; a name has no room for more. */
static const char *const kv_marks[KV_FORMS] = {
    [KV_F32] = "", [KV_BF16] = "/b", [KV_INT8] = "/i", [KV_FP8] = "/e", [KV_INT4] = "/4"};

bool fingerprint_is_hex(const char *text)
{
    uint8_t bytes[MODEL_FINGERPRINT_BYTES];
    return strlen(text) == FINGERPRINT_HEX && hex_bytes(text, sizeof(bytes), bytes);
}

static void name_apart(const char *namespace, uint8_t fingerprint[MODEL_FINGERPRINT_BYTES])
{
    const struct slice parts[] = {{(const char *)fingerprint, MODEL_FINGERPRINT_BYTES}, slice_of(namespace)};
    const struct prefix_key key = prefix_key_root(parts, COUNT_OF(parts));
    memcpy(fingerprint, key.bytes, MODEL_FINGERPRINT_BYTES);
}

int fingerprint_make(struct model_files *files, const struct model_shape *shape, unsigned cpu_flags,
                     const struct fingerprint_opts *opts, struct store_identity *ret, struct err *e)
{
    struct store_identity identity = {0};
    ASSERT(!opts->given || fingerprint_is_hex(opts->given));
    int r = opts->given ? 0 : model_fingerprint(files, identity.fingerprint, e);
    if (r < 0)
        return r;
    if (opts->given)
        hex_bytes(opts->given, sizeof(identity.fingerprint), identity.fingerprint);
    if (opts->namespace)
        name_apart(opts->namespace, identity.fingerprint);
    *ret = identity;
    char groups[GROUPS_BYTES], shards[SHARDS_BYTES];
    groups_text(shape, groups);
    shards_text(shape, shards);
    const char *quant = shape->quant ? quantise_name(shape->quant) : "";
    int len =
        snprintf(ret->layout, sizeof(ret->layout), "%d %s%s%s%s page=%s state=%zu%s cpu=%x%s%s %s",
                 LAYOUT_VERSION, compute_mode_name(shape->compute), kv_marks[shape->kv_form],
                 shape->quant ? "/" : "", quant, groups, shape->state_bytes, shards, cpu_flags,
                 shape->longrope ? " rope=" : "", shape->longrope ? shape->longrope : "", PLATEAU_VERSION);
    ASSERT(len < (int)sizeof(ret->layout));
    if (opts->experts != 0)
        len += snprintf(ret->layout + len, sizeof(ret->layout) - (size_t)len, " x=%x", opts->experts);
    ASSERT(len < (int)sizeof(ret->layout));
    return 0;
}
