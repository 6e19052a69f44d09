/* model_logits.c - model_logits DIR...: logits of each model, to compare checkpoints of one model. A line has
 * a hash of all logits of three prompts and the logits after the first one; or why the model is refused. */
#include "golden/small_model.h"

#include <stdio.h>

static void print_answer(const struct small_answer *a)
{
    printf("%016llx", (ull)a->hash);
    for (uint32_t i = 0; i < a->vocab; i++)
        printf(" %.7g", (double)a->logits[i]);
    puts("");
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const struct model_opts o = small_opts(NULL);
        struct small_answer answer;
        struct model *m = NULL;
        struct err e = {{0}};
        if (model_load_at(argv[i], &o, &m, &e) < 0) {
            printf("refused: %s\n", e.text);
            continue;
        }
        small_run(m, &o, &answer);
        print_answer(&answer);
        model_free(m);
    }
    return 0;
}
