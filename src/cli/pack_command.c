/* pack_command.c - the command pack. */
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"

#include "base/buf.h"
#include "base/bytes_text.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json/json_out.h"
#include "base/log.h"
#include "base/slice.h"
#include "host/packing.h"
#include "host/settings.h"
#include "model/load/pack.h"

#include <errno.h>
#include <stdio.h>

static int show(void *arg, uint64_t done, uint64_t total)
{
    progress_show(arg, done, total);
    return interrupt_pending();
}

static void print_json(const struct pack_result *r, double seconds)
{
    struct buf b;
    buf_init(&b, 4096, NULL);
    struct json_out j = json_out_object(&b);
    JSON_PUT_U64S(&j, {"bytes", r->bytes}, {"weight_bytes", r->weight_bytes},
                  {"resumed_bytes", r->resumed_bytes});
    json_put_fixed(&j, "seconds", 3, seconds);
    output_json(&j);
    buf_done(&b);
}

static void say_done(const struct settings *o, const struct pack_result *r, double seconds)
{
    if (o->json)
        print_json(r, seconds);
    else if (r->resumed_bytes > 0)
        printf("%s: %s, of which %s were there; %.1f s\n", o->argument, bytes_text(r->bytes).text,
               bytes_text(r->resumed_bytes).text, seconds);
    else
        printf("%s: %s; %.1f s\n", o->argument, bytes_text(r->bytes).text, seconds);
}

static int run(struct settings *o, struct err *e)
{
    struct progress progress;
    struct pack_result result;
    if (!o->argument)
        return err_set(e, -EINVAL, "which file? plateau pack MODEL OUT");
    int r = options_log_level(o, LOG_LEVEL_WARN, e);
    if (r < 0)
        return r;
    interrupt_catch();
    const uint64_t began_ns = clock_now_ns();
    progress_init(&progress, o->argument, "Packing");
    const struct packing_opts opts = {.out = o->argument, .progress = show, .arg = &progress};
    r = packing_run(o, &opts, &result, e);
    progress_done(&progress);
    if (r == 0)
        say_done(o, &result, (double)(clock_now_ns() - began_ns) / NS_PER_S);
    if (r == -ECANCELED)
        plain_error(e->text);
    return cli_status(r, e);
}

int command_pack(int argc, char **argv)
{
    return cli_run(COMMAND_PACK, argc, argv, run);
}
