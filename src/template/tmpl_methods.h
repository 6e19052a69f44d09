/* tmpl_methods.h - the methods of values: type, name in templates, function.
 *
 * tmpl_lookup.c makes the table of names of this list and tmpl_methods.c that of functions, so that a method
 * may look up attributes itself, as format() does. */
#ifndef PLATEAU_TEMPLATE_TMPL_METHODS_H
#define PLATEAU_TEMPLATE_TMPL_METHODS_H

#define TMPL_METHODS(X)                                                                                      \
    X(TMPL_STRING, "capitalize", tmpl_filter_capitalize)                                                     \
    X(TMPL_STRING, "center", tmpl_filter_center)                                                             \
    X(TMPL_STRING, "count", method_count)                                                                    \
    X(TMPL_STRING, "endswith", method_endswith)                                                              \
    X(TMPL_STRING, "find", method_find)                                                                      \
    X(TMPL_STRING, "format", tmpl_method_format)                                                             \
    X(TMPL_STRING, "index", method_index)                                                                    \
    X(TMPL_STRING, "isalnum", method_isalnum)                                                                \
    X(TMPL_STRING, "isalpha", method_isalpha)                                                                \
    X(TMPL_STRING, "isdigit", method_isdigit)                                                                \
    X(TMPL_STRING, "islower", method_islower)                                                                \
    X(TMPL_STRING, "isspace", method_isspace)                                                                \
    X(TMPL_STRING, "isupper", method_isupper)                                                                \
    X(TMPL_STRING, "join", method_join)                                                                      \
    X(TMPL_STRING, "ljust", method_ljust)                                                                    \
    X(TMPL_STRING, "lower", tmpl_filter_lower)                                                               \
    X(TMPL_STRING, "lstrip", method_lstrip)                                                                  \
    X(TMPL_STRING, "partition", method_partition)                                                            \
    X(TMPL_STRING, "removeprefix", method_removeprefix)                                                      \
    X(TMPL_STRING, "removesuffix", method_removesuffix)                                                      \
    X(TMPL_STRING, "replace", tmpl_filter_replace)                                                           \
    X(TMPL_STRING, "rfind", method_rfind)                                                                    \
    X(TMPL_STRING, "rjust", method_rjust)                                                                    \
    X(TMPL_STRING, "rpartition", method_rpartition)                                                          \
    X(TMPL_STRING, "rsplit", method_rsplit)                                                                  \
    X(TMPL_STRING, "rstrip", method_rstrip)                                                                  \
    X(TMPL_STRING, "split", method_split)                                                                    \
    X(TMPL_STRING, "splitlines", method_splitlines)                                                          \
    X(TMPL_STRING, "startswith", method_startswith)                                                          \
    X(TMPL_STRING, "strip", tmpl_filter_trim)                                                                \
    X(TMPL_STRING, "title", tmpl_filter_title)                                                               \
    X(TMPL_STRING, "upper", tmpl_filter_upper)                                                               \
    X(TMPL_DICT_VALUE, "get", method_get)                                                                    \
    X(TMPL_DICT_VALUE, "items", method_items)                                                                \
    X(TMPL_DICT_VALUE, "keys", method_keys)                                                                  \
    X(TMPL_DICT_VALUE, "values", method_values)                                                              \
    X(TMPL_DICT_VALUE, "clear", method_unsafe)                                                               \
    X(TMPL_DICT_VALUE, "pop", method_unsafe)                                                                 \
    X(TMPL_DICT_VALUE, "popitem", method_unsafe)                                                             \
    X(TMPL_DICT_VALUE, "setdefault", method_unsafe)                                                          \
    X(TMPL_DICT_VALUE, "update", method_unsafe)                                                              \
    X(TMPL_SEQ, "count", method_list_count)                                                                  \
    X(TMPL_SEQ, "index", method_list_index)                                                                  \
    X(TMPL_SEQ, "append", method_unsafe)                                                                     \
    X(TMPL_SEQ, "clear", method_unsafe)                                                                      \
    X(TMPL_SEQ, "extend", method_unsafe)                                                                     \
    X(TMPL_SEQ, "insert", method_unsafe)                                                                     \
    X(TMPL_SEQ, "pop", method_unsafe)                                                                        \
    X(TMPL_SEQ, "remove", method_unsafe)                                                                     \
    X(TMPL_SEQ, "reverse", method_unsafe)                                                                    \
    X(TMPL_SEQ, "sort", method_unsafe)                                                                       \
    X(TMPL_LOOP, "changed", method_changed)                                                                  \
    X(TMPL_LOOP, "cycle", method_cycle)

#endif
