// check — what must hold whatever a fuzz target's input, in every build.
#pragma once

#include <stdio.h>
#include <stdlib.h>

// Aborts with the condition's text: what must hold whatever the input.
#define ZT_FUZZ_CHECK(condition)                                        \
  do {                                                                  \
    if (!(condition)) {                                                 \
      ::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      ::abort();                                                        \
    }                                                                   \
  } while (false)
