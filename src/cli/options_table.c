/* options_table.c - one row per option: parsing, help, environment names, keys of files and the manual's test all read it. */
#include "cli/options_table.h"

#include "base/check.h"

#include <string.h>

#define AT(field)    offsetof(struct options, field)
#define COMMAND_RUN  (COMMAND_SERVE | COMMAND_TALK)
#define COMMAND_SIZE (COMMAND_SERVE | COMMAND_PLAN) /* what decides how much memory serving takes */

const struct option_row options_table[] = {
    {GROUP_MODEL, "model", "DIR", OPTION_TEXT, AT(model), 0, 0, NULL, COMMAND_ANY,
     "the model's directory [default: the bundled model]"},
    {GROUP_MODEL, "memory-limit", "BYTES", OPTION_BYTES, AT(memory_limit), 0, 1e15, "0", COMMAND_ANY,
     "ceiling of all memory; 0: what cgroup and machine leave"},
    {GROUP_MODEL, "max-model-len", "TOKENS", OPTION_COUNT, AT(max_model_len), 0, 1e7, "0",
     COMMAND_ANY | SECTION, "longest prompt and answer; 0: the model's own, or what fits"},
    {GROUP_MODEL, "ctx", "TOKENS", OPTION_COUNT, AT(max_model_len), 0, 1e7, NULL, COMMAND_PLAN,
     "the same as --max-model-len"},
    {GROUP_MODEL, "max-image-pixels", "N", OPTION_COUNT, AT(max_image_pixels), 0, 268435456, "4194304",
     COMMAND_ANY | SECTION,
     "larger pictures are made smaller, to so many pixels or what the model allows; 0: no pictures, and the "
     "vision tower is not loaded"},
    {GROUP_MODEL, "image-cache", "BYTES", OPTION_BYTES, AT(image_cache), 0, 1e15, NULL,
     COMMAND_SIZE | COMMAND_CHAT | SECTION,
     "memory for what earlier pictures look like to the model, so that the same picture need not be encoded "
     "again; 0: none is kept [default: a sixteenth of the memory limit, at most 256M]"},
    {GROUP_MODEL, "host-cache", "BYTES", OPTION_BYTES, AT(host_cache), 0, 1e15, NULL,
     COMMAND_SIZE | COMMAND_CHAT | SECTION,
     "memory for the beginnings of earlier requests, of all models together, which later ones need not "
     "compute again; 0: none "
     "[default: what the ceiling leaves]"},
    {GROUP_MODEL, "ssd-dir", "DIR", OPTION_TEXT, AT(ssd_dir), 0, 0, NULL, COMMAND_SIZE,
     "a directory that keeps the beginnings of earlier requests when they go from memory, over unloads and "
     "restarts "
     "[default: none]"},
    {GROUP_MODEL, "ssd-limit", "BYTES", OPTION_BYTES, AT(ssd_limit), 4194304, 1e15, "20G",
     COMMAND_SIZE | COMMAND_CACHE,
     "disk blocks that --ssd-dir may take, as du counts them; what was used longest ago goes first"},
    {GROUP_MODEL, "ssd-staging", "BYTES", OPTION_BYTES, AT(ssd_staging), 1048576, 1e11, "64M", COMMAND_SIZE,
     "memory through which everything goes to and from --ssd-dir"},
    {GROUP_MODEL, "text-limit", "BYTES", OPTION_BYTES, AT(text_limit), 0, 1e13, "0", COMMAND_SIZE,
     "memory for the texts of all requests together; 0: an eighth of the ceiling, 1G at most"},
    {GROUP_MODEL, "trim", "on|off", OPTION_TEXT, AT(trim), 0, 0, "on", COMMAND_SERVE,
     "off: memory that is free stays until some is short; to measure what giving it back costs"},
    {GROUP_MODEL, "compute", "MODE", OPTION_TEXT, AT(compute), 0, 0, "auto", COMMAND_RUN,
     "arithmetic: auto or f32, which are the same at present"},
    {GROUP_MODEL, "spec", "auto|mtp|ngram|off", OPTION_TEXT, AT(spec), 0, 0, "auto", COMMAND_ANY | SECTION,
     "who guesses tokens ahead, which makes answers faster and changes none: mtp, the model's own head for "
     "it; ngram, what the text has had before; auto: the head where there is one, and the text behind it; "
     "off: "
     "nobody"},
    {GROUP_MODEL, "mtp", "N", OPTION_COUNT, AT(mtp), 0, 8, NULL, COMMAND_ANY | SECTION,
     "tokens that may be guessed ahead of a request with the head, at most; as many are guessed as pay; 0: "
     "its "
     "weights are not loaded [default: 3]"},
    {GROUP_MODEL, "draft-vocab", "N", OPTION_COUNT, AT(draft_vocab), 0, 65520, NULL, COMMAND_ANY | SECTION,
     "the head looks for guesses among so many tokens that have been in use of late; 0: among all, as always "
     "with --mtp-optimistic "
     "[default: a quarter of the vocabulary, from 1024 to 16384]"},
    {GROUP_MODEL, "mtp-optimistic", NULL, OPTION_FLAG, AT(mtp_optimistic), 0, 0, NULL, COMMAND_ANY | SECTION,
     "NOT EXACT: what the head guesses is taken without asking the model, so answers are faster and wrong "
     "wherever a guess is"},
    {GROUP_MODEL, "threads", "N", OPTION_COUNT, AT(threads), 0, 256, "0", COMMAND_ANY,
     "threads that compute; 0: one per core"},
    {GROUP_MODEL, "model-dir", "DIR", OPTION_LIST, AT(model_dirs), 0, 0, NULL, COMMAND_SERVE,
     "serve every model below DIR, each loaded when it is first asked for; may be given several times"},
    {GROUP_MODEL, "alias", "NAME[=MODEL]", OPTION_LIST, AT(aliases), 0, 0, NULL, COMMAND_SERVE | SECTION,
     "another name for a model; NAME alone: the name of the only one; may be given several times "
     "[default: its directory's]"},
    {GROUP_MODEL, "ttl", "SECONDS", OPTION_COUNT, AT(ttl_s), 0, 1e8, "0", COMMAND_SERVE | SECTION,
     "a model that nobody used for so long is unloaded; 0: never"},
    {GROUP_MODEL, "pin", "MODEL", OPTION_LIST, AT(pins), 0, 0, NULL, COMMAND_SERVE,
     "never unload it, neither for others nor for its ttl; may be given several times"},
    {GROUP_MODEL, "load-timeout", "SECONDS", OPTION_COUNT, AT(load_timeout_s), 1, 86400, "600",
     COMMAND_SERVE | LIVE, "how long a request waits for its model to be loaded"},
    {GROUP_MODEL, "memory-limit", "BYTES", OPTION_BYTES, AT(model_limit), 0, 1e15, "0", SECTION,
     "ceiling of the model, everything that belongs to it included"},
    {GROUP_MODEL, "pin", NULL, OPTION_FLAG, AT(pinned), 0, 0, NULL, SECTION, "as --pin"},
    {GROUP_MODEL, "chat-template-kwargs", "JSON", OPTION_TEXT, AT(template_kwargs), 0, 0, NULL, SECTION,
     "an object of variables for the chat template, where a request gives none of its own"},
    {GROUP_MODEL, "min-p", "P", OPTION_REAL, AT(min_p), -1, 1, "-1", SECTION,
     "draw from tokens at least P times as likely as the likeliest; -1: the model's own"},
    {GROUP_MODEL, "repetition-penalty", "R", OPTION_REAL, AT(repetition_penalty), 0, 10, "0", SECTION,
     "above 1: tokens that were there become less likely; 0: the model's own"},

    {GROUP_ANSWER, "max-tokens", "N", OPTION_COUNT, AT(max_tokens), 0, 1e7, "0", COMMAND_TALK,
     "longest answer; 0: what is left of the context"},
    {GROUP_ANSWER, "temperature", "T", OPTION_REAL, AT(temperature), -1, 2, "-1", COMMAND_TALK | SECTION,
     "how freely tokens are drawn; 0: always the likeliest, -1: the model's own"},
    {GROUP_ANSWER, "top-p", "P", OPTION_REAL, AT(top_p), 0, 1, "0", COMMAND_TALK | SECTION,
     "draw from the likeliest tokens that together have P; 0: the model's own"},
    {GROUP_ANSWER, "top-k", "K", OPTION_COUNT, AT(top_k), 0, 1e6, "0", COMMAND_TALK | SECTION,
     "draw from the K likeliest tokens; 0: the model's own"},
    {GROUP_ANSWER, "seed", "N", OPTION_COUNT, AT(seed), 0, 1e18, "0", COMMAND_TALK,
     "the same seed gives the same text; 0: another one each time"},
    {GROUP_ANSWER, "system", "TEXT", OPTION_TEXT, AT(system), 0, 0, NULL, COMMAND_TALK,
     "a system message: who the model is, how it should answer"},
    {GROUP_ANSWER, "image", "FILE", OPTION_LIST, AT(images), 0, 0, NULL, COMMAND_GENERATE,
     "a picture to go with the prompt: a file, or an http or https address; may be given several times"},
    {GROUP_ANSWER, "think", NULL, OPTION_FLAG, AT(think), 0, 0, NULL, COMMAND_TALK,
     "let the model reason first"},
    {GROUP_ANSWER, "raw", NULL, OPTION_FLAG, AT(raw), 0, 0, NULL, COMMAND_GENERATE,
     "complete the prompt as it is, without the chat template"},
    {GROUP_ANSWER, "ignore-eos", NULL, OPTION_FLAG, AT(ignore_eos), 0, 0, NULL, COMMAND_TALK,
     "go on behind the model's end token"},

    {GROUP_SCREEN, "hide-reasoning", NULL, OPTION_FLAG, AT(hide_reasoning), 0, 0, NULL, COMMAND_CHAT,
     "show answers only, not what the model thinks before them"},
    {GROUP_SCREEN, "history", "FILE", OPTION_TEXT, AT(history), 0, 0, NULL, COMMAND_CHAT,
     "the file that keeps what you type, for the arrow keys; \"\": none "
     "[default: ~/.local/state/plateau/chat_history]"},

    {GROUP_NETWORK, "host", "ADDRESS", OPTION_TEXT, AT(host), 0, 0, "127.0.0.1", COMMAND_SERVE,
     "the address to listen on; beyond loopback an --api-key or an --api-key-file is needed"},
    {GROUP_NETWORK, "port", "N", OPTION_COUNT, AT(port), 0, 65535, "8080", COMMAND_SERVE,
     "the port to listen on; 0: any free port, which is printed"},
    {GROUP_NETWORK, "api-key", "KEY", OPTION_LIST, AT(api_keys), 0, 0, NULL, COMMAND_SERVE | LIVE | SECRET,
     "clients must send it; may be given several times; a file keeps it out of the shell's history "
     "[default: none]"},
    {GROUP_NETWORK, "api-key-file", "FILE", OPTION_LIST, AT(api_key_files), 0, 0, NULL, COMMAND_SERVE | LIVE,
     "keys that clients may send, one to a line, each alone or after its owner's name; may be given several "
     "times"},
    {GROUP_NETWORK, "admin-key", "KEY", OPTION_LIST, AT(admin_keys), 0, 0, NULL,
     COMMAND_SERVE | COMMAND_ADMIN | LIVE | SECRET,
     "opens everything, the admin's routes too; commands that ask a server send it to their --url "
     "[default: made at the start, kept beside the admin socket]"},
    {GROUP_NETWORK, "admin-key-file", "FILE", OPTION_LIST, AT(admin_key_files), 0, 0, NULL,
     COMMAND_SERVE | COMMAND_ADMIN | LIVE, "as --api-key-file, for --admin-key"},
    {GROUP_NETWORK, "metrics-key", "KEY", OPTION_LIST, AT(metrics_keys), 0, 0, NULL,
     COMMAND_SERVE | LIVE | SECRET, "opens /metrics with the series of all clients, and nothing else"},
    {GROUP_NETWORK, "metrics-key-file", "FILE", OPTION_LIST, AT(metrics_key_files), 0, 0, NULL,
     COMMAND_SERVE | LIVE, "as --api-key-file, for --metrics-key"},
    {GROUP_NETWORK, "admin-listen", "WHERE", OPTION_LIST, AT(admin_listens), 0, 0, NULL, COMMAND_SERVE,
     "unix:PATH: the admin socket, whose user is the admin without a key; ADDRESS:PORT: another place where "
     "the admin key opens everything; none: no socket; may be given several times "
     "[default: plateau-PORT.sock in a private directory]"},
    {GROUP_NETWORK, "metrics-listen", "ADDRESS:PORT", OPTION_TEXT, AT(metrics_listen), 0, 0, NULL,
     COMMAND_SERVE, "answer /metrics, /live and /health there without a key [default: nowhere]"},
    {GROUP_NETWORK, "socket", "PATH", OPTION_TEXT, AT(socket), 0, 0, NULL, COMMAND_ADMIN,
     "the server's admin socket [default: that of the only server here]"},
    {GROUP_NETWORK, "url", "URL", OPTION_TEXT, AT(url), 0, 0, NULL, COMMAND_ADMIN,
     "ask a server by its address instead, with its admin key"},
    {GROUP_NETWORK, "allow-open", NULL, OPTION_FLAG, AT(allow_open), 0, 0, NULL, COMMAND_SERVE | LIVE,
     "listen beyond loopback without a key: everybody who reaches the port may use the models"},
    {GROUP_NETWORK, "idle-timeout", "SECONDS", OPTION_COUNT, AT(idle_timeout_s), 1, 86400, "60",
     COMMAND_SERVE | LIVE, "a connection that does nothing for so long is closed"},
    {GROUP_NETWORK, "keepalive", "SECONDS", OPTION_COUNT, AT(keepalive_s), 1, 3600, "10",
     COMMAND_SERVE | LIVE, "a stream that is silent for so long sends a comment"},
    {GROUP_NETWORK, "drain", "SECONDS", OPTION_COUNT, AT(drain_s), 0, 3600, "10", COMMAND_SERVE | LIVE,
     "how long SIGTERM and Ctrl-C wait for open requests"},

    {GROUP_BATCH, "max-num-seqs", "N", OPTION_COUNT, AT(max_num_seqs), 1, 256, "8", COMMAND_SIZE | SECTION,
     "requests computed together"},
    {GROUP_BATCH, "max-queue", "N", OPTION_COUNT, AT(max_queue), 1, 65536, "256", COMMAND_SIZE | LIVE,
     "requests that may wait, shared by tenants; more are told 429"},
    {GROUP_BATCH, "queue-timeout", "SECONDS", OPTION_COUNT, AT(queue_timeout_s), 0, 86400, "600",
     COMMAND_SERVE | LIVE, "longest wait for a place; 0: for ever"},
    {GROUP_BATCH, "step-ms", "MS", OPTION_COUNT, AT(step_ms), 1, 10000, "100", COMMAND_SERVE | LIVE,
     "how long a step should last that others wait for; up to half longer while several prompts wait"},
    {GROUP_BATCH, "prep-threads", "N", OPTION_COUNT, AT(prep_threads), 0, 16, "0", COMMAND_SIZE,
     "threads that read and tokenize requests of any length, beside two for those under 64 KiB and 1 MiB; "
     "0: by cores"},

    {GROUP_LIMITS, "max-tokens-default", "N", OPTION_COUNT, AT(max_tokens_default), 0, 1e7, "0",
     COMMAND_SERVE | LIVE | SECTION, "answer length when a request says none; 0: what is left"},
    {GROUP_LIMITS, "max-requests", "N", OPTION_COUNT, AT(max_requests), 1, 65536, "1024", COMMAND_SIZE | LIVE,
     "requests held at once, waiting ones included"},
    {GROUP_LIMITS, "max-connections", "N", OPTION_COUNT, AT(max_connections), 1, 65536, "256", COMMAND_SIZE,
     "open connections; more take the place of one without an open request, else they are told 429"},
    {GROUP_LIMITS, "connections-per-ip", "N", OPTION_COUNT, AT(connections_per_ip), 0, 65536, "0",
     COMMAND_SERVE, "how many of these one address may have; 0: half, and loopback all"},
    {GROUP_LIMITS, "max-request-bytes", "BYTES", OPTION_BYTES, AT(max_request_bytes), 1048576, 1e11, "256M",
     COMMAND_SERVE | LIVE, "memory one request may hold for its texts"},
    {GROUP_LIMITS, "max-body-bytes", "BYTES", OPTION_BYTES, AT(max_body_bytes), 1024, 1e10, "64M",
     COMMAND_SERVE | LIVE, "longest request body"},
    {GROUP_LIMITS, "max-header-bytes", "BYTES", OPTION_BYTES, AT(max_header_bytes), 1024, 1e6, "8K",
     COMMAND_SIZE, "longest request line and headers"},
    {GROUP_LIMITS, "json-depth", "N", OPTION_COUNT, AT(json_depth), 4, 256, "64", COMMAND_SERVE,
     "deepest nesting of a request's JSON"},
    {GROUP_LIMITS, "slow-client", "SECONDS", OPTION_COUNT, AT(slow_client_s), 1, 86400, "30",
     COMMAND_SERVE | LIVE, "a client that does not read for so long is dropped"},

    {GROUP_MEDIA, "allow-remote-media", NULL, OPTION_FLAG, AT(allow_remote_media), 0, 0, NULL, COMMAND_SIZE,
     "fetch pictures and videos from the http and https addresses that requests name, if they are public"},
    {GROUP_MEDIA, "media-dir", "DIR", OPTION_TEXT, AT(media_dir), 0, 0, NULL, COMMAND_SERVE,
     "requests may name files below DIR, as file:///DIR/name [default: none]"},
    {GROUP_MEDIA, "media-memory", "BYTES", OPTION_BYTES, AT(media_memory), 0, 1e13, "0", COMMAND_ANY,
     "memory for all pictures and videos that are being read or wait for it; 0: an eighth of the ceiling, "
     "1G at most"},
    {GROUP_MEDIA, "media-threads", "N", OPTION_COUNT, AT(media_threads), 0, 16, "0", COMMAND_SIZE,
     "threads that decode and resize pictures; 0: by cores, 2 at most"},
    {GROUP_MEDIA, "media-timeout", "SECONDS", OPTION_COUNT, AT(media_timeout_s), 1, 3600, "60", COMMAND_RUN,
     "longest time for fetching a picture or video, for reading a video, and for waiting until that begins"},
    {GROUP_MEDIA, "max-images", "N", OPTION_COUNT, AT(max_images), 1, 1024, "16", COMMAND_SERVE,
     "how many pictures and videos one request may have"},
    {GROUP_MEDIA, "max-media-bytes", "BYTES", OPTION_BYTES, AT(max_media_bytes), 1024, 1e12, "64M",
     COMMAND_RUN, "bytes of the largest picture or video, as it is encoded"},
    {GROUP_MEDIA, "max-media-pixels", "N", OPTION_COUNT, AT(max_media_pixels), 1024, 1e9, "64000000",
     COMMAND_RUN, "pixels of the largest picture, or of a video's frame, as it comes: before it is resized"},
    {GROUP_MEDIA, "max-video-seconds", "SECONDS", OPTION_COUNT, AT(max_video_s), 1, 1e6, "3600",
     COMMAND_SERVE | COMMAND_CHAT, "longest video"},
    {GROUP_MEDIA, "max-video-frames", "N", OPTION_COUNT, AT(max_video_frames), 0, 1e5, "0",
     COMMAND_SERVE | COMMAND_CHAT,
     "frames of a video that the model looks at; 0: as many as it was made for"},

    {GROUP_OTHER, "stuck", "SECONDS", OPTION_COUNT, AT(stuck_s), 1, 86400, "30", COMMAND_SERVE | LIVE,
     "a model that has work and finishes no layer for so long is reported, and /health says 503"},
    {GROUP_OTHER, "config", "FILE", OPTION_TEXT, AT(config), 0, 0, NULL, COMMAND_ANY | COMMAND_ADMIN,
     "an INI file with any of these, name = value"},
    {GROUP_OTHER, "env-file", "FILE", OPTION_TEXT, AT(env_file), 0, 0, NULL, COMMAND_ANY | COMMAND_ADMIN,
     "a file with any of these as the environment has them, PLATEAU_NAME=value"},
    {GROUP_OTHER, "log-level", "LEVEL", OPTION_TEXT, AT(log_level), 0, 0, NULL, COMMAND_SERVE | LIVE,
     "error, warn, info or debug [default: info]"},
    {GROUP_OTHER, "log-level", "LEVEL", OPTION_TEXT, AT(log_level), 0, 0, NULL, COMMAND_TALK,
     "error, warn, info or debug [default: warn]"},
    {GROUP_OTHER, "json", NULL, OPTION_FLAG, AT(json), 0, 0, NULL,
     COMMAND_PLAN | COMMAND_CACHE | COMMAND_ADMIN, "print JSON instead of a table"},
    {GROUP_OTHER, "help", NULL, OPTION_FLAG, AT(help), 0, 0, NULL, COMMAND_EVERY, "this text (-h)"},
};

const size_t options_table_count = COUNT_OF(options_table);

const char *const options_group_names[] = {"Model and memory",    "Answers",
                                           "Conversation",        "Network and access",
                                           "Scheduling",          "Limits of what clients may take",
                                           "Pictures and videos", "Other"};

const size_t options_group_count = COUNT_OF(options_group_names);

static bool is_called(const struct option_row *row, const char *name, size_t len)
{
    return strlen(row->name) == len && memcmp(row->name, name, len) == 0;
}

const struct option_row *options_row_of(unsigned of_commands, const char *name, size_t len)
{
    for (size_t i = 0; i < options_table_count; i++)
        if ((options_table[i].commands & of_commands) && is_called(&options_table[i], name, len))
            return &options_table[i];
    return NULL;
}
