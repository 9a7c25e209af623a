// zt.convert.hdf5:handle — what libhdf5 hands out, and its errors. Internal.
module;

#include <hdf5.h>

module zt.convert.hdf5:handle;

import zt.std;
import zt.core;

namespace zt::hdf5::internal {

// An id of libhdf5's, given back when it goes out of scope.
class Handle {
 public:
  Handle() = default;
  inline explicit Handle(hid_t id) : id_(id) {}
  inline Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  inline Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  inline ~Handle() {
    if (id_ >= 0) H5Idec_ref(id_);
  }
  inline hid_t get() const { return id_; }
  inline bool ok() const { return id_ >= 0; }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

// "it is damaged: `what` cannot be read (libhdf5: its own words)", of the call that has just failed.
Status Damaged(std::string_view what);

}  // namespace zt::hdf5::internal
