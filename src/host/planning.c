/* planning.c - asks each module what it takes, and memory/plan to add it up.
 *
 * Texts get an eighth of the ceiling, bodies that arrive half of that: enough for long prompts on any machine
 * that holds a model. */
#include "host/planning.h"

#include "host/device_choice.h"
#include "host/listeners.h"
#include "host/models/model_finder.h"
#include "host/models/catalog.h"
#include "host/settings.h"

#include "api/api.h"
#include "base/bytes_text.h"
#include "base/check.h"
#include "base/threads/thread_stack.h"
#include "compute/device.h"
#include "engine/fingerprint.h"
#include "events/kv_events.h"
#include "hub/hub_child.h"
#include "memory/footprint.h"
#include "reclaim/guard.h"
#include "registry/registry.h"
#include "store/shared_address.h"
#include "store/shared_backend.h"
#include "store/shared_tier.h"
#include "store/staging.h"
#include "store/store.h"
#include "tensor/quantise.h"
#include "weights/model_files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MIB               ((uint64_t)1 << 20)
#define HEAP_BYTES_MAX    (32 * MIB)
#define HEAP_BYTES_LEAST  (6 * MIB)
#define TEXT_BYTES_MAX    (1024 * MIB)
#define TEXT_BYTES_LEAST  (8 * MIB)
#define MEDIA_BYTES_MAX   (1024 * MIB)
#define MEDIA_BYTES_LEAST (8 * MIB)

/* Stored responses take at most this part of the ceiling. */
#define RESPONSES_PART        32
#define RESPONSES_BYTES_LEAST MIB
/* So do the heads of conversations. */
#define CONVERSATIONS_PART        64
#define CONVERSATIONS_BYTES_SMALL (MIB / 4)

/* ---- the process ---- */

static const char *find_ceiling(const struct footprint *f, uint64_t wanted, uint64_t ceiling)
{
    if (wanted && ceiling == wanted)
        return "--memory-limit";
    return f->cgroup_limit_bytes && ceiling == f->cgroup_limit_bytes ? "the cgroup" : "the machine's memory";
}

static void add_devices(const struct planning *p, struct plan_process *ret)
{
    struct device_choices chosen;
    const struct device_choices *all = p->devices ? p->devices : &chosen;
    struct err ignored;
    if (!p->devices)
        (void)device_choose_all(p->settings, &chosen, &ignored); /* planning_make() reports it */
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->list[i].memory.name)
            ret->devices[ret->device_count++] = all->list[i].memory;
        if (all->list[i].backend == &backend_fake)
            ret->threads_bytes += device_stack_bytes(p->workers); /* beside the CPU's */
    }
}

void planning_process(struct planning *p, bool least, struct plan_process *ret)
{
    const struct settings *o = p->settings;
    struct footprint f;
    footprint_read(&f);
    uint64_t ceiling = footprint_ceiling(&f, o->process.memory_limit);
    p->ceiling_from = find_ceiling(&f, o->process.memory_limit, ceiling);
    struct api_opts api = o->api;
    api.models_max = p->models;
    api.media.on = p->sees;
    api.warms = settings_warm(o);
    uint64_t texts = MIN_OF(MAX_OF(ceiling / 8, TEXT_BYTES_LEAST), TEXT_BYTES_MAX);
    uint64_t media = MIN_OF(MAX_OF(ceiling / 8, MEDIA_BYTES_LEAST), MEDIA_BYTES_MAX);
    if (least) {
        texts = TEXT_BYTES_LEAST;
        media = MEDIA_BYTES_LEAST;
    }
    *ret = (struct plan_process){.ceiling_bytes = ceiling,
                                 .heap_bytes =
                                     least ? HEAP_BYTES_LEAST
                                           : MIN_OF(MAX_OF(ceiling / 16, HEAP_BYTES_LEAST), HEAP_BYTES_MAX),
                                 .threads_bytes = device_stack_bytes(p->workers),
                                 .text_bytes = TEXT_BYTES_LEAST};
    add_devices(p, ret);
    if (p->sees)
        ret->media_bytes = o->process.media_memory ? o->process.media_memory : media;
    if (!p->serves)
        return;
    ret->threads_bytes +=
        api_stack_bytes(&api) + registry_stack_bytes(MAX_OF(p->models, 1u)) + guard_stack_bytes();
    if (p->models > 1)
        ret->threads_bytes += thread_stack_bytes(MODEL_FINDER_STACK_BYTES);
    ret->network_bytes = http_server_bytes(&o->http, &ret->connection_bytes) + listeners_bytes(o);
    if (o->events.endpoint) {
        ret->network_bytes += o->events.buffer_bytes;
        ret->threads_bytes += thread_stack_bytes(KV_EVENTS_STACK_BYTES);
    }
    ret->text_floor_bytes = api_bytes(&api);
    ret->text_bytes = ret->text_floor_bytes + (o->process.text_limit ? o->process.text_limit : texts);
    ret->responses_bytes =
        MIN_OF(o->process.response_store, least ? RESPONSES_BYTES_LEAST : ceiling / RESPONSES_PART);
    ret->conversations_bytes = MIN_OF(o->process.conversation_store,
                                      least ? CONVERSATIONS_BYTES_SMALL : ceiling / CONVERSATIONS_PART);
    ret->history_bytes = api_history_bytes();
    ret->pull_bytes = o->process.allow_pull ? HUB_CHILD_BYTES : 0;
    ret->body_bytes = MAX_OF((ret->text_bytes - ret->text_floor_bytes) / 2, MIB);
    if (o->shared.address) {
        ret->shared_bytes = shared_tier_bytes(o->shared.address, o->shared.staging_bytes);
        ret->threads_bytes += SHARED_THREADS * (uint64_t)thread_stack_bytes(SHARED_STACK_BYTES);
    }
    if (!o->store.dir)
        return;
    ret->ssd_staging_bytes = staging_bytes(o->store.staging_bytes);
    ret->ssd_table_bytes = store_table_bytes_max(o->store.limit_bytes);
    ret->threads_bytes += STORE_THREADS * (uint64_t)thread_stack_bytes(STORE_STACK_BYTES);
}

/* ---- both ---- */

/* Returns the origin of the device's ceiling. */
static const char *find_device_ceiling(const struct planning *p, char *ret, size_t bytes_max)
{
    const char *name = p->plan.process.devices[p->model.domain - 1].name;
    const struct device_choice *c = p->devices ? device_choices_named(p->devices, name) : NULL;
    uint64_t others = c ? device_choice_others_bytes(c) : 0;
    if (others == 0)
        return "see --device-memory-limit";
    snprintf(ret, bytes_max, "other programs hold %s of %s", bytes_text(others).text,
             bytes_text(c->measured.total_bytes).text);
    return ret;
}

static int refuse(const struct planning *p, const char *name, const struct plan_refusal *why, struct err *e)
{
    char where[DOMAIN_HOLDER_BYTES] = "";
    const char *from = p->ceiling_from ? p->ceiling_from : "see --memory-limit";
    const char *apart = placement_any_apart(&p->model.parts.placement)
                            ? " Its experts lie in the machine's memory already (--place)."
                            : "";
    char context[96] = "", seqs[96] = "", image_sched[96] = "", device[96], agents[160] = "", draft[128] = "";
    const char *elsewhere = "";
    const struct model_vision *v = &p->model.shape.vision;
    if (why->context)
        snprintf(context, sizeof(context), " A context of %u tokens would fit (--max-model-len %u).",
                 why->context, why->context);
    if (why->seqs_max && why->seqs_max < p->plan.seqs)
        snprintf(seqs, sizeof(seqs), " %u sequences instead of %u would fit (--max-num-seqs %u).",
                 why->seqs_max, p->plan.seqs, why->seqs_max);
    if (p->plan.agents)
        snprintf(agents, sizeof(agents),
                 " The pages of %u agents of %u tokens take %s of that (--agents, --agent-context); %u would "
                 "fit.",
                 p->plan.agents, p->plan.agent_tokens, bytes_text(p->plan.agents_bytes).text,
                 why->agents_max);
    if (v->present) {
        uint64_t bytes = v->weight_bytes + p->plan.model.vision_bytes + p->plan.model.image_bytes +
                         p->plan.process.media_bytes;
        snprintf(image_sched, sizeof(image_sched), " Images take %s of that (--max-image-pixels 0).",
                 bytes_text(bytes).text);
    }
    if (p->model.drafting.by == DRAFTING_MODEL)
        snprintf(draft, sizeof(draft),
                 " The draft model takes %s of that, and %s of each page (--draft-model).",
                 bytes_text(p->plan.model.draft_bytes + p->plan.model.draft_host_bytes).text,
                 bytes_text(p->model.draft.shape.page_bytes).text);
    if (why->domain > 0) {
        snprintf(where, sizeof(where), " on device %s", p->plan.process.devices[why->domain - 1].name);
        from = find_device_ceiling(p, device, sizeof(device));
        elsewhere = device_choice_is_auto(p->settings)
                        ? ""
                        : " With --device cpu it computes in the machine's memory.";
    }
    return err_set(
        e, -ENOMEM, "%s does not fit%s: it needs at least %s, and the ceiling is %s (%s).%s%s%s%s%s%s%s%s",
        name, where, bytes_text(why->needed_bytes).text, bytes_text(why->ceiling_bytes).text, from, context,
        seqs,
        context[0] || seqs[0] || why->agents_max ? "" : " No shorter context or smaller batch would fit.",
        agents, image_sched, draft, apart, elsewhere);
}

/* With several models, a context without --max-model-len leaves three quarters of the ceiling to the
 * others. */
#define CONTEXT_PART 4

/* Only conversations have agents. */
static uint32_t agents_of(const struct planning *p)
{
    return p->serves && p->kind == MODEL_GENERATES ? p->settings->model.engine.agents : 0;
}

static struct plan_wish wish_of(const struct planning *p, const struct plan_process *process)
{
    const struct settings *o = p->settings;
    uint32_t length = o->model.engine.max_model_len;
    /* Given for all models: a model with a shorter context uses its own. Given for one model it is an
     * error. */
    if (p->models > 1)
        length = MIN_OF(length, p->model.shape.context_max);
    return (struct plan_wish){
        .max_model_len = length,
        .reserve = p->serves && p->kind == MODEL_GENERATES ? o->model.compaction_reserve : 0,
        .agents = agents_of(p),
        .agent_tokens = o->model.engine.agent_tokens,
        .prefix_cache_bytes = o->model.engine.prefix_cache_bytes,
        .image_cache_bytes = o->model.engine.image_cache_bytes,
        .grammar_cache_bytes = o->model.grammar_cache_bytes,
        .pinned_cache_bytes = o->model.engine.prefix_cache_bytes > 0 ? o->model.engine.pinned_cache_bytes : 0,
        .context_bytes_max = p->models > 1 ? plan_ceiling_bytes(process, p->model.domain) / CONTEXT_PART : 0};
}

/* Lowers the ceiling of the model's domain to the bytes that process and model may take together. */
static void limit_model(const struct planning *p, struct plan_process *process)
{
    uint64_t *ceiling = &process->ceiling_bytes, process_bytes = plan_process_bytes(process, p->model.domain);
    if (p->model.domain > 0)
        ceiling = &process->devices[p->model.domain - 1].ceiling_bytes;
    *ceiling = MIN_OF(*ceiling, process_bytes + p->model_bytes_max);
}

/* With `process` as given, or, without limits of its own, with the texts that the model leaves room for. */
static int make(struct planning *p, const struct device_choice *device, struct plan_process *process,
                struct plan_refusal *why, struct err *e)
{
    int r = -ENOMEM;
    for (int least = 0; least <= 1 && r == -ENOMEM; least++) {
        if (p->process)
            *process = *p->process;
        else
            planning_process(p, least, process);
        if (device_choice_domain(device, process, &p->model.domain, e) < 0)
            return -ENODEV;
        if (p->model_bytes_max)
            limit_model(p, process);
        struct plan_wish wish = wish_of(p, process);
        uint32_t seqs = p->seqs ? p->seqs : plan_seqs(process, model_plan_numbers, &p->model, &wish);
        r = plan_make(process, model_plan_numbers, &p->model, seqs, &wish, &p->plan, why);
    }
    return r;
}

int planning_arithmetic(const struct settings *settings, struct model_parts *ret, struct err *e)
{
    const char *compute = settings->model.compute ? settings->model.compute : "auto";
    const char *kv = settings->model.kv_dtype ? settings->model.kv_dtype : "auto";
    if (!compute_mode_parse(compute, &ret->compute))
        return err_set(e, -EINVAL, "--compute %s: auto, f32, bf16, fp8, int16 or int8 is expected", compute);
    ret->kv_form = KV_AUTO;
    if (strcmp(kv, "auto") != 0 && !kv_form_parse(kv, &ret->kv_form))
        return err_set(e, -EINVAL, "--kv-dtype %s: auto, f32, bf16, int8, fp8 or int4 is expected", kv);
    const char *quant = settings->model.quant ? settings->model.quant : "none";
    if (!quantise_parse(quant, &ret->quant))
        return err_set(e, -EINVAL, "--quant %s: none, q4, q5, q6 or q8 is expected", quant);
    return 0;
}

static struct model_parts parts_of(const struct planning *p, const struct device_choice *device)
{
    uint64_t pixels = p->settings->model.image_pixels_max;
    return (struct model_parts){.backend = device->backend,
                                .vision = pixels > 0,
                                .image_pixels_max = pixels,
                                .image_tokens = p->settings->model.image_tokens};
}

static bool speculation_of(const struct settings *o, struct speculation *ret)
{
    *ret = o->model.speculation;
    return speculation_parse(o->model.spec ? o->model.spec : "auto", &ret->way);
}

/* Its directory, before anything is read. */
static int find_draft(struct planning *p, struct err *e)
{
    char dir[CATALOG_PATH_BYTES];
    const char *name = p->settings->model.draft_model;
    p->model.speculation.draft_model = name && name[0];
    if (!p->model.speculation.draft_model)
        return 0;
    struct err why = {{0}};
    int r = catalog_find(name, dir, &why);
    if (r < 0)
        return err_set(e, r, "--draft-model %s: %s", name, why.text);
    snprintf(p->model.draft.dir, sizeof(p->model.draft.dir), "%s", dir);
    return 0;
}

static enum model_kind kind_of(const struct planning *p, const char *dir, struct model_files *files)
{
    struct model_settings s = {.planned = false};
    struct model_use use = {.kind = MODEL_GENERATES};
    struct err ignored = {{0}};
    snprintf(s.dir, sizeof(s.dir), "%s", dir);
    snprintf(s.id, sizeof(s.id), "%s", p->model.name);
    (void)model_use_load(&s, files, &p->model.shape, NULL, NULL, &use, &ignored);
    return use.kind;
}

/* ---- placement ---- */

static bool has_device(const struct settings *o)
{
    struct device_choice c;
    struct err ignored;
    return device_choose(o, &c, &ignored) == 0 && c.memory.name;
}

/* The places of the process, and the model's own. */
static int find_places(struct planning *p, const struct device_choice *device, struct plan_process *process,
                       struct err *e)
{
    if (p->process)
        *process = *p->process;
    else
        planning_process(p, true, process);
    return device_choice_domain(device, process, &p->model.domain, e);
}

/* Measures the model once more, with the placement that it has now. */
static int probe_placed(struct planning *p, struct model_files *files, struct err *e)
{
    const struct placement placement = p->model.parts.placement;
    const struct model_shards shards = p->model.parts.shards;
    p->model.parts = p->given;
    p->model.parts.placement = placement;
    p->model.parts.shards = shards;
    return model_plan_probe(&p->model, files, e);
}

/* Layers of other devices. */
static int spread(struct planning *p, const struct placement *placement, struct err *e)
{
    struct model_shards *s = &p->model.parts.shards;
    uint32_t domains[SHARDS_MAX];
    s->count = placement_devices(placement, p->model.domain, domains, s->layer);
    if (s->count == 0)
        return err_set(e, -ENOTSUP, "--place: the layers are on more than %u devices", SHARDS_MAX);
    memcpy(p->model.beside, domains + 1, (s->count - 1) * sizeof(domains[0]));
    return 0;
}

/* Puts each part on the model's device, but for --place. A part in the machine has the CPU's form, and
 * layers of another device are apart, so the model is measured again. */
static int place(struct planning *p, const struct device_choice *device, struct model_files *files,
                 struct err *e)
{
    const char *list[PLAN_PLACES_MAX];
    struct plan_process process;
    struct placement_wish wish = {.count = 0};
    struct placement placement;
    int r = find_places(p, device, &process, e);
    if (r == 0)
        r = placement_parse(p->settings->model.place ? p->settings->model.place : "", &wish, e);
    if (r < 0)
        return r;
    const struct placement_names places = plan_places(&process, list);
    placement_all(&p->model.sizes, p->model.domain, &placement);
    r = placement_apply(&wish, &places, &placement, e);
    if (r == 0)
        r = placement_check(&placement, p->model.domain, &places, e);
    p->model.parts.placement = placement;
    p->placed = wish.count > 0;
    if (r == 0)
        r = spread(p, &placement, e);
    if (r < 0)
        return r;
    const bool apart = placement_any_apart(&placement), spreads = p->model.parts.shards.count > 1;
    if (apart && spreads)
        return err_set(e, -ENOTSUP,
                       "--place: a model over several devices with experts on the CPU is not computed");
    return apart || spreads ? probe_placed(p, files, e) : 0;
}

static int probe(struct planning *p, const struct device_choice *device, const char *dir,
                 struct model_files *files, struct err *e)
{
    p->given = p->model.parts;
    int r = model_plan_probe(&p->model, files, e);
    p->unreadable = r < 0;
    if (r == 0)
        p->kind = kind_of(p, dir, files);
    return r == 0 ? place(p, device, files, e) : r;
}

/* Without --place, a model that does not fit on the last device to try has its experts in the machine. */
static bool may_part(const struct planning *p, const struct plan_refusal *why)
{
    struct settings next = *p->settings;
    return !p->placed && p->model.shape.routed && why->domain > 0 &&
           !(device_choose_next(&next) && has_device(&next));
}

/* Part of the device's room beside one context that caches keep when experts get the rest. */
#define CACHES_PART 8

/* Experts of the first layers are on the device, as far as it has room beside the plan's context and
 * sequences. `whole`: their bytes there. Returns whether there are some. */
static bool keep_experts(struct planning *p, const struct placement_sizes *whole)
{
    const struct plan_device *d = &p->plan.device;
    const uint64_t left = d->ceiling_bytes - d->floor_bytes, caches = left / CACHES_PART + UNIT_BYTES;
    uint64_t room = left - MIN_OF(caches, left);
    bool any = false;
    for (uint32_t i = 0; i < whole->layers && whole->experts_bytes[i] <= room; i++) {
        if (whole->experts_bytes[i] == 0)
            continue;
        room -= whole->experts_bytes[i];
        p->model.parts.placement.experts[i] = (uint8_t)p->model.domain;
        any = true;
    }
    return any;
}

static int make_parted(struct planning *p, const struct device_choice *device, struct model_files *files,
                       struct plan_process *process, struct plan_refusal *why, struct err *e)
{
    int r = probe_placed(p, files, e);
    return r == 0 ? make(p, device, process, why, e) : r;
}

/* The experts of all layers are in the machine, then those of the last ones alone, if the context and the
 * sequences stay. Beside other models the device's memory is not filled so. */
static int make_placed(struct planning *p, const struct device_choice *device, struct model_files *files,
                       struct plan_process *process, struct plan_refusal *why, struct err *e)
{
    int r = make(p, device, process, why, e);
    if (r != -ENOMEM || !may_part(p, why))
        return r;
    const struct placement_sizes whole = p->model.sizes;
    *why = (struct plan_refusal){.domain = 0};
    placement_experts(&p->model.parts.placement, 0);
    r = make_parted(p, device, files, process, why, e);
    const uint32_t length = p->plan.max_model_len, seqs = p->plan.seqs;
    if (r < 0 || p->models > 1 || !keep_experts(p, &whole))
        return r;
    r = make_parted(p, device, files, process, why, e);
    if (r == 0 && p->plan.max_model_len >= length && p->plan.seqs >= seqs)
        return 0;
    placement_experts(&p->model.parts.placement, 0);
    return make_parted(p, device, files, process, why, e);
}

static int plan_files(struct planning *p, const struct device_choice *device, const char *dir,
                      struct model_files *files, struct err *e)
{
    struct plan_process process;
    struct plan_refusal why = {0};
    int r = probe(p, device, dir, files, e);
    if (r < 0)
        return r;
    p->sees |= p->model.shape.vision.present;
    p->model.agents = agents_of(p);
    p->model.shows_prefixes = p->settings->model.replicas > 1;
    p->model.tells_prefixes = p->serves && p->settings->events.endpoint;
    if (p->model.agents > 0 && p->model.prefix_cache_bytes == 0)
        return err_set(e, -EINVAL, "--agents %u: agents need the prefix cache, and --host-cache is 0",
                       p->model.agents);
    r = make_placed(p, device, files, &process, &why, e);
    if (r < 0 && why.context_max == 0) /* no plan was made */
        return r;
    if (r == -EINVAL)
        return err_set(e, r, "--max-model-len %u: %s was made for %u tokens",
                       p->settings->model.engine.max_model_len, p->model.name, why.context_max);
    return r < 0 ? refuse(p, p->model.name, &why, e) : 0;
}

static int check_shared(const struct shared_settings *o, struct err *e)
{
    struct shared_address a = {.port = 0};
    int r = o->address ? shared_address_parse(o->address, &a, e) : 0;
    explicit_bzero(&a, sizeof(a));
    return r;
}

int planning_make(struct planning *p, const char *dir, const char *name, struct err *e)
{
    struct device_choice device;
    struct model_files *files;
    int r = device_choose(p->settings, &device, e);
    if (r == 0)
        r = check_shared(&p->settings->shared, e);
    if (r < 0)
        return r;
    p->model = (struct model_plan){.name = name,
                                   .queue = p->queue,
                                   .workers = p->workers,
                                   .prefix_cache_bytes = p->settings->model.engine.prefix_cache_bytes,
                                   .pinned_cache_bytes = p->settings->model.engine.pinned_cache_bytes,
                                   .grammars = p->settings->model.grammar_cache_bytes > 0,
                                   .max_model_len = p->settings->model.engine.max_model_len,
                                   .parts = parts_of(p, &device)};
    if (!speculation_of(p->settings, &p->model.speculation))
        return err_set(e, -EINVAL, "--spec %s: auto, mtp, ngram or off is expected", p->settings->model.spec);
    const char *given = p->settings->model.fingerprint;
    if (given && !fingerprint_is_hex(given))
        return err_set(e, -EINVAL, "--fingerprint %.80s: %d hexadecimal digits in small letters are expected",
                       given, FINGERPRINT_HEX);
    r = planning_arithmetic(p->settings, &p->model.parts, e);
    if (r == 0)
        r = find_draft(p, e);
    if (r < 0)
        return r;
    r = model_plan_open_files(dir, p->settings->model.mmproj, &files, e);
    p->unreadable = r < 0;
    if (r < 0)
        return r;
    r = plan_files(p, &device, dir, files, e);
    if (r == 0 && p->files)
        *p->files = files;
    else
        model_files_close(files);
    return r;
}

const char *planning_compute(const struct planning *p)
{
    return compute_mode_name(p->model.shape.compute);
}

const char *planning_kv_dtype(const struct planning *p)
{
    return model_kv_dtype(&p->model.shape);
}

const char *planning_quant(const struct planning *p)
{
    return quantise_name(p->model.shape.quant);
}
