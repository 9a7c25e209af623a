// zt.transform — transforms of elements: conversion, dequantization, byte order, transposition.
export module zt.transform;

export import :stage;
export import :bytes;
export import :convert;
export import :dequant;
export import :simd;
