/* mkmodel.c - mkmodel [options] SHAPE FORM --out DIR: a checkpoint of random weights, for what needs a
 * model's size and shape but not its sense. It has no tokenizer. */
#include "mkmodel/mk_write.h"

#include "base/check.h"
#include "base/slice.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

struct options {
    struct mk_write_opts write;
    const char *out;
    bool list;
};

static void usage(FILE *out)
{
    fputs(
        "usage: mkmodel [options] SHAPE FORM --out DIR\n"
        "Writes a checkpoint of random weights into DIR: config.json and model.safetensors, no tokenizer.\n"
        "The same options give the same bytes. A DIR that has a config.json is left alone.\n"
        "  SHAPE          one of those that --list prints\n"
        "  FORM           bf16, 8bit or 4bit (MLX affine, a scale for 64 values), or, of dense models, fp8\n"
        "                 (E4M3, a scale for 128 x 128 values)\n"
        "  --out DIR      where to; made if it is not there\n"
        "  --layers N     only the first N layers\n"
        "  --seed N       other random weights (default 0)\n"
        "  --list         the shapes, and how large their files are\n"
        "  --help         this text\n",
        out);
}

static int print_list(void)
{
    printf("%-18s %-12s %6s %6s", "shape", "model type", "layers", "hidden");
    for (const struct mk_form *f = mk_forms; f->name; f++)
        printf(" %9s", f->name);
    printf("   (MiB)\n");
    for (const struct mk_shape *s = mk_shapes; s->name; s++) {
        printf("%-18s %-12s %6u %6u", s->name, s->model_type, s->layers, s->hidden);
        for (const struct mk_form *f = mk_forms; f->name; f++) {
            uint64_t bytes = 0;
            if (!mk_form_fits(f, s)) {
                printf(" %9s", "-");
                continue;
            }
            if (mk_write_bytes(&(struct mk_write_opts){.shape = s, .form = f}, &bytes, NULL) < 0)
                return 1;
            printf(" %9.1f", (double)bytes / (1 << 20));
        }
        printf("\n");
    }
    return 0;
}

static bool wrong(const char *what, const char *text)
{
    fprintf(stderr, "mkmodel: %s '%s'; see mkmodel --help\n", what, text);
    return false;
}

static bool parse_names(char **names, int count, struct options *o)
{
    if (count != 2) {
        fputs("mkmodel: a shape and a form must be given; see mkmodel --help\n", stderr);
        return false;
    }
    o->write.shape = mk_shape_find(names[0]);
    o->write.form = mk_form_find(names[1]);
    if (!o->write.shape)
        return wrong("there is no shape", names[0]);
    return o->write.form || wrong("there is no form", names[1]);
}

/* False: say no more. */
static bool parse(int argc, char **argv, struct options *o, int *status)
{
    static const struct option long_options[] = {
        {"out", required_argument, NULL, 'o'},  {"layers", required_argument, NULL, 'l'},
        {"seed", required_argument, NULL, 's'}, {"list", no_argument, NULL, 'L'},
        {"help", no_argument, NULL, 'h'},       {0}};
    uint64_t n;
    *status = 2;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (c) {
        case 'o':
            o->out = optarg;
            break;
        case 'l':
            if (!slice_u64(slice_of(optarg), UINT32_MAX, &n) || n == 0)
                return wrong("--layers must be a number above 0, not", optarg);
            o->write.layers = (uint32_t)n;
            break;
        case 's':
            if (!slice_u64(slice_of(optarg), UINT64_MAX, &o->write.seed))
                return wrong("--seed must be a number, not", optarg);
            break;
        case 'L':
            o->list = true;
            break;
        case 'h':
            usage(stdout);
            *status = 0;
            return false;
        default:
            return false;
        }
    }
    if (o->list)
        return true;
    if (!o->out) {
        fputs("mkmodel: --out DIR is missing; see mkmodel --help\n", stderr);
        return false;
    }
    return parse_names(argv + optind, argc - optind, o);
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct err e = {{0}};
    int status;
    if (!parse(argc, argv, &o, &status))
        return status;
    if (o.list)
        return print_list();
    if (mk_write(&o.write, o.out, &e) < 0) {
        fprintf(stderr, "mkmodel: %s\n", e.text);
        return 1;
    }
    return 0;
}
