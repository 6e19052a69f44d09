/* gguf.c - one walk over a head: header, metadata, table of tensors.
 *
 * The length of a head stands nowhere, so the caller reads a first part of the file, and more on -EAGAIN. A
 * length or a count that the file has no room for is refused before anything is read or allocated. The table
 * of tensors takes at most four times its bytes in the file. Lists stay in the text: gguf_next() walks
 * them. */
#include "gguf/gguf.h"

#include "base/check.h"
#include "tensor/block_form.h"
#include "tensor/tensor.h"

#include <errno.h>

#define ALIGNMENT_MAX  ((uint64_t)1 << 20)
#define PAIR_BYTES_MIN 13 /* a key of no bytes, its type, one byte */
#define INFO_BYTES_MIN 24 /* a name of no bytes, a rank of 0, a type, an offset */

struct parse {
    struct slice text;
    uint64_t file_bytes;
    size_t at;
    struct gguf *g;
    struct err *e;
};

/* Bytes of a value, of a string its length alone. */
static const uint8_t type_bytes[GGUF_TYPES] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,     [GGUF_U16] = 2,  [GGUF_I16] = 2, [GGUF_U32] = 4,
    [GGUF_I32] = 4, [GGUF_F32] = 4,    [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8,
    [GGUF_F64] = 8, [GGUF_STRING] = 8, [GGUF_LIST] = 12};

/* ---- taking bytes ---- */

/* The next `len` bytes. -EAGAIN: they are in the file, but not in the text. */
static int take(struct parse *p, uint64_t len, const char **ret)
{
    if (len > p->file_bytes - p->at)
        return err_set(p->e, -EINVAL, "the file ends within its head, at byte %llu (truncated?)",
                       (ull)p->file_bytes);
    if (len > GGUF_HEAD_BYTES_MAX - p->at)
        return err_set(p->e, -EINVAL, "the head is longer than %zu bytes", GGUF_HEAD_BYTES_MAX);
    if (len > p->text.len - p->at)
        return -EAGAIN;
    *ret = p->text.ptr + p->at;
    p->at += (size_t)len;
    return 0;
}

static int take_u32(struct parse *p, uint32_t *ret)
{
    const char *from = NULL;
    int r = take(p, sizeof(*ret), &from);
    if (r == 0)
        memcpy(ret, from, sizeof(*ret));
    return r;
}

static int take_u64(struct parse *p, uint64_t *ret)
{
    const char *from = NULL;
    int r = take(p, sizeof(*ret), &from);
    if (r == 0)
        memcpy(ret, from, sizeof(*ret));
    return r;
}

static int take_string(struct parse *p, struct slice *ret)
{
    uint64_t len = 0;
    const char *from = NULL;
    int r = take_u64(p, &len);
    if (r == 0)
        r = take(p, len, &from);
    if (r == 0)
        *ret = (struct slice){from, (size_t)len};
    return r;
}

/* A name of the file's for a message: bytes that are not printable ASCII become '?'. */
#define SHOWN_BYTES 65
static const char *shown(struct slice name, char ret[SHOWN_BYTES])
{
    size_t n = MIN_OF(name.len, (size_t)SHOWN_BYTES - 1);
    for (size_t i = 0; i < n; i++)
        ret[i] = name.ptr[i] >= ' ' && name.ptr[i] <= '~' ? name.ptr[i] : '?';
    ret[n] = 0;
    return ret;
}

/* ---- metadata ---- */

static int bad_value(struct parse *p, struct slice key, const char *why)
{
    char name[SHOWN_BYTES];
    return err_set(p->e, -EINVAL, "metadata %s: %s", shown(key, name), why);
}

static int take_type(struct parse *p, struct slice key, enum gguf_type *ret)
{
    uint32_t type = 0;
    int r = take_u32(p, &type);
    if (r == 0 && type >= GGUF_TYPES) {
        char name[SHOWN_BYTES];
        return err_set(p->e, -EINVAL, "metadata %s: type %u is not known", shown(key, name), type);
    }
    if (r == 0)
        *ret = (enum gguf_type)type;
    return r;
}

static int take_list_head(struct parse *p, struct slice key, struct gguf_value *v)
{
    int r = take_type(p, key, &v->type);
    if (r == 0)
        r = take_u64(p, &v->count);
    if (r == 0 && v->type == GGUF_LIST)
        r = bad_value(p, key, "a list of lists is not read");
    /* A count that cannot be: before a product of it. */
    if (r == 0 && v->count > (p->file_bytes - p->at) / type_bytes[v->type])
        r = bad_value(p, key, "the list has more values than the file has room for");
    v->list = true;
    return r;
}

static int take_values(struct parse *p, const struct gguf_value *v)
{
    const char *from = NULL;
    struct slice s;
    if (v->type != GGUF_STRING)
        return take(p, v->count * type_bytes[v->type], &from);
    int r = 0;
    for (uint64_t i = 0; r == 0 && i < v->count; i++)
        r = take_string(p, &s);
    return r;
}

static int take_pair(struct parse *p, struct gguf_pair *ret)
{
    struct gguf_pair pair = {.value = {.count = 1}};
    int r = take_string(p, &pair.key);
    if (r == 0 && (pair.key.len == 0 || pair.key.len > GGUF_KEY_BYTES_MAX))
        r = bad_value(p, pair.key, "a key has 1 to 1024 bytes");
    if (r == 0)
        r = take_type(p, pair.key, &pair.value.type);
    if (r == 0 && pair.value.type == GGUF_LIST)
        r = take_list_head(p, pair.key, &pair.value);
    if (r < 0)
        return r;
    size_t from = p->at;
    r = take_values(p, &pair.value);
    pair.value.bytes = (struct slice){p->text.ptr + from, p->at - from};
    if (r == 0)
        *ret = pair;
    return r;
}

static int take_pairs(struct parse *p)
{
    struct gguf *g = p->g;
    for (uint32_t i = 0; i < g->pair_count; i++) {
        int r = take_pair(p, &g->pairs[i]);
        if (r < 0)
            return r;
        if (!hash_map_add(&g->by_key, g->pairs[i].key, i))
            return bad_value(p, g->pairs[i].key, "the key occurs twice");
    }
    return 0;
}

static int alignment(const struct parse *p, uint64_t *ret)
{
    const struct gguf_value *v = gguf_find(p->g, "general.alignment");
    *ret = 32;
    if (!v || (gguf_u64(v, ret) && *ret > 0 && *ret <= ALIGNMENT_MAX && (*ret & (*ret - 1)) == 0))
        return 0;
    return err_set(p->e, -EINVAL, "metadata general.alignment must be a power of two up to %llu",
                   (ull)ALIGNMENT_MAX);
}

/* ---- table of tensors ---- */

static int bad_tensor(struct parse *p, const struct gguf_tensor *t, const char *why)
{
    char name[SHOWN_BYTES];
    return err_set(p->e, -EINVAL, "tensor %s: %s", shown(t->name, name), why);
}

/* A file has the innermost first. */
static int take_shape(struct parse *p, struct gguf_tensor *t)
{
    int r = take_u32(p, &t->rank);
    if (r == 0 && t->rank > GGUF_RANK_MAX)
        r = bad_tensor(p, t, "more than 4 dimensions");
    for (uint32_t i = 0; r == 0 && i < t->rank; i++)
        r = take_u64(p, &t->shape[t->rank - 1 - i]);
    return r;
}

static int take_form(struct parse *p, struct gguf_tensor *t)
{
    char name[SHOWN_BYTES];
    uint32_t type = 0;
    int r = take_u32(p, &type);
    if (r < 0)
        return r;
    t->form = block_form_find(type);
    if (t->form)
        return 0;
    const char *refused = block_form_refused(type);
    if (refused)
        return err_set(p->e, -ENOTSUP, "tensor %s: the form %s is not read", shown(t->name, name), refused);
    return err_set(p->e, -EINVAL, "tensor %s: the form %u is not known", shown(t->name, name), type);
}

static int count_bytes(struct parse *p, struct gguf_tensor *t)
{
    struct tensor plain = {.rank = t->rank};
    memcpy(plain.shape, t->shape, sizeof(t->shape));
    uint64_t count = tensor_count(&plain), row = t->rank ? t->shape[t->rank - 1] : 1;
    if (count == UINT64_MAX)
        return bad_tensor(p, t, "its dimensions overflow");
    if (row % t->form->values != 0)
        return bad_tensor(p, t, "its rows are not a whole number of blocks");
    if (count / t->form->values > UINT64_MAX / t->form->bytes)
        return bad_tensor(p, t, "its bytes overflow");
    t->bytes = block_form_bytes(t->form, count);
    return 0;
}

static int take_tensor(struct parse *p, struct gguf_tensor *ret)
{
    struct gguf_tensor t = {.rank = 0};
    int r = take_string(p, &t.name);
    if (r == 0 && (t.name.len == 0 || t.name.len > GGUF_NAME_MAX || memchr(t.name.ptr, 0, t.name.len)))
        r = bad_tensor(p, &t, "a name has 1 to 512 bytes and no zero");
    if (r == 0)
        r = take_shape(p, &t);
    if (r == 0)
        r = take_form(p, &t);
    if (r == 0)
        r = count_bytes(p, &t);
    if (r == 0)
        r = take_u64(p, &t.offset);
    if (r == 0)
        *ret = t;
    return r;
}

/* Offsets count from the first aligned byte after the head. */
static int place_tensors(struct parse *p)
{
    uint64_t align = 0;
    int r = alignment(p, &align);
    if (r < 0)
        return r;
    uint64_t data_at = ROUND_UP((uint64_t)p->at, align);
    for (uint32_t i = 0; i < p->g->tensor_count; i++) {
        struct gguf_tensor *t = &p->g->tensors[i];
        if (t->offset % align != 0)
            return bad_tensor(p, t, "its offset is not a multiple of general.alignment");
        if (data_at > p->file_bytes || t->offset > p->file_bytes - data_at ||
            t->bytes > p->file_bytes - data_at - t->offset) {
            char name[SHOWN_BYTES];
            return err_set(p->e, -EINVAL, "tensor %s: %llu bytes at %llu do not lie in the file (truncated?)",
                           shown(t->name, name), (ull)t->bytes, (ull)t->offset);
        }
        t->offset += data_at;
    }
    return 0;
}

/* ---- the head ---- */

static int check_version(struct parse *p, uint32_t version)
{
    if (version == 2 || version == 3)
        return 0;
    if (version == 0x02000000 || version == 0x03000000)
        return err_set(p->e, -ENOTSUP, "a big-endian GGUF file is not read");
    return err_set(p->e, -ENOTSUP, "GGUF version %u is not read; 2 and 3 are", version);
}

/* An entry of the table takes `entry_bytes` of the file, or more. */
static int check_count(struct parse *p, const char *what, uint64_t count, uint64_t max, uint64_t entry_bytes)
{
    if (count > max)
        return err_set(p->e, -EINVAL, "%llu %s are more than %llu", (ull)count, what, (ull)max);
    if (count * entry_bytes > p->file_bytes)
        return err_set(p->e, -EINVAL, "the file has no room for %llu %s (truncated?)", (ull)count, what);
    return 0;
}

static int take_header(struct parse *p)
{
    const char *magic = NULL;
    uint64_t tensors = 0, pairs = 0;
    uint32_t version = 0;
    int r = take(p, 4, &magic);
    if (r == 0 && memcmp(magic, "GGUF", 4) != 0)
        r = err_set(p->e, -EINVAL, "no GGUF file: it does not begin with GGUF");
    if (r == 0)
        r = take_u32(p, &version);
    if (r == 0)
        r = check_version(p, version);
    if (r == 0)
        r = take_u64(p, &tensors);
    if (r == 0)
        r = take_u64(p, &pairs);
    if (r == 0)
        r = check_count(p, "tensors", tensors, GGUF_TENSORS_MAX, INFO_BYTES_MIN);
    if (r == 0)
        r = check_count(p, "keys of metadata", pairs, GGUF_KEYS_MAX, PAIR_BYTES_MIN);
    p->g->version = version;
    p->g->tensor_count = (uint32_t)tensors;
    p->g->pair_count = (uint32_t)pairs;
    return r;
}

static int make_tables(struct parse *p, struct arena *a)
{
    struct gguf *g = p->g;
    g->pairs = ARENA_ARRAY(a, struct gguf_pair, g->pair_count);
    g->tensors = ARENA_ARRAY(a, struct gguf_tensor, g->tensor_count);
    if (!g->pairs || !g->tensors || hash_map_init(&g->by_key, a, MAX_OF(g->pair_count, 1)) < 0)
        return err_set(p->e, -ENOMEM, "no memory left for the tables of %u tensors", g->tensor_count);
    return 0;
}

int gguf_parse(struct arena *a, struct slice head, uint64_t file_bytes, struct gguf *ret, struct err *e)
{
    struct gguf g = {.version = 0};
    struct parse p = {.text = head, .file_bytes = file_bytes, .g = &g, .e = e};
    size_t mark = arena_mark(a);
    ASSERT(head.len <= file_bytes);
    int r = take_header(&p);
    if (r == 0)
        r = make_tables(&p, a);
    if (r == 0)
        r = take_pairs(&p);
    for (uint32_t i = 0; r == 0 && i < g.tensor_count; i++)
        r = take_tensor(&p, &g.tensors[i]);
    if (r == 0)
        r = place_tensors(&p);
    g.head_bytes = p.at;
    if (r == 0)
        *ret = g;
    else
        arena_rewind(a, mark);
    return r;
}

/* ---- values ---- */

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    uint32_t index;
    return hash_map_get(&g->by_key, slice_of(key), &index) ? &g->pairs[index].value : NULL;
}

/* A number, little-endian, with its sign. */
static int64_t whole_at(const char *p, enum gguf_type type)
{
    uint64_t bits = 0;
    memcpy(&bits, p, type_bytes[type]);
    switch (type) {
    case GGUF_I8:
        return (int8_t)bits;
    case GGUF_I16:
        return (int16_t)bits;
    case GGUF_I32:
        return (int32_t)bits;
    case GGUF_I64:
        return (int64_t)bits;
    default:
        return bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
    }
}

static double real_at(const char *p, enum gguf_type type)
{
    float f = 0;
    double d = 0;
    memcpy(type == GGUF_F64 ? (void *)&d : (void *)&f, p, type_bytes[type]);
    return type == GGUF_F64 ? d : (double)f;
}

static struct gguf_item string_at(struct slice bytes)
{
    uint64_t len = 0;
    memcpy(&len, bytes.ptr, sizeof(len));
    return (struct gguf_item){.kind = GGUF_IS_STRING, .string = slice_sub(bytes, sizeof(len), (size_t)len)};
}

static struct gguf_item item_at(struct slice bytes, enum gguf_type type)
{
    struct gguf_item item = {.kind = GGUF_IS_NUMBER};
    if (type == GGUF_STRING)
        return string_at(bytes);
    if (type == GGUF_BOOL)
        return (struct gguf_item){.kind = GGUF_IS_BOOL, .flag = bytes.ptr[0] != 0};
    if (type == GGUF_F32 || type == GGUF_F64) {
        item.real = real_at(bytes.ptr, type);
        return item;
    }
    item.whole = true;
    item.number = whole_at(bytes.ptr, type);
    item.real = (double)item.number;
    return item;
}

bool gguf_next(struct gguf_walk *w, struct gguf_item *ret)
{
    const struct gguf_value *v = w->value;
    if (w->index == v->count)
        return false;
    ASSERT(v->type < GGUF_TYPES && v->type != GGUF_LIST && w->at < v->bytes.len);
    *ret = item_at(slice_sub(v->bytes, w->at, v->bytes.len), v->type);
    w->at += type_bytes[v->type] + (ret->kind == GGUF_IS_STRING ? ret->string.len : 0);
    w->index++;
    return true;
}

static bool only_item(const struct gguf_value *v, struct gguf_item *ret)
{
    return v && !v->list && gguf_next(&(struct gguf_walk){.value = v}, ret);
}

bool gguf_u64(const struct gguf_value *v, uint64_t *ret)
{
    struct gguf_item item;
    if (!only_item(v, &item) || !item.whole || item.number < 0)
        return false;
    *ret = (uint64_t)item.number;
    return true;
}

bool gguf_string(const struct gguf_value *v, struct slice *ret)
{
    struct gguf_item item;
    if (!only_item(v, &item) || item.kind != GGUF_IS_STRING)
        return false;
    *ret = item.string;
    return true;
}
