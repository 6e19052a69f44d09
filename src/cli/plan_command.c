/* plan_command.c - prints where every byte would go, as a table or as JSON, and loads nothing. */
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/pull_plan.h"
#include "cli/table.h"

#include "base/buf.h"
#include "base/bytes_text.h"
#include "base/check.h"
#include "base/err.h"
#include "base/json/json_out.h"
#include "host/device_choice.h"
#include "host/models/catalog.h"
#include "host/models/models.h"
#include "host/planning.h"
#include "host/runtime.h"
#include "hub/hub_cache.h"
#include "hub/hub_pull.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- table ---- */

static const struct table_column columns[] = {
    {"account", false, 0}, {"class", false, 1}, {"at least", true, 0}, {"at most", true, 0}, {"", false, 0}};

static void add_line(struct table *t, const char *name, uint32_t indent, const char *class, uint64_t floor,
                     uint64_t limit, const char *note)
{
    table_cell(t, "%*s%s", (int)indent, "", name);
    table_cell(t, "%s", class);
    table_cell(t, "%s", bytes_text(floor).text);
    table_cell(t, "%s", bytes_text(limit).text);
    table_cell(t, "%s", note);
}

static void print_drafting(const struct planning *p)
{
    const struct model_plan_drafting *t = &p->model.drafting_takes;
    const struct drafting_opts *g = &p->model.drafting;
    const char *who = g->by == DRAFTING_NGRAM ? "n-gram matches"
                      : g->eagle              ? "the EAGLE-3 head"
                      : g->by == DRAFTING_MTP ? "the MTP head"
                                              : "the draft model";
    if (g->drafts_max == 0)
        return;
    plain_printf(
        stdout,
        "Speculative decoding: %s%s, up to %u draft tokens per sequence%s; takes %s of the weights, %s of "
        "each page and %s of each recurrent state.\n",
        who, g->past ? " and n-gram matches" : "", g->drafts_max,
        g->optimistic ? ", accepted without verification: NOT EXACT" : "", bytes_text(t->weight_bytes).text,
        bytes_text(t->page_bytes).text, bytes_text(t->state_bytes).text);
}

/* The accounts of a domain, and their sums. */
static void print_lines(const struct plan *plan, uint32_t domain, uint64_t floor, uint64_t limit)
{
    struct table t;
    table_init(&t, columns, COUNT_OF(columns));
    for (uint32_t i = 0; i < plan->line_count; i++) {
        const struct plan_line *l = &plan->lines[i];
        if (l->domain == domain)
            add_line(&t, l->name, 2 * l->depth, account_class_name(l->class), l->floor_bytes, l->limit_bytes,
                     l->note);
    }
    add_line(&t, "together", 0, "", floor, limit, "");
    if (table_end(&t, stdout) < 0)
        plain_error("no memory for the table of accounts");
}

static const struct table_column place_columns[] = {
    {"part", false, 0}, {"place", false, 0}, {"weights", true, 0}};

/* Prints where the parts of a model on a device lie. */
static void print_placement(const struct planning *p)
{
    const char *list[PLAN_PLACES_MAX];
    const struct placement_names places = plan_places(&p->plan.process, list);
    struct placement_walk w = {.started = false};
    struct table t;
    char what[48];
    table_init(&t, place_columns, COUNT_OF(place_columns));
    while (placement_next(&p->model.parts.placement, &p->model.sizes, &w)) {
        table_cell(&t, "%s", placement_row_text(&w.row, what, sizeof(what)));
        table_cell(&t, "%s", places.names[w.row.domain]);
        table_cell(&t, "%s", bytes_text(w.row.bytes).text);
    }
    plain_printf(stdout,
                 "\nWhat of %s lies where (--place); keys, values and states lie with their layers:\n\n",
                 p->plan.model.name);
    if (table_end(&t, stdout) < 0)
        plain_error("no memory for the table of places");
}

/* Prints the layouts of a page and of a recurrent state. */
static void print_layouts(const struct model_shape *s, uint32_t page_tokens)
{
    struct buf b;
    uint64_t page_bytes = s->page_bytes, state_bytes = s->state_bytes;
    for (uint32_t i = 0; i + 1 < s->shard_count; i++) {
        state_bytes += s->beside[i].state_bytes;
        for (uint32_t g = 0; g < s->group_count; g++)
            page_bytes += s->beside[i].page_bytes[g];
    }
    buf_init(&b, (size_t)1 << 20, NULL);
    for (uint32_t i = 0; i < s->kv_count; i++) {
        const struct model_kv *kv = &s->kv[i];
        buf_printf(&b, "%s %u layers with %u KV heads of %u", i ? ";" : "", kv->layers, kv->heads,
                   kv->k_width);
        if (kv->v_in_k)
            buf_printf(&b, " whose values are the first %u", kv->v_width);
        else if (kv->v_width != kv->k_width)
            buf_printf(&b, " and values of %u", kv->v_width);
        if (kv->window)
            buf_printf(&b, " and a window of %u", kv->window);
        buf_printf(&b, ", %s", bytes_text(kv->page_bytes).text);
    }
    plain_printf(stdout, "\nA page holds %u tokens in %s, %llu bytes a token:%.*s.\n", page_tokens,
                 bytes_text(page_bytes).text, (ull)page_bytes / page_tokens, SLICE_ARGS(buf_slice(&b)));
    buf_done(&b);
    if (s->recurrent_layers)
        plain_printf(stdout, "A recurrent state holds %u layers in %s.\n", s->recurrent_layers,
                     bytes_text(state_bytes).text);
}

/* The arithmetic, and the part of the context in what a load sets aside. */
static void print_arithmetic(const struct planning *p)
{
    const struct plan *plan = &p->plan;
    if (p->model.shape.quant)
        plain_printf(stdout, "Matrices of floats are quantised to %s while the model is loaded (--quant).\n",
                     planning_quant(p));
    printf("Products with the weights are computed in %s (--compute).\n", planning_compute(p));
    if (p->model.shape.kv_count > 0)
        plain_printf(stdout,
                     "A load sets %s aside for keys and values of one context, in %s (--max-model-len, "
                     "--kv-dtype).\n",
                     bytes_text(plan_sequence_bytes(&plan->model, plan->max_model_len)).text,
                     planning_kv_dtype(p));
}

/* Prints a sequence's pages in the groups with a window. */
static void print_windows(const struct plan *plan)
{
    const struct plan_model *m = &plan->model;
    for (uint32_t i = 0; i < m->window_count; i++) {
        const struct plan_window *w = &m->windows[i];
        plain_printf(
            stdout,
            "Of layers with a window of %u a sequence keeps at most %u pages of %s, and %llu while its "
            "prompt is read.\n",
            w->tokens, page_window_most(w->tokens, 1), bytes_text(w->page_bytes).text,
            (ull)plan_window_pages(m, w, plan->max_model_len, 1));
    }
}

/* Prints the device's memory that other programs hold and the ceiling leaves out. */
static void print_others(const struct device_choice *c)
{
    uint64_t others = device_choice_others_bytes(c);
    if (others > 0)
        printf("of %s, other programs hold %s now\n", bytes_text(c->measured.total_bytes).text,
               bytes_text(others).text);
}

static void print_device(const struct planning *p, const struct plan_device *d)
{
    printf("\ndevice %s: ceiling %s\n", d->name, bytes_text(d->ceiling_bytes).text);
    print_others(device_choices_named(p->devices, d->name));
    putchar('\n');
    print_lines(&p->plan, d->domain, d->floor_bytes, d->limit_bytes);
}

static void print_table(const struct planning *p)
{
    const struct plan *plan = &p->plan;
    plain_printf(
        stdout,
        "%s: %s, %s, %.3g million parameters, %u layers, context %u of %u tokens, %u sequences, %u in the "
        "queue\n",
        plan->model.name, p->model.shape.family, p->model.shape.form, (double)p->model.shape.parameters / 1e6,
        p->model.shape.layers, plan_context(plan), plan->model.context_max, plan->seqs, plan->queue);
    if (plan->reserve > 0)
        plain_printf(stdout, "%u tokens more are for compaction (--compaction-reserve)\n", plan->reserve);
    if (plan->agents > 0)
        plain_printf(stdout,
                     "%u agents have pages of %u tokens each, %s together (--agents, --agent-context)\n",
                     plan->agents, plan->agent_tokens, bytes_text(plan->agents_bytes).text);
    if (p->seqs == 0 && plan->device.name)
        plain_printf(stdout, "%u sequences are what the memory of %s carries (--max-num-seqs)\n", plan->seqs,
                     plan->device.name);
    plain_printf(stdout, "ceiling %s, from %s\n\n", bytes_text(plan->ceiling_bytes).text, p->ceiling_from);
    print_lines(plan, 0, plan->floor_bytes, plan->limit_bytes);
    if (plan->device.name)
        print_device(p, &plan->device);
    for (uint32_t i = 0; i < plan->model.beside_count; i++)
        print_device(p, &plan->beside[i]);
    if (plan->device.name)
        print_placement(p);
    plain_printf(
        stdout,
        "\nA connection takes %s, of %u; a request of the whole context %s of pages and %s of tables.\n",
        bytes_text(plan->process.connection_bytes).text, p->settings->http.connections_max,
        bytes_text(plan_sequence_bytes(&plan->model, plan->max_model_len)).text,
        bytes_text(plan->model.job_bytes + plan->model.job_token_bytes * plan->max_model_len).text);
    print_layouts(&p->model.shape, plan->model.page_tokens);
    print_arithmetic(p);
    print_windows(plan);
    const struct model_vision *v = &p->model.shape.vision;
    const uint64_t parts = model_image_parts_max(v);
    if (v->present)
        plain_printf(
            stdout,
            "An image has at most %llu pixels, which are %llu tokens; the vision encoder's weights take "
            "%s.\n",
            (ull)(v->pixels_max * parts), (ull)(model_image_tokens_max(v) * parts),
            bytes_text(v->weight_bytes).text);
    print_drafting(p);
    plain_printf(
        stdout,
        "The load takes %s for the tensor table and a read buffer; the pools take their place later.\n",
        bytes_text(plan->loading_bytes).text);
}

/* ---- JSON ---- */

static const char *domain_name(const struct plan *plan, uint32_t domain)
{
    return domain == 0 ? domain_machine()->name : plan->process.devices[domain - 1].name;
}

static void json_domain(const char *name, uint64_t ceiling, uint64_t floor, uint64_t limit,
                        struct json_out *j)
{
    json_open(j, NULL);
    json_put_string(j, "name", name);
    JSON_PUT_U64S(j, {"ceiling_bytes", ceiling}, {"floor_bytes", floor}, {"limit_bytes", limit});
    json_close(j);
}

static void json_domains(const struct plan *plan, struct json_out *j)
{
    const struct plan_device *d = &plan->device;
    json_open_array(j, "domains");
    json_domain(domain_name(plan, 0), plan->ceiling_bytes, plan->floor_bytes, plan->limit_bytes, j);
    if (d->name)
        json_domain(d->name, d->ceiling_bytes, d->floor_bytes, d->limit_bytes, j);
    for (uint32_t i = 0; i < plan->model.beside_count; i++) {
        d = &plan->beside[i];
        json_domain(d->name, d->ceiling_bytes, d->floor_bytes, d->limit_bytes, j);
    }
    json_close(j);
}

static void json_layouts(const struct model_shape *s, struct json_out *j)
{
    json_open_array(j, "kv");
    for (uint32_t i = 0; i < s->kv_count; i++) {
        const struct model_kv *kv = &s->kv[i];
        json_open(j, NULL);
        JSON_PUT_U64S(j, {"layers", kv->layers}, {"heads", kv->heads}, {"head_dim", kv->k_width},
                      {"value_dim", kv->v_width}, {"window", kv->window}, {"page_bytes", kv->page_bytes});
        json_close(j);
    }
    json_close(j);
    json_put_u64(j, "recurrent_layers", s->recurrent_layers);
}

/* pages_kept: of one sequence while it decodes; pages_max: while a prompt is read. */
static void json_windows(const struct plan *plan, struct json_out *j)
{
    const struct plan_model *m = &plan->model;
    json_open_array(j, "windows");
    for (uint32_t i = 0; i < m->window_count; i++) {
        const struct plan_window *w = &m->windows[i];
        json_open(j, NULL);
        JSON_PUT_U64S(j, {"tokens", w->tokens}, {"page_bytes", w->page_bytes},
                      {"pages_kept", page_window_most(w->tokens, 1)},
                      {"pages_max", plan_window_pages(m, w, plan->max_model_len, 1)});
        json_close(j);
    }
    json_close(j);
    json_put_u64(j, "sequence_bytes", plan_sequence_bytes(m, plan->max_model_len));
}

static void json_placement(const struct planning *p, struct json_out *j)
{
    struct placement_walk w = {.started = false};
    static const char *const parts[] = {
        [PLACEMENT_REST] = "rest", [PLACEMENT_LAYERS] = "layers", [PLACEMENT_EXPERTS] = "experts"};
    json_open_array(j, "placement");
    while (placement_next(&p->model.parts.placement, &p->model.sizes, &w)) {
        json_open(j, NULL);
        JSON_PUT_STRINGS(j, {"part", parts[w.row.part]}, {"domain", domain_name(&p->plan, w.row.domain)});
        if (w.row.part != PLACEMENT_REST)
            JSON_PUT_U64S(j, {"first", w.row.first}, {"last", w.row.last});
        json_put_u64(j, "weight_bytes", w.row.bytes);
        json_close(j);
    }
    json_close(j);
}

static void json_speculation(const struct planning *p, struct json_out *j)
{
    const struct model_plan_drafting *t = &p->model.drafting_takes;
    json_open(j, "speculation");
    json_put_string(j, "method", speculation_name(&p->model.drafting));
    JSON_PUT_U64S(j, {"tokens_max", p->model.drafting.drafts_max}, {"weight_bytes", t->weight_bytes},
                  {"page_bytes", t->page_bytes}, {"state_bytes", t->state_bytes});
    json_close(j);
}

static void json_accounts(const struct plan *plan, struct json_out *j)
{
    json_open_array(j, "accounts");
    for (uint32_t i = 0; i < plan->line_count; i++) {
        const struct plan_line *l = &plan->lines[i];
        json_open(j, NULL);
        JSON_PUT_STRINGS(j, {"name", l->name}, {"class", account_class_name(l->class)});
        JSON_PUT_U64S(j, {"depth", l->depth}, {"floor_bytes", l->floor_bytes},
                      {"limit_bytes", l->limit_bytes});
        JSON_PUT_STRINGS(j, {"domain", domain_name(plan, l->domain)}, {"note", l->note});
        json_close(j);
    }
    json_close(j);
}

static void json_model(const struct planning *p, struct json_out *j)
{
    const struct plan *plan = &p->plan;
    json_open(j, NULL);
    JSON_PUT_STRINGS(j, {"id", plan->model.name}, {"form", p->model.shape.form});
    JSON_PUT_U64S(j, {"max_model_len", plan_context(plan)}, {"compaction_reserve", plan->reserve},
                  {"agents", plan->agents}, {"agent_context", plan->agent_tokens},
                  {"agents_bytes", plan->agents_bytes}, {"context_max", plan->model.context_max},
                  {"max_num_seqs", plan->seqs}, {"max_queue", plan->queue},
                  {"ceiling_bytes", plan->ceiling_bytes});
    json_put_string(j, "max_num_seqs_from",
                    p->seqs > 0         ? "--max-num-seqs"
                    : plan->device.name ? "the device's memory"
                                        : "default");
    JSON_PUT_STRINGS(j, {"ceiling_from", p->ceiling_from}, {"compute", planning_compute(p)},
                     {"kv_dtype", planning_kv_dtype(p)}, {"quant", planning_quant(p)});
    JSON_PUT_U64S(
        j, {"floor_bytes", plan->floor_bytes}, {"limit_bytes", plan->limit_bytes},
        {"loading_bytes", plan->loading_bytes}, {"connection_bytes", plan->process.connection_bytes},
        {"page_bytes", plan->model.page_bytes}, {"page_tokens", plan->model.page_tokens},
        {"state_bytes", plan->model.state_bytes}, {"image_pixels_max", p->model.shape.vision.pixels_max},
        {"vision_weight_bytes", p->model.shape.vision.weight_bytes});
    json_layouts(&p->model.shape, j);
    json_windows(plan, j);
    json_domains(plan, j);
    json_placement(p, j);
    json_speculation(p, j);
    json_accounts(plan, j);
    json_close(j);
}

/* ---- the command ---- */

struct sum {
    uint64_t floor_bytes, ceiling_bytes, shared_bytes; /* shared: what the process has once */
    struct plan_device devices[DOMAINS_MAX];           /* floor_bytes: of all models there */
    uint32_t device_count;
    uint32_t models;
    struct device_choices measured;
};

/* Joins the settings of the model: the file's section for its id, with or without the organisation, or for
 * its directory, changes them. */
static int options_of(const struct settings *o, const char *dir, const char *id, struct settings *ret,
                      struct err *e)
{
    const char *section, *slash = strchr(id, '/');
    for (uint32_t i = 0; (section = settings_section(o, i)); i++)
        if (strcmp(section, id) == 0 || strcmp(section, dir) == 0 ||
            (slash && strcmp(section, slash + 1) == 0))
            break;
    return settings_of_model(o, section, ret, e);
}

static void add_device(struct sum *sum, const struct plan_device *d)
{
    if (!d->name)
        return;
    uint32_t i = 0;
    while (i < sum->device_count && strcmp(sum->devices[i].name, d->name) != 0)
        i++;
    uint64_t others = i < sum->device_count ? sum->devices[i].floor_bytes - d->context_bytes : 0;
    sum->device_count = MAX_OF(sum->device_count, i + 1);
    sum->devices[i] = *d;
    sum->devices[i].floor_bytes += others;
}

/* Opens the model's device to measure it, once for all models. */
static int measure_device(const struct settings *own, struct device_choices *c, struct err *e)
{
    int r = device_choices_add(own, c, e);
    if (r == 0)
        r = device_choices_measure(own, c, e);
    device_choices_close(c);
    return r;
}

static int make_plan(const struct settings *o, const struct settings *own, const char *dir, const char *id,
                     struct sum *sum, struct planning *ret, struct err *e)
{
    int r = measure_device(own, &sum->measured, e);
    if (r < 0)
        return r;
    *ret = (struct planning){.settings = own,
                             .seqs = own->model.engine.max_num_seqs,
                             .queue = own->model.engine.max_queue,
                             .workers = runtime_workers(o),
                             .models = models_most(o, 1),
                             .model_bytes_max = own->model.bytes_max,
                             .devices = &sum->measured,
                             .serves = true};
    return planning_make(ret, dir, id, e);
}

/* --device auto: the first device that the model fits on; the first of all if there is none. */
static int find_device(const struct settings *o, struct settings *own, const char *dir, const char *id,
                       struct sum *sum, struct planning *ret, struct err *e)
{
    const struct settings given = *own;
    int r = make_plan(o, own, dir, id, sum, ret, e);
    struct err why = *e;
    while (r == -ENOMEM && device_choose_next(own))
        r = make_plan(o, own, dir, id, sum, ret, e);
    if (own->process.passed_over == given.process.passed_over)
        return r;
    if (r < 0) {
        *own = given;
        return make_plan(o, own, dir, id, sum, ret, e);
    }
    if (!o->json)
        plain_printf(stdout, "%s So it is on %s.\n\n", why.text,
                     ret->model.domain > 0 ? ret->plan.device.name : "the CPU");
    return 0;
}

/* On one device: `own` is the model's settings. */
static int plan_on_device(const struct settings *o, const struct settings *given, const char *dir,
                          const char *id, struct sum *sum, struct json_out *json, struct err *e)
{
    struct settings own = *given;
    struct planning p = {0};
    int r = find_device(o, &own, dir, id, sum, &p, e);
    if (p.unreadable)
        return catalog_hint(dir, r, e);
    if (r < 0 && (r != -ENOMEM || o->json))
        return r;
    for (uint32_t i = 0; i < p.plan.line_count; i++)
        if (p.plan.lines[i].depth == 0 && p.plan.lines[i].domain == 0 &&
            strcmp(p.plan.lines[i].name, id) == 0)
            sum->floor_bytes += p.plan.lines[i].floor_bytes;
    add_device(sum, &p.plan.device);
    for (uint32_t i = 0; i < p.plan.model.beside_count; i++)
        add_device(sum, &p.plan.beside[i]);
    sum->shared_bytes = p.plan.limit_bytes - p.plan.model_bytes;
    sum->ceiling_bytes = p.plan.ceiling_bytes;
    if (sum->models++ > 0 && !o->json)
        putchar('\n');
    if (o->json)
        json_model(&p, json);
    else
        print_table(&p);
    return r;
}

/* Each replica is one more model of the process. */
static int plan_directory(const struct settings *o, const char *dir, const char *id, struct sum *sum,
                          struct json_out *json, struct err *e)
{
    struct settings own;
    int r = options_of(o, dir, id, &own, e);
    if (r < 0)
        return r;
    const struct settings first = own;
    for (uint32_t i = 0; r == 0 && i < MAX_OF(first.model.replicas, 1u); i++) {
        r = device_choose_replica(&first, i, &own.process.device, e);
        if (r == 0)
            r = plan_on_device(o, &own, dir, id, sum, json, e);
    }
    return r;
}

/* ---- a model that is at the hub only ---- */

struct at_hub {
    const struct settings *o;
    const struct hub_name *name;
    struct sum *sum;
    struct json_out *json;
    bool headers; /* came: what fails then is the plan */
};

static int stop_if_interrupted(void *arg, const struct hub_progress *p)
{
    (void)arg, (void)p;
    return interrupt_pending();
}

static int plan_headers(void *arg, const struct hub_name *name, const char *path, uint64_t bytes,
                        struct err *e)
{
    struct at_hub *a = arg;
    char why[sizeof(e->text)], id[HUB_NAME_BYTES], text[HUB_NAME_BYTES];
    struct hub_name main = *name;
    snprintf(main.revision, sizeof(main.revision), "main");
    hub_name_text(&main, id);
    hub_name_text(name, text);
    a->headers = true;
    if (!a->o->json)
        plain_printf(stdout, "%s is at the hub, %s to fetch: plateau pull %s\n\n", text,
                     bytes_text(bytes).text, text);
    int r = plan_directory(a->o, path, id, a->sum, a->json, e);
    if (r < 0) {
        pull_plain_reason(e->text, path, why, sizeof(why));
        err_set(e, r, "%s: %s", text, why);
    }
    return r;
}

static void show_several(void *arg, const struct hub_variants *g)
{
    const struct at_hub *a = arg;
    pull_plan_show_several(a->o, "plan", a->name, g);
}

/* From its list of files and the headers of its weights. */
static int plan_at_hub(const struct settings *o, const struct hub_name *name, struct sum *sum,
                       struct json_out *json, struct err *e)
{
    char cache[HUB_PATH_BYTES], text[HUB_NAME_BYTES];
    struct hub_pulled pulled;
    struct at_hub a = {.o = o, .name = name, .sum = sum, .json = json};
    const struct hub_pull_opts opts = {.cache = cache,
                                       .name = *name,
                                       .stall_s = o->pull.stall_s,
                                       .plans_only = true,
                                       .several = show_several,
                                       .planned = plan_headers,
                                       .progress = stop_if_interrupted,
                                       .arg = &a};
    int r = hub_cache_dir(cache, e);
    interrupt_catch();
    if (r < 0)
        return r;
    r = hub_pull(&opts, &pulled, e);
    hub_name_text(name, text);
    if (r < 0 && r != -ECANCELED && r != -ENOTUNIQ && !a.headers)
        err_prefix(e, r, "%s is not on this machine, and not read from the hub", text);
    return r;
}

static int plan_one(const struct settings *o, const char *model, struct sum *sum, struct json_out *json,
                    struct err *e)
{
    char dir[RUNTIME_DIR_BYTES], id[RUNTIME_ID_BYTES];
    struct hub_name name;
    int r = runtime_find_model(model, NULL, dir, id, e);
    if ((r == -ENOENT || r == -ENODATA) && model && hub_name_parse(model, &name) && !hub_is_offline())
        return plan_at_hub(o, &name, sum, json, e);
    return r == 0 ? plan_directory(o, dir, id, sum, json, e) : r;
}

static int plan_all(const struct settings *o, struct json_out *json, struct err *e)
{
    struct sum sum = {0};
    json_open_array(json, "models");
    int r = 0;
    for (uint32_t i = 0; r == 0 && (i == 0 || o->models.named[i]); i++)
        r = plan_one(o, o->models.named[i], &sum, json, e);
    if (r < 0)
        return r;
    uint64_t together = sum.floor_bytes + sum.shared_bytes;
    bool fits = together <= sum.ceiling_bytes;
    for (uint32_t i = 0; i < sum.device_count; i++)
        fits &= sum.devices[i].floor_bytes <= sum.devices[i].ceiling_bytes;
    json_close(json);
    JSON_PUT_U64S(json, {"floor_bytes", together}, {"ceiling_bytes", sum.ceiling_bytes});
    json_put_bool(json, "fits", fits);
    if (o->json)
        output_json(json);
    else if (sum.models > 1)
        plain_printf(
            stdout,
            "\nAll %u need at least %s at once, with %s that the process has once. The ceiling is %s: %s\n",
            sum.models, bytes_text(together).text, bytes_text(sum.shared_bytes).text,
            bytes_text(sum.ceiling_bytes).text,
            together <= sum.ceiling_bytes ? "they fit." : "they do not fit together.");
    for (uint32_t i = 0; i < sum.device_count && !o->json && sum.models > 1; i++) {
        const struct plan_device *d = &sum.devices[i];
        char once[64] = "";
        if (d->context_bytes > 0)
            snprintf(once, sizeof(once), ", with a context of %s", bytes_text(d->context_bytes).text);
        plain_printf(stdout, "On device %s its models need at least %s at once%s. Its ceiling is %s: %s\n",
                     d->name, bytes_text(d->floor_bytes).text, once, bytes_text(d->ceiling_bytes).text,
                     d->floor_bytes <= d->ceiling_bytes ? "they fit." : "they do not fit together.");
    }
    return fits ? json->buf->error : -ENOMEM;
}

static int run(struct settings *o, struct err *e)
{
    struct buf json;
    buf_init(&json, (size_t)1 << 20, NULL);
    struct json_out j = json_out_object(&json);
    int r = plan_all(o, &j, e);
    buf_done(&json);
    return cli_status(r, e);
}

int command_plan(int argc, char **argv)
{
    return cli_run(COMMAND_PLAN, argc, argv, run);
}
