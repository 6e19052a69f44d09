/* The table of vision encoders in docs/models.md is that of the code and of the goldens. */
#include "test.h"

#include "model/family/vision_family.h"

#include "base/buf.h"
#include "base/check.h"

#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define PAGE  PLATEAU_SOURCE_DIR "/docs/models.md"
#define BEGIN "| vision encoder of |"

static void put_list(struct buf *b, const char *word, bool *first)
{
    buf_printf(b, "%s%s", *first ? "" : ", ", word);
    *first = false;
}

/* ---- cells of a row ---- */

static const char *positions_of(const struct vision_family *f)
{
    static const char *const words[] = {[ENCODE_POSITIONS_SQUARE] = "learned positions",
                                        [ENCODE_POSITIONS_CUBIC] = "positions by a bicubic filter",
                                        [ENCODE_POSITIONS_AXES] = "positions of rows and columns",
                                        [ENCODE_POSITIONS_PAIRS] = "positions of rows and columns",
                                        [ENCODE_POSITIONS_SMOOTH] = "positions resized to each image"};
    return f->tensors[VISION_ROLE_POSITIONS] ? words[f->positions] : NULL;
}

static const char *size_of(const struct vision_family *f)
{
    static const char *const words[] = {[IMAGE_BY_AREA] = NULL,
                                        [IMAGE_BY_LONGEST] = "a longest edge",
                                        [IMAGE_FIXED] = "squares",
                                        [IMAGE_BY_BUDGET] = "a budget of tokens",
                                        [IMAGE_PADDED] = "black pixels at edges"};
    return f->tiles ? "tiles" : words[f->size];
}

static void put_parts(struct buf *b, const struct vision_family *f)
{
    const char *const *t = f->tensors;
    const struct {
        const char *word;
        bool has;
    } parts[] = {
        {size_of(f), size_of(f)},
        {"a class token", t[VISION_ROLE_CLASS]},
        {positions_of(f), positions_of(f)},
        {"a rotation", f->rotation != ENCODE_ROTATE_NONE},
        {"windows", f->windows},
        {"norms of heads", t[VISION_ROLE_Q_NORM]},
        {"gates", t[VISION_ROLE_GATE]},
        {"means of patches", f->pools},
        {"a gated merger", t[VISION_ROLE_MERGE_GATE]},
        {"DeepStack", t[VISION_ROLE_DEEP_UP]},
        {"an image's tokens see each other", f->both_ways},
        {"an image's tokens see each other in windows", f->windowed_ways},
    };
    bool first = true;
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (parts[i].has)
            put_list(b, parts[i].word, &first);
}

/* ---- goldens ---- */

/* Returns a golden's model_type, which the caller releases. */
static json_t *type_of(const char *golden)
{
    char path[512];
    snprintf(path, sizeof(path), PLATEAU_SOURCE_DIR "/tests/golden/data/%s/config.json", golden);
    json_t *config = json_load_file(path, 0, NULL), *type = json_object_get(config, "model_type");
    json_incref(type);
    json_decref(config);
    return type;
}

static bool has_golden(const char *name)
{
    DIR *d = opendir(PLATEAU_SOURCE_DIR "/tests/golden/data");
    bool found = false;
    assert_non_null(d);
    for (const struct dirent *f; !found && (f = readdir(d));) {
        json_t *type = type_of(f->d_name);
        found = type && strcmp(json_string_value(type), name) == 0;
        json_decref(type);
    }
    closedir(d);
    return found;
}

static void put_goldens(struct buf *b, const struct vision_family *f)
{
    bool first = true;
    for (size_t i = 0; i < COUNT_OF(f->names) && f->names[i]; i++)
        if (has_golden(f->names[i]))
            put_list(b, f->names[i], &first);
    if (first)
        buf_puts(b, "none");
}

/* ---- the table ---- */

static void put_row(struct buf *b, const struct vision_family *f)
{
    bool first = true;
    buf_puts(b, "| ");
    for (size_t i = 0; i < COUNT_OF(f->names) && f->names[i]; i++)
        put_list(b, f->names[i], &first);
    buf_puts(b, " | ");
    put_parts(b, f);
    buf_printf(b, " | %s | %s | ", vision_family_reads_videos(f) ? "images, videos" : "images",
               f->everywhere ? "CPU, GPU" : "CPU");
    put_goldens(b, f);
    buf_puts(b, " |\n");
}

static void put_table(struct buf *b)
{
    buf_puts(b, BEGIN " what it has | reads | computed by | golden of |\n|---|---|---|---|---|\n");
    for (size_t i = 0; vision_family_at(i); i++)
        put_row(b, vision_family_at(i));
    buf_put(b, "", 1);
}

/* MODELS_DOC=FILE writes the page with the table there. */
TEST(the_page_of_models_lists_the_encoders)
{
    static char page[1 << 17];
    const char *file = getenv("MODELS_DOC");
    struct buf want;
    FILE *f = fopen(PAGE, "r");
    assert_non_null(f);
    page[fread(page, 1, sizeof(page) - 1, f)] = 0;
    assert_int_equal(fclose(f), 0);
    char *begin = strstr(page, BEGIN), *end = begin ? strstr(begin, "\n\n") : NULL;
    assert_non_null(end);
    buf_init(&want, sizeof(page), NULL);
    put_table(&want);
    if (file) {
        assert_non_null(f = fopen(file, "w"));
        fprintf(f, "%.*s%s%s", (int)(begin - page), page, want.ptr, end + 1);
        assert_int_equal(fclose(f), 0);
    } else {
        end[1] = 0;
        assert_string_equal(begin, want.ptr);
    }
    buf_done(&want);
}

TEST(each_type_is_of_one_row)
{
    for (size_t i = 0; vision_family_at(i); i++)
        for (size_t k = 0; k < COUNT_OF(vision_family_at(i)->names) && vision_family_at(i)->names[k]; k++)
            assert_ptr_equal(vision_family_find(vision_family_at(i)->names[k]), vision_family_at(i));
}

TEST_MAIN()
