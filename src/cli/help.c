/* help.c - one row per command. */
#include "cli/cli.h"
#include "cli/help_lines.h"
#include "cli/options.h"

#include "base/check.h"

#include <string.h>

/* How the commands find the server that they ask. */
#define ASKS                                                                                                 \
    "Uses the admin socket of the only server on this machine; with several, name one with --socket.\n"      \
    "For a server elsewhere give --url and its admin key.\n"

const struct help_row help_rows[] = {
    {COMMAND_SERVE, "serve", "[MODEL...] [OPTION...]",
     "serve models over HTTP with OpenAI's and Anthropic's API",
     "A MODEL is a directory with config.json, safetensors files and tokenizer.json, a GGUF file, or\n"
     "ORG/NAME of the Hugging Face hub if its cache has it. Named models load at the start, models below\n"
     "a --model-dir on their first request. Without any the server has the bundled model, and SmolLM2 if\n"
     "./run has fetched it. The first SIGTERM or Ctrl-C finishes open requests, a second one ends them;\n"
     "SIGHUP reads settings and keys again. docs/operations.md explains how to run a server for days.\n",
     "  plateau serve\n"
     "  plateau serve ~/models/Qwen3-4B --port 8000 --memory-limit 12G --max-num-seqs 4\n"
     "  plateau serve --model-dir ~/models --ttl 900 --pin Qwen3-0.6B --alias default=Qwen3-4B\n"
     "  plateau serve ~/models/Qwen3-4B --host 0.0.0.0 --api-key-file keys.txt\n"},
    {COMMAND_CHAT, "chat", "[MODEL] [OPTION...]", "talk with a model in the terminal",
     "MODEL is a directory with config.json, safetensors files and tokenizer.json, a GGUF file, or the name\n"
     "of a model. A server of this machine that has it answers; without a server it is loaded here. Without\n"
     "MODEL and server SmolLM2 answers if ./run has fetched it, else the bundled model. With --url any\n"
     "server with OpenAI's API answers. /help lists the commands of a conversation; /image attaches an "
     "image. Ctrl-C stops an answer, Ctrl-D leaves. When standard input\n"
     "or output is not a terminal, each line is a message, and only answers are printed.\n",
     "  plateau chat\n"
     "  plateau chat --url http://127.0.0.1:8080 --stats\n"
     "  plateau chat ~/models/Qwen3-4B --think --system \"Answer in one sentence.\"\n"
     "  printf 'I live in London.\\nWhere do I live?\\n' | plateau chat --temperature 0\n"},
    {COMMAND_GENERATE, "generate", "[OPTION...] PROMPT", "answer one prompt on standard output",
     "PROMPT is one argument; \"-\" reads it from standard input. Without --model the bundled model\n"
     "answers. Ctrl-C stops.\n",
     "  plateau generate --temperature 0 \"What does ls do?\"\n"
     "  plateau generate --image photo.jpg \"What is in the image?\"\n"
     "  plateau generate --model ~/models/Qwen3-4B --max-tokens 200 - < question.txt\n"},
    {COMMAND_LAUNCH, "launch", "CLIENT [OPTION...] [-- ARGUMENT...]",
     "run a coding agent with a served model",
     "CLIENT is claude, codex, opencode or aider. A server of this machine that has the model is used, or "
     "the\n"
     "server of --url; without one a server starts, which ends with the client. The client gets address, "
     "key,\n"
     "model and context for this session, in its environment and its arguments: no file is changed. What\n"
     "follows -- goes to the client.\n",
     "  plateau launch claude\n"
     "  plateau launch codex --model Qwen3-4B -- exec \"Write a test for main.c\"\n"
     "  plateau launch claude --print\n"},
    {COMMAND_PULL, "pull", "ORG/NAME[@REVISION] [OPTION...]", "fetch a model of the Hugging Face hub",
     "Fetches into the hub's cache of this machine, where other programs find it, too. The headers come\n"
     "first: a model that is not served here or does not fit is refused before its weights are fetched.\n"
     "A pull that was stopped goes on where it was. HF_TOKEN is the token for private models, HF_ENDPOINT\n"
     "a mirror.\n",
     "  plateau pull Qwen/Qwen3-0.6B\n"
     "  plateau pull Qwen/Qwen3-4B@main --json\n"},
    {COMMAND_MODELS, "models", "[DIR] [OPTION...]", "list the models of a folder, or of this machine",
     "DIR is a folder of models, a cache of the Hugging Face hub, or one model; without it the hub's\n"
     "cache of this machine and the models of LM Studio and Ollama. rm ID removes a model from the hub's\n"
     "cache. A line has family, parameters, form, context, bytes on disk, and whether the model can be\n"
     "served with the same options, else why not. Only names and headers are read.\n",
     "  plateau models ~/models\n"
     "  plateau models --memory-limit 12G\n"
     "  plateau models rm Qwen/Qwen3-0.6B\n"
     "  plateau models ~/models --json\n"},
    {COMMAND_PLAN, "plan", "[MODEL...] [OPTION...]", "show where every byte of memory would go",
     "Reads the headers of each MODEL (default: the bundled one) and prints the least and the most memory\n"
     "that plateau serve would take with the same options, account by account. Nothing is loaded. Of a\n"
     "model that is at the Hugging Face hub only, the list of files and the headers are fetched. Exit\n"
     "status 1 means that it does not fit; the message names a context that would.\n",
     "  plateau plan\n"
     "  plateau plan ~/models/Qwen3-4B --memory-limit 12G --ctx 32768 --max-num-seqs 4\n"
     "  plateau plan ~/models/Qwen3-4B ~/models/Qwen3-0.6B --json\n"},
    {COMMAND_PACK, "pack", "MODEL OUT [OPTION...]", "write a model as one file that loads at once",
     "OUT gets the weights as the CPU's kernels read them, the model's small files, and a checksum of each\n"
     "part. serve, chat, generate, plan and eval take it as MODEL: its weights are mapped, so a load\n"
     "takes no time and processes share them. Answers are those of MODEL. A call that was stopped goes on\n"
     "where it was. --quant and --compute are fixed when packing.\n",
     "  plateau pack ~/models/Qwen3-4B Qwen3-4B.plateau --quant q8\n"
     "  plateau serve Qwen3-4B.plateau\n"},
    {COMMAND_STATUS, "status", "[OPTION...]", "show a running server's models, requests and memory",
     ASKS "Shows models with their state, every request with its owner, and memory against its ceiling.\n",
     "  plateau status\n"
     "  plateau status --json\n"
     "  plateau status --socket /run/plateau/plateau-8080.sock\n"
     "  PLATEAU_ADMIN_KEY=... plateau status --url https://models.example\n"},
    {COMMAND_OPEN, "open", "[OPTION...]", "open a running server's page in the browser",
     "Finds the only server of this user on this machine, and prints the address of its page, with its own\n"
     "admin key where it has one. On a desktop the browser opens it. The key stands in no process list.\n",
     "  plateau open\n"
     "  plateau open --print\n"},
    {COMMAND_LOAD, "load", "MODEL [OPTION...]", "load a model into a running server",
     ASKS "MODEL is an id of plateau status. Returns when the model is loaded. Exit status 1: it cannot be\n"
          "loaded, or does not fit; the server's message says why.\n",
     "  plateau load Qwen3-4B\n"},
    {COMMAND_UNLOAD, "unload", "MODEL [OPTION...]", "unload a model from a running server",
     ASKS "Says how many bytes were returned. A model in use ends its requests first, within --drain.\n"
          "A model that holds sessions stays, unless --force ends them.\n",
     "  plateau unload Qwen3-4B\n"},
    {COMMAND_CLEAR, "clear", "[memory|ssd] [OPTION...]", "empty a running server's prefix cache",
     ASKS "memory (the default) drops all prefixes that no request uses and returns their memory; ssd drops\n"
          "all entries of --ssd-dir. Exit status 1: a part failed; the message names it.\n",
     "  plateau clear\n"
     "  plateau clear ssd\n"},
    {COMMAND_TRIM, "trim", "[OPTION...]", "make a running server return its free memory",
     ASKS "Drops no cached prefix; says how many bytes were returned.\n", "  plateau trim\n"},
    {COMMAND_WHY, "why", "[REQUEST] [OPTION...]", "say why a request found little in the prefix cache",
     ASKS "REQUEST is an id of x-request-id, or of a reply, among the server's last 200 requests. Says the\n"
          "first part that differs from an earlier turn and which side changed it, or when and for whom the\n"
          "prefix was evicted. Without REQUEST: lists the requests that lost a prefix.\n",
     "  plateau why\n"
     "  plateau why 5f0c2e7a9b1d4c3e8f60718293a4b5c6 --json\n"},
    {COMMAND_BENCH, "bench", "[MODEL] [OPTION...]", "measure a server",
     "Asks a server of this machine that has the model, or the server of --url, with 1 to 8 clients at "
     "once.\n"
     "Prints tokens a second, the time to the first token, and how fast prompts are read, first computed\n"
     "and then found in the prefix cache: medians of three rounds. Any server with OpenAI's API is measured\n"
     "in the same way.\n",
     "  plateau bench\n"
     "  plateau bench Qwen3-4B --quick --json\n"
     "  plateau bench --url http://127.0.0.1:8000 --name qwen3-4b\n"
     "  plateau bench ~/models/qwen3-4b --url http://127.0.0.1:8000 --name qwen3-4b --csv\n"},
    {COMMAND_EVAL, "eval", "[MODEL] --text FILE [OPTION...]",
     "measure perplexity, and divergence from a reference",
     "Reads the text in chunks of --ctx tokens and scores the second half of each: the perplexity is exp\n"
     "of the mean of -ln p(token). With --reference both models read the same chunks; the Kullback-Leibler\n"
     "divergence is the mean over positions of the sum of q ln(q/p), where q is the reference's\n"
     "distribution. Means have their standard error. Both models are in memory at once.\n",
     "  plateau eval ~/models/Qwen3-4B-8bit --text wiki.txt --reference ~/models/Qwen3-4B\n"
     "  plateau eval --text README.md --ctx 256 --json\n"},
    {COMMAND_CACHE, "cache", "ls|verify|gc DIR [OPTION...]",
     "inspect, check and tidy up a directory of --ssd-dir",
     "ls lists the entries in DIR by model, from the files' headers. verify reads every file completely;\n"
     "exit status 1 means that some are inconsistent. gc removes inconsistent and unfinished files, then\n"
     "the least recently used ones until --ssd-limit holds; it refuses while a server uses DIR.\n",
     "  plateau cache ls /var/cache/plateau\n"
     "  plateau cache verify /var/cache/plateau --json\n"
     "  plateau cache gc /var/cache/plateau --ssd-limit 5G\n"},
    {COMMAND_COMPLETION, "completion", "bash|zsh|fish", "print completions for a shell",
     "A package installs them. Otherwise add one of the lines below to the shell's start file, of zsh\n"
     "behind compinit.\n",
     "  source <(plateau completion bash) # ~/.bashrc\n"
     "  source <(plateau completion zsh)  # ~/.zshrc\n"
     "  plateau completion fish | source  # config.fish\n"},
    {COMMAND_PARSE, "parse", "--template FILE [OPTION...]",
     "show what the parsers make of a model's raw output",
     "Reads raw output on standard input and prints one JSON object: reasoning, content and tool_calls\n"
     "with name and arguments, an object where they are one, else a text. The template decides the\n"
     "format, and whether the prompt opens reasoning. Calls are parsed without --tools as well; an\n"
     "empty list of tools makes them text. docs/chat-formats.md lists the formats.\n",
     "  plateau parse --template chat_template.jinja < output.txt\n"
     "  plateau parse --template ~/models/Qwen3-4B --tools tools.json --chunk 1 < output.txt\n"
     "  plateau parse --tool-format hermes < output.txt\n"},
    {COMMAND_SCHEMA, "schema", "FILE", "say which JSON instances a JSON Schema's grammar accepts",
     "Compiles the JSON Schema in FILE as a request's response_format would be, reads instances on\n"
     "standard input, one JSON text a line, and prints accept, reject or unsupported for each. An\n"
     "instance is tried as it stands, and then with its members in the schema's order. A text that is\n"
     "no JSON or repeats a key is rejected. If the schema is not supported, every line gets\n"
     "unsupported, standard error has the reason, and the exit status is 1.\n",
     "  plateau schema person.json < instances.jsonl\n"
     "  echo '{\"name\": \"Ada\"}' | plateau schema person.json\n"},
    {COMMAND_MANUAL, "manual", "[COMMAND|ini]", "print a manual page for man",
     "Without an argument the page of the program, else that of a command, or of the configuration file.\n"
     "A package installs them as plateau(1), plateau-COMMAND(1) and plateau.ini(5).\n",
     "  plateau manual serve | man -l -\n"},
};

const size_t help_row_count = COUNT_OF(help_rows);

/* Titles of groups of commands, in --help and docs/command-line.md. A group ends where the next begins. */
static const struct {
    enum setting_command first;
    const char *title;
} groups[] = {
    {COMMAND_SERVE, "Serve and ask"}, {COMMAND_PULL, "Models"},       {COMMAND_STATUS, "A running server"},
    {COMMAND_BENCH, "Measurements"},  {COMMAND_CACHE, "Other tools"},
};

#define EXAMPLE_COLUMN 39 /* where what an example shows begins, in wide lines */

static const struct {
    const char *command, *shows;
} program_examples[] = {
    {"plateau serve", "the bundled model, on port 8080"},
    {"plateau chat ~/models/Qwen3-4B", "a chat with your own model"},
    {"plateau generate \"What does ls do?\"", "one answer"},
    {"plateau plan ~/models/Qwen3-4B", "how much memory it would take"},
};

/* Below HELP_NARROW columns a line of its own says what an example shows. */
static void help_program_examples(struct help_lines *l)
{
    fprintf(l->f, "\nExamples:\n");
    for (size_t i = 0; i < COUNT_OF(program_examples); i++) {
        help_shell(l, 2, program_examples[i].command);
        if (l->width < HELP_NARROW)
            help_line(l, HELP_INDENT);
        else
            fprintf(l->f, "%*s", EXAMPLE_COLUMN - 2 - (int)strlen(program_examples[i].command), "");
        fprintf(l->f, "%s\n", program_examples[i].shows);
    }
    fputc('\n', l->f);
}

void help_program(FILE *f)
{
    struct help_lines l = {.f = f, .width = help_width(f)};
    help_paragraph(&l, "Plateau " PLATEAU_VERSION
                       ": an LLM inference server whose memory is planned, bounded and returned.");
    fprintf(f, "\nUsage: plateau COMMAND [ARGUMENT...]\n");
    for (size_t i = 0, group = 0; i < help_row_count; i++) {
        if (group < COUNT_OF(groups) && groups[group].first == help_rows[i].command)
            fprintf(f, "\n%s:\n", groups[group++].title);
        fprintf(f, "  %-10s ", help_rows[i].name);
        l.column = 13;
        help_words(&l, 13, help_rows[i].summary);
        fputc('\n', f);
    }
    help_program_examples(&l);
    help_paragraph(&l, "plateau COMMAND --help explains a command; plateau --version prints the version.");
}

/* One a line, and each ends in a line feed. */
static void help_examples(struct help_lines *l, const char *examples)
{
    char command[160];
    fprintf(l->f, "\nExamples:\n");
    for (const char *next; *examples; examples = next + 1) {
        next = strchr(examples, '\n');
        examples += strspn(examples, " ");
        ASSERT(next && (size_t)(next - examples) < sizeof(command));
        snprintf(command, sizeof(command), "%.*s", (int)(next - examples), examples);
        help_shell(l, 2, command);
        fputc('\n', l->f);
    }
}

void help_command(enum setting_command command, bool all, FILE *f)
{
    char line[160];
    struct help_lines l = {.f = f, .width = help_width(f)};
    const struct help_row *row = help_rows;
    while (row->command != command)
        row++;
    snprintf(line, sizeof(line), "plateau %s: %s", row->name, row->summary);
    help_paragraph(&l, line);
    snprintf(line, sizeof(line), "Usage: plateau %s %s", row->name, row->arguments);
    fputc('\n', f);
    help_paragraph(&l, line);
    fputc('\n', f);
    help_paragraph(&l, row->about);
    help_examples(&l, row->examples);
    options_help(command, row->name, all, &l);
    fputc('\n', f);
    help_paragraph(
        &l, "Each option may also stand in the environment (PLATEAU_MAX_MODEL_LEN=8192) or in the files of "
            "--env-file (the same) and --config (max-model-len = 8192). The command line wins over the "
            "environment, the environment over --env-file, and --env-file over --config. BYTES take K, M, G "
            "or T.");
}
