// zt.compress — codecs: zstd with a seek table, and floats as byte planes; what differs from a base.
export module zt.compress;

import zt.std;
export import :codec;
export import :delta;
export import :planes;
import zt.core;

export namespace zt {

// A compressed component is a stream in the zstd seekable format (contrib/seekable_format in zstd's
// sources): frames of frame_bytes of content each (the last may be shorter), every one with its
// content size and checksum, then one skippable frame that holds the seek table. Any zstd decoder
// reads it; ours reads it by frame.

// kInvalidArgument if a field is out of range, naming it.
Status Validate(const ZstdOptions& options);

// The version of libzstd in use, "1.5.4". A string literal.
std::string_view ZstdVersion();

}  // namespace zt
