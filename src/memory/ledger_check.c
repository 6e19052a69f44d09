/* ledger_check.c - what must hold of every account between any two calls. */
#include "memory/ledger_state.h"

#include <stdio.h>
#include <string.h>

typedef unsigned long long ull;

/* "process/canary/pools/kv", the end of it if it is longer. */
static void path_of(const struct account *a, char *ret, size_t bytes)
{
    char *at = ret + bytes - 1;
    *at = 0;
    for (; a; a = a->parent) {
        size_t len = strnlen(a->n.name, sizeof(a->n.name)) + (a->parent != NULL);
        if (len > (size_t)(at - ret))
            break;
        at -= len;
        if (a->parent)
            *at = '/';
        memcpy(at + (a->parent != NULL), a->n.name, len - (a->parent != NULL));
    }
    memmove(ret, at, strlen(at) + 1);
}

static _Noreturn void fail(const struct account *a, int line, const char *condition, uint64_t reserved,
                           uint64_t used)
{
    char path[256];
    path_of(a, path, sizeof(path));
    check_fail_of(__FILE__, line, condition,
                  "account %s: used %llu, reserved %llu (floor %llu, taken %llu), peak %llu, limit %llu; its "
                  "children reserve %llu and use %llu",
                  path, (ull)a->n.used, (ull)a->n.reserved, (ull)a->n.floor, (ull)a->taken, (ull)a->n.peak,
                  (ull)a->n.limit, (ull)reserved, (ull)used);
}

/* `reserved`, `used`: the sums of the children. */
#define ASSERT_ACCOUNT(c)                                                                                    \
    do {                                                                                                     \
        if (__builtin_expect(!(c), 0))                                                                       \
            fail(a, __LINE__, #c, reserved, used);                                                           \
    } while (0)

static void check_account(const struct account *a)
{
    uint64_t reserved = 0, used = 0;
    uint32_t children = 0;
    for (const struct list *it = a->children.next; it != &a->children; it = it->next) {
        const struct account *child = LIST_ENTRY(it, struct account, siblings);
        ASSERT_ACCOUNT(child->parent == a && child->ledger == a->ledger && child->n.depth == a->n.depth + 1);
        ASSERT_ACCOUNT(child->n.is_root == (child->n.domain != a->n.domain));
        ASSERT_ACCOUNT(child->root == (child->n.is_root ? child : a->root));
        check_account(child);
        children++;
        if (!ledger_counts_at(a, child))
            continue;
        reserved += child->n.reserved;
        used += child->n.used;
    }
    ASSERT_ACCOUNT(children == a->n.children);
    ASSERT_ACCOUNT(reserved <= a->taken);
    ASSERT_ACCOUNT(used <= a->n.used);
    ASSERT_ACCOUNT(a->n.used <= a->taken);
    ASSERT_ACCOUNT(a->n.reserved == ledger_reserved_with(a, a->taken));
    ASSERT_ACCOUNT(a->n.used <= a->n.peak);
    ASSERT_ACCOUNT(a->n.class < ACCOUNT_CLASS_COUNT);
}

void ledger_check(struct ledger *l)
{
    pthread_mutex_lock(&l->lock);
    check_account(&l->root);
    LIST_EACH(it, &l->roots) {
        const struct account *a = LIST_ENTRY(it, struct account, siblings);
        ASSERT(!a->parent && a->root == a && a->n.is_root && a->n.class == ACCOUNT_DEVICE);
        check_account(a);
    }
    pthread_mutex_unlock(&l->lock);
}

void account_check(struct account *a)
{
    pthread_mutex_lock(&a->ledger->lock);
    check_account(a);
    pthread_mutex_unlock(&a->ledger->lock);
}
