// zt.core — the vocabulary of all other modules: status, values, tensors.
export module zt.core;

export import :status;
export import :mutex;
export import :names;
export import :small;
export import :value;
export import :tensor;
