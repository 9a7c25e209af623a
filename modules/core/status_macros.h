// The only macros: propagate an error, or unwrap a StatusOr. Usable in module units and plain files alike.
#pragma once

#define ZT_RETURN_IF_ERROR(expr)                                       \
  do {                                                                 \
    if (auto zt_status_ = (expr); !zt_status_.ok()) return zt_status_; \
  } while (false)

#define ZT_CONCAT_INNER_(a, b) a##b
#define ZT_CONCAT_(a, b) ZT_CONCAT_INNER_(a, b)

// ZT_ASSIGN_OR_RETURN(auto x, Function()): x is the value, or the function returns the error.
#define ZT_ASSIGN_OR_RETURN(lhs, expr) ZT_ASSIGN_OR_RETURN_(ZT_CONCAT_(zt_or_, __LINE__), lhs, expr)
#define ZT_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                         \
  if (!tmp.ok()) return tmp.status();        \
  lhs = *std::move(tmp)
