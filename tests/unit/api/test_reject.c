/* The table of errors: every kind has its row, and its row is consistent. */
#include "test.h"

#include "api/reject_http.h"
#include "gen/reject.h"
#include "http/http_state.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

static json_t *envelope(const struct reject *why)
{
    struct buf b;
    buf_init(&b, 8192, NULL);
    reject_write(why, "", &b);
    json_t *root = json_loadb(b.ptr, b.len, 0, NULL);
    assert_non_null(root);
    buf_done(&b);
    return root;
}

static const char *type_of(unsigned status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 429:
        return "rate_limit_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

TEST(every_kind_has_a_status_a_code_and_openais_type)
{
    for (int kind = REJECT_NONE + 1; kind < REJECT_KIND_COUNT; kind++) {
        struct reject why = {0};
        assert_false(reject_set(&why, (enum reject_kind)kind, "field", "number %d", kind));
        assert_in_range(reject_status(&why), 400, 599);
        json_t *root = envelope(&why), *e = json_object_get(root, "error");
        assert_string_equal(json_string_value(json_object_get(e, "code")), reject_code(&why));
        assert_string_equal(json_string_value(json_object_get(e, "type")), type_of(reject_status(&why)));
        assert_string_equal(json_string_value(json_object_get(e, "param")), "field");
        assert_string_equal(json_string_value(json_object_get(e, "message")), why.message);
        json_decref(root);
    }
}

TEST(a_code_and_a_status_together_are_of_one_kind)
{
    for (int a = REJECT_NONE + 1; a < REJECT_KIND_COUNT; a++)
        for (int b = REJECT_NONE + 1; b < a; b++) {
            struct reject one = {.kind = (enum reject_kind)a}, other = {.kind = (enum reject_kind)b};
            assert_true(reject_status(&one) != reject_status(&other) ||
                        strcmp(reject_code(&one), reject_code(&other)) != 0);
        }
}

/* http refuses some requests before the API sees them, from a table of its own. */
TEST(a_code_that_http_uses_too_has_the_same_status)
{
    uint32_t shared = 0;
    for (int h = 0; h < HTTP_REFUSAL_COUNT; h++) {
        const char *code = http_refusal_code((enum http_refusal_kind)h);
        assert_in_range(http_refusal_status((enum http_refusal_kind)h), 400, 599);
        for (int kind = REJECT_NONE + 1; kind < REJECT_KIND_COUNT; kind++) {
            struct reject why = {.kind = (enum reject_kind)kind};
            if (strcmp(reject_code(&why), code) != 0)
                continue;
            assert_int_equal(reject_status(&why), http_refusal_status((enum http_refusal_kind)h));
            shared++;
        }
    }
    assert_int_equal(shared, 3); /* busy, shutting_down, out_of_memory */
}

TEST(nothing_wrong_has_neither_status_nor_code)
{
    struct reject why = {0};
    assert_int_equal(reject_status(&why), 0);
    assert_null(reject_code(&why));
}

TEST(the_first_finding_stays)
{
    struct reject why = {0};
    reject_as(&why, REJECT_REQUEST_CANCELLED);
    reject_set(&why, REJECT_MODEL_NOT_FOUND, "model", "There is no model.");
    assert_int_equal(why.kind, REJECT_REQUEST_CANCELLED);
    assert_string_equal(why.message, "The request was cancelled.");
    assert_string_equal(why.param, "");
}

TEST(an_interrupted_preparation_is_a_cancellation_or_a_timeout)
{
    struct reject cancelled = {0}, late = {0};
    reject_unwanted(&cancelled, -ECANCELED);
    reject_unwanted(&late, -ETIME);
    assert_string_equal(reject_code(&cancelled), "request_cancelled");
    assert_string_equal(reject_code(&late), "preparation_timeout");
    assert_int_equal(reject_status(&late), 503);
    assert_true(late.retry_after_s > 0);
}

TEST(no_control_character_of_a_client_is_quoted)
{
    char id[400];
    struct reject why = {0};
    memset(id, 'x', sizeof(id));
    id[3] = '\n';
    reject_set(&why, REJECT_MODEL_NOT_FOUND, "model", "The model \"%.*s\" does not exist.", 200, id);
    assert_null(strchr(why.message, '\n'));
    assert_true(strlen(why.message) < 300);
    assert_string_equal(why.param, "model");
}

TEST_MAIN()
