/* test_parsed.h - request bodies, read as the server reads them. */
#ifndef PLATEAU_TEST_PARSED_H
#define PLATEAU_TEST_PARSED_H

#include "test_ledger.h"

#include "api/request/request.h"
#include "gen/reject.h"
#include "gen/request_memory.h"

#include <stdlib.h>

struct parsed {
    struct request_memory memory;
    struct request request;
    struct reject why;
    bool ok;
};

static inline struct parsed *test_parse(const struct request_form *form, struct slice body,
                                        const struct request_limits *limits)
{
    struct parsed *p = calloc(1, sizeof(*p));
    struct account *text = test_account_count > 0 ? test_accounts[0] : test_account(1 << 20);
    request_memory_init(&p->memory, text, 1 << 20);
    p->ok = request_parse(form, body, limits, &p->memory, &p->request, &p->why);
    return p;
}

static inline void done(struct parsed *p)
{
    request_done(&p->request);
    request_memory_done(&p->memory);
    free(p);
}

#endif
