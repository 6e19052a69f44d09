/* pull_command.c - the command pull, and the plan of a model that is at the hub only. */
#include "cli/cli.h"
#include "cli/help_lines.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/pull_plan.h"

#include "base/buf.h"
#include "base/bytes_text.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json/json_out.h"
#include "base/log.h"
#include "host/settings.h"
#include "hub/hub_cache.h"
#include "hub/hub_name.h"
#include "hub/hub_pull.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LOG_NS      (2 * NS_PER_S)
#define STACK_BYTES ((size_t)1 << 20)

struct screen {
    const struct settings *settings;
    const struct hub_name *name;
    const char *model; /* its text */
    bool terminal, drawn;
    uint64_t started_ns, said_ns;
    uint64_t first_bytes; /* that were there at the start of fetching */
    struct hub_progress last;
};

static unsigned percent(const struct hub_progress *p)
{
    return p->bytes_total ? (unsigned)((double)p->bytes_done * 100 / (double)p->bytes_total) : 0;
}

/* "", or why a request is made again. */
static const char *retries(const struct hub_progress *p)
{
    return p->retries && p->retries[0] ? p->retries : "";
}

static void time_left(const struct screen *s, const struct hub_progress *p, uint64_t now, char ret[48])
{
    double seconds = (double)(now - s->started_ns) / NS_PER_S, rate = (double)p->fetched / (seconds + 0.001);
    ret[0] = 0;
    if (rate > 1 && p->bytes_done < p->bytes_total) {
        double left = (double)(p->bytes_total - p->bytes_done) / rate;
        snprintf(ret, 48, left < 90 ? ", %.0f s left" : ", %.0f min left", left < 90 ? left : left / 60);
    }
}

/* One line, cut at the terminal's width. */
static void draw(struct screen *s, const struct hub_progress *p, uint64_t now)
{
    char line[HELP_WIDTH_MAX + 1], left[48];
    const size_t most = MIN_OF(help_width(stderr), sizeof(line));
    time_left(s, p, now, left);
    if (retries(p)[0])
        snprintf(line, most, "Pulling %.24s: %u %%, trying again: %s", s->model, percent(p), retries(p));
    else if (strcmp(p->phase, "fetch") == 0)
        snprintf(line, most, "Pulling %.24s: %u %%, %s of %s%s", s->model, percent(p),
                 bytes_text(p->bytes_done).text, bytes_text(p->bytes_total).text, left);
    else
        snprintf(line, most, "Pulling %.24s: reading the %s", s->model, p->phase);
    fputs("\r\033[K", stderr);
    plain_write(stderr, line);
    fputc('\r', stderr);
    fflush(stderr);
    s->drawn = true;
}

static void erase(struct screen *s)
{
    if (s->drawn)
        fputs("\r\033[K", stderr);
    s->drawn = false;
}

static struct json_out begin_event(struct buf *b, const char *name)
{
    buf_init(b, 65536, NULL);
    struct json_out j = json_out_object(b);
    json_put_string(&j, "event", name);
    return j;
}

static void write_progress(const struct hub_progress *p)
{
    struct buf b;
    struct json_out j = begin_event(&b, "progress");
    JSON_PUT_STRINGS(&j, {"phase", p->phase}, {"trying_again", retries(p)[0] ? retries(p) : NULL});
    JSON_PUT_U64S(&j, {"bytes", p->bytes_done}, {"bytes_total", p->bytes_total}, {"files", p->files_done},
                  {"files_total", p->files});
    output_json(&j);
    buf_done(&b);
    output_flush();
}

static int show(void *arg, const struct hub_progress *p)
{
    struct screen *s = arg;
    uint64_t now = clock_now_ns();
    s->last = *p;
    if (s->settings->json && now - s->said_ns >= LOG_NS / 4) {
        write_progress(p);
        s->said_ns = now;
    } else if (s->terminal && !s->settings->json) {
        draw(s, p, now);
    } else if (now - s->said_ns >= LOG_NS) {
        const char *why = retries(p);
        LOG_INFO("pulling", "model=%s phase=%s percent=%u bytes=%llu bytes_total=%llu%s%s%s", s->model,
                 p->phase, percent(p), (ull)p->bytes_done, (ull)p->bytes_total,
                 why[0] ? " trying_again=\"" : "", why, why[0] ? "\"" : "");
        s->said_ns = now;
    }
    return interrupt_pending() || output_failed();
}

static int planned(void *arg, const struct hub_name *name, const char *path, uint64_t bytes, struct err *e)
{
    struct screen *s = arg;
    char model[HUB_NAME_BYTES];
    hub_name_text(name, model);
    erase(s);
    return pull_plan_show(s->settings, model, path, bytes, s->settings->pull.anyway, e);
}

static void show_several(void *arg, const struct hub_variants *g)
{
    struct screen *s = arg;
    erase(s);
    pull_plan_show_several(s->settings, "pull", s->name, g);
}

static void say_done(const struct screen *s, const struct hub_pulled *p)
{
    char model[HUB_NAME_BYTES];
    hub_name_text(&p->name, model);
    if (s->settings->json) {
        struct buf b;
        struct json_out j = begin_event(&b, "done");
        JSON_PUT_STRINGS(&j, {"model", model}, {"commit", p->commit}, {"path", p->snapshot});
        JSON_PUT_U64S(&j, {"bytes", p->bytes}, {"fetched", p->fetched}, {"files", p->files});
        output_json(&j);
        buf_done(&b);
        return;
    }
    plain_printf(stdout, "%s is in the hub's cache: %u file%s, %s; fetched now: %s. plateau chat %s\n", model,
                 p->files, p->files == 1 ? "" : "s", bytes_text(p->bytes).text, bytes_text(p->fetched).text,
                 model);
}

static void say_failed(const struct screen *s, int r, struct err *e)
{
    if (r == -ECANCELED)
        err_set(e, r, "pull of %s stopped", s->model);
    bool goes_on = r == -ECANCELED || r == -EAGAIN || r == -ENOSPC || r == -EIO;
    if (goes_on && s->last.bytes_done > 0) {
        size_t len = strlen(e->text);
        snprintf(e->text + len, sizeof(e->text) - len, "; run it again to go on from %u %%",
                 percent(&s->last));
    }
    if (s->settings->json) {
        struct buf b;
        struct json_out j = begin_event(&b, "failed");
        JSON_PUT_STRINGS(&j, {"model", s->model}, {"error", e->text});
        output_json(&j);
        buf_done(&b);
    }
}

static int pull(struct settings *o, struct err *e)
{
    char cache[HUB_PATH_BYTES], model[HUB_NAME_BYTES];
    struct hub_pulled pulled;
    struct screen s = {.settings = o, .terminal = terminal_is(stderr), .started_ns = clock_now_ns()};
    s.said_ns = s.started_ns;
    struct hub_pull_opts opts = {.cache = cache,
                                 .include = o->pull.include,
                                 .stall_s = o->pull.stall_s,
                                 .several = show_several,
                                 .planned = planned,
                                 .progress = show,
                                 .arg = &s};
    if (!o->argument)
        return err_set(e, -EINVAL,
                       "which model? plateau pull ORG/NAME, or ORG/NAME:QUANT of a GGUF repository");
    if (!hub_name_parse(o->argument, &opts.name))
        return err_set(e, -EINVAL, "%s is not a name of the hub: ORG/NAME[@REVISION][:QUANT] is expected",
                       o->argument);
    int r = hub_cache_dir(cache, e);
    if (r < 0)
        return cli_status(r, e);
    hub_name_text(&opts.name, model);
    s.name = &opts.name;
    s.model = model;
    interrupt_catch();
    r = hub_pull(&opts, &pulled, e);
    erase(&s);
    if (pulled.odd > 0)
        plain_printf(stderr, "plateau: %u files of %s were left out: their names leave the directory\n",
                     pulled.odd, s.model);
    if (r == 0)
        say_done(&s, &pulled);
    else
        say_failed(&s, r, e);
    if (r == -ECANCELED)
        plain_error(e->text);
    return cli_status(r, e);
}

/* libcurl resolves names on threads, whose stacks would have RLIMIT_STACK. A pull of a server may write to
 * HUB_CHILD_BYTES only, and stacks count. */
static void limit_stacks(void)
{
    pthread_attr_t a;
    pthread_attr_init(&a);
    if (pthread_attr_setstacksize(&a, STACK_BYTES) == 0)
        pthread_setattr_default_np(&a);
    pthread_attr_destroy(&a);
}

static int run(struct settings *o, struct err *e)
{
    limit_stacks();
    int r = options_log_level(o, LOG_LEVEL_INFO, e);
    return r < 0 ? r : pull(o, e);
}

int command_pull(int argc, char **argv)
{
    return cli_run(COMMAND_PULL, argc, argv, run);
}
