/* weights_name.c - a part's name is accepted only as the writer prints it, so that a part has one name. */
#include "weights/weights_name.h"

#include "base/check.h"
#include "base/slice.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define TAIL_FORMAT "-%05u-of-%05u.gguf"
#define TAIL_BYTES  20 /* bytes that it prints for parts up to 99999 */
#define ENDING      ".gguf"

bool weights_name_is(const char *name)
{
    return slice_ends(slice_of(name), SLICE(ENDING));
}

bool weights_name_is_mmproj(const char *name)
{
    const char *at = strstr(name, "mmproj");
    return weights_name_is(name) && at && (at == name || strchr(".-_", at[-1]));
}

bool weights_name_is_weights(const char *name)
{
    return weights_name_is(name) && !weights_name_is_mmproj(name);
}

size_t weights_name_part(const char *name, uint32_t *index, uint32_t *count)
{
    size_t len = strlen(name);
    char again[TAIL_BYTES + 1];
    if (len <= TAIL_BYTES || sscanf(name + len - TAIL_BYTES, "-%5u-of-%5u", index, count) != 2 ||
        *index > WEIGHTS_PARTS_MAX || *count > WEIGHTS_PARTS_MAX)
        return 0;
    snprintf(again, sizeof(again), TAIL_FORMAT, *index, *count);
    return strcmp(again, name + len - TAIL_BYTES) == 0 ? len - TAIL_BYTES : 0;
}

void weights_name_of_part(const char *name, size_t len, uint32_t index, uint32_t count, char *ret,
                          size_t bytes)
{
    snprintf(ret, bytes, "%.*s" TAIL_FORMAT, (int)len, name, index, count);
}

bool weights_name_same_model(const char *a, const char *b)
{
    uint32_t i, m, j, n;
    size_t len = weights_name_part(a, &i, &m);
    return len > 0 && len == weights_name_part(b, &j, &n) && m == n && memcmp(a, b, len) == 0;
}

size_t weights_name_model(const char *name)
{
    uint32_t index, count;
    size_t len = weights_name_part(name, &index, &count);
    if (len > 0)
        return len;
    len = strlen(name);
    return weights_name_is(name) && len > strlen(ENDING) ? len - strlen(ENDING) : len;
}

static bool is_letter_or_digit(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Bytes of the form at the start of `s`, before words that an underscore joins to it; 0: none. */
static size_t form_len(struct slice s)
{
    static const char *const whole[] = {"F16", "F32", "BF16", "FP16", "FP32", "MXFP4", "NVFP4"};
    for (size_t i = 0; i < COUNT_OF(whole); i++)
        if (slice_starts_any_case(s, slice_of(whole[i])))
            return strlen(whole[i]);
    const size_t at = slice_starts_any_case(s, SLICE("IQ")) || slice_starts_any_case(s, SLICE("TQ")) ? 1 : 0;
    const bool is = s.len > at + 1 && (s.ptr[at] == 'Q' || s.ptr[at] == 'q') && s.ptr[at + 1] >= '0' &&
                    s.ptr[at + 1] <= '9';
    return is ? at + 2 : 0;
}

static bool is_quant(struct slice s)
{
    if (slice_starts_any_case(s, SLICE("UD-")))
        s = slice_sub(s, strlen("UD-"), s.len);
    const size_t len = form_len(s);
    if (len == 0)
        return false;
    for (size_t i = len; i < s.len; i++) {
        const bool joint = s.ptr[i] == '_' && i + 1 < s.len;
        if (!joint && (i == len || !is_letter_or_digit(s.ptr[i])))
            return false;
    }
    return true;
}

struct slice weights_name_quant(const char *name)
{
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    const struct slice stem = {last, weights_name_model(last)};
    for (size_t i = 0; i < stem.len; i++) {
        const struct slice rest = slice_sub(stem, i, stem.len);
        if ((i == 0 || memchr(".-_", stem.ptr[i - 1], 3)) && is_quant(rest))
            return rest;
    }
    return (struct slice){stem.ptr + stem.len, 0};
}

bool weights_name_leads(struct dirent *const *names, int index)
{
    uint32_t part, count;
    const char *name = names[index]->d_name;
    if (!weights_name_is_weights(name))
        return false;
    if (weights_name_part(name, &part, &count) == 0 || part <= 1)
        return true;
    for (int i = 0; i < index; i++)
        if (weights_name_same_model(names[i]->d_name, name))
            return false;
    return true;
}
