/* test_engine_grammar with a tiny model of random weights, which has a recurrent state. */
#define MODEL        TINY("qwen3_5")
#define MODEL_ENDS   509, 510
#define MODEL_TOKENS 512u
#define MODEL_HEAD   false
#include "engine/engine_numbers.h"
#include "engine/engine_opts.h"
#include "engine/stream.h"
#include "spec/drafting.h"
#include "test_engine_grammar.c"
