/* gguf_pre.c - the table. The patterns are those of the models' tokenizer.json; llama.cpp's differ from them
 * where its regex engine lacks a class. */
#include "gguf/gguf_pre.h"

#include "base/check.h"
#include "base/slice.h"

#define LETTERS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define BLANKS  "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define REST    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" BLANKS
#define SLASHES "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" BLANKS
#define UPPER   "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER   "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED   "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+"
#define CAPITAL "[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*"
#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
#define WORDS   CASED ENDINGS CAPITAL ENDINGS
#define GPT2    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define QWEN2   LETTERS "\\p{N}" REST
#define KANA    "[一-龥぀-ゟ゠-ヿ]+"
#define MARKED                                                                                               \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "    \
    "?[\\p{P}\\p{S}]+"
#define OF_THREE "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))"
#define ASIAN                                                                                                \
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e00-"    \
    "\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
#define HAN_NOT   "\\p{M}&&[^\\p{Han}]]"
#define HAN_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}" HAN_NOT
#define HAN_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}" HAN_NOT
#define BLOOM     " ?[^(\\s|.,!?…。，、।۔،)]+"

/* Spaces of jais-2 in powers of two. */
#define SPACES                                                                                               \
    "|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?" \
    "!\\S)"                                                                                                  \
    "|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"

/* Letters with an upper and a lower case, as deepseek-llm's file lists them. */
#define CASE_PAIRS                                                                                           \
    "[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ"                                \
    "-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅ"        \
    "Ὀ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ"                       \
    "-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴ"                       \
    "ℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-"    \
    "ﬆﬓ-"                                                                                                \
    "ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"

/* NFC where Hugging Face's files of those models have it. */
static const struct gguf_pre pres[] = {
    {.names = {"qwen2", "deepseek-r1-qwen"}, .patterns = {QWEN2}, .nfc = true},
    {.names = {"stablelm2", "kormo", "f2llmv2", "megrez", "hunyuan", "solar-open", "grok-2"},
     .patterns = {QWEN2}},
    {.names = {"qwen35"},
     .patterns = {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
                  "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" BLANKS},
     .nfc = true},
    {.names = {"laguna"}, .patterns = {"[^\\n]+|[\\n]+", QWEN2}},
    {.names = {"bailingmoe", "bailingmoe2", "llada-moe"},
     .patterns = {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "
                  "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {.names = {"seed-coder"}, .patterns = {LETTERS "\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" BLANKS}},
    {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
               "jina-v5-nano"},
     .patterns = {LETTERS "\\p{N}{1,3}" REST},
     .ignore_merges = true,
     .bos = true},
    {.names = {"jais-2"},
     .patterns = {LETTERS "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+" SPACES}},
    {.names = {"glm4", "glm5"}, .patterns = {LETTERS "\\p{N}{1,3}" REST}, .ignore_merges = true},
    {.names = {"dbrx", "smaug-bpe", "chatglm-bpe"}, .patterns = {LETTERS "\\p{N}{1,3}" REST}},
    {.names = {"minicpm5"}, .patterns = {"\\p{N}{1,3}", LETTERS "\\p{N}+" REST}, .ignore_merges = true},
    {.names = {"gpt-4o", "minimax-m2", "llama4", "kanana2", "talkie"},
     .patterns = {WORDS "\\p{N}{1,3}" SLASHES}},
    {.names = {"granite-embed-multi-97m"}, .patterns = {WORDS "\\p{N}{1,3}" SLASHES}, .ignore_merges = true},
    {.names = {"tekken"},
     .patterns = {CASED "|" CAPITAL "|\\p{N}" SLASHES},
     .ignore_merges = true,
     .bos = true},
    {.names = {"youtu"},
     .patterns = {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" KANA,
                  WORDS "\\p{N}" SLASHES},
     .ignore_merges = true},
    {.names = {"kimi-k2"},
     .patterns = {"[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" HAN_UPPER "*" HAN_LOWER "+" ENDINGS
                  "[^\\r\\n\\p{L}\\p{N}]?" HAN_UPPER "+" HAN_LOWER "*" ENDINGS "\\p{N}{1,3}" REST}},
    {.names = {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
     .patterns = {"\\p{N}{1,3}", KANA, MARKED "[\\r\\n]*" BLANKS}},
    {.names = {"afmoe"}, .patterns = {OF_THREE, ASIAN, MARKED "[\\r\\n]*" BLANKS}},
    {.names = {"exaone-moe"},
     .patterns = {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: "
                  "\\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {.names = {"tiny_aya"}, .patterns = {"\\d{1,3}(?=(?:\\d{3})*\\b)", WORDS "\\p{N}{1,3}" SLASHES}},
    /* The file cuts a run of numbers in front of each three digits from its end, (?=(\d{3})+(?!\d)): the
     * second pattern has the parts between these cuts. */
    {.names = {"superbpe"},
     .patterns = {"\\p{N}+", "\\d{1,3}(?=(?:\\d{3})*(?!\\p{N}))|\\p{N}(?:(?!(?:\\d{3})+(?!\\d))\\p{N})*"}},
    {.names = {"spark2_5"}, .patterns = {"\\p{N}{1,3}", KANA, MARKED "|[\\r\\n]|\\s+(?!\\S)|\\s+", "\\p{N}"}},
    {.names = {"deepseek-llm"},
     .patterns = {"[\\r\\n]", "\\s?" CASE_PAIRS, "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", "\\s+$",
                  "[一-龥ࠀ-一가-퟿]+", "\\p{N}+"}},
    {.names = {"deepseek-coder"},
     .patterns = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}"}},
    {.names = {"falcon"}, .patterns = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {.names = {"bloom", "poro-chat", "gpt3-finnish"}, .patterns = {BLOOM}},
    {.names = {"viking"}, .patterns = {BLOOM, "\\p{N}"}},
    {.names = {"smollm", "refact", "starcoder", "exaone", "command-r", "codeshell", "minerva-7b", "mellum2"},
     .digits = true},
    {.names = {"gpt-2", "exaone4", "olmo", "mpt", "jais", "trillion", "granite-docling", "phi-2", "gigachat",
               "a.x-4.0", "mellum", "modern-bert"}},
    {.names = {"gemma4", "granite-embed-multi-311m", "sarvam-moe"}, .blanks = true, .bos = true},
};

const struct gguf_pre *gguf_pre_find(struct slice name)
{
    for (size_t i = 0; i < COUNT_OF(pres); i++) {
        for (size_t k = 0; k < COUNT_OF(pres[i].names) && pres[i].names[k]; k++) {
            if (slice_eq(name, slice_of(pres[i].names[k])))
                return &pres[i];
        }
    }
    return NULL;
}
