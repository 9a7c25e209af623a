// Annotations for clang's thread-safety analysis. Only macros: a module cannot export them.
#pragma once

#ifdef __clang__
#define ZT_GUARDED_BY(x) __attribute__((guarded_by(x)))
#define ZT_REQUIRES(x) __attribute__((requires_capability(x)))
#else
#define ZT_GUARDED_BY(x)
#define ZT_REQUIRES(x)
#endif
