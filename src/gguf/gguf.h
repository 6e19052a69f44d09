/* gguf.h - the head of a GGUF file, versions 2 and 3: its metadata and its table of tensors.
 *
 * Pure: the head lies in memory, which the parser walks once. Every length, count, type, offset and extent is
 * checked; no tensor reaches outside its file. Whether two overlap is checkpoint.c's to find. A parsed head
 * points into the text that it was parsed from. Constant after parsing, any thread. */
#ifndef PLATEAU_GGUF_GGUF_H
#define PLATEAU_GGUF_GGUF_H

#include "base/arena.h"
#include "base/err.h"
#include "base/hash.h"

struct block_form;

#define GGUF_HEAD_BYTES_MAX ((size_t)128 << 20)
#define GGUF_KEYS_MAX       65536
#define GGUF_KEY_BYTES_MAX  1024
#define GGUF_TENSORS_MAX    1000000
#define GGUF_NAME_MAX       512
#define GGUF_RANK_MAX       4
#define GGUF_LEAST_BYTES    24 /* least bytes of a file: magic, version, two counts */
#define GGUF_FIRST_READ     ((size_t)1 << 20)

/* Types of values by their numbers in the file. */
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_LIST,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES
};

/* A value of the metadata: one, or a list of values of one type. A list of lists is refused. */
struct gguf_value {
    bool list;
    enum gguf_type type; /* type of the value, or of a list's values; never GGUF_LIST */
    uint64_t count;      /* 1, or of a list */
    struct slice bytes;  /* all values, one after the other; unaligned */
};

struct gguf_pair {
    struct slice key;
    struct gguf_value value;
};

struct gguf_tensor {
    struct slice name;
    const struct block_form *form;
    uint32_t rank;
    uint64_t shape[GGUF_RANK_MAX]; /* outermost first, as in struct tensor: the file has the reverse */
    uint64_t offset, bytes;        /* in the file, from its start */
};

struct gguf {
    uint32_t version;
    struct gguf_pair *pairs;
    uint32_t pair_count;
    struct hash_map by_key;
    struct gguf_tensor *tensors;
    uint32_t tensor_count;
    size_t head_bytes; /* up to the end of the table of tensors */
};

/* `head`: the first bytes of a file of `file_bytes`. 0; -EAGAIN: the head is longer; -EINVAL,
 * -ENOTSUP (a version or a form that is not read); -ENOMEM. `a` keeps tables. On failure *ret is not to be
 * used and `a` is as before. */
int gguf_parse(struct arena *a, struct slice head, uint64_t file_bytes, struct gguf *ret, struct err *e);

/* NULL: no such key. */
const struct gguf_value *gguf_find(const struct gguf *g, const char *key);
/* Whether it is one whole number that is not negative, of any of the types. */
bool gguf_u64(const struct gguf_value *v, uint64_t *ret);
/* Whether it is one string; the bytes are the file's and may hold anything. */
bool gguf_string(const struct gguf_value *v, struct slice *ret);

/* A walk over the values of a list, or over the one value. */
struct gguf_walk {
    const struct gguf_value *value;
    uint64_t index; /* index of the next value */
    size_t at;
};

enum gguf_kind { GGUF_IS_STRING, GGUF_IS_NUMBER, GGUF_IS_BOOL };

/* One of them. */
struct gguf_item {
    enum gguf_kind kind;
    struct slice string;
    bool flag;
    bool whole;     /* a number of a type of whole numbers */
    int64_t number; /* whole; one above INT64_MAX is cut to it */
    double real;    /* any number */
};

/* False: there are no more. */
bool gguf_next(struct gguf_walk *w, struct gguf_item *ret);

#endif
