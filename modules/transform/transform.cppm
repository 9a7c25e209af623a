// zt.transform — transforms of elements: conversion, dequantization, byte order, transposition;
// figures of numbers.
export module zt.transform;

export import :stage;
export import :bytes;
export import :convert;
export import :dequant;
export import :quant;
export import :stats;
export import :simd;
