/* models_replicas.c - replicas of a model: further entries of the list, with another device and id. */
#include "host/models/models_state.h"

#include "base/check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int models_make_replica(struct models *m, uint32_t index, uint32_t replica, struct err *e)
{
    struct model_settings *s = &m->list[index + replica];
    const char *device;
    int r = device_choose_replica(&m->own[index], replica, &device, e);
    if (r < 0)
        return r;
    ASSERT(replica > 0 && m->list[index].replica == 0);
    *s = m->list[index];
    m->own[index + replica] = m->own[index];
    m->own[index + replica].process.device = device;
    m->hub_ids[index + replica] = (struct hub_ids){.whole = ""};
    s->alias_count = 0;
    s->replica = replica;
    s->template_kwargs = NULL;
    int len = snprintf(s->id, sizeof(s->id), "%s@%s", m->list[index].id, device);
    if (len >= (int)sizeof(s->id))
        return err_set(e, -EINVAL, "--replicas: the name %s is too long for replicas", m->list[index].id);
    s->template_kwargs = json_incref((json_t *)m->list[index].template_kwargs);
    return 0;
}

/* Moves the entries after `index` up by `by`. */
static void make_room(struct models *m, uint32_t index, uint32_t by)
{
    uint32_t behind = m->count - index - 1;
    memmove(&m->list[index + 1 + by], &m->list[index + 1], behind * sizeof(*m->list));
    memmove(&m->own[index + 1 + by], &m->own[index + 1], behind * sizeof(*m->own));
    memmove(&m->hub_ids[index + 1 + by], &m->hub_ids[index + 1], behind * sizeof(*m->hub_ids));
}

int models_add_replicas(struct models *m, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; i < m->count && r == 0; i++) {
        uint32_t count = m->own[i].model.replicas, more = count > 1 ? count - 1 : 0;
        if (m->list[i].replica > 0 || more == 0)
            continue;
        if (m->count + more > REGISTRY_MODELS_MAX)
            return err_set(e, -E2BIG, "--replicas %u: a server has at most %d models, replicas included",
                           count, REGISTRY_MODELS_MAX);
        make_room(m, i, more);
        m->list[i].replica_count = count;
        for (uint32_t k = 1; k <= more; k++)
            m->list[i + k].template_kwargs = NULL; /* moved with its entry */
        m->count += more;
        for (uint32_t k = 1; k <= more && r == 0; k++)
            r = models_make_replica(m, i, k, e);
    }
    return r;
}
