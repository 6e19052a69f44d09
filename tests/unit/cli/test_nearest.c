/* Misspelled names: a close name is found, and a distant one is not. */
#include "base/check.h"
#include "cli/nearest.h"
#include "test.h"

static const char *const names[] = {"serve",     "chat",          "generate",      "plan",       "cache",
                                    "max-queue", "queue-timeout", "max-model-len", "max-tokens", "port"};

static const char *closest(const char *word)
{
    struct nearest n = nearest_begin(slice_of(word));
    for (size_t i = 0; i < COUNT_OF(names); i++)
        nearest_try(&n, names[i]);
    return n.name;
}

TEST(one_edit_a_swap_or_a_beginning_is_close)
{
    const char *const pairs[][2] = {{"serv", "serve"},
                                    {"sreve", "serve"},
                                    {"prot", "port"},
                                    {"max-queu", "max-queue"},
                                    {"MAX_QUEU", "max-queue"},
                                    {"max_queue", "max-queue"},
                                    {"max-modell-len", "max-model-len"},
                                    {"gen", "generate"},
                                    {"max-model", "max-model-len"},
                                    {"plna", "plan"}};
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        assert_non_null(closest(pairs[i][0]));
        assert_string_equal(closest(pairs[i][0]), pairs[i][1]);
    }
}

TEST(what_is_far_is_not_drafted)
{
    char longer[NEAREST_WORD_BYTES + 2];
    memset(longer, 'a', sizeof(longer));
    longer[sizeof(longer) - 1] = 0;
    const char *const far[] = {"", "x", "se", "bench", "list", "temperature", "\xff\xfe", longer};
    for (size_t i = 0; i < COUNT_OF(far); i++)
        assert_null(closest(far[i]));
}

TEST(a_question_names_the_closest)
{
    struct nearest n = nearest_begin(SLICE("prot"));
    assert_string_equal(nearest_question(&n, "--").text, "");
    nearest_try(&n, "port");
    assert_string_equal(nearest_question(&n, "--").text, " (did you mean --port?)");
}

TEST_MAIN()
