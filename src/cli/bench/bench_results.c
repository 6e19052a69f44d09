/* bench_results.c - a figure that is not known is "-" in the table, null in JSON, and empty between
 * commas. */
#include "cli/bench/bench_results.h"

#include "base/bytes_text.h"
#include "base/check.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* ---- table ---- */

/* `value` and a share of 100, in `width` columns. */
static void show_share(double value, const char *unit, double share, int width)
{
    char text[64] = "-";
    if (share > 0)
        snprintf(text, sizeof(text), "%.1f %s, %.0f %%", value, unit, 100 * share);
    printf("%*s", width, text);
}

static void show_machine(const struct bench_results *s)
{
    if (s->no_shares)
        printf("no shares of what the machine can do: %s\n", s->no_shares);
    else
        printf("this machine reads %.1f GB/s and multiplies %.1f GFLOP/s (f32), with %u threads\n",
               s->machine_read_bytes_s * 1e-9, s->machine_operations_s * 1e-9, s->threads);
    if (s->in_cache)
        printf("the weights fit in four times the last-level cache: part of what is read comes from there\n");
}

static void show_memory(const struct bench_results *s)
{
    if (s->planned_bytes)
        printf("memory: the plan of the model, at least %s", bytes_text(s->planned_bytes).text);
    if (s->peak_bytes)
        printf("%s of the server at its peak %s of %s",
               s->planned_bytes ? ";" : "memory:", bytes_text(s->peak_bytes).text,
               bytes_text(s->limit_bytes).text);
    if (s->left_bytes)
        printf("; in use 1 s after an unload %s", bytes_text(s->left_bytes).text);
    if (s->planned_bytes || s->peak_bytes)
        printf("\n");
}

void bench_results_table(const struct bench_results *s)
{
    printf("%s at %s, %u tokens an answer\n", s->model, s->server, s->tokens);
    show_machine(s);
    printf("\nclients   tokens/s   of each   first token   weights read, of reading\n");
    for (uint32_t i = 0; i < s->decode_count; i++) {
        const struct bench_decode *d = &s->decodes[i];
        printf("%7u %10.1f %9.1f %10.1f ms", d->clients, d->tokens_s, d->tokens_s / d->clients, d->first_ms);
        show_share(d->read_bytes_s * 1e-9, "GB/s", d->read_share, 27);
        printf("\n");
    }
    printf("\nprompt tokens   first token   tokens/s   operations, of multiplying   found again   first "
           "token\n");
    for (uint32_t i = 0; i < s->prefill_count; i++) {
        const struct bench_prefill *p = &s->prefills[i];
        printf("%13u %10.1f ms %10.1f", p->tokens, p->cold_ms, p->tokens * 1000 / p->cold_ms);
        show_share(p->operations_s * 1e-9, "GFLOP/s", p->multiply_share, 29);
        printf("%14u %10.1f ms\n", p->found_tokens, p->found_ms);
    }
    printf("\n");
    show_memory(s);
}

/* ---- comma-separated values ---- */

/* In quotes where a name could be taken for more than one column. */
static void put_name(const char *name)
{
    if (!strpbrk(name, ",\"\n")) {
        fputs(name, stdout);
        return;
    }
    putchar('"');
    for (; *name; name++)
        printf(*name == '"' ? "\"\"" : "%c", *name);
    putchar('"');
}

static void put_number(double value, int places)
{
    putchar(',');
    if (value > 0)
        printf("%.*f", places, value);
}

/* Columns in the order of the head below; 0 is empty. */
struct csv_row {
    const char *name;
    uint32_t clients, prompt_tokens, tokens, found_tokens;
    double tokens_s, first_ms, rate, share;
    uint64_t bytes;
};

static void put_row(const struct bench_results *s, struct csv_row row)
{
    put_name(s->model);
    printf(",%s", row.name);
    put_number(row.clients, 0);
    put_number(row.prompt_tokens, 0);
    put_number(row.tokens, 0);
    put_number(row.tokens_s, 2);
    put_number(row.first_ms, 2);
    put_number(row.found_tokens, 0);
    put_number(row.rate, 0);
    put_number(row.share, 4);
    put_number((double)row.bytes, 0);
    putchar('\n');
}

void bench_results_csv(const struct bench_results *s)
{
    printf("model,measurement,clients,prompt_tokens,tokens,tokens_per_second,first_token_ms,found_tokens,"
           "rate,share,bytes\n");
    for (uint32_t i = 0; i < s->decode_count; i++) {
        const struct bench_decode *d = &s->decodes[i];
        put_row(s, (struct csv_row){.name = "decode",
                                    .clients = d->clients,
                                    .tokens = d->tokens,
                                    .tokens_s = d->tokens_s,
                                    .first_ms = d->first_ms,
                                    .rate = d->read_bytes_s,
                                    .share = d->read_share});
    }
    for (uint32_t i = 0; i < s->prefill_count; i++) {
        const struct bench_prefill *p = &s->prefills[i];
        put_row(s, (struct csv_row){.name = "prefill",
                                    .clients = 1,
                                    .prompt_tokens = p->tokens,
                                    .tokens = 1,
                                    .tokens_s = p->tokens * 1000 / p->cold_ms,
                                    .first_ms = p->cold_ms,
                                    .rate = p->operations_s,
                                    .share = p->multiply_share});
        put_row(s, (struct csv_row){.name = "found",
                                    .clients = 1,
                                    .prompt_tokens = p->tokens,
                                    .tokens = 1,
                                    .first_ms = p->found_ms,
                                    .found_tokens = p->found_tokens});
    }
    if (!s->no_shares) {
        put_row(s, (struct csv_row){.name = "machine_read", .rate = s->machine_read_bytes_s});
        put_row(s, (struct csv_row){.name = "machine_multiply", .rate = s->machine_operations_s});
    }
    const struct csv_row memory[] = {{.name = "planned", .bytes = s->planned_bytes},
                                     {.name = "peak", .bytes = s->peak_bytes},
                                     {.name = "left", .bytes = s->left_bytes}};
    for (size_t i = 0; i < COUNT_OF(memory); i++)
        if (memory[i].bytes)
            put_row(s, memory[i]);
}

/* ---- JSON ---- */

/* null: not known. */
static json_t *known(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

static json_t *decode_of(const struct bench_decode *d)
{
    return json_pack("{s:i, s:i, s:f, s:f, s:o, s:o}", "clients", (int)d->clients, "tokens", (int)d->tokens,
                     "tokens_per_second", d->tokens_s, "first_token_ms", d->first_ms, "read_bytes_per_second",
                     known(d->read_bytes_s), "read_share", known(d->read_share));
}

static json_t *prefill_of(const struct bench_prefill *p)
{
    return json_pack("{s:i, s:f, s:f, s:i, s:o, s:o}", "prompt_tokens", (int)p->tokens, "first_token_ms",
                     p->cold_ms, "found_first_token_ms", p->found_ms, "found_tokens", (int)p->found_tokens,
                     "operations_per_second", known(p->operations_s), "multiply_share",
                     known(p->multiply_share));
}

static json_t *machine_of(const struct bench_results *s)
{
    return s->no_shares ? json_null()
                        : json_pack("{s:i, s:b, s:f, s:f}", "threads", (int)s->threads, "weights_in_cache",
                                    s->in_cache, "read_bytes_per_second", s->machine_read_bytes_s,
                                    "multiply_operations_per_second", s->machine_operations_s);
}

static json_t *bytes_of(uint64_t bytes)
{
    return bytes ? json_integer((json_int_t)bytes) : json_null();
}

void bench_results_json(const struct bench_results *s)
{
    json_t *decodes = json_array(), *prefills = json_array();
    for (uint32_t i = 0; i < s->decode_count; i++)
        json_array_append_new(decodes, decode_of(&s->decodes[i]));
    for (uint32_t i = 0; i < s->prefill_count; i++)
        json_array_append_new(prefills, prefill_of(&s->prefills[i]));
    json_t *all =
        json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "model", s->model, "server", s->server,
                  "machine", machine_of(s), "decode", decodes, "prefill", prefills, "planned_bytes",
                  bytes_of(s->planned_bytes), "peak_bytes", bytes_of(s->peak_bytes), "limit_bytes",
                  bytes_of(s->limit_bytes), "left_bytes", bytes_of(s->left_bytes));
    json_dumpf(all, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(all);
}
