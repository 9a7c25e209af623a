// zt — everything an exporter needs: `import zt;`.
export module zt;

export import zt.core;
export import zt.compress;
export import zt.digest;
export import zt.format;
export import zt.pipeline;
export import zt.reader;
export import zt.sink;
export import zt.source;
export import zt.transform;
export import zt.writer;
