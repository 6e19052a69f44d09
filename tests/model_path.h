/* model_path.h - for tests and benchmarks: what takes a model's open files, by their path. The files are open
 * during the call. */
#ifndef PLATEAU_TESTS_MODEL_PATH_H
#define PLATEAU_TESTS_MODEL_PATH_H

#include "model/config/config.h"
#include "model/config/generation_config.h"
#include "model/config/pooling.h"
#include "model/load/pack.h"
#include "model/model.h"
#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"
#include "weights/checkpoint.h"
#include "weights/model_files.h"

/* Defines NAME_at(PATH, ...): opens the files, calls NAME and closes them. */
#define MODEL_PATH(name, parameters, call)                                                                   \
    static inline int name##_at parameters                                                                   \
    {                                                                                                        \
        struct model_files *files = NULL;                                                                    \
        int r = model_files_open(path, &files, e);                                                           \
        if (r == 0)                                                                                          \
            r = call;                                                                                        \
        model_files_close(files);                                                                            \
        return r;                                                                                            \
    }

MODEL_PATH(model_probe,
           (const char *path, const struct model_parts *parts, struct model_shape *ret, struct err *e),
           model_probe(files, parts, ret, e))
MODEL_PATH(model_load, (const char *path, const struct model_opts *opts, struct model **ret, struct err *e),
           model_load(files, opts, ret, e))
MODEL_PATH(pack_model,
           (const char *path, const char *out, const struct pack_opts *opts, struct pack_result *ret,
            struct err *e),
           pack_model(files, out, opts, ret, e))
MODEL_PATH(config_load, (struct arena * a, const char *path, struct config *ret, struct err *e),
           config_load(a, files, ret, e))
MODEL_PATH(generation_config_load, (const char *path, struct generation_defaults *ret, struct err *e),
           generation_config_load(files, ret, e))
MODEL_PATH(pooling_config_load,
           (const char *path, uint32_t hidden, struct pooling_config *ret, struct err *e),
           pooling_config_load(files, hidden, ret, e))
MODEL_PATH(vision_config_load,
           (const char *path, const struct config *text, const struct vision_limits *limits,
            struct vision_config *ret, struct err *e),
           vision_config_load(files, text, limits, ret, e))
MODEL_PATH(tokenizer_load, (struct arena * a, const char *path, struct tokenizer **ret, struct err *e),
           tokenizer_load(a, files, ret, e))
MODEL_PATH(chat_template_load,
           (struct arena * a, const char *path, struct chat_template **ret, struct err *e),
           chat_template_load(a, files, ret, e))

/* A checkpoint at a path: its files stay open until the next one is opened, or until this is called. */
static struct model_files *model_path_checkpoint;
static inline void checkpoint_close_at(void)
{
    model_files_close(model_path_checkpoint);
    model_path_checkpoint = NULL;
}
static inline int checkpoint_open_at(struct arena *a, const char *path, struct account *account,
                                     struct checkpoint **ret, struct err *e)
{
    checkpoint_close_at();
    int r = model_files_open(path, &model_path_checkpoint, e);
    return r == 0 ? checkpoint_open(a, model_path_checkpoint, "", account, ret, e) : r;
}

#endif
