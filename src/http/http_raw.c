/* http_raw.c - a state machine over a connection's bytes, one function for each state.
 *
 * Each function takes one byte and sets the next state. Only the payload of bodies and chunks is skipped in
 * pieces. The accepted language is a subset of RFC 9112 on which every recipient agrees:
 *   - lines end in CR LF; a lone CR or LF is a fault, in headers, chunk lines and trailers alike;
 *   - empty lines before a request line are skipped (section 2.2) and count as header bytes;
 *   - one blank between the three parts of a request line, and visible bytes in the target (0x80 and above
 *     are left to the router);
 *   - a header name is a token, directly followed by its colon; no line begins with a blank;
 *   - a value holds no control character but a tab;
 *   - Content-Length is digits and nothing else, not a list of equal numbers, without a trailing blank;
 *     Transfer-Encoding is "chunked" in any case;
 *   - a chunk's size has 1 to 16 hexadecimal digits, its line CHUNK_LINE_MAX bytes;
 *   - trailers follow the rules of headers and share their limits.
 * A kept head takes one byte of its text for each byte of the header at most, and one field for each
 * HTTP_RAW_FIELD_BYTES that were charged: so neither can overflow. Trailers are not kept. */
#include "http/http_raw.h"

#include "base/check.h"
#include "base/slice.h"

#include <string.h>

/* Bytes of a chunk's size and extension. Extensions mean nothing here; none that is in use is longer. */
#define CHUNK_LINE_MAX   256
#define CHUNK_DIGITS_MAX 16
#define METHOD_MAX       HTTP_RAW_NAME_MAX /* the longest that is registered: UPDATEREDIRECTREF */

enum state {
    STATE_START,
    STATE_START_LF,
    STATE_METHOD,
    STATE_TARGET_FIRST,
    STATE_TARGET,
    STATE_VERSION,
    STATE_REQUEST_LF,
    STATE_LINE,
    STATE_NAME,
    STATE_VALUE_BLANK,
    STATE_VALUE,
    STATE_VALUE_LF,
    STATE_HEADER_LF,
    STATE_CHUNK_SIZE,
    STATE_CHUNK_EXTENSION,
    STATE_CHUNK_SIZE_LF,
    STATE_CHUNK_CR,
    STATE_CHUNK_LF,
    STATE_BODY,
    STATE_CHUNK,
    STATES
};

enum field {
    FIELD_HOST,
    FIELD_LENGTH,
    FIELD_ENCODING,
    FIELD_AUTHORIZATION,
    FIELD_API_KEY,
    FIELD_ORIGIN,
    FIELD_COOKIE, /* from here on: as often as they like */
    FIELD_OTHER
};

/* Two of the first six would let two readers choose differently. */
static const struct slice field_names[] = {
    [FIELD_HOST] = {"host", 4},
    [FIELD_LENGTH] = {"content-length", 14},
    [FIELD_ENCODING] = {"transfer-encoding", 17},
    [FIELD_AUTHORIZATION] = {"authorization", 13},
    [FIELD_API_KEY] = {"x-api-key", 9},
    [FIELD_ORIGIN] = {"origin", 6},
    [FIELD_COOKIE] = {"cookie", 6},
};

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static unsigned char small(unsigned char c)
{
    return c >= 'A' && c <= 'Z' ? (unsigned char)(c | 0x20) : c;
}

static bool is_alnum(unsigned char c)
{
    return is_digit(c) || (small(c) >= 'a' && small(c) <= 'z');
}

static bool is_token(unsigned char c)
{
    return is_alnum(c) || (c != 0 && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_host(unsigned char c)
{
    return is_alnum(c) || (c != 0 && strchr("-._~%!$&'()*+,;=:[]", c));
}

static bool is_blank(unsigned char c)
{
    return c == ' ' || c == '\t';
}

static bool is_control(unsigned char c)
{
    return c < ' ' || c == 0x7f;
}

static enum http_fault charge_fields(struct http_raw *w, size_t bytes)
{
    w->field_bytes += bytes;
    return w->field_bytes > w->limits->field_bytes_max ? HTTP_FAULT_FIELDS : HTTP_FAULT_NONE;
}

/* ---- the kept head ---- */

void http_raw_keep(struct http_raw *w, struct http_head *h)
{
    ASSERT(h->fields_max >= w->limits->field_bytes_max / HTTP_RAW_FIELD_BYTES);
    *h = (struct http_head){.text = h->text, .fields = h->fields, .fields_max = h->fields_max};
    w->kept = h;
}

/* The head that the next byte belongs to; NULL: none is kept, or the byte is a trailer's. */
static struct http_head *kept(const struct http_raw *w)
{
    return w->trailer ? NULL : w->kept;
}

static void keep(struct http_raw *w, unsigned char c)
{
    struct http_head *h = kept(w);
    if (!h)
        return;
    ASSERT(h->text_bytes < w->limits->header_bytes_max);
    h->text[h->text_bytes++] = (char)c;
}

static void keep_name(struct http_raw *w)
{
    struct http_head *h = kept(w);
    if (!h)
        return;
    ASSERT(h->header_count < h->fields_max);
    h->fields[h->header_count++] = (struct http_field){.name = h->text_bytes};
}

/* At a name's colon, then at its value's end. */
static void keep_value(struct http_raw *w, bool ended)
{
    struct http_head *h = kept(w);
    if (!h)
        return;
    struct http_field *f = &h->fields[h->header_count - 1];
    if (ended) {
        struct slice value = {h->text + f->value, h->text_bytes - f->value};
        f->value_bytes = (uint32_t)slice_trim(value, " \t").len;
    } else {
        f->name_bytes = h->text_bytes - f->name;
        f->value = h->text_bytes;
    }
}

static void begin_request(struct http_raw *w)
{
    w->state = STATE_START;
    w->head = w->http_1_0 = w->chunked = w->trailer = w->query = false;
    w->seen = 0;
    w->length = 0;
    w->name_bytes = w->matched = 0;
    w->header_bytes = w->field_bytes = 0;
}

static void end_request(struct http_raw *w)
{
    w->requests++;
    w->events |= HTTP_RAW_END;
    begin_request(w);
}

/* ---- the request line ---- */

static void name_put(struct http_raw *w, unsigned char c)
{
    if (w->name_bytes < HTTP_RAW_NAME_MAX)
        w->name[w->name_bytes++] = (char)small(c);
    else
        w->name_bytes = HTTP_RAW_NAME_MAX + 1;
}

static enum http_fault step_method(struct http_raw *w, unsigned char c)
{
    if (c == ' ' && w->name_bytes > 0) {
        w->head = w->matched == 4 && w->name_bytes == 4;
        w->state = STATE_TARGET_FIRST;
        if (w->kept)
            w->kept->method_bytes = w->kept->text_bytes;
        return HTTP_FAULT_NONE;
    }
    if (!is_token(c) || w->name_bytes == METHOD_MAX)
        return HTTP_FAULT_REQUEST_LINE;
    if (w->name_bytes == 0 && w->kept)
        http_raw_keep(w, w->kept);
    keep(w, c);
    /* Methods are case-sensitive; only the common spelling matters here. */
    w->matched += w->matched == w->name_bytes && c == "HEAD"[MIN_OF(w->name_bytes, 4)];
    name_put(w, c);
    w->state = STATE_METHOD;
    return HTTP_FAULT_NONE;
}

static enum http_fault step_start(struct http_raw *w, unsigned char c)
{
    if (c == 0x16)
        return HTTP_FAULT_TLS;
    if (c == '\n')
        return HTTP_FAULT_LINE_END;
    if (c != '\r')
        return step_method(w, c);
    w->state = STATE_START_LF;
    return HTTP_FAULT_NONE;
}

static enum http_fault step_target(struct http_raw *w, unsigned char c)
{
    if (c == ' ') {
        w->state = STATE_VERSION;
        w->matched = 0;
        if (w->kept)
            w->kept->target_bytes = w->kept->text_bytes - w->kept->method_bytes;
        return HTTP_FAULT_NONE;
    }
    if (c == '\r' || c == '\n')
        return HTTP_FAULT_REQUEST_LINE;
    if (is_control(c))
        return HTTP_FAULT_TARGET;
    keep(w, c);
    bool argument = w->query ? c == '&' : c == '?';
    w->query = w->query || c == '?';
    return argument ? charge_fields(w, HTTP_RAW_FIELD_BYTES) : HTTP_FAULT_NONE;
}

static enum http_fault step_target_first(struct http_raw *w, unsigned char c)
{
    w->state = STATE_TARGET;
    return c == ' ' ? HTTP_FAULT_TARGET : step_target(w, c);
}

static enum http_fault step_version(struct http_raw *w, unsigned char c)
{
    static const char wanted[] = "HTTP/1.";
    uint8_t at = w->matched++;
    if (at < sizeof(wanted) - 1 && c == (unsigned char)wanted[at])
        return HTTP_FAULT_NONE;
    if (at == 0)
        return HTTP_FAULT_TARGET; /* a blank inside it, more likely than another protocol */
    if (at == 5 && is_digit(c))
        return HTTP_FAULT_VERSION;
    if (at == 7 && is_digit(c)) {
        w->http_1_0 = c == '0';
        return HTTP_FAULT_NONE;
    }
    if (at != 8 || c != '\r')
        return HTTP_FAULT_REQUEST_LINE;
    w->state = STATE_REQUEST_LF;
    return HTTP_FAULT_NONE;
}

/* ---- headers and trailers ---- */

static enum http_fault step_line(struct http_raw *w, unsigned char c)
{
    if (c == '\r') {
        w->state = STATE_HEADER_LF;
        return HTTP_FAULT_NONE;
    }
    if (c == '\n')
        return HTTP_FAULT_LINE_END;
    if (is_blank(c))
        return HTTP_FAULT_FOLD;
    if (!is_token(c))
        return HTTP_FAULT_NAME;
    w->name_bytes = 0;
    name_put(w, c);
    w->state = STATE_NAME;
    if (charge_fields(w, HTTP_RAW_FIELD_BYTES))
        return HTTP_FAULT_FIELDS;
    keep_name(w);
    keep(w, c);
    return HTTP_FAULT_NONE;
}

static enum http_fault begin_value(struct http_raw *w)
{
    struct slice name = {w->name, w->name_bytes};
    keep_value(w, false);
    w->state = STATE_VALUE_BLANK;
    w->value_over = false;
    w->matched = 0;
    for (w->field = 0; w->field < FIELD_OTHER; w->field++)
        if (slice_eq(name, field_names[w->field]))
            break;
    if (w->field == FIELD_OTHER)
        return HTTP_FAULT_NONE;
    if (w->trailer)
        return HTTP_FAULT_TRAILER;
    if (w->field == FIELD_COOKIE)
        return charge_fields(w, HTTP_RAW_FIELD_BYTES);
    if (w->seen & 1u << w->field)
        return HTTP_FAULT_DUPLICATE;
    w->seen |= (uint8_t)(1u << w->field);
    return HTTP_FAULT_NONE;
}

static enum http_fault step_name(struct http_raw *w, unsigned char c)
{
    if (c == ':')
        return begin_value(w);
    if (!is_token(c))
        return HTTP_FAULT_NAME;
    name_put(w, c);
    keep(w, c);
    return HTTP_FAULT_NONE;
}

/* A header's value is over: what it may not be as a whole. */
static enum http_fault end_value(struct http_raw *w)
{
    w->state = STATE_VALUE_LF;
    keep_value(w, true);
    if (w->field == FIELD_LENGTH && w->matched == 0)
        return HTTP_FAULT_LENGTH;
    if (w->field == FIELD_ENCODING && w->matched != 7)
        return HTTP_FAULT_ENCODING;
    w->chunked = w->chunked || w->field == FIELD_ENCODING;
    return HTTP_FAULT_NONE;
}

static enum http_fault put_length(struct http_raw *w, unsigned char c)
{
    w->matched = 1;
    if (!is_digit(c))
        return HTTP_FAULT_LENGTH;
    if (w->length > (uint64_t)(INT64_MAX - 9) / 10)
        return HTTP_FAULT_LENGTH_HUGE;
    w->length = w->length * 10 + (c - '0');
    return HTTP_FAULT_NONE;
}

static enum http_fault put_encoding(struct http_raw *w, unsigned char c)
{
    if (w->matched >= 7 || small(c) != (unsigned char)"chunked"[w->matched])
        return HTTP_FAULT_ENCODING;
    w->matched++;
    return HTTP_FAULT_NONE;
}

static enum http_fault put_host(struct http_raw *w, unsigned char c)
{
    bool blank = is_blank(c), over = w->value_over;
    w->value_over = over || blank;
    return blank || (!over && is_host(c)) ? HTTP_FAULT_NONE : HTTP_FAULT_HOST;
}

static enum http_fault put_cookie(struct http_raw *w, unsigned char c)
{
    return charge_fields(w, c == ';' || c == ',' ? 1 + HTTP_RAW_FIELD_BYTES : 1);
}

static enum http_fault step_value(struct http_raw *w, unsigned char c)
{
    if (c == '\r')
        return end_value(w);
    if (c == '\n')
        return HTTP_FAULT_LINE_END;
    if (is_control(c) && c != '\t')
        return HTTP_FAULT_CONTROL;
    w->state = STATE_VALUE;
    keep(w, c);
    switch (w->field) {
    case FIELD_LENGTH:
        return put_length(w, c);
    case FIELD_ENCODING:
        return put_encoding(w, c);
    case FIELD_HOST:
        return put_host(w, c);
    case FIELD_COOKIE:
        return put_cookie(w, c);
    default:
        return HTTP_FAULT_NONE;
    }
}

static enum http_fault step_value_blank(struct http_raw *w, unsigned char c)
{
    return is_blank(c) ? HTTP_FAULT_NONE : step_value(w, c);
}

static enum http_fault judge_header(const struct http_raw *w)
{
    bool length = w->seen & 1u << FIELD_LENGTH;
    if (!w->http_1_0 && !(w->seen & 1u << FIELD_HOST))
        return HTTP_FAULT_HOST_MISSING;
    if (w->chunked && length)
        return HTTP_FAULT_TWO_LENGTHS;
    return w->chunked && w->http_1_0 ? HTTP_FAULT_ENCODING_1_0 : HTTP_FAULT_NONE;
}

/* The empty line after the headers, or after the trailers. */
static enum http_fault step_header_lf(struct http_raw *w, unsigned char c)
{
    if (c != '\n')
        return HTTP_FAULT_LINE_END;
    if (w->trailer) {
        end_request(w);
        return HTTP_FAULT_NONE;
    }
    enum http_fault fault = judge_header(w);
    if (fault)
        return fault;
    w->headers++;
    w->events |= HTTP_RAW_HEAD;
    if (w->kept) {
        w->kept->bytes = w->header_bytes;
        w->kept->length = w->length;
        w->kept->http_1_0 = w->http_1_0;
        w->kept->chunked = w->chunked;
    }
    if (w->chunked) {
        w->state = STATE_CHUNK_SIZE;
        w->line_bytes = 0;
    } else if (w->length > 0) {
        w->left = w->length;
        w->state = STATE_BODY;
    } else {
        end_request(w);
    }
    return HTTP_FAULT_NONE;
}

/* ---- chunks ---- */

static enum http_fault step_chunk_size(struct http_raw *w, unsigned char c)
{
    int value = slice_hex((char)c);
    if (value >= 0 && w->line_bytes < CHUNK_DIGITS_MAX) {
        w->line_bytes++;
        w->length = w->length << 4 | (unsigned)value;
        return HTTP_FAULT_NONE;
    }
    if (w->line_bytes == 0 || (c != '\r' && c != ';'))
        return HTTP_FAULT_CHUNK;
    w->state = c == '\r' ? STATE_CHUNK_SIZE_LF : STATE_CHUNK_EXTENSION;
    return HTTP_FAULT_NONE;
}

static enum http_fault step_chunk_extension(struct http_raw *w, unsigned char c)
{
    if (c == '\r') {
        w->state = STATE_CHUNK_SIZE_LF;
        return HTTP_FAULT_NONE;
    }
    if ((is_control(c) && c != '\t') || ++w->line_bytes > CHUNK_LINE_MAX)
        return HTTP_FAULT_CHUNK;
    return HTTP_FAULT_NONE;
}

static enum http_fault step_chunk_size_lf(struct http_raw *w, unsigned char c)
{
    if (c != '\n')
        return HTTP_FAULT_CHUNK;
    w->left = w->length;
    w->length = 0;
    w->line_bytes = 0;
    w->trailer = w->left == 0;
    w->state = w->trailer ? STATE_LINE : STATE_CHUNK;
    return HTTP_FAULT_NONE;
}

/* ---- all of it ---- */

/* States in which one byte alone may follow, the state after it, and the fault of all others. Of the other
 * states before STATE_BODY each has a step. */
static const struct {
    unsigned char wanted;
    uint8_t next, fault;
} fixed[STATES] = {
    [STATE_START_LF] = {'\n', STATE_START, HTTP_FAULT_LINE_END},
    [STATE_REQUEST_LF] = {'\n', STATE_LINE, HTTP_FAULT_REQUEST_END},
    [STATE_VALUE_LF] = {'\n', STATE_LINE, HTTP_FAULT_LINE_END},
    [STATE_CHUNK_CR] = {'\r', STATE_CHUNK_LF, HTTP_FAULT_CHUNK},
    [STATE_CHUNK_LF] = {'\n', STATE_CHUNK_SIZE, HTTP_FAULT_CHUNK},
};

typedef enum http_fault step_fn(struct http_raw *w, unsigned char c);

static step_fn *const steps[STATE_BODY] = {
    [STATE_START] = step_start,
    [STATE_METHOD] = step_method,
    [STATE_TARGET_FIRST] = step_target_first,
    [STATE_TARGET] = step_target,
    [STATE_VERSION] = step_version,
    [STATE_LINE] = step_line,
    [STATE_NAME] = step_name,
    [STATE_VALUE_BLANK] = step_value_blank,
    [STATE_VALUE] = step_value,
    [STATE_HEADER_LF] = step_header_lf,
    [STATE_CHUNK_SIZE] = step_chunk_size,
    [STATE_CHUNK_EXTENSION] = step_chunk_extension,
    [STATE_CHUNK_SIZE_LF] = step_chunk_size_lf,
};

static enum http_fault step(struct http_raw *w, unsigned char c)
{
    if (w->state <= STATE_HEADER_LF && ++w->header_bytes > w->limits->header_bytes_max)
        return w->state <= STATE_TARGET ? HTTP_FAULT_TARGET_LONG : HTTP_FAULT_HEADER_LONG;
    if (!fixed[w->state].wanted)
        return steps[w->state](w, c);
    if (c != fixed[w->state].wanted)
        return fixed[w->state].fault;
    w->state = fixed[w->state].next;
    return HTTP_FAULT_NONE;
}

/* Skips payload of a body or chunk. Returns how many bytes of `len` that was. */
static size_t skip(struct http_raw *w, size_t len)
{
    size_t n = (size_t)MIN_OF(w->left, (uint64_t)len);
    w->left -= n;
    w->payload_bytes = n;
    w->events |= HTTP_RAW_BODY;
    if (w->left == 0 && w->state == STATE_CHUNK)
        w->state = STATE_CHUNK_CR;
    else if (w->left == 0)
        end_request(w);
    return n;
}

void http_raw_init(struct http_raw *w, const struct http_raw_limits *limits)
{
    *w = (struct http_raw){.limits = limits};
    begin_request(w);
}

size_t http_raw_feed(struct http_raw *w, const char *bytes, size_t len)
{
    size_t at = 0, whole = 0;
    ASSERT(!w->fault);
    w->events = 0;
    w->payload_bytes = 0;
    while (at < len && !(w->kept && w->events)) {
        uint64_t requests = w->requests;
        if (w->state >= STATE_BODY)
            at += skip(w, len - at);
        else
            w->fault = (uint8_t)step(w, (unsigned char)bytes[at++]);
        if (w->fault)
            return whole;
        if (w->requests != requests)
            whole = at;
    }
    return at;
}

bool http_raw_rests(const struct http_raw *w)
{
    return w->state == STATE_START && w->header_bytes == 0;
}
