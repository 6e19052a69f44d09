/* Tokenizers of GGUF files, made up on the spot, and refusals. */
#include "model_path.h"
#include "test_gguf.h"

#include "base/check.h"
#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"

#include <errno.h>

static struct test_gguf file;

static struct arena *arena(void)
{
    static struct arena *a;
    if (!a)
        assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 64 << 20}, &a), 0);
    arena_reset(a);
    return a;
}

static const char *save(void)
{
    const char *dir = test_dir();
    test_gguf_data(&file, 32, 32, 0);
    test_write_file(dir, "m.gguf", file.bytes, file.len);
    return dir;
}

static void refuses(int code, const char *says)
{
    struct tokenizer *t;
    struct err e = {{0}};
    int r = tokenizer_load_at(arena(), save(), &t, &e);
    if (r != code || !strstr(e.text, says))
        print_message("gave %d: %s\n", r, e.text);
    assert_int_equal(r, code);
    assert_non_null(strstr(e.text, says));
}

static void put_texts(const char *key, const char *const *texts, uint32_t count)
{
    test_gguf_list(&file, key, GGUF_STRING, count);
    for (uint32_t i = 0; i < count; i++)
        test_gguf_text(&file, texts[i]);
}

static void put_numbers(const char *key, uint32_t type, const void *numbers, uint32_t count)
{
    test_gguf_list(&file, key, type, count);
    test_gguf_put(&file, numbers, count * sizeof(uint32_t));
}

enum { PIECES = 10 };
static const char *const pieces[PIECES] = {"<unk>", "<s>",          "<0x41>", "a",   "b",
                                           "c",     "\xe2\x96\x81", "ab",     "abc", "bc"};
static const int32_t piece_types[PIECES] = {2, 3, 6, 1, 1, 1, 1, 1, 1, 1};
/* "bc" is better than "ab". */
static const float piece_scores[PIECES] = {0, 0, 0, -10, -11, -12, -13, -3, -4, -2};

static void put_pieces(uint32_t scores, uint32_t bos, uint64_t keys)
{
    test_gguf_begin(&file, 3, 0, keys);
    test_gguf_key_text(&file, "tokenizer.ggml.model", "llama");
    put_texts("tokenizer.ggml.tokens", pieces, PIECES);
    put_numbers("tokenizer.ggml.token_type", GGUF_I32, piece_types, PIECES);
    put_numbers("tokenizer.ggml.scores", GGUF_F32, piece_scores, scores);
    test_gguf_key_u32(&file, "tokenizer.ggml.bos_token_id", bos);
    test_gguf_key_text(&file, "tokenizer.chat_template", "{{ 1 + 1 }}");
}

static void write_pieces(uint32_t scores, uint32_t bos)
{
    put_pieces(scores, bos, 6);
}

static void write_ended_pieces(uint32_t eos)
{
    put_pieces(PIECES, 1, 8);
    test_gguf_key_u32(&file, "tokenizer.ggml.eos_token_id", eos);
    test_gguf_key_bool(&file, "tokenizer.ggml.add_eos_token", true);
}

static void check_ids(const struct tokenizer *t, const char *text, bool special, const uint32_t *ids,
                      size_t count)
{
    uint32_t have[16];
    size_t n = 0;
    struct tokenizer_opts opts = {.added_tokens = true, .add_special = special};
    struct arena *scratch;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 16 << 20}, &scratch), 0);
    assert_int_equal(tokenizer_encode(t, scratch, slice_of(text), &opts, have, 16, &n, NULL), 0);
    assert_int_equal(n, count);
    assert_memory_equal(have, ids, count * sizeof(ids[0]));
    arena_free(scratch);
}

TEST(pieces_merge_by_their_scores)
{
    struct tokenizer *t;
    struct err e = {{0}};
    write_pieces(PIECES, 1);
    int r = tokenizer_load_at(arena(), save(), &t, &e);
    if (r < 0)
        print_message("%s\n", e.text);
    assert_int_equal(r, 0);
    check_ids(t, "abc", false, (const uint32_t[]){6, 8}, 2); /* a and bc make abc */
    check_ids(t, "abb", false, (const uint32_t[]){6, 7, 4}, 3);
    check_ids(t, "A", true, (const uint32_t[]){1, 6, 2}, 3);
    check_ids(t, "<s>", false, (const uint32_t[]){1}, 1);
}

/* Embedders such as Qwen3-Embedding take the row of that token. */
TEST(a_text_ends_with_a_token_where_the_file_says_so)
{
    struct tokenizer *t;
    struct err e = {{0}};
    write_ended_pieces(9);
    assert_int_equal(tokenizer_load_at(arena(), save(), &t, &e), 0);
    check_ids(t, "A", true, (const uint32_t[]){1, 6, 2, 9}, 4);
    check_ids(t, "A", false, (const uint32_t[]){6, 2}, 2);
    const struct tokenizer_pair *pair = tokenizer_pair(t);
    assert_true(pair->known && pair->between.count == 1 && pair->behind.count == 1);
    assert_int_equal(pair->behind.ids[0], 9);
    write_ended_pieces(PIECES);
    refuses(-EINVAL, "add_eos_token is true, but eos_token_id is not a token");
}

TEST(the_template_is_the_file_s)
{
    struct chat_template *template;
    write_pieces(PIECES, 1);
    assert_int_equal(chat_template_load_at(arena(), save(), &template, NULL), 0);
    test_gguf_begin(&file, 3, 0, 0);
    assert_int_equal(chat_template_load_at(arena(), save(), &template, NULL), -ENOENT);
}

/* ---- WordPiece and Unigram ---- */

static void put_bytes(const char *key, const char *bytes, uint32_t count)
{
    test_gguf_list(&file, key, GGUF_U8, count);
    test_gguf_put(&file, bytes, count);
}

static void begin_words(const char *kind, uint32_t pairs, const char *const *texts, const int32_t *types,
                        uint32_t count)
{
    test_gguf_begin(&file, 3, 0, pairs);
    test_gguf_key_text(&file, "tokenizer.ggml.model", kind);
    put_texts("tokenizer.ggml.tokens", texts, count);
    put_numbers("tokenizer.ggml.token_type", GGUF_I32, types, count);
}

static struct tokenizer *loaded(void)
{
    struct tokenizer *t = NULL;
    struct err e = {{0}};
    if (tokenizer_load_at(arena(), save(), &t, &e) < 0)
        fail_msg("%s", e.text);
    return t;
}

#define MARK "\xe2\x96\x81"

static const char *const words[] = {"[PAD]",  "[UNK]", "[CLS]", "[SEP]", MARK "un",
                                    MARK "a", "able",  "a",     MARK "!"};
static const int32_t word_types[] = {3, 3, 3, 3, 1, 1, 1, 1, 1};

static void write_words(const char *const *texts)
{
    begin_words("bert", 6, texts, word_types, COUNT_OF(words));
    test_gguf_key_u32(&file, "tokenizer.ggml.unknown_token_id", 1);
    test_gguf_key_u32(&file, "tokenizer.ggml.cls_token_id", 2);
    test_gguf_key_u32(&file, "tokenizer.ggml.seperator_token_id", 3);
}

TEST(words_are_cut_into_pieces)
{
    const char *cased[COUNT_OF(words)];
    write_words(words);
    const struct tokenizer *t = loaded();
    check_ids(t, "Unable a!", true, (const uint32_t[]){2, 4, 6, 5, 8, 3}, 6);
    check_ids(t, "\xc3\xa0 aa x[CLS]", false, (const uint32_t[]){5, 5, 7, 1, 2}, 5);
    memcpy(cased, words, sizeof(words));
    cased[8] = MARK "A";
    write_words(cased);
    check_ids(loaded(), "A a", true, (const uint32_t[]){2, 8, 5, 3}, 4);
    assert_int_equal(tokenizer_token_bytes(loaded(), 6).len, 4);
}

/* Charsmap with 256 roots and no text: it changes nothing. */
static const char charsmap[1028] = {0, 4, 0, 0};

TEST(the_best_cut_into_pieces_is_taken)
{
    static const char *const texts[] = {"<s>",     "<pad>", "</s>", "<unk>", MARK,
                                        MARK "ab", "a",     "b",    "c",     "bc"};
    static const int32_t types[] = {3, 3, 3, 2, 1, 1, 1, 1, 1, 1};
    static const float scores[] = {0, 0, 0, 0, -3, -4, -5, -5, -5, -6};
    for (int turn = 0; turn < 3; turn++) {
        begin_words("t5", 7, texts, types, COUNT_OF(texts));
        put_numbers("tokenizer.ggml.scores", GGUF_F32, scores, turn == 2 ? 3 : COUNT_OF(scores));
        put_bytes("tokenizer.ggml.precompiled_charsmap", charsmap, turn ? sizeof(charsmap) : 0);
        test_gguf_key_u32(&file, "tokenizer.ggml.bos_token_id", 0);
        test_gguf_key_u32(&file, "tokenizer.ggml.eos_token_id", 2);
        if (turn == 2) {
            refuses(-EINVAL, "there is not one score for each token");
            break;
        }
        check_ids(loaded(), " abc  bc", true, (const uint32_t[]){0, 5, 8, 4, 9, 2}, 6);
    }
}

TEST(tokenizers_that_are_refused)
{
    begin_words("bert", 3, words, word_types, COUNT_OF(words));
    refuses(-EINVAL, "the tokens around a text are missing");
    test_gguf_begin(&file, 3, 0, 0);
    refuses(-ENOENT, "the file has no tokenizer");
    write_pieces(PIECES - 1, 1);
    refuses(-EINVAL, "there is not one score for each token");
    write_pieces(PIECES, PIECES);
    refuses(-EINVAL, "tokenizer.ggml.bos_token_id is 10, which is not a token");
    test_gguf_begin(&file, 3, 0, 2);
    test_gguf_key_text(&file, "tokenizer.ggml.model", "rwkv");
    put_texts("tokenizer.ggml.tokens", pieces, PIECES);
    refuses(-ENOTSUP, "tokenizer.ggml.model 'rwkv' is not supported");
    test_gguf_begin(&file, 3, 0, 3);
    test_gguf_key_text(&file, "tokenizer.ggml.model", "gpt2");
    test_gguf_key_text(&file, "tokenizer.ggml.pre", "nobody-knows");
    put_texts("tokenizer.ggml.tokens", pieces, PIECES);
    refuses(-ENOTSUP, "tokenizer.ggml.pre 'nobody-knows' is not supported");
    test_gguf_begin(&file, 3, 0, 1);
    put_numbers("tokenizer.ggml.tokens", GGUF_I32, piece_types, PIECES);
    refuses(-EINVAL, "tokens are not a list of texts");
    test_gguf_begin(&file, 3, 0, 1);
    put_texts("tokenizer.ggml.tokens", (const char *const[]){"\xff"}, 1);
    refuses(-EINVAL, "tokenizer.ggml.tokens[0] is not UTF-8");
}

TEST_MAIN()
