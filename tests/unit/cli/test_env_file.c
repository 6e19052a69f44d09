/* Environment files: what counts as a setting; text that a shell or systemd would read in another way is
 * refused without being quoted. */
#include "base/check.h"
#include "base/clock.h"
#include "cli/env_file.h"
#include "cli/options.h"
#include "test.h"

#include "host/settings.h"
#include "test_files.h"

#include <errno.h>

struct settings_change;

static char seen[1024];

static int note(void *arg, struct slice name, struct slice value, struct err *e)
{
    size_t n = strlen(seen);
    (void)arg;
    (void)e;
    snprintf(seen + n, sizeof(seen) - n, "%.*s=%.*s;", SLICE_ARGS(name), SLICE_ARGS(value));
    return 0;
}

TEST(lines_quotes_and_comments)
{
    struct err e = {{0}};
    seen[0] = 0;
    assert_int_equal(
        env_file_parse(SLICE("# one\n\n; two\n A=1 \r\nB_2=\nC='a b # c'\nD=\"x=y\"\nE=/a:b,c%d=\n_f=''"),
                       note, NULL, &e),
        0);
    assert_string_equal(seen, "A=1;B_2=;C=a b # c;D=x=y;E=/a:b,c%d=;_f=;");
}

TEST(what_could_be_misread_is_refused)
{
    const char *const wrong[] = {"A",         "=secr",       "1A=secr",  "A B=secr",   "export A=secr",
                                 "A=secr et", "A='secr",     "A=secr'",  "A='se'cr'",  "A=\"se\\ncr\"",
                                 "A=secr\\",  "A=$secr",     "A=`secr`", "A=secr # c", "A=secr;b",
                                 "A='",       "A=\"$secr\"", "A=secr&"};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        struct err e = {{0}};
        char text[64];
        snprintf(text, sizeof(text), "X=1\n%s\n", wrong[i]);
        assert_int_equal(env_file_parse(slice_of(text), note, NULL, &e), -EINVAL);
        assert_non_null(strstr(e.text, "line 2"));
        assert_null(strstr(e.text, "secr"));
    }
}

static int parse(const char *dir, const char *ini, const char *env, struct settings *o, struct err *e)
{
    static char config[512], file[512]; /* options borrow their command line */
    snprintf(config, sizeof(config), "--config=%s/ini", dir);
    snprintf(file, sizeof(file), "%s/env", dir);
    test_write_text(dir, "ini", ini);
    test_write_text(dir, "env", env);
    static char serve[] = "serve", env_file[] = "--env-file", max_queue[] = "--max-queue=3";
    char *argv[] = {serve, config, env_file, file, max_queue, NULL};
    return options_parse(COMMAND_SERVE, 5, argv, o, e);
}

TEST(each_place_wins_over_those_behind_it)
{
    const char *dir = test_dir();
    struct settings o;
    struct err e = {{0}};
    setenv("PLATEAU_STEP_MS", "7", 1);
    int r =
        parse(dir, "max-queue = 1\nstep-ms = 5\nport = 4\ndrain = 9\napi-key = a\n",
              "PLATEAU_MAX_QUEUE=2\nPLATEAU_STEP_MS=6\nPLATEAU_PORT=5\nPATH=/x\nPLATEAU_API_KEY=b\n", &o, &e);
    unsetenv("PLATEAU_STEP_MS");
    assert_int_equal(r, 0);
    assert_int_equal(o.model.engine.max_queue, 3);
    assert_int_equal(o.model.engine.step_ns, 7 * NS_PER_MS);
    assert_int_equal(o.http.port, 5);
    assert_int_equal(o.registry.drain_ns, 9 * NS_PER_S);
    assert_string_equal(o.keys.api_keys[0], "a");
    assert_string_equal(o.keys.api_keys[1], "b");
    assert_null(o.keys.api_keys[2]);
    settings_done(&o);
}

TEST(a_wrong_file_is_named)
{
    const char *dir = test_dir();
    const struct {
        const char *env, *words;
    } cases[] = {{"\nPLATEAU_NONE=1\n", "PLATEAU_NONE"},
                 {"PLATEAU_HELP=1\n", "PLATEAU_HELP"},
                 {"PLATEAU_MAX_QUEUE=many\n", "--max-queue"},
                 {"PLATEAU_MAX_QUEUE\n", "line 1"}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct settings o;
        struct err e = {{0}};
        assert_int_equal(parse(dir, "", cases[i].env, &o, &e), -EINVAL);
        assert_non_null(strstr(e.text, cases[i].words));
        assert_non_null(strstr(e.text, "/env"));
        settings_done(&o);
    }
}

/* "": it is taken. */
static void assert_file_says(enum setting_command command, const char *ini, const char *env,
                             const char *words)
{
    const char *dir = test_dir();
    char config[512], file[512], name[] = "plateau";
    snprintf(config, sizeof(config), "--config=%s/ini", dir);
    snprintf(file, sizeof(file), "--env-file=%s/env", dir);
    test_write_text(dir, "ini", ini);
    test_write_text(dir, "env", env);
    struct settings o;
    struct err e = {{0}};
    int r = options_parse(command, 3, (char *[]){name, config, file, NULL}, &o, &e);
    assert_int_equal(r, words[0] ? -EINVAL : 0);
    assert_non_null(strstr(e.text, words));
    settings_done(&o);
}

TEST(a_file_holds_options_of_its_command_only)
{
    assert_file_says(COMMAND_SERVE, "temperature = 0.5\n", "", "section [model NAME]");
    assert_file_says(COMMAND_SERVE, "min-p = 0.5\n", "", "section [model NAME]");
    assert_file_says(COMMAND_SERVE, "max-tokens = 5\n", "",
                     "max-tokens is an option of generate, not of serve");
    assert_file_says(COMMAND_SERVE, "max-queu = 5\n", "", "did you mean max-queue?");
    assert_file_says(COMMAND_SERVE, "[model x]\ntop_p = 0.5\n", "", "did you mean top-p?");
    assert_file_says(COMMAND_SERVE, "", "PLATEAU_TOP_P=0.5\n", "section [model NAME]");
    assert_file_says(COMMAND_SERVE, "", "PLATEAU_MIN_P=0.5\n", "section [model NAME]");
    assert_file_says(COMMAND_SERVE, "", "PLATEAU_MAX_QUEU=5\n", "did you mean PLATEAU_MAX_QUEUE?");
    assert_file_says(COMMAND_SERVE, "pin = a\npin = b\n[model x]\npin = yes\ntop-p = 0.5\n", "", "");
    assert_file_says(COMMAND_CHAT, "port = 5\n", "", "port is an option of serve, not of chat");
    assert_file_says(COMMAND_CHAT, "[model x]\ntop-p = 0.5\n", "", "[model x]");
    assert_file_says(COMMAND_CHAT, "top-p = 0.5\nlog-level = info\n", "PLATEAU_HISTORY=x\n", "");
}

/* "": they are taken. */
static void assert_line_says(enum setting_command command, char *a, char *b, char *c, const char *words)
{
    char name[] = "plateau";
    struct settings o;
    struct err e = {{0}};
    int r = options_parse(command, c ? 4 : 3, (char *[]){name, a, b, c, NULL}, &o, &e);
    assert_int_equal(r, words[0] ? -EINVAL : 0);
    assert_non_null(strstr(e.text, words));
    settings_done(&o);
}

TEST(two_values_of_one_option_are_refused)
{
    char one[] = "--max-queue=1", two[] = "--max-queue=2", plain[] = "--", a[] = "A", b[] = "B";
    char model_a[] = "--model=A", model_b[] = "--model=B", letter[] = "-m", json[] = "--json",
         table[] = "--json=no", key[] = "--api-key=x", other[] = "--api-key=y";
    assert_line_says(COMMAND_SERVE, one, two, NULL, "--max-queue is given twice");
    assert_line_says(COMMAND_SERVE, one, one, NULL, "");
    assert_line_says(COMMAND_SERVE, key, other, NULL, "");
    assert_line_says(COMMAND_PLAN, json, table, NULL, "--json is given twice");
    assert_line_says(COMMAND_PLAN, json, json, NULL, "");
    assert_line_says(COMMAND_SERVE, model_a, model_b, NULL, "plateau serve A B");
    assert_line_says(COMMAND_SERVE, model_a, letter, b, "plateau serve A B");
    assert_line_says(COMMAND_SERVE, a, model_b, NULL, "--model is given twice");
    assert_line_says(COMMAND_SERVE, model_b, a, NULL, "--model is given twice");
    assert_line_says(COMMAND_SERVE, model_a, plain, a, "");
    assert_line_says(COMMAND_SERVE, a, b, NULL, "");
    assert_line_says(COMMAND_CHAT, a, model_b, NULL, "--model is given twice");
    assert_line_says(COMMAND_CHAT, a, model_a, NULL, "");
    assert_file_says(COMMAND_SERVE, "port = 1\nport = 2\n", "", "port is given twice");
    assert_file_says(COMMAND_SERVE, "port = 1\nport = 1\n", "", "");
    assert_file_says(COMMAND_SERVE, "[model x]\nttl = 1\n[model y]\nttl = 2\n", "", "");
    assert_file_says(COMMAND_SERVE, "[model x]\nttl = 1\nttl = 2\n", "", "[model x] has ttl twice");
}

/* A line of 200 bytes: a comment, or a setting. */
static const char *long_line(char head)
{
    static char line[256];
    snprintf(line, sizeof(line), "%cystem = %0*d\ntop-p = 0.5\n", head, 190, 7);
    return line;
}

TEST(no_line_of_a_file_is_cut_or_joined)
{
    assert_file_says(COMMAND_CHAT, long_line('s'), "", "line 1 has more than 198 bytes");
    assert_file_says(COMMAND_CHAT, long_line('#'), "", "");
    assert_file_says(COMMAND_CHAT, "system = a\n  port = 5\n", "", "port is an option of serve");
    assert_file_says(COMMAND_CHAT, "system = a\n\t# b\n  top-p = 0.5\n", "", "");
    assert_file_says(COMMAND_CHAT, "system = a\nno setting\n", "", "line 2 is not name = value");
    assert_file_says(COMMAND_CHAT, "port = 1\nno setting\n", "", "port is an option of serve");
}

TEST(a_plan_reads_the_files_of_a_server)
{
    assert_file_says(COMMAND_PLAN, "port = 5\nmax-queue = 3\n[model x]\ntop-p = 0.5\n", "", "");
    assert_file_says(COMMAND_PLAN, "max-tokens = 5\n", "", "not of plan");
}

/* `cache` takes no --config, but the environment may name one for all commands. */
TEST(a_file_that_the_environment_names_for_all_commands_is_read_by_cache)
{
    const char *dir = test_dir();
    char config[512], name[] = "cache";
    snprintf(config, sizeof(config), "%s/ini", dir);
    test_write_text(dir, "ini", "port = 5\nssd-limit = 1G\n");
    struct settings o;
    struct err e = {{0}};
    setenv("PLATEAU_CONFIG", config, 1);
    int r = options_parse(COMMAND_CACHE, 1, (char *[]){name, NULL}, &o, &e);
    unsetenv("PLATEAU_CONFIG");
    assert_int_equal(r, 0);
    assert_int_equal(o.store.limit_bytes, 1 << 30);
    settings_done(&o);
}

static void tell(void *arg, const struct settings_change *c)
{
    (void)arg;
    size_t n = strlen(seen);
    snprintf(seen + n, sizeof(seen) - n, "%s:%s>%s%s;", c->name, c->from, c->to, c->live ? "" : "!");
}

TEST(options_are_compared_and_secrets_not_shown)
{
    const char *dir = test_dir();
    struct settings a, b;
    struct err e = {{0}};
    assert_int_equal(parse(dir, "api-key = one\nport = 1\nstep-ms = 5\n", "", &a, &e), 0);
    assert_int_equal(
        parse(dir, "api-key = one\napi-key = two\nport = 2\ntrim = off\nallow-open = yes\n", "", &b, &e), 0);
    seen[0] = 0;
    settings_compare(COMMAND_SERVE, &a, &a, tell, NULL);
    assert_string_equal(seen, "");
    settings_compare(COMMAND_SERVE, &a, &b, tell, NULL);
    assert_string_equal(seen, "trim:on>off!;port:1>2!;api-key:*>*;allow-open:no>yes;step-ms:5>100;");
    settings_done(&a);
    settings_done(&b);
}

TEST(secrets_are_hidden_wherever_they_stand)
{
    char *argv[] = {(char[]){"serve"},
                    (char[]){"--api-key"},
                    (char[]){"sk-1"},
                    (char[]){"--port"},
                    (char[]){"80"},
                    (char[]){"--api-key="},
                    (char[]){"model"},
                    (char[]){"--admin-key=sk-2=3"},
                    (char[]){"--api-key-file"},
                    (char[]){"keys"},
                    (char[]){"--"},
                    (char[]){"--api-key=x"},
                    NULL};
    options_hide(COMMAND_SERVE, 12, argv);
    assert_string_equal(argv[2], "****");
    assert_string_equal(argv[4], "80");
    assert_string_equal(argv[6], "model");
    assert_string_equal(argv[7], "--admin-key=******");
    assert_string_equal(argv[9], "keys");
    assert_string_equal(argv[11], "--api-key=x");
}

TEST_MAIN()
