// zt.reader — opens .zt files of every version: checks them, reads and maps ranges, verifies, and
// serves them as a source.
export module zt.reader;

export import :file;
export import :tensors;
export import :verify;
