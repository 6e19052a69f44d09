/* Files that cannot be used are refused, with the reason, and leave nothing. */
#include "model_path.h"
#include "test.h"

#include "base/check.h"
#include "tokenizer/pretok.h"
#include "tokenizer/tokenizer.h"
#include "unicode/utf8.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

static struct arena *arena_of(size_t bytes)
{
    struct arena *a;
    struct arena_opts opts = {.bytes_max = bytes};
    assert_int_equal(arena_create(&opts, &a), 0);
    return a;
}

/* The smallest usable tokenizer: 256 bytes, one merge ("ab" is 256), one added token (257). */
static json_t *smallest(void)
{
    struct slice regex = pretok_rule_regex(PRETOK_QWEN2);
    json_t *root = json_pack(
        "{s:[{s:i,s:s,s:b}], s:n, s:{s:s, s:[{s:s,s:{s:s%},s:s,s:b},{s:s,s:b,s:b}]}, s:n, s:{s:s}, "
        "s:{s:s, s:{}, s:[[s,s]]}}",
        "added_tokens", "id", 257, "content", "<end>", "special", 1, "normalizer", "pre_tokenizer", "type",
        "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex", regex.ptr, regex.len, "behavior",
        "Isolated", "invert", 0, "type", "ByteLevel", "use_regex", 0, "add_prefix_space", 0, "post_processor",
        "decoder", "type", "ByteLevel", "model", "type", "BPE", "vocab", "merges", "a", "b");
    assert_non_null(root);
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    uint32_t id = 0, following = 0x100;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
        char name[UTF8_BYTES_MAX + 1] = {0};
        utf8_encode(prints ? byte : following++, name);
        json_object_set_new(vocab, name, json_integer(id++));
    }
    json_object_set_new(vocab, "ab", json_integer(256));
    return root;
}

static int parse(const json_t *root, struct arena *a, struct tokenizer **ret, struct err *e)
{
    char *text = json_dumps(root, JSON_COMPACT);
    assert_non_null(text);
    int r = tokenizer_parse(a, slice_of(text), (struct slice){0}, ret, e);
    free(text);
    return r;
}

/* `path` is a list of keys and indices with dots; the value there becomes `value` (JSON; NULL: it is
 * removed). */
static void change(json_t *root, const char *path, const char *value)
{
    char copy[128], *rest = copy, *key;
    snprintf(copy, sizeof(copy), "%s", path);
    json_t *at = root, *new = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    assert_true(!value || new);
    while ((key = strsep(&rest, ".")) && rest) {
        at = json_is_array(at) ? json_array_get(at, strtoul(key, NULL, 10)) : json_object_get(at, key);
        assert_non_null(at);
    }
    if (!value)
        assert_int_equal(json_object_del(at, key), 0);
    else if (json_is_array(at))
        json_array_set_new(at, strtoul(key, NULL, 10), new);
    else
        json_object_set_new(at, key, new);
}

TEST(the_smallest_tokenizer_works)
{
    struct arena *a = arena_of(1 << 20);
    json_t *root = smallest();
    struct tokenizer *t;
    struct err e = {0};
    if (parse(root, a, &t, &e) < 0)
        fail_msg("%s", e.text);
    uint32_t ids[4];
    size_t count;
    struct tokenizer_opts opts = {.added_tokens = true};
    assert_int_equal(tokenizer_encode(t, a, SLICE("ab<end>a"), &opts, ids, 4, &count, &e), 0);
    assert_true(count == 3 && ids[0] == 256 && ids[1] == 257);
    assert_int_equal(tokenizer_vocab_size(t), 258);
    json_decref(root);
    arena_free(a);
}

struct refusal {
    const char *path, *value;
    const char *says;
};

TEST(what_cannot_be_used_is_named)
{
    static const struct refusal refusals[] = {
        {"model", NULL, "\"model\" is missing"},
        {"model.type", "\"WordLevel\"", "model.type is \"WordLevel\""},
        {"model.type", "\"WordPiece\"", "ByteLevel, which only BPE can use"},
        {"model.dropout", "0.1", "model.dropout"},
        {"model.end_of_word_suffix", "\"</w>\"", "end_of_word_suffix"},
        {"normalizer", "{\"type\": \"NFKX\"}", "normalizer \"NFKX\": it is not supported"},
        {"normalizer",
         "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Nmk\"}]}", "Nmk"},
        {"normalizer", "7", "(none)"},
        {"pre_tokenizer", "null", "ByteLevel"},
        {"pre_tokenizer", "{\"type\": \"UnicodeScripts\"}", "\"UnicodeScripts\": it is not supported"},
        {"pre_tokenizer.pretokenizers.0.behavior", "\"Other\"", "behavior"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{}", "1 to 4096"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{\"Regex\": \"(a+)+b\"}", "a group that repeats"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{\"Regex\": \"(?:a|bc){2,}\"}", "a group that repeats"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{\"Regex\": \"\\\\b*a\"}", "a quantifier of $, \\b"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{\"Regex\": \"a|b*\"}", "can match nothing"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{\"Regex\": \"a+?\"}", "not greedy"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{\"Regex\": \"(?<=a)b\"}", "this kind of group"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{\"Regex\": \"\\\\p{Thai}\"}", "this property"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{\"Regex\": \"[a&&]\"}", "an empty class"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{\"Regex\": \"[a\"}", "without an end"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{\"Regex\": \"a{2,1}\"}", "this quantifier"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{\"Regex\": \"((((((((((a))))))))))\"}", "deeper nesting"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{\"Regex\": \"a)\"}", "parenthesis"},
        {"pre_tokenizer.pretokenizers.0.type", "\"ByteLevel\"", "there are two"},
        {"decoder", "null", "decoder"},
        {"decoder.type", "\"BPEDecoder\"", "BPEDecoder"},
        {"decoder",
         "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Strip\", \"content\": \" \", \"start\": 1}]}",
         "only one behind Fuse"},
        {"decoder.type", "\"WordPiece\"", "only one of pre_tokenizer and decoder"},
        {"model.vocab", "[]", "model.vocab is not an object"},
        {"model.vocab.a", "-1", "the id of \"a\""},
        {"model.vocab.a", "1048576", "the id of \"a\""},
        {"model.vocab.a", "\"1\"", "the id of \"a\""},
        {"model.vocab.a", "1.5", "the id of \"a\""},
        {"model.vocab.a", "7", "given to two tokens"},
        {"model.vocab.a", NULL, "not in model.vocab"},
        {"model.vocab.ab", NULL, "merge 0"},
        {"model.vocab.<end>", "300", "model.vocab gives it another id"},
        {"model.vocab.zz", "257", "given to two tokens"},
        {"model.merges", "{}", "model.merges is not a list"},
        {"model.merges.0", "[\"a\", \"c\"]", "merge 0 of \"a\" and \"c\""},
        {"model.merges.0", "[\"a\", \"\\u4e2d\"]", "merge 0"},
        {"model.merges.0", "[\"a\", \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"]", "merge 0"},
        {"model.merges.0", "[\"a\", \"b\", \"c\"]", "merge 0 is not a pair"},
        {"model.merges.0", "[\"a\", 5]", "merge 0 is not a pair"},
        {"model.merges.0", "\"ab\"", "merge 0 is not a pair"},
        {"model.merges.0", "\"a b c\"", "merge 0 is not a pair"},
        {"added_tokens", "{}", "added_tokens is not a list"},
        {"added_tokens.0.content", "\"\"", "token 257 is empty"},
        {"added_tokens.0.content", "5", "token 257 is empty"},
        {"added_tokens.0.id", "256", "given to two tokens"},
        {"added_tokens", "[{\"id\": 300, \"content\": \"x1\"}, {\"id\": 300, \"content\": \"x2\"}]",
         "another added token"},
        {"added_tokens", "[{\"id\": 300, \"content\": \"x1\"}, {\"id\": 301, \"content\": \"x1\"}]",
         "is there twice"},
        {"post_processor", "{\"type\": \"BertProcessing\"}", "the id of"},
        {"post_processor", "{\"type\": \"PairProcessing\"}", "PairProcessing"},
        {"post_processor", "{\"type\": \"TemplateProcessing\", \"single\": []}", "no place for the text"},
        {"post_processor",
         "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}]}", "<s>"},
    };
    struct arena *a = arena_of(1 << 20);
    size_t mark = arena_mark(a);
    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        json_t *root = smallest();
        struct tokenizer *t = NULL;
        struct err e = {0};
        change(root, refusals[i].path, refusals[i].value);
        assert_int_equal(parse(root, a, &t, &e), -EINVAL);
        if (!strstr(e.text, refusals[i].says))
            fail_msg("%s = %s: \"%s\" does not say \"%s\"", refusals[i].path, refusals[i].value, e.text,
                     refusals[i].says);
        assert_null(t);
        assert_int_equal(arena_mark(a), mark);
        json_decref(root);
    }
    arena_free(a);
}

/* Whole files, for the kinds that `smallest` is not. */
TEST(other_kinds_are_refused_by_what_is_wrong)
{
#define TEXT_KIND(model, rest) "{\"decoder\": {\"type\": \"Fuse\"}, \"model\": {" model "}" rest "}"
#define UNIGRAM(vocab, rest)   TEXT_KIND("\"type\": \"Unigram\", \"vocab\": " vocab rest, "")
#define CHARSMAP(base64)                                                                                     \
    TEXT_KIND("\"vocab\": {\"a\": 0}, \"merges\": []",                                                       \
              ", \"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"" base64 "\"}")
    static const struct refusal files[] = {
        {TEXT_KIND("\"vocab\": {\"a\": 0}, \"merges\": [], \"unk_token\": \"<unk>\"", ""), NULL,
         "\"<unk>\" is not in"},
        {TEXT_KIND("\"vocab\": {\"a\": 0}, \"merges\": [[\"a\", \"a\"]]", ""), NULL, "merge 0 of"},
        {TEXT_KIND("\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}", ""), NULL, "unk_token"},
        {TEXT_KIND("\"type\": \"WordPiece\", \"vocab\": {\"[UNK]\": 0}, \"max_input_chars_per_word\": -1",
                   ""),
         NULL, "max_input_chars_per_word"},
        {UNIGRAM("{}", ""), NULL, "not a list"},
        {UNIGRAM("[[\"a\", -1], [\"a\", -2]]", ""), NULL, "\"a\" is twice"},
        {UNIGRAM("[[\"a\"]]", ""), NULL, "entry 0 of model.vocab"},
        {UNIGRAM("[[\"a\", \"b\"]]", ""), NULL, "entry 0 of model.vocab"},
        {UNIGRAM("[[\"\", 1]]", ""), NULL, "entry 0 of model.vocab"},
        {UNIGRAM("[[\"a\", -1]]", ", \"unk_id\": 1"), NULL, "unk_id"},
        {UNIGRAM("[[\"a\", -1]]", ", \"unk_id\": -1"), NULL, "unk_id"},
        {CHARSMAP("!!"), NULL, "not base64"},
        {CHARSMAP("AAAA"), NULL, "not base64 of a table"},
        {CHARSMAP("/////w=="), NULL, "larger than its 0 bytes"},
        {CHARSMAP("BAAAAAAAAAD/"), NULL, "not UTF-8"}};
    struct arena *a = arena_of(1 << 20);
    size_t mark = arena_mark(a);
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct tokenizer *t = NULL;
        struct err e = {0};
        assert_int_equal(tokenizer_parse(a, slice_of(files[i].path), (struct slice){0}, &t, &e), -EINVAL);
        if (!strstr(e.text, files[i].says))
            fail_msg("%s: \"%s\" does not say \"%s\"", files[i].path, e.text, files[i].says);
        assert_true(!t && arena_mark(a) == mark);
    }
    arena_free(a);
}

/* Offsets beyond the table, and a value beyond its texts. */
TEST(a_charsmap_of_any_bytes_is_read_within_its_bounds)
{
    static const char *const tables[] = {"BAAAAP////8=", "CAAAAAAAAAD/////", "CAAAAAAEAABhAQAA"};
    struct arena *a = arena_of(1 << 20);
    for (size_t i = 0; i < COUNT_OF(tables); i++) {
        char text[512];
        struct tokenizer *t;
        struct err e = {0};
        uint32_t ids[16];
        size_t count;
        snprintf(text, sizeof(text),
                 "{\"decoder\": null, \"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": "
                 "\"%s\"}, "
                 "\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}",
                 tables[i]);
        if (tokenizer_parse(a, slice_of(text), (struct slice){0}, &t, &e) < 0)
            fail_msg("%s", e.text);
        struct tokenizer_opts opts = {.added_tokens = true};
        assert_int_equal(tokenizer_encode(t, a, SLICE("abcaa"), &opts, ids, 16, &count, &e), 0);
    }
    arena_free(a);
}

TEST(what_is_not_json_is_refused_with_its_line)
{
    static const struct refusal texts[] = {{"", NULL, "not usable JSON"},
                                           {"{\n\"model\": ", NULL, "line 2"},
                                           {"[]", NULL, "\"model\" is missing"},
                                           {"{\"a\": 1, \"a\": 2}", NULL, "duplicate"},
                                           {"{} x", NULL, "not usable JSON"}};
    struct arena *a = arena_of(1 << 20);
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct tokenizer *t = NULL;
        struct err e = {0};
        assert_int_equal(tokenizer_parse(a, slice_of(texts[i].path), (struct slice){0}, &t, &e), -EINVAL);
        if (!strstr(e.text, texts[i].says))
            fail_msg("\"%s\" does not say \"%s\"", e.text, texts[i].says);
    }
    json_t *root = smallest();
    char *text = json_dumps(root, 0);
    struct tokenizer *t = NULL;
    struct err e = {0};
    assert_int_equal(tokenizer_parse(a, slice_of(text), SLICE("[1]"), &t, &e), -EINVAL);
    assert_non_null(strstr(e.text, "tokenizer_config.json"));
    free(text);
    json_decref(root);
    arena_free(a);
}

TEST(files_have_a_limit_and_folders_a_tokenizer)
{
    struct arena *a = arena_of(1 << 20);
    struct tokenizer *t = NULL;
    struct err e = {0};
    size_t len = TOKENIZER_FILE_BYTES_MAX + 1;
    char *text = malloc(len);
    assert_non_null(text);
    memset(text, ' ', len);
    assert_int_equal(tokenizer_parse(a, (struct slice){text, len}, (struct slice){0}, &t, &e), -EFBIG);
    free(text);
    assert_int_equal(tokenizer_load_at(a, PLATEAU_SOURCE_DIR "/tests/unit", &t, &e), -ENOENT);
    assert_non_null(strstr(e.text, "tests/unit/tokenizer.json"));
    assert_null(t);
    arena_free(a);
}

TEST(a_small_arena_is_an_error_and_left_as_it_was)
{
    json_t *root = smallest();
    int r = -ENOMEM;
    for (size_t bytes = 4096; r < 0; bytes += 4096) {
        struct arena *a;
        struct arena_opts opts = {.bytes_max = bytes, .grain = 4096};
        assert_int_equal(arena_create(&opts, &a), 0);
        size_t mark = arena_mark(a);
        struct tokenizer *t = NULL;
        struct err e = {0};
        r = parse(root, a, &t, &e);
        assert_true(r == 0 || r == -ENOMEM);
        if (r < 0)
            assert_true(!t && e.text[0] && arena_mark(a) == mark);
        arena_free(a);
        assert_true(bytes < (1 << 20));
    }
    json_decref(root);
}

TEST_MAIN()
