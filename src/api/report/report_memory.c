/* report_memory.c - the ledger as a tree whose sums are checked, beside the system's figures.
 *
 * own_bytes are the bytes of an account that no child of it names. Without the disks, their sum over all
 * accounts is what the root uses. The ledger is copied into an array first, because writing the reply takes
 * memory, which changes the ledger. */
#include "api/api_state.h"
#include "api/report/report.h"

#include "base/check.h"
#include "base/json/json_out.h"
#include "engine/engine_numbers.h"
#include "http/http_server.h"
#include "memory/accounts.h"
#include "memory/footprint.h"
#include "memory/ledger.h"

struct visit {
    struct account_numbers *accounts;
    uint32_t count, max;
};

static void visit(void *arg, const struct account_numbers *n)
{
    struct visit *v = arg;
    if (v->count < v->max)
        v->accounts[v->count++] = *n;
}

uint32_t report_read_accounts(struct api *a)
{
    struct visit v = {.accounts = a->accounts, .max = a->accounts_max};
    ledger_walk(a->opts.ledger, visit, &v);
    return v.count;
}

/* ---- unaccounted memory ---- */

/* Accounts whose bytes come from the general allocator: the allocator's own figure says how many are
 * resident. The account `requests` is none of them: each job is an arena, mapped and committed at once. */
static bool is_heap(const struct account_numbers *n)
{
    enum account_id id = accounts_of(n->name);
    return id == ACCOUNT_TEXT || id == ACCOUNT_NETWORK || id == ACCOUNT_HEAP || id == ACCOUNT_RESPONSES ||
           id == ACCOUNT_CONVERSATIONS || id == ACCOUNT_RECORDED_STEPS;
}

/* The sum of an account's children. Blocks on a disk are not memory. */
static struct account_numbers sum_of_children(const struct account_numbers *accounts, uint32_t count,
                                              uint32_t index)
{
    struct account_numbers sum = {0};
    for (uint32_t i = index + 1; i < count && accounts[i].depth > accounts[index].depth; i++) {
        if (accounts[i].depth > accounts[index].depth + 1 || accounts[i].class == ACCOUNT_DISK)
            continue;
        sum.used += accounts[i].used;
        sum.reserved += accounts[i].reserved;
    }
    return sum;
}

uint64_t report_own_used(const struct account_numbers *accounts, uint32_t count, uint32_t index)
{
    uint64_t children = sum_of_children(accounts, count, index).used;
    return accounts[index].used - MIN_OF(children, accounts[index].used);
}

/* True when every account holds at least the sum of its children, and uses no more than it has reserved. */
static bool sums_hold(const struct account_numbers *accounts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct account_numbers sum = sum_of_children(accounts, count, i);
        if (sum.used > accounts[i].used || sum.reserved > accounts[i].reserved ||
            accounts[i].used > accounts[i].reserved)
            return false;
    }
    return true;
}

/* Mapped files are not: the system drops their pages as it likes. */
static bool is_resident(const struct account_numbers *n)
{
    return n->domain->resident && n->class != ACCOUNT_FILE && n->class != ACCOUNT_DISK;
}

struct unaccounted report_unaccounted_of(const struct memory_counts *m)
{
    uint64_t known = m->mapped + (m->heap ? m->heap + m->heap_mapped : m->heap_accounts);
    /* Without /proc nothing is known to be resident. */
    return (struct unaccounted){.bytes = m->resident ? (int64_t)(m->resident - known) : 0,
                                .untouched_bytes = m->connections};
}

static struct unaccounted unaccounted(struct api *a, uint32_t count, const struct footprint *f)
{
    const struct account_numbers *accounts = a->accounts;
    struct http_pools pools = a->server ? http_server_pools(a->server) : (struct http_pools){0};
    struct memory_counts m = {.resident = f->rss_anon_bytes + f->rss_shmem_bytes + f->swap_bytes,
                              .heap = f->heap_bytes,
                              .heap_mapped = pools.mapped + atomic_load(&a->prep_arena_bytes),
                              .connections = pools.heap + pools.mapped};
    for (uint32_t i = 0; i < count; i++)
        if (is_resident(&accounts[i]))
            *(is_heap(&accounts[i]) ? &m.heap_accounts : &m.mapped) += report_own_used(accounts, count, i);
    return report_unaccounted_of(&m);
}

struct unaccounted report_unaccounted(struct api *a)
{
    struct footprint f;
    footprint_read(&f);
    return unaccounted(a, report_read_accounts(a), &f);
}

/* ---- the tree ---- */

static void write_limit(const struct account_numbers *n, struct json_out *j)
{
    if (n->limit == ACCOUNT_NO_LIMIT)
        json_put_null(j, "limit_bytes");
    else
        json_put_u64(j, "limit_bytes", n->limit);
}

/* Opens an account, and its list of children. */
static void open_account(const struct account_numbers *n, uint64_t own, struct json_out *j)
{
    json_open(j, NULL);
    JSON_PUT_STRINGS(j, {"name", n->name}, {"class", account_class_name(n->class)});
    JSON_PUT_U64S(j, {"planned_bytes", n->planned}, {"reserved_bytes", n->reserved}, {"used_bytes", n->used},
                  {"own_bytes", own}, {"peak_bytes", n->peak});
    write_limit(n, j);
    json_open_array(j, "children");
}

/* The roots of other domains than the machine's, which is the first account. */
const struct domain *report_device_of(const struct account_numbers *accounts, uint32_t index)
{
    const struct account_numbers *n = &accounts[index];
    return index > 0 && n->is_root && n->depth == 0 ? n->domain : NULL;
}

/* Writes a domain's bytes as its driver counts them. */
static void write_figures(const struct domain *d, struct json_out *j)
{
    struct domain_figures f;
    if (d->ops->committed)
        json_put_u64(j, "committed_bytes", d->ops->committed(d->arg));
    if (domain_figures(d, &f)) {
        JSON_PUT_U64S(j, {"total_bytes", f.total_bytes}, {"free_bytes", f.free_bytes},
                      {"others_bytes", f.others_bytes});
        json_put_i64(j, "unaccounted_bytes", f.unaccounted_bytes);
    }
}

static void write_devices(const struct account_numbers *accounts, uint32_t count, struct json_out *j)
{
    json_open_array(j, "devices");
    for (uint32_t i = 0; i < count; i++) {
        const struct account_numbers *n = &accounts[i];
        if (!report_device_of(accounts, i))
            continue;
        json_open(j, NULL);
        json_put_string(j, "name", n->name);
        write_limit(n, j);
        JSON_PUT_U64S(j, {"reserved_bytes", n->reserved}, {"used_bytes", n->used}, {"peak_bytes", n->peak});
        write_figures(n->domain, j);
        json_close(j);
    }
    json_close(j);
}

/* Parents come before their children: a deeper account opens below the last, a shallower one closes the open
 * ones. */
static void write_tree(const struct account_numbers *accounts, uint32_t count, struct json_out *j)
{
    json_open_array(j, "accounts");
    for (uint32_t i = 0; i < count; i++) {
        open_account(&accounts[i], report_own_used(accounts, count, i), j);
        bool last = i + 1 == count;
        if (!last && accounts[i + 1].depth > accounts[i].depth)
            continue;
        uint32_t closed = accounts[i].depth + 1 - (last ? 0 : accounts[i + 1].depth);
        for (; closed > 0; closed--) {
            json_close(j); /* children */
            json_close(j);
        }
    }
    json_close(j);
}

static void write_system(struct api *a, uint32_t count, const struct footprint *f, struct json_out *j)
{
    json_open(j, "system");
    JSON_PUT_U64S(j, {"rss_anon_bytes", f->rss_anon_bytes}, {"rss_file_bytes", f->rss_file_bytes},
                  {"rss_shmem_bytes", f->rss_shmem_bytes}, {"swap_bytes", f->swap_bytes},
                  {"cgroup_bytes", f->cgroup_bytes}, {"cgroup_limit_bytes", f->cgroup_limit_bytes},
                  {"heap_bytes", f->heap_bytes}, {"ram_bytes", f->ram_bytes},
                  {"ram_available_bytes", f->ram_available_bytes});
    write_devices(a->accounts, count, j);
    json_close(j);
}

/* Bytes that idle pools have yet to trim, of all models. */
static uint64_t pending_trim(struct api *a)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < api_model_count(a); i++) {
        struct engine_numbers n;
        api_engine_numbers(a, i, &n);
        bytes += n.pending_trim_bytes;
    }
    return bytes;
}

void report_memory(struct api *a, struct buf *ret)
{
    struct footprint f;
    uint32_t count = report_read_accounts(a);
    const struct account_numbers *root = &a->accounts[0];
    footprint_read(&f);
    struct unaccounted un = unaccounted(a, count, &f);
    struct json_out j = json_out_object(ret);
    write_limit(root, &j);
    JSON_PUT_U64S(&j, {"reserved_bytes", root->reserved}, {"used_bytes", root->used});
    json_put_i64(&j, "unaccounted_bytes", un.bytes);
    JSON_PUT_U64S(&j, {"untouched_bytes", un.untouched_bytes}, {"pending_trim_bytes", pending_trim(a)});
    json_put_bool(&j, "sums_hold", sums_hold(a->accounts, count));
    write_tree(a->accounts, count, &j);
    report_holders(a, &j);
    json_open_array(&j, "models");
    for (uint32_t i = 0; i < api_model_count(a); i++) {
        json_open(&j, NULL);
        json_put_string(&j, "id", api_model_id(a, i));
        report_model_state(a, i, true, &j);
        json_close(&j);
    }
    json_close(&j);
    write_system(a, count, &f, &j);
    json_end(&j);
}
