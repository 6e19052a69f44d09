/* Added tokens that tokenizer_config.json changes or adds. The ids are those of AutoTokenizer of transformers
 * 5.24 (tokenizers 0.23.3) for the same two files. */
#include "test.h"

#include "base/check.h"
#include "tokenizer/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_TEXT                                                                                            \
    "{\"added_tokens\": [%s], \"normalizer\": {\"type\": \"Lowercase\"}, \"pre_tokenizer\": {\"type\": "     \
    "\"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}, \"post_processor\": null, "           \
    "\"decoder\": "                                                                                          \
    "{\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"q\": 0, \"\\u0120\": 1, "       \
    "\"<\": 2, \">\": "                                                                                      \
    "3, \"a\": 4, \"b\": 5, \"e\": 6, \"<v>\": 7, \"ab\": 8}, \"merges\": [[\"a\", \"b\"]]}}"

/* clang-format off */
static const struct load {
    const char *what, *added, *config, *text;
    const char *ids, *special; /* special: ids of the special tokens */
} loads[] = {
    {"the file alone", "{\"id\":9,\"content\":\"<a>\",\"special\":true}", "{}", "q <a> q", "0 1 9 1 0", "9"},
    {"a flag of the decoder", "{\"id\":9,\"content\":\"<a>\",\"special\":true}", "{\"added_tokens_decoder\":{\"9\":{\"content\":\"<a>\",\"lstrip\":true,\"special\":true}}}", "q <a> q", "0 9 1 0", "9"},
    {"a flag that the decoder lacks", "{\"id\":9,\"content\":\"<a>\",\"lstrip\":true,\"rstrip\":true,\"special\":true}", "{\"added_tokens_decoder\":{\"9\":{\"content\":\"<a>\",\"special\":true}}}", "q <a> q", "0 1 9 1 0", "9"},
    {"rstrip and single_word", "{\"id\":9,\"content\":\"<a>\",\"special\":true}", "{\"added_tokens_decoder\":{\"9\":{\"content\":\"<a>\",\"rstrip\":true,\"single_word\":true}}}", "q <a> q<a>q", "0 1 9 0 2 4 3 0", ""},
    {"the decoder normalizes", "{\"id\":9,\"content\":\"<A>\",\"special\":true}", "{\"added_tokens_decoder\":{\"9\":{\"content\":\"<A>\",\"normalized\":true,\"special\":true}}}", "<a> <A>", "9 1 9", "9"},
    {"the decoder does not normalize", "{\"id\":9,\"content\":\"<A>\",\"normalized\":true}", "{\"added_tokens_decoder\":{\"9\":{\"content\":\"<A>\",\"normalized\":false}}}", "<a> <A>", "2 4 3 1 9", ""},
    {"content alone is normalized", "", "{\"added_tokens_decoder\":{\"9\":{\"content\":\"<A>\"}}}", "<a> <A>", "9 1 9", ""},
    {"special alone is not normalized", "", "{\"added_tokens_decoder\":{\"9\":{\"content\":\"<A>\",\"special\":true}}}", "<a> <A>", "2 4 3 1 9", "9"},
    {"tokens of the decoder alone, in the order of ids", "", "{\"added_tokens_decoder\":{\"10\":{\"content\":\"<b>\"},\"9\":{\"content\":\"<a>\"}}}", "<a><b>", "9 10", ""},
    {"a known token keeps its id", "{\"id\":9,\"content\":\"<a>\"},{\"id\":10,\"content\":\"<b>\"}", "{\"added_tokens_decoder\":{\"9\":{\"content\":\"<b>\",\"rstrip\":true},\"500\":{\"content\":\"<a>\"}}}", "<a> <b> q", "9 1 10 0", ""},
    {"a token of the vocabulary", "", "{\"added_tokens_decoder\":{\"7\":{\"content\":\"<v>\",\"special\":true}}}", "q<v>ab", "0 7 8", "7"},
    {"eos_token of the vocabulary", "", "{\"eos_token\":\"<v>\"}", "q<v>", "0 7", "7"},
    {"eos_token that no list has", "{\"id\":9,\"content\":\"<a>\"}", "{\"eos_token\":\"<e>\"}", "q <e><a>", "0 1 10 9", "10"},
    {"an object as eos_token", "{\"id\":9,\"content\":\"<a>\"}", "{\"eos_token\":{\"__type\":\"AddedToken\",\"content\":\"<E>\",\"lstrip\":true,\"normalized\":true}}", "q <e><E>", "0 10 10", "10"},
    {"a known eos_token keeps its flags", "{\"id\":9,\"content\":\"<a>\",\"lstrip\":true}", "{\"eos_token\":{\"__type\":\"AddedToken\",\"content\":\"<a>\"}}", "q <a>", "0 9", "9"},
    {"names before lists", "{\"id\":9,\"content\":\"<q>\"}", "{\"additional_special_tokens\":[\"<aa>\",\"<bb>\"],\"image_token\":\"<i>\",\"cls_token\":\"<c>\",\"pad_token\":\"<p>\",\"eos_token\":\"<e>\",\"bos_token\":\"<s>\"}", "<q><s><e><p><c><i><aa><bb>", "9 10 11 12 13 14 15 16", "10 11 12 13 14 15 16"},
    {"extra_special_tokens as an object", "", "{\"extra_special_tokens\":{\"image\":\"<b>\"},\"additional_special_tokens\":[\"<a>\"]}", "<a><b>", "10 9", "9 10"},
    {"extra_special_tokens wins over the old name", "", "{\"extra_special_tokens\":[\"<b>\"],\"additional_special_tokens\":[\"<a>\"]}", "<a><b>", "2 4 3 9", "9"},
    {"an object in a list", "", "{\"additional_special_tokens\":[{\"__type\":\"AddedToken\",\"content\":\"<a>\",\"lstrip\":true}]}", "q <a>", "0 9", ""},
    {"an empty token", "", "{\"eos_token\":\"\",\"added_tokens_decoder\":{\"9\":{\"content\":\"\"}}}", "q", "0", ""},
    {"add_bos_token", "{\"id\":9,\"content\":\"<a>\"}", "{\"bos_token\":\"<a>\",\"add_bos_token\":true}", "q", "0", "9"},
};
/* clang-format on */

static int parse(struct arena *a, const char *added, const char *config, struct tokenizer **t, struct err *e)
{
    char file[2048];
    int len = snprintf(file, sizeof(file), FILE_TEXT, added);
    assert_true(len > 0 && (size_t)len < sizeof(file));
    return tokenizer_parse(a, slice_of(file), slice_of(config), t, e);
}

static struct arena *arena_of(size_t bytes)
{
    struct arena *a;
    struct arena_opts opts = {.bytes_max = bytes};
    assert_int_equal(arena_create(&opts, &a), 0);
    return a;
}

static void check_ids(const char *what, const uint32_t *ids, size_t count, const char *expected)
{
    char text[256] = "";
    for (size_t i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%u", i ? " " : "", ids[i]);
    if (strcmp(text, expected) != 0)
        fail_msg("%s: %s, not %s", what, text, expected);
}

TEST(added_tokens_of_both_files_are_merged)
{
    struct arena *a = arena_of(4 << 20);
    for (const struct load *l = loads; l < loads + COUNT_OF(loads); l++) {
        struct tokenizer *t = NULL;
        struct err e = {0};
        if (parse(a, l->added, l->config, &t, &e) < 0)
            fail_msg("%s: %s", l->what, e.text);
        uint32_t ids[64];
        size_t count = 0;
        struct tokenizer_opts opts = {.added_tokens = true, .add_special = true};
        assert_int_equal(tokenizer_encode(t, a, slice_of(l->text), &opts, ids, COUNT_OF(ids), &count, &e), 0);
        check_ids(l->what, ids, count, l->ids);
        count = 0;
        for (uint32_t id = 0; id < tokenizer_vocab_size(t); id++) {
            if (tokenizer_is_special(t, id))
                ids[count++] = id;
        }
        check_ids(l->what, ids, count, l->special);
    }
    arena_free(a);
}

TEST(damaged_entries_are_refused)
{
    static const char *const refusals[][2] = {
        {"{\"added_tokens_decoder\": []}", "added_tokens_decoder is not an object"},
        {"{\"added_tokens_decoder\": {\"x\": {\"content\": \"<b>\"}}}",
         "\"x\" of added_tokens_decoder is not an id"},
        {"{\"added_tokens_decoder\": {\"-5\": {\"content\": \"<b>\"}}}", "is not an id from 0 to 1048575"},
        {"{\"added_tokens_decoder\": {\"1048576\": {\"content\": \"<b>\"}}}", "is not an id"},
        {"{\"added_tokens_decoder\": {\"99999999999\": {\"content\": \"<b>\"}}}", "is not an id"},
        {"{\"added_tokens_decoder\": {\"\": {\"content\": \"<b>\"}}}", "is not an id"},
        {"{\"added_tokens_decoder\": {\"9\": \"<b>\"}}", "id 9 of added_tokens_decoder is not a token"},
        {"{\"added_tokens_decoder\": {\"9\": {\"content\": 7}}}",
         "id 9 of added_tokens_decoder is not a token"},
        {"{\"added_tokens_decoder\": {\"9\": {\"content\": \"<b>\"}}}",
         "the id 9, but the next free id is 10"},
        {"{\"added_tokens_decoder\": {\"8\": {\"content\": \"<b>\"}}}",
         "the id 8, but the next free id is 10"},
        {"{\"added_tokens_decoder\": {\"12\": {\"content\": \"<b>\"}}}",
         "the id 12, but the next free id is 10"},
        {"{\"added_tokens_decoder\": {\"9\": {\"content\": \"<a>\"}, \"09\": {\"content\": \"<b>\"}}}",
         "the id 9 twice"},
        {"{\"added_tokens_decoder\": {\"9\": {\"content\": \"<a>\", \"lstrip\": 1}}}",
         "lstrip of \"<a>\" is not true or false"},
        {"{\"eos_token\": 5}", "eos_token is not a token"},
        {"{\"additional_special_tokens\": [5]}", "a further special token is not a token"},
        {"{\"split_special_tokens\": true}", "split_special_tokens is not supported"},
    };
    struct arena *a = arena_of(1 << 20);
    size_t mark = arena_mark(a);
    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        struct tokenizer *t = NULL;
        struct err e = {0};
        int r = parse(a, "{\"id\": 9, \"content\": \"<a>\"}", refusals[i][0], &t, &e);
        assert_true((r == -EINVAL || r == -ENOTSUP) && !t && arena_mark(a) == mark);
        if (!strstr(e.text, refusals[i][1]))
            fail_msg("\"%s\" does not say \"%s\"", e.text, refusals[i][1]);
    }
    arena_free(a);
}

TEST_MAIN()
