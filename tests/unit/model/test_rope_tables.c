/* Tables of rotation against transformers 5.23: ROPE_INIT_FUNCTIONS, and hunyuan's own, in float32. Each
 * configuration is read in both of its spellings. */
#include "test_config_read.h"

#include "base/check.h"

#include <math.h>

#define PAIRS_MAX 8

struct table_case {
    const char *name, *family;
    uint32_t original; /* beside the parameters; 0: not there */
    const char *type;
    double theta;
    const char *rest; /* rest of the parameters */
    uint32_t pairs;
    double inv_freq[PAIRS_MAX], magnitude;
};

static const struct table_case cases[] = {
    {"linear",
     "llama",
     0,
     "linear",
     10000.0,
     "\"factor\":4.0",
     8,
     {0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012,
      7.90569466e-05},
     1},
    {"llama3",
     "llama",
     0,
     "llama3",
     500000.0,
     "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
     "\"original_max_position_embeddings\":1024",
     8,
     {1, 0.193922758, 0.0376060307, 0.00131256948, 0.000176776681, 3.42810235e-05, 6.64786967e-06,
      1.28917316e-06},
     1},
    {"llama3 without original",
     "llama",
     0,
     "llama3",
     500000.0,
     "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0",
     8,
     {1, 0.193922758, 0.0376060307, 0.00729266508, 0.000176776681, 3.42810235e-05, 6.64786967e-06,
      1.28917316e-06},
     1},
    {"yarn",
     "llama",
     0,
     "yarn",
     10000.0,
     "\"factor\":4.0,\"original_max_position_embeddings\":1024",
     8,
     {1, 0.316227764, 0.0812500045, 0.0197642371, 0.00437500002, 0.000790569466, 0.000250000012,
      7.90569466e-05},
     1.13862944},
    {"yarn untruncated",
     "llama",
     0,
     "yarn",
     150000.0,
     "\"factor\":32.0,\"beta_fast\":32.0,\"beta_slow\":1.0,\"truncate\":false,"
     "\"original_max_position_embeddings\":128",
     8,
     {1, 0.117482916, 0.0021522548, 0.000357944577, 8.0687154e-05, 1.8188337e-05, 4.09997847e-06,
      9.24208962e-07},
     1.34657359},
    {"yarn mscale",
     "llama",
     0,
     "yarn",
     10000.0,
     "\"factor\":40.0,\"beta_fast\":16.0,\"beta_slow\":2.0,\"mscale\":1.0,"
     "\"mscale_all_dim\":0.707,\"original_max_position_embeddings\":256",
     8,
     {1, 0.213453725, 0.0349999964, 0.000790569466, 0.000250000012, 7.90569466e-05, 2.49999994e-05,
      7.90569447e-06},
     1.0857264},
    {"yarn one mscale",
     "llama",
     0,
     "yarn",
     10000.0,
     "\"factor\":40.0,\"mscale\":0.5,\"original_max_position_embeddings\":256",
     8,
     {1, 0.239147246, 0.0512499996, 0.0084986221, 0.000250000012, 7.90569466e-05, 2.49999994e-05,
      7.90569447e-06},
     1.36888795},
    {"yarn attention_factor",
     "llama",
     0,
     "yarn",
     10000.0,
     "\"factor\":4.0,\"attention_factor\":1.5,\"original_max_position_embeddings\":1024",
     8,
     {1, 0.316227764, 0.0812500045, 0.0197642371, 0.00437500002, 0.000790569466, 0.000250000012,
      7.90569466e-05},
     1.5},
    {"partial linear",
     "llama",
     0,
     "linear",
     10000.0,
     "\"factor\":2.0,\"partial_rotary_factor\":0.5",
     4,
     {0.5, 0.0500000007, 0.00499999989, 0.000500000024},
     1},
    {"dynamic",
     "hunyuan_v1_dense",
     0,
     "dynamic",
     10000.0,
     "\"factor\":2.0",
     8,
     {1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005, 0.000316227786},
     1},
    {"dynamic alpha",
     "hunyuan_v1_dense",
     0,
     "dynamic",
     10000.0,
     "\"alpha\":1000.0,\"factor\":1.0",
     8,
     {1, 0.117876865, 0.0138949547, 0.00163789373, 0.000193069776, 2.27584587e-05, 2.68269582e-06,
      3.16227755e-07},
     1},
    {"longrope long",
     "phi3",
     512,
     "longrope",
     10000.0,
     "\"short_factor\":[1.0,1.25,1.5,2.0,2.5,3.0,4.0,5.0],\"long_factor\":[1.0,2.0,3.5,5.0,"
     "9.0,17.0,33.0,60.0]",
     8,
     {1, 0.158113882, 0.0285714287, 0.00632455572, 0.00111111114, 0.000186016347, 3.03030301e-05,
      5.27046268e-06},
     1.15470054},
    {"longrope factor",
     "phi3",
     512,
     "longrope",
     10000.0,
     "\"short_factor\":[1.0,1.25,1.5,2.0,2.5,3.0,4.0,5.0],\"long_factor\":[1.0,2.0,3.5,5.0,"
     "9.0,17.0,33.0,60.0],\"factor\":3.0",
     8,
     {1, 0.158113882, 0.0285714287, 0.00632455572, 0.00111111114, 0.000186016347, 3.03030301e-05,
      5.27046268e-06},
     1.08448464},
    {"longrope short",
     "phi3",
     4096,
     "longrope",
     10000.0,
     "\"short_factor\":[1.0,1.25,1.5,2.0,2.5,3.0,4.0,5.0],\"long_factor\":[1.0,2.0,3.5,5.0,"
     "9.0,17.0,33.0,60.0]",
     8,
     {1, 0.252982229, 0.0666666701, 0.0158113893, 0.00400000019, 0.00105409266, 0.000250000012,
      6.32455558e-05},
     1},
    {"longrope attention_factor",
     "phi3",
     512,
     "longrope",
     10000.0,
     "\"short_factor\":[1.0,1.25,1.5,2.0,2.5,3.0,4.0,5.0],\"long_factor\":[1.0,2.0,3.5,5.0,"
     "9.0,17.0,33.0,60.0],\"attention_factor\":1.25",
     8,
     {1, 0.158113882, 0.0285714287, 0.00632455572, 0.00111111114, 0.000186016347, 3.03030301e-05,
      5.27046268e-06},
     1.25},
};

static const char *spelled(const struct table_case *t, bool old, char ret[2048])
{
    char original[64] = "";
    if (t->original > 0)
        snprintf(original, sizeof(original), "\"original_max_position_embeddings\":%u,", t->original);
    int n = snprintf(ret, 2048,
                     "{\"model_type\":\"%s\",\"hidden_size\":64,\"num_hidden_layers\":1,"
                     "\"num_attention_heads\":4,\"intermediate_size\":40,\"vocab_size\":80,"
                     "\"max_position_embeddings\":4096,%s",
                     t->family, original);
    if (old)
        snprintf(ret + n, 2048 - (size_t)n, "\"rope_theta\":%.1f,\"rope_scaling\":{\"type\":\"%s\",%s}}",
                 t->theta, t->type, t->rest);
    else
        snprintf(ret + n, 2048 - (size_t)n,
                 "\"rope_parameters\":{\"rope_theta\":%.1f,\"rope_type\":\"%s\",%s}}", t->theta, t->type,
                 t->rest);
    return ret;
}

static void has_table(const struct table_case *t, const struct config *c)
{
    struct rope r;
    config_rope_init(&r, &c->ropes[0]);
    if (r.half != t->pairs)
        print_message("%s\n", t->name);
    assert_int_equal(r.half, t->pairs);
    for (uint32_t j = 0; j < r.half; j++) {
        double got = (double)r.inv_freq[j];
        if (fabs(got / t->inv_freq[j] - 1) > 1e-6)
            print_message("%s: pair %u has %.9g, not %.9g\n", t->name, j, got, t->inv_freq[j]);
        assert_true(fabs(got / t->inv_freq[j] - 1) <= 1e-6);
    }
    if (fabs(r.magnitude / t->magnitude - 1) > 1e-6)
        print_message("%s: magnitude %.9g, not %.9g\n", t->name, r.magnitude, t->magnitude);
    assert_true(fabs(r.magnitude / t->magnitude - 1) <= 1e-6);
}

TEST(tables_are_those_of_the_reference_in_both_spellings)
{
    char text[2048];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        for (int old = 0; old < 2; old++) {
            struct config c = reads(spelled(&cases[i], old, text));
            config_serve(&c, 0);
            has_table(&cases[i], &c);
        }
    }
}

static const struct table_case *named(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        if (strcmp(cases[i].name, name) == 0)
            return &cases[i];
    }
    fail();
    return NULL;
}

/* The context that is served decides, not the sequence at hand. */
TEST(longrope_takes_its_factors_by_the_context)
{
    char text[2048];
    const struct table_case *t = named("longrope long");
    struct config c = reads(spelled(t, false, text));
    struct rope shorter, at_limit, longer;
    config_serve(&c, 100);
    config_rope_init(&shorter, &c.ropes[0]);
    config_serve(&c, 512);
    config_rope_init(&at_limit, &c.ropes[0]);
    config_serve(&c, 513);
    config_rope_init(&longer, &c.ropes[0]);
    assert_memory_equal(&shorter, &at_limit, sizeof(shorter));
    has_table(t, &c);
    assert_true(fabs((double)shorter.inv_freq[7] - 0.000316227766 / 5) < 1e-9);
    assert_true(longer.magnitude == shorter.magnitude);
}

/* Older files of phi3 have other names for the same type. */
TEST(longrope_has_older_names)
{
    static const char *const names[] = {"su", "yarn"};
    char text[2048];
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct table_case t = *named("longrope long");
        t.type = names[i];
        struct config c = reads(spelled(&t, true, text));
        config_serve(&c, 0);
        has_table(&t, &c);
    }
}

static void refuses_table(const struct table_case *t, const char *says)
{
    char text[2048];
    struct config c;
    struct err e = {{0}};
    int r = config_parse(config_arena(), slice_of(spelled(t, false, text)), &c, &e);
    if (r == 0 || !strstr(e.text, says))
        print_message("%s\ngave %d: %s\n", text, r, e.text);
    assert_true(r < 0);
    assert_non_null(strstr(e.text, says));
}

TEST(broken_parameters_are_refused)
{
    static const char *const broken[][2] = {
        {"\"short_factor\":[1,2,3],\"long_factor\":[1,2,3]", "has 3 numbers, but 16 dimensions rotate"},
        {"\"short_factor\":[1,2,3],\"long_factor\":[1,2]", "long_factor has 2 numbers, short_factor has 3"},
        {"\"short_factor\":[1,0],\"long_factor\":[1,2]", "short_factor[1] must be a number"},
        {"\"short_factor\":[1,\"x\"],\"long_factor\":[1,2]", "short_factor[1] must be a number"},
        {"\"short_factor\":7,\"long_factor\":[1,2]", "short_factor must be a list"},
        {"\"long_factor\":[1,2]", "short_factor must be a list"},
        {"\"short_factor\":[1,2,3,4,5,6,7,8],\"long_factor\":[1,2,3,4,5,6,7,8],\"long_mscale\":1.2",
         "longrope with long_mscale is not supported"},
    };
    struct table_case t = *named("longrope long");
    for (size_t i = 0; i < COUNT_OF(broken); i++) {
        t.rest = broken[i][0];
        refuses_table(&t, broken[i][1]);
    }
    t = *named("longrope long");
    t.original = 1;
    refuses_table(&t, "original_max_position_embeddings 1 must be at least 2");
    t = *named("dynamic alpha");
    t.rest = "\"alpha\":-1";
    refuses_table(&t, "alpha must be a number");
    t = *named("yarn");
    t.type = "nonsense";
    refuses_table(&t, "rope_type 'nonsense' is not supported");
}

TEST_MAIN()
