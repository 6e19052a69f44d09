/* models_fit.c - whether the models of a server fit, together and each by itself. */
#include "host/device_choice.h"
#include "host/models/catalog.h"
#include "host/models/models_state.h"
#include "host/runtime.h"

#include "base/bytes_text.h"
#include "base/log.h"
#include "hub/hub_cache.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static struct planning planning_of(const struct models *m, uint32_t index, const struct plan_process *process)
{
    const struct settings *own = &m->own[index];
    return (struct planning){.settings = own,
                             .seqs = own->model.engine.max_num_seqs,
                             .queue = own->model.engine.max_queue,
                             .workers = runtime_workers(m->settings),
                             .models = m->models_max,
                             .serves = true,
                             .sees = m->sees,
                             .devices = &m->devices,
                             .process = process,
                             .model_bytes_max = own->model.bytes_max};
}

/* files: see struct planning; nothing is left open on failure. */
static int plan_files(const struct models *m, uint32_t index, const struct plan_process *process,
                      struct model_settings *s, struct model_files **files, struct planning *p, struct err *e)
{
    *p = planning_of(m, index, process);
    p->files = files;
    s->planned = false;
    int r = planning_make(p, s->dir, s->id, e);
    if (r == 0)
        runtime_set_plan(p, s);
    return r;
}

int models_plan_one(const struct models *m, uint32_t index, const struct plan_process *process,
                    struct model_settings *s, struct planning *p, struct err *e)
{
    return plan_files(m, index, process, s, NULL, p, e);
}

int models_choose_device(struct models *m, uint32_t index, struct err *e)
{
    struct model_settings *s = &m->list[index];
    struct device_choices devices;
    int r = device_choices_of(&m->own[index], &devices, e);
    s->beside_count = 0;
    for (uint32_t i = 0; i < devices.count && r == 0; i++) {
        if (i >= SHARDS_MAX)
            return err_set(e, -EINVAL, "--place names more than %u devices", SHARDS_MAX - 1);
        uint32_t *domain = i > 0 ? &s->beside[s->beside_count++] : &s->device;
        r = device_choice_domain(&devices.list[i], &m->process, domain, e);
    }
    return r;
}

/* Its files were there when it was listed. */
static int tell_gone(const struct model_settings *s, struct err *e)
{
    struct hub_name hub;
    char fetch[HUB_ID_BYTES + 48] = "";
    if (hub_cache_name_of(s->dir, &hub))
        snprintf(fetch, sizeof(fetch), ": plateau pull %s fetches them again", hub.id);
    return err_set(e, -ENOENT, "the files of %s were removed%s", s->id, fetch);
}

int models_plan_again(void *models, struct model_settings *s, struct model_files **ret, struct err *e)
{
    const struct models *m = models;
    struct planning p = {0};
    for (uint32_t i = 0; i < m->count; i++) {
        if (strcmp(m->list[i].id, s->id) != 0)
            continue;
        int r = plan_files(m, i, &m->process, s, ret, &p, e);
        return p.unreadable && access(s->dir, F_OK) < 0 ? tell_gone(s, e) : r;
    }
    return err_set(e, -ENOENT, "%s is not known", s->id);
}

/* With such a process: how many of those found can be served, and whether all that were named can be,
 * together. */
struct trial {
    struct plan_process process;
    uint32_t usable;
    uint64_t needed_bytes[1 + DOMAINS_MAX]; /* by domain, as plan_line has them */
    int error;                              /* error of the first named model that cannot be served */
    /* That model, or the last one that --device auto put on a full device; UINT32_MAX: none. */
    uint32_t unfit;
    struct err why;
};

static void refuse_together(const struct models *m, struct trial *t, uint32_t domain)
{
    char where[DOMAIN_HOLDER_BYTES] = "";
    if (domain > 0)
        snprintf(where, sizeof(where), " on device %s", t->process.devices[domain - 1].name);
    for (uint32_t i = 0; i < m->count; i++)
        if (m->list[i].preload && domain > 0 && m->list[i].plan.model.domain == domain &&
            device_choice_is_auto(&m->own[i]))
            t->unfit = i;
    t->error = err_set(
        &t->why, -ENOMEM,
        "the models do not fit together%s: with what the process takes they need at least %s, and the "
        "ceiling is %s. Those below a --model-dir need not fit together: they come and go as they are asked "
        "for",
        where, bytes_text(t->needed_bytes[domain]).text,
        bytes_text(plan_ceiling_bytes(&t->process, domain)).text);
}

static void try(struct models *m, bool least, struct trial *ret)
{
    struct planning p = planning_of(m, 0, NULL);
    struct trial t = {.unfit = UINT32_MAX};
    p.settings = m->settings;
    planning_process(&p, least, &t.process);
    for (uint32_t i = 0; i <= t.process.device_count; i++)
        t.needed_bytes[i] = plan_process_bytes(&t.process, i);
    for (uint32_t i = 0; i < m->count; i++) {
        struct model_settings *s = &m->list[i];
        struct err e = {0};
        int r = models_plan_one(m, i, &t.process, s, &p, &e);
        t.usable += r == 0;
        if (p.unreadable)
            r = catalog_hint(s->dir, r, &e);
        if (s->preload && r == 0) {
            t.needed_bytes[0] += s->plan.load_bytes;
            t.needed_bytes[s->plan.model.domain] += s->plan.device.load_bytes;
            for (uint32_t k = 0; k < s->plan.model.beside_count; k++)
                t.needed_bytes[s->plan.beside[k].domain] += s->plan.beside[k].load_bytes;
        }
        if (!s->preload || r == 0 || t.error < 0)
            continue;
        t.error = r;
        t.unfit = i;
        t.why = e;
    }
    for (uint32_t i = 0; i <= t.process.device_count && t.error == 0; i++)
        if (t.needed_bytes[i] > plan_ceiling_bytes(&t.process, i))
            refuse_together(m, &t, i);
    *ret = t;
}

void models_tell_unusable(const struct model_settings *s, const struct err *why)
{
    LOG_WARN("model_unusable", "model=%s dir=%s error=\"%s\"", s->id, s->dir, why->text);
}

static void tell_unusable(const struct models *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        struct model_settings s = m->list[i];
        struct planning p = {0};
        struct err e = {0};
        int r = s.planned ? 0 : models_plan_one(m, i, &m->process, &s, &p, &e);
        if (p.unreadable)
            catalog_hint(s.dir, r, &e);
        if (r < 0)
            models_tell_unusable(&s, &e);
    }
}

static bool any_sees(const struct models *m)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (m->list[i].planned && m->list[i].shape.vision.present)
            return true;
    return false;
}

/* Memory for texts and images shrinks before a model is refused. *unfit: with -ENOMEM see struct trial. */
static int plan_several(struct models *m, uint32_t *unfit, struct err *e)
{
    struct trial full, least;
    try(m, true, &least);
    m->sees = any_sees(m);
    if (m->sees)
        try(m, true, &least);
    try(m, false, &full);
    bool shrinks = full.error < 0 || full.usable < least.usable;
    if (shrinks && least.error == 0)
        try(m, true, &full);
    *unfit = (least.error < 0 ? least : full).unfit;
    if (full.error < 0)
        return err_set(e, full.error, "%s", (least.error < 0 ? least : full).why.text);
    m->process = full.process;
    return 0;
}

static int plan_all(struct models *m, uint32_t *unfit, struct err *e)
{
    struct planning p;
    if (models_are_several(m))
        return plan_several(m, unfit, e);
    int r = models_plan_one(m, 0, NULL, &m->list[0], &p, e);
    m->process = p.plan.process;
    *unfit = 0;
    if (r < 0 && !m->list[0].preload) {
        planning_process(&p, false, &m->process);
        return 0;
    }
    return p.unreadable ? catalog_hint(m->list[0].dir, r, e) : r;
}

/* A single model may have a device of its own, and no other is opened then. */
static int measure_devices(struct models *m, struct err *e)
{
    int r =
        models_are_several(m) && m->devices.count == 0 ? device_choose_all(m->settings, &m->devices, e) : 0;
    for (uint32_t i = 0; i < m->count && r == 0; i++)
        r = device_choices_add(&m->own[i], &m->devices, e);
    return r < 0 ? r : device_choices_measure(m->settings, &m->devices, e);
}

/* --device auto: the model goes to the next device. */
static bool move_on(struct models *m, uint32_t index, const struct err *why)
{
    struct device_choice was;
    struct err ignored;
    if (index >= m->count || device_choose(&m->own[index], &was, &ignored) < 0 ||
        !device_choose_next(&m->own[index]))
        return false;
    LOG_WARN("device_passed_over", "model=%s device=%s reason=\"%s\"", m->list[index].id, was.memory.name,
             why->text);
    return true;
}

/* Moves found models that do not fit where they are. Named ones all fit. */
static bool move_found(struct models *m)
{
    bool moved = false;
    for (uint32_t i = 0; i < m->count; i++) {
        struct model_settings s = m->list[i];
        struct planning p = {0};
        struct err e = {{0}};
        if (!s.planned && !s.preload && models_plan_one(m, i, &m->process, &s, &p, &e) == -ENOMEM)
            moved |= move_on(m, i, &e);
    }
    return moved;
}

/* Until each model is on a device that it fits on. */
static int place(struct models *m, struct err *e)
{
    struct err first = {{0}};
    for (;;) {
        uint32_t unfit = UINT32_MAX;
        int r = measure_devices(m, e);
        if (r == 0)
            r = plan_all(m, &unfit, e);
        if (r == 0 && move_found(m))
            continue;
        if (r == 0)
            return 0;
        if (!first.text[0])
            first = *e;
        if (r != -ENOMEM || !move_on(m, unfit, e)) {
            *e = first;
            return r;
        }
    }
}

int models_plan(struct models *m, struct err *e)
{
    int r = place(m, e);
    if (r == 0)
        tell_unusable(m);
    for (uint32_t i = 0; i < m->count && r == 0; i++)
        r = models_choose_device(m, i, e);
    return r;
}
