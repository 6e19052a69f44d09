/* models.c - in this order: find the models, name them, settle their settings. */
#include "host/models/models.h"

#include "host/models/catalog_files.h"
#include "host/models/catalog_names.h"
#include "host/models/catalog.h"
#include "host/models/models_state.h"
#include "host/runtime.h"

#include "base/log.h"
#include "chat/chat_syntax.h"
#include "hub/hub_cache.h"
#include "weights/model_files.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- finding models ---- */

static int count_one(void *arg, const char *path, const char *id, struct err *e)
{
    (void)path, (void)id, (void)e;
    ++*(uint32_t *)arg;
    return 0;
}

/* True if the model has images of the encoder beside it. */
static bool reads_encoder(const char *dir)
{
    struct model_files *files = NULL;
    struct err ignored;
    const bool reads = model_files_open(dir, &files, &ignored) == 0 && model_files_encoder(files);
    model_files_close(files);
    return reads;
}

/* A vision encoder beside a model that the user named, which is not read. Those below a --model-dir are
 * counted. A folder of several models is refused later. */
static void tell_encoder(const struct model_settings *s)
{
    char file[256];
    uint32_t beside = 0;
    struct err ignored;
    /* Names first: most models have no such file, and are not opened for it. */
    if (!catalog_encoder_beside(s->dir, file, sizeof(file)) || !catalog_is_gguf(s->dir))
        return;
    if (catalog_files_in(s->dir, count_one, &beside, &ignored) == 0 && beside <= 1 && !reads_encoder(s->dir))
        LOG_WARN("vision_encoder_passed_over",
                 "model=%s file=\"%s\" reason=\"no vision encoder that belongs to the model and is read: "
                 "it is served for text, and requests with images are refused\"",
                 s->id, file);
}

static int add(struct models *m, const char *dir, bool named, struct err *e)
{
    struct model_settings *s = &m->list[m->count];
    int r = runtime_find_model(dir, NULL, s->dir, s->id, e);
    if (r < 0)
        return r;
    if (named)
        tell_encoder(s);
    s->preload = named;
    m->count++;
    return 0;
}

bool models_is_same_dir(const char *a, const char *b)
{
    char *x = realpath(a, NULL), *y = realpath(b, NULL);
    bool same = x && y && strcmp(x, y) == 0;
    free(x);
    free(y);
    return same;
}

/* One that was named already is not served twice; by another name it is. */
static int add_found(void *arg, const char *path, struct err *e)
{
    struct models *m = arg;
    char name[MODEL_ID_BYTES];
    catalog_name_of(path, name, sizeof(name));
    for (uint32_t i = 0; i < m->count && m->list[i].preload; i++)
        if (strcmp(m->list[i].id, name) == 0 && models_is_same_dir(m->list[i].dir, path))
            return 0;
    if (m->count < REGISTRY_MODELS_MAX)
        return add(m, path, false, e);
    if (m->left_out++ == 0)
        snprintf(m->first_left_out, sizeof(m->first_left_out), "%s", path);
    return 0;
}

/* --hub-cache */
static int find_in_hub(struct models *m, struct err *e)
{
    char cache[CATALOG_PATH_BYTES];
    uint32_t found;
    int r = models_search_hub(add_found, m, &found, cache, e);
    if (r < 0 || found > 0 || m->settings->models.named[0] || m->settings->models.dirs[0])
        return r;
    return err_set(e, -ENOENT, "--hub-cache: %s has no model; plateau pull ORG/NAME fetches one", cache);
}

static void tell_left_out(const struct models *m)
{
    if (m->left_out > 0)
        LOG_WARN("models_left_out",
                 "served=%u left_out=%u first_left_out=\"%s\" reason=\"a server has at most %d models, in "
                 "the order of their "
                 "paths; a --model-dir with fewer below it chooses others\"",
                 m->count, m->left_out, m->first_left_out, REGISTRY_MODELS_MAX);
}

static int find_below(struct models *m, const char *dir, struct err *e)
{
    struct models_others others;
    uint32_t found;
    int r = models_search_dir(dir, add_found, m, &found, &others, e);
    if (r < 0 || found > 0 || m->settings->models.named[0] || m->settings->models.dirs[1])
        return r;
    return err_set(e, -ENOENT,
                   "--model-dir %s: no directory below it has config.json and a .safetensors file, or "
                   "GGUF files%s",
                   dir,
                   others.bins > 0      ? "; there are .bin files with weights, which are not read"
                   : others.mmprojs > 0 ? "; there are vision encoders (mmproj), which are not models"
                                        : "");
}

/* The bundled one, and the starter model where it has been fetched. That one loads on its first request: the
 * two need not fit together. */
static int find_own(struct models *m, struct err *e)
{
    char starter[HUB_PATH_BYTES];
    int r = add(m, NULL, true, e);
    return r == 0 && catalog_starter(starter) ? add(m, starter, false, e) : r;
}

static int find_all(struct models *m, struct err *e)
{
    const struct settings *o = m->settings;
    int r = 0;
    if (!o->models.named[0] && !o->models.dirs[0] && !o->models.hub_cache)
        return find_own(m, e);
    for (uint32_t i = 0; r == 0 && o->models.named[i]; i++)
        r = add(m, o->models.named[i], true, e);
    for (uint32_t i = 0; r == 0 && o->models.dirs[i]; i++)
        r = find_below(m, o->models.dirs[i], e);
    if (r == 0 && o->models.hub_cache)
        r = find_in_hub(m, e);
    tell_left_out(m);
    if (r == 0 && m->count == 0)
        return err_set(e, -ENOENT,
                       "--model-dir %s: no directory below it has config.json and a .safetensors file, or a "
                       "GGUF file",
                       o->models.dirs[0]);
    return r;
}

/* ---- names ---- */

/* The rest of a message about a model that is not there. */
static const char *among(const struct models *m)
{
    return m->left_out > 0 ? ", or it was left out: there are more models than a server has" : "";
}

/* By id or by the directory, as given or found. NULL: unknown. */
static struct model_settings *find_model(struct models *m, const char *name, size_t len)
{
    char dir[MODEL_DIR_BYTES];
    while (len > 1 && name[len - 1] == '/')
        len--;
    snprintf(dir, sizeof(dir), "%.*s", (int)len, name);
    for (uint32_t i = 0; i < m->count; i++)
        if (strcmp(m->list[i].id, dir) == 0 || strcmp(m->list[i].dir, dir) == 0)
            return &m->list[i];
    return NULL;
}

static bool is_alias(const struct model_settings *s, const char *name)
{
    for (uint32_t i = 0; i < s->alias_count; i++)
        if (strcmp(s->aliases[i], name) == 0)
            return true;
    return false;
}

/* By id or alias, among the models of the list; NULL: none. */
static struct model_settings *find_named(struct models *m, const char *name)
{
    struct model_settings *s = find_model(m, name, strlen(name));
    for (uint32_t i = 0; i < m->count && !s; i++)
        if (is_alias(&m->list[i], name))
            s = &m->list[i];
    return s;
}

static int rename_model(struct model_settings *s, const char *name, size_t len, struct err *e)
{
    if (len == 0 || len >= sizeof(s->id) || memchr(name, '/', len))
        return err_set(
            e, -EINVAL,
            "--alias %.*s: the name of a directory's model has 1 to %zu bytes and no slash; --alias "
            "NAME=ID adds one with slashes",
            (int)len, name, sizeof(s->id) - 1);
    memcpy(s->id, name, len);
    s->id[len] = 0;
    return 0;
}

int models_add_alias(struct model_settings *s, const char *name, struct err *e)
{
    if (s->alias_count == MODEL_ALIASES_MAX)
        return err_set(e, -EINVAL, "%s has more than %d aliases", s->id, MODEL_ALIASES_MAX);
    size_t len = strlen(name);
    if (len == 0 || len >= sizeof(s->id) || name[0] == '/' || name[len - 1] == '/')
        return err_set(e, -EINVAL, "alias \"%s\": a name has 1 to %zu bytes and no slash at its ends", name,
                       sizeof(s->id) - 1);
    if (!is_alias(s, name) && strcmp(s->id, name) != 0)
        s->aliases[s->alias_count++] = name;
    return 0;
}

static void name_twins(struct models *m)
{
    struct catalog_named list[REGISTRY_MODELS_MAX];
    for (uint32_t i = 0; i < m->count; i++)
        list[i] = (struct catalog_named){.path = m->list[i].dir,
                                         .id = m->list[i].id,
                                         .id_bytes = sizeof(m->list[i].id),
                                         .has_id = true,
                                         .renames = !m->list[i].preload};
    catalog_name_twins(list, m->count);
}

void models_note_hub_ids(struct models *m, uint32_t index)
{
    struct hub_ids *ids = &m->hub_ids[index];
    char text[HUB_NAME_BYTES];
    struct hub_name hub;
    *ids = (struct hub_ids){.whole = ""};
    if (!hub_cache_name_of(m->list[index].dir, &hub))
        return;
    hub_name_text(&hub, text);
    snprintf(ids->whole, sizeof(ids->whole), "%.*s", MODEL_ID_BYTES - 1, text);
    if (hub.quant[0])
        snprintf(ids->repository, sizeof(ids->repository), "%s", hub.id);
}

const char *models_short_name(const struct models *m, uint32_t index, uint32_t number)
{
    const struct hub_ids *ids = &m->hub_ids[index];
    const char *names[] = {ids->whole, ids->repository, ids->repository};
    if (number >= COUNT_OF(names) || !names[number][0])
        return NULL;
    const char *slash = strchr(names[number], '/');
    return number == 1 || !slash ? names[number] : slash + 1;
}

/* Whether a model other than `index` has the name, or may get it. */
static bool is_others(const struct models *m, uint32_t index, const char *name)
{
    const char *other;
    for (uint32_t i = 0; i < m->count; i++) {
        if (i != index && strcmp(m->list[i].id, name) == 0)
            return true;
        for (uint32_t k = 0; i != index && (other = models_short_name(m, i, k)); k++)
            if (strcmp(other, name) == 0)
                return true;
    }
    return false;
}

/* A model of the hub is ORG/NAME or ORG/NAME:QUANT, and has those of its short names that no other has. */
static int name_hub_models(struct models *m, struct err *e)
{
    const char *name;
    int r = 0;
    for (uint32_t i = 0; i < m->count; i++)
        models_note_hub_ids(m, i);
    for (uint32_t i = 0; i < m->count; i++)
        for (uint32_t k = 0; r == 0 && (name = models_short_name(m, i, k)); k++)
            if (!is_others(m, i, name))
                r = models_add_alias(&m->list[i], name, e);
    return r;
}

/* NAME alone adds a name to the only model on the command line, NAME=ID to that model. NAME=PATH renames the
 * model there, so that two directories of one name can be distinguished. */
static int apply_alias(struct models *m, const char *alias, struct err *e)
{
    const char *equals = strchr(alias, '=');
    if (!equals && m->settings->models.named[1])
        return err_set(e, -EINVAL, "--alias %s: there are several models; --alias %s=MODEL says which", alias,
                       alias);
    if (!equals)
        return models_add_alias(&m->list[0], alias, e);
    struct model_settings *s = find_model(m, equals + 1, strlen(equals + 1));
    bool by_dir = s && strchr(equals + 1, '/') && strcmp(s->id, equals + 1) != 0;
    if (!s)
        s = find_named(m, equals + 1);
    if (!s)
        return err_set(e, -ENOENT, "--alias %s: there is no model %s%s", alias, equals + 1, among(m));
    const char *hub_id = m->hub_ids[s - m->list].whole;
    if (by_dir) {
        int r = rename_model(s, alias, (size_t)(equals - alias), e);
        return r == 0 && hub_id[0] ? models_add_alias(s, hub_id, e) : r;
    }
    char *name = strndup(alias, (size_t)(equals - alias));
    if (!name)
        return -ENOMEM;
    m->texts[m->text_count++] = name;
    return models_add_alias(s, name, e);
}

/* ---- settings of each model ---- */

static const char *section_of(const struct models *m, const struct model_settings *s)
{
    const char *name;
    for (uint32_t i = 0; (name = settings_section(m->settings, i)); i++)
        if (strcmp(name, s->id) == 0 || strcmp(name, s->dir) == 0 || is_alias(s, name))
            return name;
    return NULL;
}

static int check_sections(struct models *m, struct err *e)
{
    const char *name;
    for (uint32_t i = 0; (name = settings_section(m->settings, i)); i++)
        if (!find_named(m, name))
            return err_set(e, -EINVAL, "--config: the section [model %s] is of no model that is served%s",
                           name, among(m));
    return 0;
}

static int read_kwargs(const struct settings *own, struct model_settings *s, struct err *e)
{
    json_error_t why;
    if (!own->model.template_kwargs)
        return 0;
    json_t *kwargs = json_loads(own->model.template_kwargs, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(kwargs)) {
        json_decref(kwargs);
        return err_set(e, -EINVAL, "[model %s] chat-template-kwargs: a JSON object is expected%s%s", s->id,
                       kwargs ? "" : ": ", kwargs ? "" : why.text);
    }
    s->template_kwargs = kwargs;
    return 0;
}

/* Names of formats are checked at the start, not when the model loads. */
static int check_formats(const struct settings *own, const struct model_settings *s, struct err *e)
{
    struct chat_syntax syntax;
    int r = chat_syntax_named(own->model.tool_format, own->model.reasoning_format, &syntax, e);
    return r < 0 ? err_prefix(e, r, "model %s", s->id) : 0;
}

static struct sampling_defaults sampling_of(const struct sampling_defaults *given)
{
    return (struct sampling_defaults){.temperature = given->temperature < 0 ? NAN : given->temperature,
                                      .top_p = given->top_p > 0 ? given->top_p : NAN,
                                      .min_p = given->min_p < 0 ? NAN : given->min_p,
                                      .repetition_penalty =
                                          given->repetition_penalty > 0 ? given->repetition_penalty : NAN,
                                      .top_k = given->top_k > 0 ? given->top_k : -1};
}

static int add_warms(const struct settings *own, struct model_settings *s, struct err *e)
{
    for (uint32_t i = 0; own->models.warm[i]; i++) {
        if (i == MODEL_WARMS_MAX)
            return err_set(e, -EINVAL, "%s has more than %d warm files", s->id, MODEL_WARMS_MAX);
        s->warm[i] = own->models.warm[i];
    }
    return 0;
}

/* Models with one fingerprint would take each other's pages from the SSD tier. */
static int check_fingerprint(const struct models *m, uint32_t index, struct err *e)
{
    const char *given = m->own[index].model.fingerprint;
    for (uint32_t i = 0; given && i < index; i++) {
        const char *other = m->own[i].model.fingerprint;
        if (other && strcmp(given, other) == 0 && strcmp(m->list[i].dir, m->list[index].dir) != 0)
            return err_set(e, -EINVAL,
                           "--fingerprint: %s and %s would share entries of the SSD tier; give each its own, "
                           "in its section of --config",
                           m->list[i].id, m->list[index].id);
    }
    return 0;
}

int models_read_settings(struct models *m, uint32_t index, struct err *e)
{
    struct settings *own = &m->own[index];
    struct model_settings *s = &m->list[index], known = *s;
    int r = settings_of_model(m->settings, section_of(m, s), own, e);
    if (r == 0)
        r = runtime_settings(own, known.dir, known.id, own->model.engine.max_num_seqs,
                             own->model.engine.max_queue, s, e);
    if (r < 0)
        return r;
    memcpy(s->aliases, known.aliases, sizeof(s->aliases));
    s->alias_count = known.alias_count;
    s->preload = known.preload;
    s->shares = models_are_several(m);
    s->sampling = sampling_of(&own->model.sampling);
    s->max_tokens_default = own->api.live.max_tokens_default;
    for (uint32_t i = 0; r == 0 && own->models.aliases[i]; i++)
        r = models_add_alias(s, own->models.aliases[i], e);
    if (r == 0)
        r = check_fingerprint(m, index, e);
    if (r == 0)
        r = add_warms(own, s, e);
    if (r == 0)
        r = check_formats(own, s, e);
    return r == 0 ? read_kwargs(own, s, e) : r;
}

static int apply_pins(struct models *m, struct err *e)
{
    for (uint32_t i = 0; m->settings->models.pins[i]; i++) {
        struct model_settings *s = find_named(m, m->settings->models.pins[i]);
        if (!s)
            return err_set(e, -ENOENT, "--pin %s: there is no such model%s", m->settings->models.pins[i],
                           among(m));
        s->options.pinned = true;
    }
    return 0;
}

static int apply_default(struct models *m, struct err *e)
{
    const char *name = m->settings->models.default_model;
    const struct model_settings *s = name ? find_named(m, name) : NULL;
    if (name && !s)
        return err_set(e, -ENOENT, "--default-model %s: there is no such model%s", name, among(m));
    m->default_id = s ? s->id : NULL;
    return 0;
}

uint32_t models_most(const struct settings *o, uint32_t count)
{
    bool grows = o->models.dirs[0] || o->models.hub_cache || o->process.allow_pull;
    return grows ? MIN_OF(count + MODELS_LATER_MAX, (uint32_t)REGISTRY_MODELS_MAX) : count;
}

int models_find(const struct settings *o, struct models *ret, struct err *e)
{
    *ret = (struct models){.settings = o};
    ret->list = calloc(REGISTRY_MODELS_MAX, sizeof(*ret->list));
    ret->own = calloc(REGISTRY_MODELS_MAX, sizeof(*ret->own));
    ret->hub_ids = calloc(REGISTRY_MODELS_MAX, sizeof(*ret->hub_ids));
    if (!ret->list || !ret->own || !ret->hub_ids)
        return err_set(e, -ENOMEM, "no memory for the list of models");
    int r = find_all(ret, e);
    ret->models_max = models_most(o, ret->count);
    if (r == 0)
        name_twins(ret);
    if (r == 0)
        r = name_hub_models(ret, e);
    for (uint32_t i = 0; r == 0 && o->models.aliases[i]; i++)
        r = apply_alias(ret, o->models.aliases[i], e);
    for (uint32_t i = 0; r == 0 && i < ret->count; i++)
        r = models_read_settings(ret, i, e);
    if (r == 0)
        r = check_sections(ret, e);
    if (r == 0)
        r = apply_pins(ret, e);
    if (r == 0)
        r = models_add_replicas(ret, e);
    ret->models_max = models_most(o, ret->count);
    for (uint32_t i = 0; i < ret->count; i++)
        ret->list[i].shares = models_are_several(ret);
    return r == 0 ? apply_default(ret, e) : r;
}

void models_done(struct models *m)
{
    for (uint32_t i = 0; m->list && i < m->count; i++)
        json_decref((json_t *)m->list[i].template_kwargs);
    while (m->text_count > 0)
        free(m->texts[--m->text_count]);
    free(m->list);
    free(m->own);
    free(m->hub_ids);
    *m = (struct models){0};
}
