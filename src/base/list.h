/* list.h - a doubly linked list whose links live inside its members. */
#ifndef PLATEAU_BASE_LIST_H
#define PLATEAU_BASE_LIST_H

#include "base/check.h"

#include <stdbool.h>

struct list {
    struct list *next, *prev; /* a head or a member; a member in no list points at itself */
};

static inline void list_init(struct list *l)
{
    l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

static inline void list_insert_between(struct list *prev, struct list *node, struct list *next)
{
    ASSERT(node->next == node);
    node->prev = prev;
    node->next = next;
    prev->next = node;
    next->prev = node;
}

static inline void list_push_back(struct list *head, struct list *node)
{
    list_insert_between(head->prev, node, head);
}

/* Fine for a member in no list. */
static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* Moves all members of `from` behind those of `to`. */
static inline void list_move_all(struct list *from, struct list *to)
{
    while (!list_empty(from)) {
        struct list *node = from->next;
        list_remove(node);
        list_push_back(to, node);
    }
}

#define LIST_ENTRY(node, type, member) CONTAINER(node, type, member)
#define LIST_FIRST(head, type, member) LIST_ENTRY((head)->next, type, member)
/* `it` is a struct list *; the body may remove it from its list. */
#define LIST_EACH(it, head)                                                                                  \
    for (struct list *it = (head)->next, *it##_next = it->next; it != (head);                                \
         it = it##_next, it##_next = it->next)

#endif
