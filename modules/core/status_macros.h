// The library's only public macros: propagate an error, or unwrap a StatusOr. Installed as
// ztstream/status_macros.h.
//
// A module cannot export macros, so this is the library's one header. It includes nothing. It works
// in module units and plain files, in functions that return zt::Status or zt::StatusOr.
#pragma once

// ZT_RETURN_IF_ERROR(writer->Flush()): returns the status from the function unless it is OK.
#define ZT_RETURN_IF_ERROR(expr)                                       \
  do {                                                                 \
    if (auto zt_status_ = (expr); !zt_status_.ok()) return zt_status_; \
  } while (false)

// ZT_RETURN_IF_UNAVAILABLE(opened.status()): returns an error of the system, or of a server that
// fails, from the function. The caller goes on after others, which say something of the file.
#define ZT_RETURN_IF_UNAVAILABLE(expr)                         \
  do {                                                         \
    auto zt_status_ = (expr);                                  \
    if (zt_status_.code() == ::zt::StatusCode::kUnavailable) { \
      return zt_status_;                                       \
    }                                                          \
  } while (false)

#define ZT_CONCAT_INNER_(a, b) a##b
#define ZT_CONCAT_(a, b) ZT_CONCAT_INNER_(a, b)

// ZT_ASSIGN_OR_RETURN(auto x, Function()): sets x to the value, or returns the error from the
// function. Expands to several statements: in the body of an `if`, use braces. Needs <utility>.
#define ZT_ASSIGN_OR_RETURN(lhs, expr) ZT_ASSIGN_OR_RETURN_(ZT_CONCAT_(zt_or_, __LINE__), lhs, expr)
#define ZT_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                         \
  if (!tmp.ok()) return tmp.status();        \
  lhs = *std::move(tmp)
