/* grammar_frame.c - parts to symbols of one rule; what is optional becomes a rule of its own. */
#include "grammar/grammar_frame.h"

#include "base/check.h"

void grammar_frame_add(struct grammar_frame *f, struct grammar_part part)
{
    if (f->count == GRAMMAR_PARTS_MAX)
        f->full = true;
    else
        f->parts[f->count++] = part;
}

/* Ends with `text`, which does not stand in it before. */
static rx_id until(struct rx_store *s, struct slice text)
{
    rx_id found = rx_cat(s, RX_ALL, rx_literal(s, text));
    if (text.len == 0)
        return RX_ALL;
    rx_id more = rx_cat(s, found, rx_repeat(s, rx_byte_range(s, 0, 255), 1, RX_UNBOUNDED));
    return rx_and(s, found, rx_not(s, more));
}

static rx_id line_ends(struct rx_store *s)
{
    return rx_repeat(s, rx_literal(s, SLICE("\n")), 0, GRAMMAR_LINE_ENDS_MAX);
}

static sym_id symbol_of(struct grammar_builder *b, const struct grammar_part *p, sym_id body)
{
    struct rx_store *s = grammar_rx(b);
    switch (p->kind) {
    case GRAMMAR_PART_TEXT:
        return grammar_terminal(b, rx_literal(s, p->text));
    case GRAMMAR_PART_TOKEN:
        return grammar_token(b, p->token);
    case GRAMMAR_PART_UNTIL:
        return grammar_terminal(b, until(s, p->text));
    case GRAMMAR_PART_LINE_ENDS:
        return grammar_terminal(b, line_ends(s));
    default:
        return body;
    }
}

/* The parts from *at on, up to the end of their group. */
static sym_id row(const struct grammar_frame *f, uint32_t *at, struct grammar_builder *b, sym_id body)
{
    sym_id symbols[GRAMMAR_PARTS_MAX], rule = grammar_rule(b);
    uint32_t count = 0;
    while (*at < f->count && f->parts[*at].kind != GRAMMAR_PART_CLOSE) {
        const struct grammar_part *p = &f->parts[(*at)++];
        bool optional = p->kind == GRAMMAR_PART_OPTIONAL;
        sym_id symbol = optional ? row(f, at, b, body) : symbol_of(b, p, body);
        if (optional)
            grammar_alternative(b, symbol, NULL, 0);
        symbols[count++] = symbol;
    }
    ++*at;
    grammar_alternative(b, rule, symbols, count);
    return rule;
}

sym_id grammar_frame_around(const struct grammar_frame *f, struct grammar_builder *b, sym_id body)
{
    uint32_t at = 0;
    ASSERT(!f->full);
    return f->count ? row(f, &at, b, body) : body;
}
