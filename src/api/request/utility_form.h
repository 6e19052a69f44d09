/* utility_form.h - the bodies of the routes that generate nothing. */
#ifndef PLATEAU_API_UTILITY_FORM_H
#define PLATEAU_API_UTILITY_FORM_H

#include "api/request/request.h"

/* Not of REQUEST_GENERATE. */
const struct request_form *utility_form(enum request_kind kind);

#endif
