/* options.c - the table, and the three places a value can come from. */
#include "cli/options.h"

#include "base/check.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum option_kind { OPTION_TEXT, OPTION_LIST, OPTION_COUNT, OPTION_BYTES, OPTION_REAL, OPTION_FLAG };

struct option_row {
    const char *name, *value; /* value: how help calls it; NULL for a flag */
    enum option_kind kind;
    size_t offset;
    double min, max;
    const char *otherwise; /* default; NULL: none */
    unsigned commands;
    const char *help;
};

#define AT(field) offsetof(struct options, field)

static const struct option_row rows[] = {
    {"host", "ADDRESS", OPTION_TEXT, AT(host), 0, 0, "127.0.0.1", COMMAND_SERVE,
     "where to listen; beyond loopback an --api-key is needed"},
    {"port", "N", OPTION_COUNT, AT(port), 0, 65535, "8080", COMMAND_SERVE,
     "0 takes any free port and prints it"},
    {"alias", "NAME", OPTION_TEXT, AT(alias), 0, 0, NULL, COMMAND_SERVE,
     "the model's name for clients (default: its directory's name)"},
    {"api-key", "KEY", OPTION_LIST, AT(api_keys), 0, 0, NULL, COMMAND_SERVE,
     "clients must send it; may be given several times"},
    {"admin-key", "KEY", OPTION_LIST, AT(admin_keys), 0, 0, NULL, COMMAND_SERVE,
     "for /api routes; without one they answer on loopback only"},
    {"memory-limit", "BYTES", OPTION_BYTES, AT(memory_limit), 0, 1e15, "0", COMMAND_ANY,
     "ceiling of all memory (0: what cgroup and machine leave)"},
    {"compute", "MODE", OPTION_TEXT, AT(compute), 0, 0, "auto", COMMAND_ANY, "auto or f32"},
    {"threads", "N", OPTION_COUNT, AT(threads), 0, 256, "0", COMMAND_ANY, "that compute (0: one per core)"},
    {"max-num-seqs", "N", OPTION_COUNT, AT(max_num_seqs), 1, 256, "8", COMMAND_SERVE,
     "requests computed together"},
    {"max-model-len", "TOKENS", OPTION_COUNT, AT(max_model_len), 0, 1e7, "0", COMMAND_ANY,
     "longest prompt and answer (0: the model's own, or what fits)"},
    {"max-tokens-default", "N", OPTION_COUNT, AT(max_tokens_default), 0, 1e7, "0", COMMAND_SERVE,
     "answer length when a request says none (0: what is left)"},
    {"max-queue", "N", OPTION_COUNT, AT(max_queue), 1, 65536, "256", COMMAND_SERVE,
     "requests that may wait; more are told 429"},
    {"queue-timeout", "SECONDS", OPTION_COUNT, AT(queue_timeout_s), 0, 86400, "600", COMMAND_SERVE,
     "longest wait for a place (0: for ever)"},
    {"step-ms", "MS", OPTION_COUNT, AT(step_ms), 1, 10000, "100", COMMAND_SERVE,
     "how long a step may last that others wait for"},
    {"slow-client", "SECONDS", OPTION_COUNT, AT(slow_client_s), 1, 86400, "30", COMMAND_SERVE,
     "a client that does not read for so long is dropped"},
    {"max-body-bytes", "BYTES", OPTION_BYTES, AT(max_body_bytes), 1024, 1e10, "64M", COMMAND_SERVE,
     "longest request body"},
    {"max-header-bytes", "BYTES", OPTION_BYTES, AT(max_header_bytes), 1024, 1e6, "8K", COMMAND_SERVE,
     "longest request line and headers"},
    {"max-connections", "N", OPTION_COUNT, AT(max_connections), 1, 65536, "256", COMMAND_SERVE,
     "open connections; more are told 503"},
    {"max-requests", "N", OPTION_COUNT, AT(max_requests), 1, 65536, "1024", COMMAND_SERVE,
     "requests held at once, waiting ones included"},
    {"max-request-bytes", "BYTES", OPTION_BYTES, AT(max_request_bytes), 65536, 1e11, "256M", COMMAND_SERVE,
     "memory one request may hold for its texts"},
    {"json-depth", "N", OPTION_COUNT, AT(json_depth), 4, 256, "64", COMMAND_SERVE,
     "nesting of a request's JSON"},
    {"prep-threads", "N", OPTION_COUNT, AT(prep_threads), 0, 16, "0", COMMAND_SERVE,
     "that read and tokenize requests (0: by cores)"},
    {"idle-timeout", "SECONDS", OPTION_COUNT, AT(idle_timeout_s), 1, 86400, "60", COMMAND_SERVE,
     "connections that do nothing are closed"},
    {"keepalive", "SECONDS", OPTION_COUNT, AT(keepalive_s), 1, 3600, "10", COMMAND_SERVE,
     "a stream that is silent for so long sends a comment"},
    {"drain", "SECONDS", OPTION_COUNT, AT(drain_s), 0, 3600, "10", COMMAND_SERVE,
     "how long SIGTERM waits for open requests"},
    {"max-tokens", "N", OPTION_COUNT, AT(max_tokens), 1, 1e7, "512", COMMAND_GENERATE | COMMAND_CHAT,
     "longest answer"},
    {"temperature", "T", OPTION_REAL, AT(temperature), -1, 2, "-1", COMMAND_GENERATE | COMMAND_CHAT,
     "0 is greedy (default: the model's own)"},
    {"top-p", "P", OPTION_REAL, AT(top_p), 0, 1, "0", COMMAND_GENERATE | COMMAND_CHAT, "0: the model's own"},
    {"top-k", "K", OPTION_COUNT, AT(top_k), 0, 1e6, "0", COMMAND_GENERATE | COMMAND_CHAT,
     "0: the model's own"},
    {"seed", "N", OPTION_COUNT, AT(seed), 0, 1e18, "0", COMMAND_GENERATE | COMMAND_CHAT,
     "the same seed gives the same text"},
    {"system", "TEXT", OPTION_TEXT, AT(system), 0, 0, NULL, COMMAND_GENERATE | COMMAND_CHAT,
     "a system message"},
    {"think", NULL, OPTION_FLAG, AT(think), 0, 0, NULL, COMMAND_GENERATE | COMMAND_CHAT,
     "let the model reason first"},
    {"raw", NULL, OPTION_FLAG, AT(raw), 0, 0, NULL, COMMAND_GENERATE,
     "complete the prompt as it is, without the chat template"},
    {"ignore-eos", NULL, OPTION_FLAG, AT(ignore_eos), 0, 0, NULL, COMMAND_GENERATE,
     "go on behind the model's end token"},
    {"log-level", "LEVEL", OPTION_TEXT, AT(log_level), 0, 0, NULL, COMMAND_ANY, "error, warn, info or debug"},
    {"config", "FILE", OPTION_TEXT, AT(config), 0, 0, NULL, COMMAND_ANY,
     "an INI file with any of these, name = value"},
    {"help", NULL, OPTION_FLAG, AT(help), 0, 0, NULL, COMMAND_ANY, "this text"},
};

static const struct option_row *row_of(const char *name, size_t len)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (strlen(rows[i].name) == len && memcmp(rows[i].name, name, len) == 0)
            return &rows[i];
    return NULL;
}

/* A number, with K, M, G or T for a row of bytes. */
static bool parse_number(const struct option_row *row, const char *text, double *ret)
{
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || errno || !isfinite(v) || isspace((unsigned char)text[0]))
        return false;
    static const char units[] = "KMGT";
    const char *unit = row->kind == OPTION_BYTES && *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        v *= 1024;
    end += unit != NULL;
    if (*end != 0 || (row->kind != OPTION_REAL && v != floor(v)))
        return false;
    *ret = v;
    return v >= row->min && v <= row->max;
}

static int set_list(const struct option_row *row, const char *text, const char **list, struct err *e)
{
    for (int i = 0; i < OPTIONS_KEYS_MAX; i++) {
        if (!list[i]) {
            list[i] = text;
            return 0;
        }
    }
    return err_set(e, -EINVAL, "--%s: at most %d may be given", row->name, OPTIONS_KEYS_MAX);
}

static int set(const struct option_row *row, const char *text, struct options *o, struct err *e)
{
    void *field = (char *)o + row->offset;
    double v;
    switch (row->kind) {
    case OPTION_TEXT:
        *(const char **)field = text;
        return 0;
    case OPTION_LIST:
        return text[0] ? set_list(row, text, field, e)
                       : err_set(e, -EINVAL, "--%s: the key is empty", row->name);
    case OPTION_FLAG:
        *(bool *)field = strcmp(text, "0") != 0 && strcmp(text, "false") != 0 && strcmp(text, "no") != 0;
        return 0;
    default:
        break;
    }
    if (!parse_number(row, text, &v))
        return err_set(e, -EINVAL, "--%s %s: a number from %.15g to %.15g is expected%s", row->name, text,
                       row->min, row->max, row->kind == OPTION_BYTES ? ", K, M, G or T behind it" : "");
    if (row->kind == OPTION_REAL)
        *(double *)field = v;
    else
        *(uint64_t *)field = (uint64_t)v;
    return 0;
}

static int set_defaults(struct options *o, struct err *e)
{
    *o = (struct options){0};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int r = rows[i].otherwise ? set(&rows[i], rows[i].otherwise, o, e) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

/* --- the configuration file --- */

struct file_read {
    struct options *o;
    struct err *e;
    int error;
};

static int file_entry(void *arg, const char *section, const char *name, const char *value)
{
    struct file_read *f = arg;
    const struct option_row *row = row_of(name, strlen(name));
    (void)section;
    if (f->error)
        return 1;
    if (strcmp(name, "model") == 0 || row) {
        char *copy = strdup(value); /* kept until the process ends: options are */
        if (!copy)
            f->error = -ENOMEM;
        else if (row)
            f->error = set(row, copy, f->o, f->e);
        else
            f->o->model = copy;
        return 1;
    }
    f->error = err_set(f->e, -EINVAL, "no option is called %s", name);
    return 1;
}

static int read_file(const char *path, struct options *o, struct err *e)
{
    struct file_read f = {o, e, 0};
    int r = ini_parse(path, file_entry, &f);
    if (r < 0)
        return err_set(e, -ENOENT, "--config %s: cannot be read", path);
    if (r > 0)
        return err_set(e, -EINVAL, "--config %s: line %d is not name = value", path, r);
    return f.error ? err_prefix(e, f.error, "--config %s", path) : 0;
}

/* --- environment and command line --- */

static int read_environment(struct options *o, struct err *e)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char name[64] = "PLATEAU_";
        size_t n = strlen(name);
        for (const char *c = rows[i].name; *c && n + 1 < sizeof(name); c++)
            name[n++] = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
        const char *value =
            rows[i].kind == OPTION_FLAG && strcmp(rows[i].name, "help") == 0 ? NULL : getenv(name);
        int r = value ? set(&rows[i], value, o, e) : 0;
        if (r < 0)
            return err_prefix(e, r, "%s", name);
    }
    if (getenv("PLATEAU_MODEL"))
        o->model = getenv("PLATEAU_MODEL");
    return 0;
}

static int set_argument(enum option_command command, const char *text, struct options *o, struct err *e)
{
    if (command == COMMAND_GENERATE && !o->argument) {
        o->argument = text;
        return 0;
    }
    if (o->model && command == COMMAND_SERVE)
        return err_set(e, -EINVAL, "one model is served at present: %s is one too many", text);
    if (o->model || command == COMMAND_GENERATE)
        return err_set(e, -EINVAL, "%s is one argument too many", text);
    o->model = text;
    return 0;
}

static int read_flag(enum option_command command, int argc, char **argv, int *at, struct options *o,
                     struct err *e)
{
    const char *text = argv[*at] + 2, *equals = strchr(text, '=');
    size_t len = equals ? (size_t)(equals - text) : strlen(text);
    if (len == 5 && memcmp(text, "model", 5) == 0) {
        if (!equals && *at + 1 >= argc)
            return err_set(e, -EINVAL, "--model needs a directory");
        o->model = equals ? equals + 1 : argv[++*at];
        return 0;
    }
    const struct option_row *row = row_of(text, len);
    if (!row || !(row->commands & (unsigned)command))
        return err_set(e, -EINVAL, "there is no option --%.*s here; see --help", (int)len, text);
    if (row->kind == OPTION_FLAG)
        return set(row, equals ? equals + 1 : "1", o, e);
    if (!equals && *at + 1 >= argc)
        return err_set(e, -EINVAL, "--%s needs a value: %s", row->name, row->value);
    return set(row, equals ? equals + 1 : argv[++*at], o, e);
}

int options_parse(enum option_command command, int argc, char **argv, struct options *ret, struct err *e)
{
    const char *file = getenv("PLATEAU_CONFIG");
    int r = set_defaults(ret, e);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            file = argv[i + 1];
        else if (strncmp(argv[i], "--config=", 9) == 0)
            file = argv[i] + 9;
    }
    if (r == 0 && file)
        r = read_file(file, ret, e);
    if (r == 0)
        r = read_environment(ret, e);

    const char *model = ret->model;
    ret->model = NULL;
    bool plain = false;
    for (int i = 1; i < argc && r == 0; i++) {
        if (!plain && strcmp(argv[i], "--") == 0)
            plain = true;
        else if (!plain && strcmp(argv[i], "-h") == 0)
            ret->help = true;
        else if (!plain && strncmp(argv[i], "--", 2) == 0)
            r = read_flag(command, argc, argv, &i, ret, e);
        else
            r = set_argument(command, argv[i], ret, e);
    }
    if (!ret->model)
        ret->model = model;
    return r;
}

void options_help(enum option_command command, FILE *f)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char flag[64];
        if (!(rows[i].commands & (unsigned)command))
            continue;
        snprintf(flag, sizeof(flag), "--%s %s", rows[i].name, rows[i].value ? rows[i].value : "");
        fprintf(f, "  %-28s %s", flag, rows[i].help);
        bool shown =
            rows[i].otherwise && strcmp(rows[i].otherwise, "0") != 0 && strcmp(rows[i].otherwise, "-1") != 0;
        fprintf(f, shown ? " [%s]\n" : "\n", shown ? rows[i].otherwise : "");
    }
}
