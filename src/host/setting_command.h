/* setting_command.h - the commands of the program, which settings are for. */
#ifndef PLATEAU_HOST_SETTING_COMMAND_H
#define PLATEAU_HOST_SETTING_COMMAND_H

/* One bit each. */
enum setting_command {
    COMMAND_SERVE = 1,
    COMMAND_GENERATE = 2,
    COMMAND_CHAT = 4,
    COMMAND_PLAN = 8,
    COMMAND_CACHE = 16,
    COMMAND_STATUS = 32,
    COMMAND_LOAD = 64,
    COMMAND_UNLOAD = 128,
    COMMAND_CLEAR = 256,
    COMMAND_TRIM = 512,
    COMMAND_PARSE = 1024,
    COMMAND_SCHEMA = 2048,
    COMMAND_MODELS = 4096,
    COMMAND_EVAL = 8192,
    COMMAND_ANY = 4111,      /* that has to do with models */
    COMMAND_ADMIN = 2098144, /* that asks a server */
    COMMAND_PULL = 16384,
    COMMAND_OPEN = 32768,
    COMMAND_BENCH = 65536,
    COMMAND_COMPLETION = 131072,
    COMMAND_MANUAL = 262144,
    COMMAND_PACK = 524288,
    COMMAND_LAUNCH = 1048576,
    COMMAND_WHY = 2097152,
    COMMAND_EVERY = 4194303
};

#endif
