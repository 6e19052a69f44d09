/* plan_lines.c - a line of a plan, the part of a plan on a device, and the process's part of a domain. */
#include "memory/plan_lines.h"

#include "base/check.h"

void plan_lines_add(struct plan *p, uint32_t domain, uint32_t depth, const char *name,
                    enum account_class class, uint64_t floor, uint64_t limit, const char *note)
{
    const struct plan_line *last = p->line_count ? &p->lines[p->line_count - 1] : NULL;
    ASSERT(last && last->domain == domain ? depth <= last->depth + 1 : depth == 0);
    ASSERT(p->line_count < PLAN_LINES_MAX);
    p->lines[p->line_count++] = (struct plan_line){.name = name,
                                                   .note = note,
                                                   .class = class,
                                                   .account = accounts_of(name),
                                                   .domain = domain,
                                                   .depth = depth,
                                                   .floor_bytes = floor,
                                                   .limit_bytes = limit};
}

struct plan_device plan_lines_device(const struct plan *p, uint32_t domain, uint64_t floor, uint64_t limit)
{
    const struct plan_domain *d = &p->process.devices[domain - 1];
    ASSERT(domain > 0 && floor <= limit);
    return (struct plan_device){.domain = domain,
                                .name = d->name,
                                .ceiling_bytes = d->ceiling_bytes,
                                .floor_bytes = d->context_bytes + floor,
                                .limit_bytes = d->context_bytes + limit,
                                .context_bytes = d->context_bytes,
                                .model_bytes = limit,
                                .load_bytes = floor};
}

uint64_t plan_process_bytes(const struct plan_process *p, uint32_t domain)
{
    ASSERT(domain <= p->device_count && p->device_count <= DOMAINS_MAX);
    if (domain > 0)
        return p->devices[domain - 1].context_bytes;
    return p->heap_bytes + p->threads_bytes + p->network_bytes + p->body_bytes + p->text_bytes +
           p->responses_bytes + p->conversations_bytes + p->history_bytes + p->pull_bytes + p->media_bytes +
           p->ssd_staging_bytes + p->ssd_table_bytes + p->shared_bytes;
}

uint64_t plan_ceiling_bytes(const struct plan_process *p, uint32_t domain)
{
    ASSERT(domain <= p->device_count && p->device_count <= DOMAINS_MAX);
    return domain == 0 ? p->ceiling_bytes : p->devices[domain - 1].ceiling_bytes;
}
