/* planning.c - asks each module what it takes, and memory/plan to add it up.
 *
 * Texts get an eighth of the ceiling, bodies that arrive half of that: enough for long prompts on any machine that holds a model. */
#include "cli/planning.h"

#include "api/api.h"
#include "api/prep.h"
#include "base/check.h"
#include "base/thread_stack.h"
#include "cli/terminal.h"
#include "kernel/workers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MIB              ((uint64_t)1 << 20)
#define HEAP_BYTES_MAX   (32 * MIB)
#define HEAP_BYTES_LEAST (6 * MIB)
#define TEXT_BYTES_MAX   (1024 * MIB)
#define TEXT_BYTES_LEAST (8 * MIB)

uint32_t planning_step_tokens(uint32_t rows)
{
    return MAX_OF((uint32_t)PLANNING_STEP_TOKENS, engine_tokens_min(rows));
}

struct engine_opts planning_engine_opts(const struct options *o, uint32_t rows, uint32_t queue)
{
    return (struct engine_opts){.max_num_seqs = rows,
                                .max_queue = queue,
                                .tokens_max = planning_step_tokens(rows),
                                .host_cache_bytes = o->host_cache};
}

/* ---- the process ---- */

static const char *find_ceiling(const struct footprint *f, uint64_t wanted, uint64_t ceiling)
{
    if (wanted && ceiling == wanted)
        return "--memory-limit";
    return f->cgroup_limit_bytes && ceiling == f->cgroup_limit_bytes ? "the cgroup" : "the machine's memory";
}

/* `least`: texts and bodies get only what a server of short prompts needs. */
static void plan_process(struct planning *p, bool least, struct plan_process *ret)
{
    const struct options *o = p->options;
    struct footprint f;
    footprint_read(&f);
    uint64_t ceiling = footprint_ceiling(&f, o->memory_limit);
    p->ceiling_from = find_ceiling(&f, o->memory_limit, ceiling);
    struct api_opts api = {.requests_max = (uint32_t)o->max_requests,
                           .prep_threads = (uint32_t)o->prep_threads};
    struct http_server_opts http = {.connections_max = (uint32_t)o->max_connections,
                                    .header_bytes_max = o->max_header_bytes};
    uint64_t texts = MIN_OF(MAX_OF(ceiling / 8, TEXT_BYTES_LEAST), TEXT_BYTES_MAX);
    if (least)
        texts = TEXT_BYTES_LEAST;
    *ret = (struct plan_process){
        .ceiling_bytes = ceiling,
        .heap_bytes =
            least ? HEAP_BYTES_LEAST : MIN_OF(MAX_OF(ceiling / 16, HEAP_BYTES_LEAST), HEAP_BYTES_MAX),
        .threads_bytes = (p->workers - 1) * (uint64_t)thread_stack_bytes(WORKERS_STACK_BYTES),
        .text_bytes = TEXT_BYTES_LEAST};
    if (!p->serves)
        return;
    ret->threads_bytes += api_stack_bytes(&api);
    ret->network_bytes = http_server_bytes(&http, &ret->connection_bytes);
    ret->text_floor_bytes = api_bytes(&api);
    ret->text_bytes = ret->text_floor_bytes + (o->text_limit ? o->text_limit : texts);
    ret->body_bytes = MAX_OF((ret->text_bytes - ret->text_floor_bytes) / 2, MIB);
}

/* ---- the model ---- */

static uint64_t file_bytes(const char *dir, const char *name)
{
    char path[4352];
    struct stat st;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return stat(path, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size : 0;
}

/* Tables and trees of what these files say: a vocabulary takes about one and a half times its file, a template ten times. */
static uint64_t tokenizer_bytes(const char *dir)
{
    uint64_t vocabulary = file_bytes(dir, "tokenizer.json");
    uint64_t templates = file_bytes(dir, "chat_template.jinja") + file_bytes(dir, "chat_template.json") +
                         file_bytes(dir, "tokenizer_config.json");
    return vocabulary ? ROUND_UP(4 * MIB + 3 * vocabulary + 16 * templates, MIB) : MIB;
}

static void numbers_of(void *arg, uint32_t rows, struct plan_model *ret)
{
    const struct planning *p = arg;
    const struct model_shape *s = &p->shape;
    struct engine_plan engine;
    struct engine_opts opts = planning_engine_opts(p->options, rows, p->queue);
    engine_plan(&opts, s, &engine);
    *ret = (struct plan_model){
        .name = p->plan.model.name,
        .context_max = s->context_max,
        .page_tokens = KERN_PAGE_TOKENS,
        .rows = rows,
        .queue = p->queue,
        .weight_bytes = s->weight_bytes,
        .loading_bytes = s->loading_bytes,
        .workspace_bytes = model_workspace_bytes(s, opts.tokens_max, rows, p->workers),
        .tables_bytes = s->tables_bytes,
        .tokenizer_bytes = p->tokenizer_bytes,
        .page_bytes = s->page_bytes,
        .slot_bytes = s->slot_bytes,
        .engine_bytes = engine.fixed_bytes,
        .engine_page_bytes = engine.page_bytes,
        .engine_slot_bytes = engine.slot_bytes,
        .job_bytes = engine.job_bytes,
        .job_token_bytes = engine.job_token_bytes,
        .has_vision = s->has_vision,
        .has_mtp = s->has_mtp,
    };
}

/* ---- both ---- */

static int refuse(const struct planning *p, const char *name, uint64_t ceiling,
                  const struct plan_refusal *why, struct err *e)
{
    char context[96] = "", rows[96] = "";
    if (why->context)
        snprintf(context, sizeof(context), " A context of %u tokens would fit (--max-model-len %u).",
                 why->context, why->context);
    if (why->rows_max && why->rows_max < p->rows)
        snprintf(rows, sizeof(rows), " %u rows instead of %u would fit (--max-num-seqs %u).", why->rows_max,
                 p->rows, why->rows_max);
    return err_set(e, -ENOMEM, "%s does not fit: it needs at least %s, and the ceiling is %s (%s).%s%s%s",
                   name, terminal_bytes(why->needed_bytes).text, terminal_bytes(ceiling).text,
                   p->ceiling_from, context, rows,
                   context[0] || rows[0] ? "" : " Neither a shorter context nor fewer rows would do.");
}

int planning_make(struct planning *p, const char *dir, const char *name, struct err *e)
{
    const struct options *o = p->options;
    struct plan_process process;
    struct plan_refusal why = {0};
    struct plan_wish wish = {.max_model_len = (uint32_t)o->max_model_len, .host_cache_bytes = o->host_cache};
    int r = model_probe(dir, &p->shape, e);
    if (r < 0)
        return r;
    p->tokenizer_bytes = tokenizer_bytes(dir);
    p->plan.model.name = name;
    r = -ENOMEM;
    for (int least = 0; least <= 1 && r == -ENOMEM; least++) {
        plan_process(p, least, &process);
        r = plan_make(&process, numbers_of, p, p->rows, &wish, &p->plan, &why);
    }
    if (r == -EINVAL)
        return err_set(e, r, "--max-model-len %llu: %s was made for %u tokens",
                       (unsigned long long)o->max_model_len, name, why.context_max);
    return r < 0 ? refuse(p, name, process.ceiling_bytes, &why, e) : 0;
}

uint64_t planning_limit(const struct planning *p, const char *account)
{
    for (uint32_t i = 0; i < p->plan.line_count; i++)
        if (strcmp(p->plan.lines[i].name, account) == 0)
            return p->plan.lines[i].limit_bytes;
    ASSERT(!"an account that no plan has");
    return 0;
}
