/* reply_frame.c - the shapes of chat_syntax.h, up to the content. */
#include "gen/reply_frame.h"

#include "gen/gen.h"

#include "base/check.h"
#include "grammar/grammar_frame.h"

#include <string.h>

static void part(struct grammar_frame *f, enum grammar_part_kind kind)
{
    grammar_frame_add(f, (struct grammar_part){.kind = kind});
}

static void literal(struct grammar_frame *f, struct slice text)
{
    grammar_frame_add(f, (struct grammar_part){.kind = GRAMMAR_PART_TEXT, .text = text});
}

static struct slice marker_of(const struct chat_syntax *s, enum chat_marker m)
{
    struct slice text = slice_of(s->marker[m]);
    return text.len == 1 ? text : slice_trim(text, SLICE_BLANKS);
}

/* Bytes of `text` before its next special token. */
static size_t plain_bytes(const struct chat_syntax *s, struct slice text)
{
    size_t n = 0;
    while (n < text.len && chat_syntax_special_at(s, slice_sub(text, n, text.len)) == UINT32_MAX)
        n++;
    return n;
}

static void pieces(struct grammar_frame *f, const struct chat_syntax *s, struct slice text)
{
    while (text.len) {
        size_t n = plain_bytes(s, text);
        if (n > 0) {
            literal(f, slice_sub(text, 0, n));
        } else {
            const struct chat_special *special = &s->specials[chat_syntax_special_at(s, text)];
            grammar_frame_add(f, (struct grammar_part){.kind = GRAMMAR_PART_TOKEN, .token = special->id});
            n = special->text.len;
            ASSERT(n > 0);
        }
        text = slice_sub(text, n, text.len);
    }
}

/* Adds a marker without the white space around it: its special tokens as tokens. Nothing for a marker that
 * `s` does not have. */
static void marker(struct grammar_frame *f, const struct chat_syntax *s, enum chat_marker m)
{
    pieces(f, s, marker_of(s, m));
}

/* Any text, then the marker for the first time. */
static void until(struct grammar_frame *f, const struct chat_syntax *s, enum chat_marker m)
{
    struct slice text = marker_of(s, m);
    size_t n = plain_bytes(s, text);
    grammar_frame_add(f, (struct grammar_part){.kind = GRAMMAR_PART_UNTIL, .text = slice_sub(text, 0, n)});
    pieces(f, s, slice_sub(text, n, text.len));
}

static void optional_marker(struct grammar_frame *f, const struct chat_syntax *s, enum chat_marker m)
{
    if (marker_of(s, m).len == 0)
        return;
    part(f, GRAMMAR_PART_OPTIONAL);
    marker(f, s, m);
    part(f, GRAMMAR_PART_CLOSE);
}

/* Messages with headers: one of reasoning, which a reply may leave out, and the final one. */
static void channels(struct grammar_frame *f, const struct chat_syntax *s)
{
    part(f, GRAMMAR_PART_OPTIONAL);
    marker(f, s, CHAT_CHANNEL_BEGIN);
    literal(f, SLICE("analysis"));
    marker(f, s, CHAT_NAME_END);
    until(f, s, CHAT_SECTION_END);
    marker(f, s, CHAT_SECTION_BEGIN);
    literal(f, SLICE("assistant"));
    part(f, GRAMMAR_PART_CLOSE);
    marker(f, s, CHAT_CHANNEL_BEGIN);
    literal(f, SLICE("final"));
    marker(f, s, CHAT_NAME_END);
    part(f, GRAMMAR_PART_BODY);
}

static void reasoning(struct grammar_frame *f, const struct chat_syntax *s, const struct prompt_ids *prompt)
{
    if (marker_of(s, CHAT_REASONING_CLOSE).len == 0 || !(prompt->in_reasoning || prompt->may_reason))
        return;
    if (!prompt->in_reasoning) {
        part(f, GRAMMAR_PART_OPTIONAL);
        marker(f, s, CHAT_REASONING_OPEN);
    }
    until(f, s, CHAT_REASONING_CLOSE);
    part(f, GRAMMAR_PART_LINE_ENDS);
    if (!prompt->in_reasoning)
        part(f, GRAMMAR_PART_CLOSE);
}

void reply_frame_make(const struct chat_syntax *s, const struct prompt_ids *prompt, struct grammar_frame *ret)
{
    *ret = (struct grammar_frame){.count = 0};
    if (s->shape == CHAT_CHANNELS) {
        channels(ret, s);
        return;
    }
    reasoning(ret, s, prompt);
    /* A reply to the name that stands for content: its call marker ends the prompt. */
    if (s->text_to && s->opens) {
        literal(ret, slice_of(s->text_to));
        marker(ret, s, CHAT_NAME_END);
    }
    optional_marker(ret, s, CHAT_TEXT_BEGIN);
    part(ret, GRAMMAR_PART_BODY);
    optional_marker(ret, s, CHAT_TEXT_END);
    if (ret->count == 1)
        ret->count = 0;
}
