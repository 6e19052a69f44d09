/* turn_memory.c - a share of the account for each. */
#include "api/turn_memory.h"

#include "api/api_state.h"
#include "api/conversations.h"
#include "api/prompt_parts.h"

#define PARTS_ENTRIES_MAX 1024

/* An eighth of the account is for the parts of prompts. */
int turn_memory_open(struct api *a)
{
    struct conversations_opts opts = {.account = a->opts.conversations};
    uint64_t limit = opts.account ? account_numbers(opts.account).limit : 0;
    if (limit < 2 * CONVERSATIONS_BYTES_LEAST)
        return 0;
    uint32_t entries = 1;
    while (entries < PARTS_ENTRIES_MAX && prompt_parts_bytes(entries + 1) <= limit / 8)
        entries++;
    int r = prompt_parts_create(opts.account, entries, &a->parts);
    opts.bytes_max = limit - prompt_parts_bytes(entries);
    return r < 0 ? r : conversations_create(&opts, &a->conversations);
}

void turn_memory_close(struct api *a)
{
    conversations_free(a->conversations);
    prompt_parts_free(a->parts);
    a->conversations = NULL;
    a->parts = NULL;
}
