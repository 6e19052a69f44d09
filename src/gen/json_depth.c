/* json_depth.c - one pass over the bytes each. */
#include "gen/json_depth.h"

#include "base/check.h"

bool json_depth_within(struct slice text, uint32_t depth_max)
{
    uint32_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > depth_max)
                return false;
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return true;
}

/* The sizes of jansson's structures on 64 bits, from its jansson_private.h and hashtable.h. While a table
 * doubles, the old one (n entries) and the new one (2 n) are both there, hence three times an entry. */
enum {
    ARRAY_BYTES = 40 + 8 * 8,   /* its structure and first table */
    OBJECT_BYTES = 72 + 8 * 16, /* its structure and first buckets */
    VALUE_BYTES = 24 + 3 * 8,   /* a number, and its place in an array */
    PAIR_BYTES = 64 + 3 * 16,   /* a key's entry and its place in the buckets */
    STRING_BYTES = 32 + 2,      /* a string's structure and its end */
    PARSER_BYTES = 4 * 64,      /* the text of the token being read, at its smallest; a key on its way */
};

size_t json_parse_bytes(struct slice text, size_t header_bytes)
{
    size_t arrays = 0, objects = 0, values = 1, pairs = 0, strings = 0, in_strings = 0, run = 0, run_max = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        run++;
        if (in_string) {
            if (c == '\\')
                i++, run++;
            in_string = c != '"';
            if (!in_string || i + 1 >= text.len)
                in_strings += run;
        } else if (c == '"') {
            in_string = true;
            strings++;
        }
        arrays += !in_string && c == '[';
        objects += !in_string && c == '{';
        values += !in_string && (c == '[' || c == '{' || c == ',');
        pairs += !in_string && c == ':';
        run_max = MAX_OF(run_max, run);
        if (c == '"' || (!in_string && (c == '[' || c == '{' || c == ',' || c == ':')))
            run = 0;
    }
    /* A string is there as the parser read it and as the value keeps it; the token's text grows by
     * doubling. */
    return arrays * (ARRAY_BYTES + 2 * header_bytes) + objects * (OBJECT_BYTES + 2 * header_bytes) +
           values * (VALUE_BYTES + header_bytes) + pairs * (PAIR_BYTES + header_bytes) +
           strings * (STRING_BYTES + 2 * header_bytes) + in_strings + 5 * run_max + PARSER_BYTES +
           4 * header_bytes;
}
