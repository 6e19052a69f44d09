/* request_fields.h - the table of all fields that requests may have. Inside of request_*.c only. */
#ifndef PLATEAU_API_REQUEST_FIELDS_H
#define PLATEAU_API_REQUEST_FIELDS_H

#include "api/request.h"

/* Reads every field of r->root into r. False: `why` says it. */
bool request_fields_read(struct request *r, struct reject *why);

#endif
