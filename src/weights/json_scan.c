/* json_scan.c - a scanner, not a full validator: skipped values are followed only far enough to find their
 * end (strings, brackets in order); values that are read are read strictly. */
#include "weights/json_scan.h"

#include "base/check.h"

static bool fail(struct json_scan *s, const char *error)
{
    if (!s->error)
        s->error = error;
    return false;
}

/* The next byte that is not a blank, not consumed; 0 at the end. */
static char peek(struct json_scan *s)
{
    while (s->at < s->text.len) {
        char c = s->text.ptr[s->at];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return c;
        s->at++;
    }
    return 0;
}

static bool take(struct json_scan *s, char c, const char *error)
{
    if (s->error || peek(s) != c)
        return fail(s, error);
    s->at++;
    return true;
}

bool json_scan_open(struct json_scan *s, char bracket)
{
    ASSERT(bracket == '{' || bracket == '[');
    return take(s, bracket, bracket == '{' ? "expected '{'" : "expected '['");
}

/* At the next member before `close`: true. The comma and the closing bracket are consumed. */
static bool next_member(struct json_scan *s, bool *first, char close)
{
    if (s->error)
        return false;
    if (peek(s) == close) {
        s->at++;
        return false;
    }
    if (!*first && !take(s, ',', "expected ',' or a closing bracket"))
        return false;
    *first = false;
    return true;
}

bool json_scan_key(struct json_scan *s, bool *first, struct slice *ret)
{
    struct slice key;
    if (!next_member(s, first, '}') || !json_scan_string(s, &key) || !take(s, ':', "expected ':'"))
        return false;
    *ret = key;
    return true;
}

bool json_scan_element(struct json_scan *s, bool *first)
{
    return next_member(s, first, ']');
}

/* Moves past the string that starts here. */
static bool pass_string(struct json_scan *s, bool *escaped)
{
    if (!take(s, '"', "expected a string"))
        return false;
    *escaped = false;
    for (; s->at < s->text.len; s->at++) {
        unsigned char c = (unsigned char)s->text.ptr[s->at];
        if (c == '"') {
            s->at++;
            return true;
        }
        if (c < 0x20)
            return fail(s, "control character in a string");
        if (c == '\\') {
            *escaped = true;
            s->at++;
        }
    }
    s->at = s->text.len;
    return fail(s, "unterminated string");
}

bool json_scan_string(struct json_scan *s, struct slice *ret)
{
    if (s->error || peek(s) != '"')
        return fail(s, "expected a string");
    size_t from = s->at + 1;
    bool escaped;
    if (!pass_string(s, &escaped))
        return false;
    if (escaped)
        return fail(s, "escapes are not supported in names");
    *ret = (struct slice){s->text.ptr + from, s->at - 1 - from};
    return true;
}

bool json_scan_u64(struct json_scan *s, uint64_t *ret)
{
    if (s->error)
        return false;
    peek(s);
    size_t from = s->at;
    while (s->at < s->text.len && s->text.ptr[s->at] >= '0' && s->text.ptr[s->at] <= '9')
        s->at++;
    if (!slice_u64(slice_sub(s->text, from, s->at - from), INT64_MAX, ret))
        return fail(s, "expected a non-negative integer below 2^63");
    return true;
}

/* true, false, null or a number: the bytes up to the next separator. */
static bool pass_scalar(struct json_scan *s)
{
    size_t from = s->at;
    while (s->at < s->text.len && !memchr(" \t\r\n,:{}[]\"", s->text.ptr[s->at], 11))
        s->at++;
    return s->at > from || fail(s, "expected a value");
}

bool json_scan_skip(struct json_scan *s)
{
    /* The brackets that are open, innermost last: the depth is bounded, so a loop does. */
    char closers[JSON_SCAN_DEPTH_MAX];
    int depth = 0;
    bool escaped;
    do {
        if (s->error)
            return false;
        char c = peek(s);
        if (c == '{' || c == '[') {
            if (depth == JSON_SCAN_DEPTH_MAX)
                return fail(s, "nested deeper than 32 levels");
            closers[depth++] = c == '{' ? '}' : ']';
            s->at++;
        } else if (c == '}' || c == ']') {
            if (depth == 0 || closers[--depth] != c)
                return fail(s, "unbalanced brackets");
            s->at++;
        } else if (depth > 0 && (c == ',' || c == ':')) {
            s->at++;
        } else if (c == '"' ? !pass_string(s, &escaped) : !pass_scalar(s)) {
            return false;
        }
    } while (depth > 0);
    return true;
}

bool json_scan_end(struct json_scan *s)
{
    if (s->error)
        return false;
    peek(s);
    return s->at == s->text.len || fail(s, "bytes after the end of the JSON value");
}
