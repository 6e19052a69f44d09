/* settings_table.c - one row per setting: parsing, help, environment names, keys of files and the manual's
 * test all read it. */
#include "host/settings_table.h"

#include "host/settings.h"

#include "base/check.h"

#include <stdbool.h>
#include <string.h>

/* The place of a field: its offset and its size. */
#define AT(field)   offsetof(struct settings, field), sizeof(((struct settings *)0)->field)
#define COMMAND_RUN (COMMAND_SERVE | COMMAND_TALK)
/* Commands whose settings decide how much memory serving takes. */
#define COMMAND_SIZE (COMMAND_SERVE | COMMAND_PLAN | COMMAND_MODELS)

const struct setting_row settings_table[] = {
    {GROUP_MODEL, "model", "DIR", SETTING_TEXT, AT(models.model), 0, 0, NULL,
     FIRST | (COMMAND_ANY ^ COMMAND_MODELS) | COMMAND_EVAL | COMMAND_PACK,
     "directory of the model [default: the bundled model]"},
    {GROUP_MODEL, "model", "MODEL", SETTING_TEXT, AT(models.model), 0, 0, NULL, FIRST | COMMAND_LAUNCH,
     "name of a model of the server, or a directory or file to serve [default: the server's first]"},
    {GROUP_MODEL, "memory-limit", "BYTES", SETTING_BYTES, AT(process.memory_limit), 0, 1e15, "0",
     FIRST | COMMAND_ANY | COMMAND_EVAL | COMMAND_PULL,
     "ceiling of all memory; 0: what the cgroup and the machine leave"},
    {GROUP_MODEL, "device", "NAME", SETTING_TEXT, AT(process.device), 0, 0, "auto",
     COMMAND_ANY | COMMAND_EVAL | SECTION,
     "where models compute: cpu, cuda:N (an NVIDIA GPU), or fake:N (plain memory, for tests); auto: the "
     "first GPU with room for the model, else the CPU"},
    {GROUP_MODEL, "device-memory-limit", "BYTES", SETTING_BYTES, AT(process.device_memory_limit), 0, 1e15,
     "0", COMMAND_ANY | COMMAND_EVAL,
     "ceiling of the memory of each --device that has its own; 0: what is free there at the start"},
    {GROUP_MODEL, "place", "RULES", SETTING_TEXT, AT(model.place), 0, 0, NULL, COMMAND_ANY | SECTION,
     "what of a model on a GPU lies elsewhere, as PART=PLACE,...: experts=cpu, or of some layers experts "
     "10-47=cpu; or layers 20-39=cuda:1; plan prints where all parts lie [default: what fits]"},
    {GROUP_MODEL, "replicas", "N", SETTING_COUNT, AT(model.replicas), 1, REGISTRY_REPLICAS_MAX, "1",
     COMMAND_SERVE | COMMAND_PLAN | SECTION,
     "load the model on N devices, from --device on; a request goes to the one that computes it soonest, by "
     "prefix cache and load"},
    {GROUP_MODEL, "max-model-len", "TOKENS", SETTING_COUNT, AT(model.engine.max_model_len), 0, 1e7, "0",
     FIRST | COMMAND_ANY | COMMAND_PULL | SECTION,
     "context length: prompt and answer together; 0: the model's own, or what fits"},
    {GROUP_MODEL, "compaction-reserve", "TOKENS", SETTING_COUNT, AT(model.compaction_reserve), 0, 1e7,
     SETTINGS_NOT_GIVEN, COMMAND_SIZE | SECTION,
     "context that only compaction may use, so that a full conversation can be compacted: beyond "
     "--max-model-len where there is room, else at most half of it [default: a sixteenth of a context from "
     "8192 tokens on, at most 4096]"},
    {GROUP_MODEL, "agents", "N", SETTING_COUNT, AT(model.engine.agents), 0, 512, "0", COMMAND_SIZE | SECTION,
     "set memory aside for the prefixes of N agents: none of these is evicted, and one agent more is refused "
     "at its first request; 0: any number, and no promise"},
    {GROUP_MODEL, "agent-context", "TOKENS", SETTING_COUNT, AT(model.engine.agent_tokens), 0, 1e7, "0",
     COMMAND_SIZE | SECTION,
     "tokens that the prefix of an agent of --agents has room for; 0: the whole context length"},
    {GROUP_MODEL, "agent-idle", "SECONDS", SETTING_SECONDS, AT(model.engine.agent_idle_ns), 1, 1e7, "600",
     COMMAND_SERVE | SECTION, "an agent of --agents gives its place up after SECONDS without a request"},
    {GROUP_MODEL, "ctx", "TOKENS", SETTING_COUNT, AT(model.engine.max_model_len), 0, 1e7, NULL,
     FIRST | COMMAND_PLAN, "the same as --max-model-len"},
    {GROUP_MODEL, "max-image-pixels", "N", SETTING_COUNT, AT(model.image_pixels_max), 0, 268435456, "4194304",
     COMMAND_ANY | SECTION,
     "resize larger images to at most N pixels, or the model's own maximum; 0: refuse images and do not load "
     "the vision encoder"},
    {GROUP_MODEL, "image-tokens", "N", SETTING_COUNT, AT(model.image_tokens), 0, 1120, "0",
     COMMAND_ANY | SECTION,
     "resize each image to at most N tokens, where the model has such a budget (gemma4: 70, 140, 280, 560 or "
     "1120); 0: the model's own"},
    {GROUP_MODEL, "mmproj", "FILE", SETTING_TEXT, AT(model.mmproj), 0, 0, NULL,
     COMMAND_ANY | COMMAND_PACK | SECTION,
     "the vision encoder of a GGUF model [default: a file *mmproj*.gguf in its directory]"},
    {GROUP_MODEL, "image-cache", "BYTES", SETTING_BYTES, AT(model.engine.image_cache_bytes), 0, 1e15,
     SETTINGS_NOT_GIVEN, COMMAND_SIZE | COMMAND_CHAT | SECTION,
     "size of the cache for image embeddings; 0: no cache [default: a sixteenth of the memory limit, at most "
     "256M]"},
    {GROUP_MODEL, "grammar-cache", "BYTES", SETTING_BYTES, AT(model.grammar_cache_bytes), 0, 1e15, "32M",
     COMMAND_SIZE | COMMAND_CHAT | SECTION,
     "size of the cache for compiled grammars and JSON schemas; 0: no constrained decoding"},
    {GROUP_MODEL, "host-cache", "BYTES", SETTING_BYTES, AT(model.engine.prefix_cache_bytes), 0, 1e15,
     SETTINGS_NOT_GIVEN, FIRST | COMMAND_SIZE | COMMAND_CHAT | SECTION,
     "size of the prefix cache in memory, shared by all models; 0: no prefix cache [default: what the "
     "ceiling leaves]"},
    {GROUP_MODEL, "pinned-cache", "BYTES", SETTING_BYTES, AT(model.engine.pinned_cache_bytes), 0, 1e15, "0",
     COMMAND_SIZE | COMMAND_CHAT | SECTION,
     "pinned memory of the machine for what the prefix cache of a model on a GPU evicts; 0: none"},
    {GROUP_MODEL, "ssd-dir", "DIR", SETTING_TEXT, AT(store.dir), 0, 0, NULL, FIRST | COMMAND_SIZE,
     "directory of the prefix cache's SSD tier, which survives unloads and restarts [default: none]"},
    {GROUP_MODEL, "fingerprint", "HEX", SETTING_TEXT, AT(model.fingerprint), 0, 0, NULL,
     COMMAND_SERVE | SECTION,
     "identity of the model's weights in the SSD tier, 64 hexadecimal digits [default: computed from parts "
     "of its files]"},
    {GROUP_MODEL, "cache-namespace", "TEXT", SETTING_TEXT, AT(model.cache_namespace), 0, 0, NULL,
     COMMAND_SERVE | SECTION, "models of another namespace share no entries of the SSD tier [default: none]"},
    {GROUP_MODEL, "ssd-limit", "BYTES", SETTING_BYTES, AT(store.limit_bytes), 4194304, 1e15, "20G",
     COMMAND_SIZE | COMMAND_CACHE,
     "disk space of --ssd-dir in blocks, as du counts; the least recently used entries are deleted first"},
    {GROUP_MODEL, "ssd-staging", "BYTES", SETTING_BYTES, AT(store.staging_bytes), 1048576, 1e11, "64M",
     COMMAND_SIZE, "memory for transfers to and from --ssd-dir"},
    {GROUP_MODEL, "shared-cache", "ADDRESS", SETTING_TEXT, AT(shared.address), 0, 0, NULL,
     COMMAND_SIZE | UNSHOWN,
     "prefix cache below --ssd-dir that servers share: file:///DIR, a directory that all of them mount, or "
     "redis://[USER:PASSWORD@]HOST:PORT/NUMBER; give a password in --config or the environment "
     "[default: none]"},
    {GROUP_MODEL, "shared-cache-size", "BYTES", SETTING_BYTES, AT(shared.limit_bytes), 16777216, 1e16, "100G",
     COMMAND_SIZE,
     "bytes of files in a directory of --shared-cache; the least recently used are deleted first"},
    {GROUP_MODEL, "shared-cache-secret-file", "FILE", SETTING_TEXT, AT(shared.secret_file), 0, 0, NULL,
     COMMAND_SIZE,
     "encrypts and authenticates --shared-cache with the secret in FILE, 16 bytes or more, equal on all "
     "servers "
     "[default: none]"},
    {GROUP_MODEL, "shared-cache-staging", "BYTES", SETTING_BYTES, AT(shared.staging_bytes), 1048576, 1e11,
     "64M", COMMAND_SIZE, "memory for transfers to and from --shared-cache"},
    {GROUP_MODEL, "text-limit", "BYTES", SETTING_BYTES, AT(process.text_limit), 0, 1e13, "0", COMMAND_SIZE,
     "memory for the texts of all requests together; 0: an eighth of the ceiling, at most 1G"},
    {GROUP_MODEL, "response-store", "BYTES", SETTING_BYTES, AT(process.response_store), 0, 1e13, "64M",
     COMMAND_SIZE,
     "memory for stored responses (/v1/responses), at most 1/32 of the ceiling; the least recently used are "
     "deleted first; 0: none are stored"},
    {GROUP_MODEL, "response-ttl", "SECONDS", SETTING_SECONDS, AT(api.response_ttl_ns), 1, 1e7, "3600",
     COMMAND_SERVE, "delete a stored response that no request used for SECONDS"},
    {GROUP_MODEL, "conversation-store", "BYTES", SETTING_BYTES, AT(process.conversation_store), 0, 1e13, "8M",
     COMMAND_SIZE,
     "memory for the tools with which conversations began, at most 1/64 of the ceiling: later tools stand "
     "behind, and the prefix cache finds the head; 0: none"},
    {GROUP_MODEL, "trim", "on|off", SETTING_TEXT, AT(model.trim), 0, 0, "on", COMMAND_SERVE,
     "off: keep free memory committed until memory is short (for benchmarks)"},
    {GROUP_MODEL, "compute", "MODE", SETTING_TEXT, AT(model.compute), 0, 0, "auto",
     COMMAND_ANY | COMMAND_EVAL | COMMAND_PACK | SECTION,
     "arithmetic of products: f32, bf16, on a GPU fp8, on the CPU int16 or int8; auto: bf16 on a GPU, int16 "
     "on the CPU, bf16 there with BF16 weights and AMX"},
    {GROUP_MODEL, "kv-dtype", "TYPE", SETTING_TEXT, AT(model.kv_dtype), 0, 0, "auto",
     COMMAND_ANY | COMMAND_EVAL | SECTION,
     "keys and values: f32, bf16 (half the memory), int8 or fp8 (a quarter), int4 (an eighth); auto means "
     "bf16 "
     "with --compute int8 and with bf16 on a GPU, else f32"},
    {GROUP_MODEL, "quant", "FORM", SETTING_TEXT, AT(model.quant), 0, 0, "none",
     COMMAND_ANY | COMMAND_EVAL | COMMAND_PACK | SECTION,
     "quantise matrices of floats while the model is loaded: q4, q5, q6 or q8 (bits a weight, in groups of "
     "64); none: as the files have them"},
    {GROUP_MODEL, "embeddings", NULL, SETTING_FLAG, AT(model.embeddings), 0, 0, NULL, COMMAND_SERVE | SECTION,
     "serve /v1/embeddings, /v1/rerank and /v1/score with a model that was made to generate text, too"},
    {GROUP_MODEL, "spec", "auto|mtp|ngram|off", SETTING_TEXT, AT(model.spec), 0, 0, "auto",
     COMMAND_ANY | SECTION,
     "speculative decoding, with output identical to plain decoding: mtp drafts with the model's MTP head, "
     "ngram with matches in the context; auto uses --draft-model, else the MTP head, where the model has "
     "one, and n-gram after it"},
    {GROUP_MODEL, "draft-model", "DIR", SETTING_TEXT, AT(model.draft_model), 0, 0, NULL,
     COMMAND_ANY | SECTION,
     "a small model with the same tokenizer, or an EAGLE-3 head, which drafts with --spec auto; output as "
     "without it [default: none]"},
    {GROUP_MODEL, "mtp", "N", SETTING_COUNT, AT(model.speculation.head_drafts), 0, 8, SETTINGS_NOT_GIVEN,
     COMMAND_ANY | SECTION,
     "longest draft of the MTP head or the draft model; the draft length adapts to measured cost and "
     "acceptance; 0: load neither [default: 3; with --draft-model 5]"},
    {GROUP_MODEL, "draft-vocab", "N", SETTING_COUNT, AT(model.speculation.draft_vocab), 0, 65520,
     SETTINGS_NOT_GIVEN, COMMAND_ANY | SECTION,
     "draft only from the N most recently used tokens; 0: from the whole vocabulary, as always with "
     "--mtp-optimistic [default: a quarter of the vocabulary, from 1024 to 16384]"},
    {GROUP_MODEL, "mtp-optimistic", NULL, SETTING_FLAG, AT(model.speculation.optimistic), 0, 0, NULL,
     COMMAND_ANY | SECTION,
     "NOT EXACT: accept every draft of the MTP head without verification; faster, and wrong wherever a draft "
     "is wrong"},
    {GROUP_MODEL, "threads", "N", SETTING_COUNT, AT(process.threads), 0, 256, "0", COMMAND_ANY | COMMAND_EVAL,
     "threads that compute; 0: one per core"},
    {GROUP_MODEL, "model-dir", "DIR", SETTING_LIST, AT(models.dirs), 0, 0, NULL, FIRST | COMMAND_SERVE,
     "serve every model below DIR; each loads on its first request; may be given several times"},
    {GROUP_MODEL, "hub-cache", NULL, SETTING_FLAG, AT(models.hub_cache), 0, 0, NULL, COMMAND_SERVE,
     "serve every model of the Hugging Face hub's cache; each loads on its first request"},
    {GROUP_MODEL, "alias", "NAME[=MODEL]", SETTING_LIST, AT(models.aliases), 0, 0, NULL,
     COMMAND_SERVE | SECTION,
     "a further name of a model, such as org/name; NAME alone: of the only model; NAME=DIRECTORY renames it; "
     "up to 32 a model"},
    {GROUP_MODEL, "warm", "[KEY=]FILE", SETTING_LIST, AT(models.warm), 0, 0, NULL, COMMAND_SIZE | SECTION,
     "compute the prefixes of FILE's requests whenever their model has been loaded: JSON bodies of chats, "
     "Messages, Responses or sessions; for the clients of the API key named KEY; may be given several times"},
    {GROUP_MODEL, "default-model", "MODEL", SETTING_TEXT, AT(models.default_model), 0, 0, NULL, COMMAND_SERVE,
     "serve requests for any other name, or without one, with MODEL [default: an unknown name is 404]"},
    {GROUP_MODEL, "ttl", "SECONDS", SETTING_SECONDS, AT(model.ttl_ns), 0, 1e8, "0", COMMAND_SERVE | SECTION,
     "unload a model after SECONDS without a request; 0: never"},
    {GROUP_MODEL, "pin", "MODEL", SETTING_LIST, AT(models.pins), 0, 0, NULL, COMMAND_SERVE,
     "never unload MODEL, neither to make room nor for its ttl; may be given several times"},
    {GROUP_MODEL, "load-timeout", "SECONDS", SETTING_COUNT, AT(api.live.load_timeout_s), 1, 86400, "600",
     COMMAND_SERVE | LIVE, "longest time that a request waits for its model to load"},
    {GROUP_MODEL, "memory-limit", "BYTES", SETTING_BYTES, AT(model.bytes_max), 0, 1e15, "0", SECTION,
     "ceiling of all memory of this model"},
    {GROUP_MODEL, "pin", NULL, SETTING_FLAG, AT(model.pinned), 0, 0, NULL, SECTION, "as --pin"},
    {GROUP_MODEL, "chat-template-kwargs", "JSON", SETTING_TEXT, AT(model.template_kwargs), 0, 0, NULL,
     SECTION, "an object of variables for the chat template; variables of a request override it"},
    {GROUP_MODEL, "tool-format", "NAME", SETTING_TEXT, AT(model.tool_format), 0, 0, "auto",
     COMMAND_SERVE | COMMAND_TALK | COMMAND_PARSE | SECTION,
     "how the model writes tool calls: auto finds it in the chat template; or harmony, gemma4, kimi_k2, "
     "cohere_text, cohere, mistral, mistral_list, functionary_v3.2, lfm2, gigachat3, apertus, step3, "
     "deepseek_v4, "
     "deepseek_v3.2, deepseek_v3, deepseek_v3.1, seed_oss, minimax_m2, qwen3_xml, glm45, minicpm5, "
     "functionary_v3.1, granite, gigachat3.1, internlm, longcat, hunyuan, functools, hermes, llama3_json, "
     "pythonic, xlam, jamba, none"},
    {GROUP_MODEL, "reasoning-format", "NAME", SETTING_TEXT, AT(model.reasoning_format), 0, 0, "auto",
     COMMAND_SERVE | COMMAND_TALK | COMMAND_PARSE | SECTION,
     "how the model marks reasoning: auto finds it in the chat template; or harmony, gemma4, cohere, "
     "mistral, "
     "apertus, seed_oss, longcat, granite, think, none"},
    {GROUP_MODEL, "repetition-detection", "off|reply|reasoning", SETTING_TEXT, AT(model.repetition_detection),
     0, 0, "off", COMMAND_SERVE | SECTION,
     "end replies of conversations that repeat themselves: up to 512 tokens, at least 6 times and over 768 "
     "tokens; reasoning: a loop in the reasoning ends that alone, and the answer follows"},
    {GROUP_MODEL, "min-p", "P", SETTING_REAL, AT(model.sampling.min_p), -1, 1, "-1", SECTION,
     "sample from tokens at least P times as likely as the likeliest; -1: the model's own"},
    {GROUP_MODEL, "repetition-penalty", "R", SETTING_REAL, AT(model.sampling.repetition_penalty), 0, 10, "0",
     SECTION, "above 1: repeated tokens become less likely; 0: the model's own"},

    {GROUP_ANSWER, "max-tokens", "N", SETTING_COUNT, AT(answer.max_tokens), 0, 1e7, "0", FIRST | COMMAND_TALK,
     "longest answer; 0: the rest of the context"},
    {GROUP_ANSWER, "temperature", "T", SETTING_REAL, AT(model.sampling.temperature), -1, 2, "-1",
     FIRST | COMMAND_TALK | SECTION, "sampling temperature; 0: greedy, -1: the model's own"},
    {GROUP_ANSWER, "top-p", "P", SETTING_REAL, AT(model.sampling.top_p), 0, 1, "0", COMMAND_TALK | SECTION,
     "sample from the likeliest tokens with total probability P; 0: the model's own"},
    {GROUP_ANSWER, "top-k", "K", SETTING_COUNT, AT(model.sampling.top_k), 0, 1e6, "0", COMMAND_TALK | SECTION,
     "sample from the K likeliest tokens; 0: the model's own"},
    {GROUP_ANSWER, "seed", "N", SETTING_COUNT, AT(answer.seed), 0, 1e18, "0", COMMAND_TALK,
     "the same seed gives the same text; 0: a new seed each time"},
    {GROUP_ANSWER, "system", "TEXT", SETTING_TEXT, AT(answer.system), 0, 0, NULL, FIRST | COMMAND_TALK,
     "system message"},
    {GROUP_ANSWER, "image", "FILE", SETTING_LIST, AT(answer.images), 0, 0, NULL, FIRST | COMMAND_GENERATE,
     "image to send with the prompt: a file, or an http or https address; may be given several times"},
    {GROUP_ANSWER, "think", NULL, SETTING_FLAG, AT(answer.think), 0, 0, NULL, FIRST | COMMAND_TALK,
     "let the model reason before it answers"},
    {GROUP_ANSWER, "raw", NULL, SETTING_FLAG, AT(answer.raw), 0, 0, NULL, FIRST | COMMAND_GENERATE,
     "complete the prompt without the chat template"},
    {GROUP_ANSWER, "ignore-eos", NULL, SETTING_FLAG, AT(answer.ignore_eos), 0, 0, NULL, COMMAND_TALK,
     "continue after the model's end token"},

    {GROUP_ANSWER, "template", "FILE", SETTING_TEXT, AT(parse.template), 0, 0, NULL, COMMAND_PARSE,
     "chat template: a Jinja file, or the directory of a model"},
    {GROUP_ANSWER, "tools", "FILE", SETTING_TEXT, AT(parse.tools), 0, 0, NULL, COMMAND_PARSE,
     "JSON file with the tools of the request, as in tools of /v1/chat/completions [default: calls are "
     "parsed, "
     "and arguments have no schema]"},
    {GROUP_ANSWER, "chunk", "BYTES", SETTING_COUNT, AT(parse.chunk), 0, 1e9, "0", COMMAND_PARSE,
     "feed the parser BYTES at a time, which changes nothing in the result; 0: all at once"},
    {GROUP_ANSWER, "describe", NULL, SETTING_FLAG, AT(parse.describe), 0, 0, NULL, COMMAND_PARSE,
     "print the format that was found, and read no output"},

    {GROUP_ANSWER, "text", "FILE", SETTING_TEXT, AT(eval.text), 0, 0, NULL, FIRST | COMMAND_EVAL,
     "the text to predict, UTF-8, at most 64 MiB"},
    {GROUP_ANSWER, "reference", "DIR", SETTING_TEXT, AT(eval.reference), 0, 0, NULL, FIRST | COMMAND_EVAL,
     "directory of the model to compare with, usually the unquantised one; it computes in f32 [default: "
     "none]"},
    {GROUP_ANSWER, "ctx", "TOKENS", SETTING_COUNT, AT(eval.context), 16, 1e7, "512", FIRST | COMMAND_EVAL,
     "tokens of a chunk; those in its second half are scored"},
    {GROUP_ANSWER, "chunks", "N", SETTING_COUNT, AT(eval.chunks), 0, 1e9, "0", COMMAND_EVAL,
     "read only the first N chunks of the text; 0: all"},

    {GROUP_ANSWER, "include", "GLOB", SETTING_LIST, AT(pull.include), 0, 0, NULL, FIRST | COMMAND_PULL,
     "fetch files that match, too; may be given several times; .bin, .pt, .pkl and .py are never fetched"},
    {GROUP_ANSWER, "anyway", NULL, SETTING_FLAG, AT(pull.anyway), 0, 0, NULL, FIRST | COMMAND_PULL,
     "fetch a model that is not served here or does not fit, too"},
    {GROUP_ANSWER, "stall-timeout", "SECONDS", SETTING_COUNT, AT(pull.stall_s), 1, 3600, "30", COMMAND_PULL,
     "ask again after SECONDS with less than 1 kB/s"},

    {GROUP_ANSWER, "tokens", "N", SETTING_COUNT, AT(bench.tokens), 2, 4096, "128", FIRST | COMMAND_BENCH,
     "tokens of each answer"},
    {GROUP_ANSWER, "name", "NAME", SETTING_TEXT, AT(bench.name), 0, 0, NULL, FIRST | COMMAND_BENCH,
     "what the server of --url calls its model; MODEL may then name the same model's files, for the shares "
     "[default: MODEL, or the server's first]"},
    {GROUP_ANSWER, "csv", NULL, SETTING_FLAG, AT(bench.csv), 0, 0, NULL, FIRST | COMMAND_BENCH,
     "print comma-separated values instead of a table"},
    {GROUP_ANSWER, "quick", NULL, SETTING_FLAG, AT(bench.quick), 0, 0, NULL, FIRST | COMMAND_BENCH,
     "measure once, with 1 and 8 clients"},

    {GROUP_SCREEN, "hide-reasoning", NULL, SETTING_FLAG, AT(hide_reasoning), 0, 0, NULL, COMMAND_CHAT,
     "show answers without the reasoning before them"},
    {GROUP_SCREEN, "history", "FILE", SETTING_TEXT, AT(history), 0, 0, NULL, COMMAND_CHAT,
     "file that keeps your messages for the arrow keys; \"\": none [default: "
     "~/.local/state/plateau/chat_history]"},
    {GROUP_SCREEN, "stats", NULL, SETTING_FLAG, AT(stats), 0, 0, NULL, FIRST | COMMAND_CHAT,
     "show tokens and speed after each answer"},
    {GROUP_SCREEN, "print", NULL, SETTING_FLAG, AT(print), 0, 0, NULL, FIRST | COMMAND_OPEN,
     "print the address and start no browser"},
    {GROUP_SCREEN, "print", NULL, SETTING_FLAG, AT(print), 0, 0, NULL, FIRST | COMMAND_LAUNCH,
     "print the settings and the command, and run nothing"},

    {GROUP_NETWORK, "host", "ADDRESS", SETTING_TEXT, AT(http.host), 0, 0, "127.0.0.1", FIRST | COMMAND_SERVE,
     "address to listen on; beyond loopback an --api-key or an --api-key-file is required"},
    {GROUP_NETWORK, "port", "N", SETTING_COUNT, AT(http.port), 0, 65535, "8080", FIRST | COMMAND_SERVE,
     "port to listen on; 0: any free port, which is printed"},
    {GROUP_NETWORK, "api-key", "KEY", SETTING_LIST, AT(keys.api_keys), 0, 0, NULL,
     COMMAND_SERVE | COMMAND_CHAT | COMMAND_BENCH | COMMAND_LAUNCH | LIVE | SECRET,
     "key that clients must send, that chat and bench send to --url, and that launch gives to the client; "
     "may be given several times; prefer "
     "a file, which the shell's history does not keep [default: none]"},
    {GROUP_NETWORK, "api-key-file", "FILE", SETTING_LIST, AT(keys.api_key_files), 0, 0, NULL,
     FIRST | COMMAND_SERVE | COMMAND_CHAT | COMMAND_BENCH | COMMAND_LAUNCH | LIVE,
     "file of API keys, one per line, each alone or after its owner's name; may be given several times"},
    {GROUP_NETWORK, "allow-origin", "ORIGIN", SETTING_LIST, AT(keys.origins), 0, 0, NULL,
     COMMAND_SERVE | LIVE,
     "let web pages of this origin, such as http://localhost:3000, call the API with a key (CORS); *: of "
     "all; "
     "may be given several times; needs an --api-key or an --api-key-file [default: none]"},
    {GROUP_NETWORK, "admin-key", "KEY", SETTING_LIST, AT(keys.admin_keys), 0, 0, NULL,
     COMMAND_SERVE | COMMAND_ADMIN | LIVE | SECRET,
     "key for all routes, admin routes included; status, load, unload, clear and trim send it to --url "
     "[default: made at the start, kept beside the admin socket]"},
    {GROUP_NETWORK, "admin-key-file", "FILE", SETTING_LIST, AT(keys.admin_key_files), 0, 0, NULL,
     COMMAND_SERVE | COMMAND_ADMIN | LIVE, "as --api-key-file, for --admin-key"},
    {GROUP_NETWORK, "metrics-key", "KEY", SETTING_LIST, AT(keys.metrics_keys), 0, 0, NULL,
     COMMAND_SERVE | LIVE | SECRET, "key for /metrics with the series of all clients, and for nothing else"},
    {GROUP_NETWORK, "metrics-key-file", "FILE", SETTING_LIST, AT(keys.metrics_key_files), 0, 0, NULL,
     COMMAND_SERVE | LIVE, "as --api-key-file, for --metrics-key"},
    {GROUP_NETWORK, "admin-listen", "WHERE", SETTING_LIST, AT(listeners.admin), 0, 0, NULL, COMMAND_SERVE,
     "unix:PATH: the admin socket, which needs no key from its user; ADDRESS:PORT: a further listener where "
     "the admin key opens all routes; none: no socket; may be given several times [default: "
     "plateau-PORT.sock in a private directory]"},
    {GROUP_NETWORK, "metrics-listen", "ADDRESS:PORT", SETTING_TEXT, AT(listeners.metrics), 0, 0, NULL,
     COMMAND_SERVE, "serve /metrics, /live and /health at this address without a key [default: nowhere]"},
    {GROUP_NETWORK, "socket", "PATH", SETTING_TEXT, AT(socket), 0, 0, NULL, COMMAND_ADMIN | COMMAND_OPEN,
     "the server's admin socket [default: that of the only server here]"},
    {GROUP_NETWORK, "url", "URL", SETTING_TEXT, AT(url), 0, 0, NULL, COMMAND_ADMIN,
     "address of the server, instead of its admin socket; needs its admin key"},
    {GROUP_NETWORK, "url", "URL", SETTING_TEXT, AT(url), 0, 0, NULL,
     FIRST | COMMAND_CHAT | COMMAND_BENCH | COMMAND_LAUNCH,
     "ask the server at this address, with OpenAI's API [default: a server of this machine that has "
     "the model, if one runs]"},
    {GROUP_NETWORK, "local", NULL, SETTING_FLAG, AT(local), 0, 0, NULL,
     COMMAND_CHAT | COMMAND_BENCH | COMMAND_LAUNCH,
     "load the model here, even if a server of this machine has it"},
    {GROUP_NETWORK, "allow-open", NULL, SETTING_FLAG, AT(keys.allow_open), 0, 0, NULL, COMMAND_SERVE | LIVE,
     "listen beyond loopback without a key: every client that reaches the port may use the models"},
    {GROUP_NETWORK, "allow-pull", NULL, SETTING_FLAG, AT(process.allow_pull), 0, 0, NULL, COMMAND_SIZE,
     "let administrators pull models of the hub into its cache (POST /api/models/pull)"},
    {GROUP_NETWORK, "kv-events", "ADDRESS", SETTING_TEXT, AT(events.endpoint), 0, 0, NULL, COMMAND_SIZE,
     "publish what the prefix cache holds, for routers: tcp://127.0.0.1:5557 or ipc://PATH [default: "
     "nowhere]"},
    {GROUP_NETWORK, "kv-events-replay", "ADDRESS", SETTING_TEXT, AT(events.replay), 0, 0, NULL, COMMAND_SIZE,
     "where routers ask for messages of --kv-events that they missed"},
    {GROUP_NETWORK, "kv-events-topic", "TEXT", SETTING_TEXT, AT(events.topic), 0, 0, NULL, COMMAND_SIZE,
     "topic of --kv-events: %p is this machine's name, %m the model's, as in kv@%p@%m [default: empty]"},
    {GROUP_NETWORK, "kv-events-buffer", "BYTES", SETTING_BYTES, AT(events.buffer_bytes), 1048576, 1e11, "16M",
     COMMAND_SIZE, "memory of --kv-events: half of it replays messages"},
    {GROUP_NETWORK, "idle-timeout", "SECONDS", SETTING_COUNT, AT(http.idle_timeout_s), 1, 86400, "60",
     COMMAND_SERVE | LIVE, "close a connection after SECONDS without traffic"},
    {GROUP_NETWORK, "keepalive", "SECONDS", SETTING_COUNT, AT(api.live.keepalive_s), 1, 3600, "10",
     COMMAND_SERVE | LIVE, "send a comment in a stream after SECONDS of silence"},
    {GROUP_NETWORK, "drain", "SECONDS", SETTING_SECONDS, AT(registry.drain_ns), 0, 3600, "10",
     COMMAND_SERVE | LIVE, "how long SIGTERM and Ctrl-C wait for open requests"},
    {GROUP_NETWORK, "drain-grace", "SECONDS", SETTING_SECONDS, AT(process.drain_grace_ns), 0, 3600, "0",
     COMMAND_SERVE | LIVE,
     "before that: how long /health says draining while new requests are still served, for routers"},

    {GROUP_BATCH, "max-num-seqs", "N", SETTING_COUNT, AT(model.engine.max_num_seqs), 0, 256, "0",
     FIRST | COMMAND_SIZE | SECTION,
     "sequences in a batch (continuous batching); 0: 8 on the CPU, on a GPU by its memory, up to 256"},
    {GROUP_BATCH, "max-queue", "N", SETTING_COUNT, AT(model.engine.max_queue), 1, 65536, "256",
     COMMAND_SIZE | LIVE | PLANNED, "requests in the queue, shared by tenants; more get 429"},
    {GROUP_BATCH, "queue-timeout", "SECONDS", SETTING_SECONDS, AT(model.engine.queue_timeout_ns), 0, 86400,
     "600", COMMAND_SERVE | LIVE, "longest time in the queue; 0: no limit"},
    {GROUP_BATCH, "step-ms", "MS", SETTING_MS, AT(model.engine.step_ns), 1, 10000, "100",
     COMMAND_SERVE | LIVE,
     "target time of a step that other requests wait for (chunked prefill); up to half longer while several "
     "prompts wait"},
    {GROUP_BATCH, "prep-threads", "N", SETTING_COUNT, AT(api.prep_threads), 0, 16, "0", COMMAND_SIZE,
     "threads that parse and tokenize requests of any length, in addition to two for requests under 64 KiB "
     "and 1 MiB; 0: by cores"},

    {GROUP_LIMITS, "max-tokens-default", "N", SETTING_COUNT, AT(api.live.max_tokens_default), 0, 1e7, "0",
     COMMAND_SERVE | LIVE | SECTION,
     "longest answer of a request without max_tokens; 0: the rest of the context"},
    {GROUP_LIMITS, "max-requests", "N", SETTING_COUNT, AT(api.live.requests_max), 1, 65536, "1024",
     COMMAND_SIZE | LIVE, "requests in the server at once, the queue included"},
    {GROUP_LIMITS, "max-connections", "N", SETTING_COUNT, AT(http.connections_max), 1, 65536, "256",
     COMMAND_SIZE,
     "open connections; a further one replaces a connection without an open request, or gets 429"},
    {GROUP_LIMITS, "connections-per-ip", "N", SETTING_COUNT, AT(http.connections_per_ip), 0, 65536, "0",
     COMMAND_SERVE, "open connections per address; 0: half of --max-connections, and all for loopback"},
    {GROUP_LIMITS, "max-request-bytes", "BYTES", SETTING_BYTES, AT(api.live.request_bytes_max), 1048576, 1e11,
     "256M", COMMAND_SERVE | LIVE, "memory for the texts of one request"},
    {GROUP_LIMITS, "max-body-bytes", "BYTES", SETTING_BYTES, AT(http.body_bytes_max), 1024, 1e10, "64M",
     COMMAND_SERVE | LIVE, "longest request body"},
    {GROUP_LIMITS, "max-header-bytes", "BYTES", SETTING_BYTES, AT(http.header_bytes_max), 1024, 1e6, "8K",
     COMMAND_SIZE, "longest request line and headers"},
    {GROUP_LIMITS, "json-depth", "N", SETTING_COUNT, AT(api.json_depth_max), 4, 256, "64", COMMAND_SERVE,
     "deepest nesting of a request's JSON"},
    {GROUP_LIMITS, "slow-client", "SECONDS", SETTING_COUNT, AT(api.live.slow_client_s), 1, 86400, "30",
     COMMAND_SERVE | LIVE, "drop a client that reads nothing for SECONDS"},

    {GROUP_MEDIA, "allow-remote-media", NULL, SETTING_FLAG, AT(api.media.allow_remote), 0, 0, NULL,
     COMMAND_SIZE, "fetch images and videos from public http and https addresses in requests"},
    {GROUP_MEDIA, "media-dir", "DIR", SETTING_TEXT, AT(api.media.dir), 0, 0, NULL, COMMAND_SERVE,
     "requests may name files below DIR, as file:///DIR/name [default: none]"},
    {GROUP_MEDIA, "media-memory", "BYTES", SETTING_BYTES, AT(process.media_memory), 0, 1e13, "0", COMMAND_ANY,
     "memory for all images and videos in the decoding queue or being decoded; 0: an eighth of the ceiling, "
     "at most 1G"},
    {GROUP_MEDIA, "media-threads", "N", SETTING_COUNT, AT(api.media.thread_count), 0, 16, "0", COMMAND_SIZE,
     "threads that decode and resize images; 0: by cores, at most 2"},
    {GROUP_MEDIA, "media-timeout", "SECONDS", SETTING_COUNT, AT(api.media.timeout_s), 1, 3600, "60",
     COMMAND_RUN, "longest time to fetch an image or video, to decode a video, and to wait for either"},
    {GROUP_MEDIA, "max-images", "N", SETTING_COUNT, AT(api.media.parts_max), 1, 1024, "16", COMMAND_SERVE,
     "images and videos per request"},
    {GROUP_MEDIA, "max-media-bytes", "BYTES", SETTING_BYTES, AT(api.media.bytes_max), 1024, 1e12, "64M",
     COMMAND_RUN, "encoded bytes of the largest image or video"},
    {GROUP_MEDIA, "max-media-pixels", "N", SETTING_COUNT, AT(api.media.pixels_max), 1024, 1e9, "64000000",
     COMMAND_RUN, "pixels of the largest image or video frame before it is resized"},
    {GROUP_MEDIA, "max-video-seconds", "SECONDS", SETTING_COUNT, AT(api.media.video_s_max), 1, 1e6, "3600",
     COMMAND_SERVE | COMMAND_CHAT, "longest video"},
    {GROUP_MEDIA, "max-video-frames", "N", SETTING_COUNT, AT(api.media.frames_max), 0, 1e5, "0",
     COMMAND_SERVE | COMMAND_CHAT, "frames sampled from a video; 0: the model's own limit"},

    {GROUP_OTHER, "stuck", "SECONDS", SETTING_COUNT, AT(api.live.stuck_s), 1, 86400, "30",
     COMMAND_SERVE | LIVE,
     "report a model that has work and finishes no layer for SECONDS; /health is 503 then"},
    {GROUP_OTHER, "config", "FILE", SETTING_TEXT, AT(config), 0, 0, NULL,
     COMMAND_ANY | COMMAND_ADMIN | COMMAND_OPEN | COMMAND_PARSE | COMMAND_EVAL | COMMAND_LAUNCH,
     "INI file with any of these options, name = value"},
    {GROUP_OTHER, "env-file", "FILE", SETTING_TEXT, AT(env_file), 0, 0, NULL,
     COMMAND_ANY | COMMAND_ADMIN | COMMAND_OPEN | COMMAND_PARSE | COMMAND_EVAL | COMMAND_LAUNCH,
     "file with any of these options as environment variables, PLATEAU_NAME=value"},
    {GROUP_OTHER, "log-level", "LEVEL", SETTING_TEXT, AT(log_level), 0, 0, NULL, COMMAND_SERVE | LIVE,
     "error, warn, info or debug [default: info]"},
    {GROUP_OTHER, "log-level", "LEVEL", SETTING_TEXT, AT(log_level), 0, 0, NULL,
     COMMAND_TALK | COMMAND_EVAL | COMMAND_PULL | COMMAND_PACK, "error, warn, info or debug [default: warn]"},
    {GROUP_OTHER, "log-format", "FORMAT", SETTING_TEXT, AT(log_format), 0, 0, "auto",
     COMMAND_SERVE | COMMAND_TALK | COMMAND_EVAL | COMMAND_PULL | COMMAND_PACK,
     "lines of the log: text, journal (priorities, no time), json, or auto: journal for the journal, short "
     "and "
     "coloured on a terminal, else text"},
    {GROUP_OTHER, "json", NULL, SETTING_FLAG, AT(json), 0, 0, NULL,
     FIRST | COMMAND_PLAN | COMMAND_CACHE | COMMAND_ADMIN | COMMAND_MODELS | COMMAND_EVAL | COMMAND_PULL |
         COMMAND_BENCH | COMMAND_PACK,
     "print JSON instead of a table"},
    {GROUP_OTHER, "names", NULL, SETTING_FLAG, AT(names), 0, 0, NULL, FIRST | COMMAND_MANUAL,
     "print the names of all commands"},
    {GROUP_OTHER, "yes", NULL, SETTING_FLAG, AT(yes), 0, 0, NULL, FIRST | COMMAND_MODELS,
     "remove without a question"},
    {GROUP_OTHER, "yes", NULL, SETTING_FLAG, AT(yes), 0, 0, NULL, FIRST | COMMAND_PACK,
     "replace OUT if it exists"},
    {GROUP_OTHER, "force", NULL, SETTING_FLAG, AT(force), 0, 0, NULL, FIRST | COMMAND_UNLOAD,
     "unload a model that holds sessions, and end them"},
    {GROUP_OTHER, "help-all", NULL, SETTING_FLAG, AT(help_all), 0, 0, NULL, FIRST | COMMAND_EVERY,
     "list all options"},
    {GROUP_OTHER, "help", NULL, SETTING_FLAG, AT(help), 0, 0, NULL, FIRST | COMMAND_EVERY,
     "print this text (-h)"},
};

const size_t settings_table_count = COUNT_OF(settings_table);
_Static_assert(COUNT_OF(settings_table) <= SETTINGS_ROWS_MAX, "each row has a place in a table of that size");

const char *const settings_group_names[] = {"Model and memory",   "Answers",    "Conversation",
                                            "Network and access", "Scheduling", "Limits per client",
                                            "Images and videos",  "Other"};

const size_t settings_group_count = COUNT_OF(settings_group_names);

static bool is_called(const struct setting_row *row, const char *name, size_t len)
{
    return strlen(row->name) == len && memcmp(row->name, name, len) == 0;
}

bool settings_has_secret(const struct setting_row *row, const char *text)
{
    return row->commands & SECRET || (row->commands & UNSHOWN && strchr(text, '@'));
}

const struct setting_row *settings_row_of(unsigned of_commands, const char *name, size_t len)
{
    for (size_t i = 0; i < settings_table_count; i++)
        if ((settings_table[i].commands & of_commands) && is_called(&settings_table[i], name, len))
            return &settings_table[i];
    return NULL;
}
