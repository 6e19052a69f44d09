/* eval_command.c - the command eval: perplexity on a text, and divergence from a reference. */
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"

#include "base/buf.h"
#include "base/bytes_text.h"
#include "base/clock.h"
#include "base/files/small_file.h"
#include "base/json/json_out.h"
#include "base/log.h"
#include "host/device_choice.h"
#include "host/evaluation.h"
#include "host/planning.h"
#include "host/runtime.h"
#include "host/settings.h"
#include "memory/plan.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define EVAL_TEXT_BYTES_MAX ((size_t)64 << 20)

struct eval {
    struct progress progress;
    uint64_t began_ns;
};

/* ---- while it runs ---- */

static void show_chunks(struct eval *v, uint64_t done, uint64_t total)
{
    if (!terminal_is(stderr))
        return;
    double left = (double)(clock_now_ns() - v->began_ns) / NS_PER_S * (double)(total - done) / (double)done;
    fprintf(stderr, "\r\033[KChunk %llu of %llu, %.0f s left\r", (ull)done, (ull)total, left);
    fflush(stderr);
}

static int show(void *arg, const char *loads, uint64_t done, uint64_t total)
{
    struct eval *v = arg;
    if (loads && v->progress.what != loads) {
        progress_done(&v->progress);
        progress_init(&v->progress, loads, "Loading");
    }
    if (loads) {
        progress_show(&v->progress, done, total);
        v->began_ns = clock_now_ns();
    } else {
        progress_done(&v->progress);
        show_chunks(v, done, total);
    }
    return interrupt_pending() ? -ECANCELED : 0;
}

/* ---- results ---- */

static void print_mean(const char *name, struct divergence_mean m, const char *note)
{
    printf("%-26s %12.6g +- %.3g%s\n", name, m.value, m.error, note);
}

static void print_table(const struct evaluation_result *r)
{
    const struct divergence_result *d = &r->numbers;
    printf("%llu positions scored in %u chunks; the text has %llu tokens.\n", (ull)d->positions, r->chunks,
           (ull)r->tokens);
    printf("%-26s %12s    %s\n", "checkpoint", bytes_text(r->bytes).text, r->form);
    printf("%-26s %12s\n", "weights in memory", bytes_text(r->weight_bytes).text);
    if (r->reference_bytes)
        printf("%-26s %12s    %s\n", "reference", bytes_text(r->reference_bytes).text, r->reference_form);
    print_mean("perplexity", d->perplexity, "");
    if (!r->reference_bytes)
        return;
    print_mean("reference's perplexity", d->base_perplexity, "");
    print_mean("ln of their ratio", d->log_ratio, "");
    print_mean("KL divergence", d->divergence, "");
    printf("%-26s %12.6g\n%-26s %12.6g\n%-26s %12.6g\n%-26s %12.6g\n", "  median", d->divergence_median,
           "  99 %", d->divergence_p99, "  99.9 %", d->divergence_p999, "  largest", d->divergence_max);
    print_mean("same likeliest token",
               (struct divergence_mean){100 * d->same_top.value, 100 * d->same_top.error}, " %");
    print_mean("change of probability",
               (struct divergence_mean){100 * d->probability_change.value, 100 * d->probability_change.error},
               " %");
    printf("%-26s %12.6g\n", "  root mean square, %", 100 * d->probability_rms);
}

static void json_mean(const char *name, struct divergence_mean m, struct json_out *j)
{
    json_open(j, name);
    json_put_general(j, "mean", 9, m.value);
    json_put_general(j, "error", 9, m.error);
    json_close(j);
}

static void json_divergence(const struct evaluation_result *r, struct json_out *j)
{
    const struct divergence_result *d = &r->numbers;
    json_put_u64(j, "reference_bytes", r->reference_bytes);
    json_put_string(j, "reference_form", r->reference_form);
    json_mean("reference_perplexity", d->base_perplexity, j);
    json_mean("log_ratio", d->log_ratio, j);
    json_mean("kl_divergence", d->divergence, j);
    json_put_general(j, "kl_divergence_median", 9, d->divergence_median);
    json_put_general(j, "kl_divergence_p99", 9, d->divergence_p99);
    json_put_general(j, "kl_divergence_p999", 9, d->divergence_p999);
    json_put_general(j, "kl_divergence_max", 9, d->divergence_max);
    json_mean("same_top", d->same_top, j);
    json_mean("probability_change", d->probability_change, j);
    json_put_general(j, "probability_rms", 9, d->probability_rms);
}

static void print_json(const struct evaluation_result *r)
{
    struct buf b;
    buf_init(&b, 65536, NULL);
    struct json_out j = {.buf = &b, .spaced = true};
    json_open(&j, NULL);
    JSON_PUT_U64S(&j, {"tokens", r->tokens}, {"chunks", r->chunks}, {"positions", r->numbers.positions},
                  {"bytes", r->bytes}, {"weight_bytes", r->weight_bytes});
    json_put_string(&j, "form", r->form);
    json_mean("perplexity", r->numbers.perplexity, &j);
    if (r->reference_bytes)
        json_divergence(r, &j);
    output_json(&j);
    buf_done(&b);
}

/* ---- the command ---- */

/* Accounts of one evaluation: in the machine's memory, and in that of the device where it is another. */
static int open_accounts(struct runtime *rt, struct account **machine, struct account **device)
{
    const struct account_numbers root = account_numbers(ledger_root(rt->ledger));
    int r = account_open(ledger_root(rt->ledger), "evaluation", ACCOUNT_ANON, root.limit - root.reserved,
                         machine);
    struct account *on_device = rt->device_roots[runtime_domain(rt)];
    if (r == 0 && on_device)
        r = account_open(on_device, "evaluation", ACCOUNT_DEVICE, account_numbers(on_device).limit, device);
    return r;
}

static int evaluate(struct runtime *rt, const char *dir, struct slice text, struct err *e)
{
    const struct settings *o = rt->settings;
    struct eval v = {0};
    struct account *machine = NULL, *device = NULL;
    struct evaluation_result result;
    struct evaluation_opts opts = {.text = text,
                                   .context = o->eval.context,
                                   .chunks_max = o->eval.chunks,
                                   .reference = o->eval.reference,
                                   .dir = dir,
                                   .device = runtime_device(rt),
                                   .progress = show,
                                   .arg = &v};
    int r = open_accounts(rt, &machine, &device);
    if (r < 0)
        err_set(e, r, "no memory for an account");
    if (r == 0)
        r = planning_arithmetic(o, &opts.arithmetic, e);
    opts.parent = machine;
    opts.device_parent = device;
    if (r == 0)
        r = evaluation_run(&opts, &result, e);
    progress_done(&v.progress);
    if (v.began_ns && terminal_is(stderr))
        fputs("\r\033[K", stderr);
    account_close(device);
    account_close(machine);
    if (r == 0)
        (o->json ? print_json : print_table)(&result);
    return r;
}

static int run(const struct settings *o, struct slice text, struct err *e)
{
    struct runtime rt;
    char dir[RUNTIME_DIR_BYTES], id[RUNTIME_ID_BYTES];
    struct planning p = {.settings = o, .seqs = 1, .queue = 1, .workers = runtime_workers(o), .models = 1};
    struct plan_process process;
    struct device_choices devices = {.count = 0};
    int r = runtime_find_model(o->models.model, NULL, dir, id, e);
    if (r == 0)
        r = device_choices_add(o, &devices, e);
    if (r == 0)
        r = device_choices_measure(o, &devices, e);
    p.devices = &devices;
    planning_process(&p, true, &process);
    if (r == 0)
        r = runtime_open_process(o, &process, &devices, p.workers, &rt, e);
    device_choices_close(&devices);
    if (r < 0)
        return r;
    r = evaluate(&rt, dir, text, e);
    runtime_close(&rt);
    return r;
}

static int start(struct settings *o, struct err *e)
{
    struct small_file text;
    if (!o->eval.text)
        return err_set(e, -EINVAL, "--text FILE is missing; see plateau eval --help");
    int r = options_log_level(o, LOG_LEVEL_WARN, e);
    if (r < 0)
        return r;
    interrupt_catch();
    r = small_file_read(o->eval.text, EVAL_TEXT_BYTES_MAX, &text, e);
    if (r < 0)
        return cli_status(r, e);
    r = run(o, (struct slice){text.bytes, text.len}, e);
    small_file_done(&text);
    return cli_status(r, e);
}

int command_eval(int argc, char **argv)
{
    return cli_run(COMMAND_EVAL, argc, argv, start);
}
