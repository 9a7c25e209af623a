// zt.core — the vocabulary every other module speaks: status, values, tensors. Imports nothing.
export module zt.core;

export import :status;
export import :mutex;
export import :names;
export import :small;
export import :value;
export import :tensor;
