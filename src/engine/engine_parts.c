/* engine_parts.c - connects the engine's parts: each gets plain values and functions, and refers neither to
 * the engine nor to its callers. */
#include "engine/engine_state.h"

#include "model/model.h"
#include "model/vision.h"
#include "vision/image.h"

/* ---- trim and write-behind ---- */

/* A message waits: work of an idle engine stops. */
static bool is_wanted(void *arg)
{
    struct engine *en = arg;
    return mailbox_count(en->inbox) > 0 || atomic_load(&en->closing);
}

static void copy_failed(void *arg, int error)
{
    engine_fail(arg, error);
}

static void publish_trim(void *arg)
{
    struct engine *en = arg;
    engine_publish(en, en->now.idle);
}

static uint64_t ends_ns(void *arg)
{
    const struct engine *en = arg;
    return en->opts.ends_ns ? atomic_load(en->opts.ends_ns) : 0;
}

void engine_parts_init(struct engine *en)
{
    struct trim_opts trim = {&en->pools,          &en->image_sched, &en->budget,  en->name,
                             en->opts.keep_units, is_wanted,        publish_trim, en};
    trim_init(&en->trim, &trim);
    en->write_behind.opts = (struct write_behind_opts){&en->pools,       &en->tiers.top, &en->tiers.ssd,
                                                       &en->tiers.below, &en->failure,   is_wanted,
                                                       ends_ns,          copy_failed,    en};
}

/* ---- images ---- */

static struct sched_seq *first_waiting(void *arg)
{
    struct engine *en = arg;
    return sched_first_waiting(en->sched);
}

static void image_begins(void *arg)
{
    struct engine *en = arg;
    trim_call_off(&en->trim);
}

static void image_refused(void *arg, struct job *j, uint32_t index, uint64_t features, uint64_t encoding,
                          bool taken)
{
    const struct image *p = j->images[index];
    if (taken) {
        engine_end_taken(arg, j);
        return;
    }
    engine_fail_job(arg, j,
                    "There is no memory to encode image %u of this request: the embeddings of its %u x %u "
                    "pixels take %llu bytes, and encoding them %llu.",
                    index, p->width, p->height, (ull)features, (ull)encoding);
}

int engine_parts_create_images(struct engine *en)
{
    const struct engine_opts *o = &en->opts;
    struct image_sched_opts opts = {
        .shape = en->shape,
        .parent = engine_device_parent(o),
        .cache_bytes = o->image_cache_bytes,
        .jobs = &en->jobs,
        .pools = &en->pools,
        .device = o->device,
        .step_ns = &en->live->step_ns,
        .closing = &en->closing,
        .progress_ns = &en->progress_ns,
        .encoder = {vision_encoder_begin, vision_encoder_run, vision_encoder_stop, vision_encoder_trim},
        .port = {first_waiting, image_begins, image_refused, en},
    };
    if (en->shape->vision.present)
        opts.encoder.of = model_vision_encoder(o->model);
    if (o->faults) {
        opts.port.slice = o->faults->slice;
        opts.port.slice_arg = o->faults->arg;
    }
    return image_sched_create(&en->image_sched, &opts, en->arena);
}
