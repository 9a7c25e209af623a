/* ztstream/c.h — the C interface of libztstream: reads checkpoints of any format, and writes zTensor .zt files.
 *
 * Conventions
 *
 *   - A function that can fail returns a zts_status. zts_last_error() then has the message of the calling thread, in one
 *     line; zts_last_error_place() has the file and the tensor in it.
 *   - Structs are passed with their size, `sizeof` as the caller was compiled, so that later versions can append members:
 *     of a shorter struct the library neither reads nor writes what is missing, and of a longer one it fills the rest with
 *     zeros. An options struct is filled by its zts_..._init first, which gives members their defaults.
 *   - Texts are UTF-8. What the library returns ends with a zero byte. Names may hold U+0000 within: they come and go with
 *     their length in bytes, for which ZTS_TERMINATED says "up to the first zero byte".
 *   - Tensor bytes are little-endian and in C order.
 *   - Null where a pointer is needed is ZTS_INVALID_ARGUMENT. The zts_..._free functions take null and do nothing.
 *   - A reader may be used by several threads at once, a writer by one at a time. A reader may be used in a forked child.
 *   - A released function or struct member keeps its meaning. zts_abi() counts what was added.
 */
#ifndef ZTSTREAM_C_H_
#define ZTSTREAM_C_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ZTS_API __attribute__((visibility("default")))
#else
#define ZTS_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What zts_abi() of a library with all of this header returns, or more. */
#define ZTS_ABI 1
/* The length of a name that ends at its first zero byte. */
#define ZTS_TERMINATED ((size_t)-1)
/* In place of the number of an object: the file. */
#define ZTS_FILE ((size_t)-1)
/* A size that only the end of the data tells. */
#define ZTS_UNKNOWN UINT64_MAX

/* ---- library and errors ----------------------------------------------------------------------------------------- */

/* What a call ended with; up to 7, and 130, the program's exit statuses. */
typedef enum zts_status {
  ZTS_OK = 0,
  ZTS_INVALID_ARGUMENT = 2, /* the caller asked for something that cannot be */
  ZTS_EXISTS = 3,           /* the output exists and may not be replaced */
  ZTS_INVALID_DATA = 4,     /* an input is malformed, truncated or contradicts itself */
  ZTS_UNSUPPORTED = 5,      /* an input is well formed but of a kind that is not supported */
  ZTS_IO = 6,               /* the system refused: reading, writing, space, memory */
  ZTS_NUMERIC = 7,          /* a number does not fit its target */
  ZTS_UNVERIFIED = 8,       /* nothing wrong was found, but not all content could be checked */
  ZTS_NOT_FOUND = 9,        /* there is no tensor or attribute of that name */
  ZTS_MISUSE = 70,          /* the library was called out of order, or has a fault */
  ZTS_CANCELLED = 130       /* a progress function asked for it, or zts_writer_cancel */
} zts_status;

/* How much of this interface the library has: at least the ZTS_ABI of the header it was built with. */
ZTS_API unsigned zts_abi(void);
/* "0.1.0". Static. */
ZTS_API const char* zts_version(void);
/* The message of this thread's last call that failed; "" before. Valid until the thread's next call that fails. */
ZTS_API const char* zts_last_error(void);
/* The file and the tensor that the message names, "" where it names none; either pointer may be null. Valid as long. */
ZTS_API void zts_last_error_place(const char** file, const char** tensor, size_t* tensor_bytes);
/* Frees a text that the comment beside a function says to free so. */
ZTS_API void zts_free(char* text);

/* Called by the calling thread about every 50 ms while a long call runs; a value other than 0 cancels the call. `total` is
 * 0 where it is not known. It must not use the writer, or free the reader, that the call is about. */
typedef int (*zts_progress)(uint64_t done, uint64_t total, void* user);

/* How a long call runs. Null is what zts_call_init gives. */
typedef struct zts_call {
  size_t size;           /* set by zts_call_init */
  unsigned threads;      /* 0 (default): all that can run at once */
  zts_progress progress; /* may be null */
  void* user;            /* for `progress` */
} zts_call;
ZTS_API void zts_call_init(zts_call* call, size_t size);

/* ---- reading ---------------------------------------------------------------------------------------------------- */

typedef struct zts_reader zts_reader;

/* How inputs are opened. */
typedef struct zts_reader_options {
  size_t size;        /* set by zts_reader_options_init */
  const char* format; /* "zt", "safetensors", "gguf", ...; null (default): by content */
  const char*
      npy_void; /* what the elements of numpy's void arrays are: "bf16", ...; null (default): they are refused */
  int follow_links; /* 1: files of a folder may be symbolic links that lead out of it; default 0 */
  int keep_sparse;  /* 1: scipy's sparse archives as the arrays that they are; default 0 */
  uint64_t
      memory_bytes; /* that may be held where data has to be sorted or decoded as a whole; default 64 MiB */
} zts_reader_options;
ZTS_API void zts_reader_options_init(zts_reader_options* options, size_t size);

/* Opens what the program opens: a .zt file of any version, the root or the index of its shards, a checkpoint of another
 * format (safetensors, GGUF, PyTorch, npy, npz, ONNX), or a folder of one. Headers are read and checked, and no data.
 * HDF5 is read by the program alone. `options` may be null. `*reader` is null where this fails. */
ZTS_API zts_status zts_reader_open(const char* path, const zts_reader_options* options,
                                   zts_reader** reader);
/* Several inputs as one; a name in two of them is ZTS_INVALID_DATA. */
ZTS_API zts_status zts_reader_open_all(const char* const* paths, size_t count,
                                       const zts_reader_options* options, zts_reader** reader);
/* A file in memory, which stays the caller's until `release`, if not null, is called with `user`: when the reader is freed,
 * or before this returns where it fails. `name` stands for the file in errors. */
ZTS_API zts_status zts_reader_open_memory(const void* data, uint64_t bytes, const char* name,
                                          void (*release)(void* user), void* user,
                                          const zts_reader_options* options, zts_reader** reader);
/* An open descriptor, which is not closed. A regular file begins at its offset; a pipe is read front to back, in the order
 * of the objects. It must stay open as long as the reader. */
ZTS_API zts_status zts_reader_open_fd(int fd, const char* name, const zts_reader_options* options,
                                      zts_reader** reader);
/* Bytes that functions of the caller serve, as objects of a store. */
typedef struct zts_source {
  size_t size;      /* sizeof(zts_source) */
  const char* name; /* stands for the file in errors */
  uint64_t bytes;   /* in all */
  /* Fills `out` with `bytes` bytes from `offset`; 0, or an error number of errno.h. Called by several threads at once. */
  int (*read_at)(uint64_t offset, void* out, size_t bytes, void* user);
  /* May be null. Called once: when the reader is freed, or before opening fails. */
  void (*release)(void* user);
  void* user;
} zts_source;
ZTS_API zts_status zts_reader_open_source(const zts_source* source,
                                          const zts_reader_options* options, zts_reader** reader);
/* One more user of the reader, which is closed when zts_reader_free was called as often as it was opened and retained. */
ZTS_API void zts_reader_retain(zts_reader* reader);
/* Pointers that the reader gave are valid until it is closed. */
ZTS_API void zts_reader_free(zts_reader* reader);

/* One tensor, or what else has a name in the file. Pointers are valid as long as the reader. */
typedef struct zts_object {
  const char* name;
  size_t name_bytes;
  const char* format;    /* "dense", "sparse_csr", "gguf.q4_k/1", ... */
  const char* type;      /* what people call its type: "bf16", "q4_k", "sparse_csr" */
  const uint64_t* shape; /* logical, in elements; null where `rank` is 0 */
  size_t rank;
  size_t components; /* how many; a dense object has one */
  size_t
      first_component; /* where they begin among those of all objects: see zts_reader_components */
} zts_object;

/* The bytes of an object, or one of several parts of them. Pointers are valid as long as the reader. */
typedef struct zts_component {
  size_t object;        /* whose it is */
  const char* role;     /* "data", "values", ... */
  const char* dtype;    /* the logical type where there is one: "bf16", "f8_e4m3fn" */
  const char* storage;  /* the storage type: "bf16", "u8" */
  const char* encoding; /* "raw", "zstd", ...; "" where the input's format does not tell */
  const char* digest;   /* "crc32c:0x1234ABCD"; "" where there is none */
  const char* file;     /* that it lies in */
  uint64_t
      offset; /* of the stored bytes in that file; ZTS_UNKNOWN where they do not lie there as they are */
  uint64_t length;        /* of the stored bytes; ZTS_UNKNOWN likewise */
  uint64_t bytes;         /* decoded; ZTS_UNKNOWN where it cannot be decoded and nothing says */
  const char* unreadable; /* why it cannot be decoded; "" where it can */
  int mappable;           /* 1 where zts_reader_map may serve it */
} zts_component;

/* "zt", "safetensors", ...: the format that was opened; and the version of a .zt file, "" of others. */
ZTS_API const char* zts_reader_format(const zts_reader* reader);
ZTS_API const char* zts_reader_version(const zts_reader* reader);
/* Line number `index` of what was passed over or looks wrong and does no harm; null where there are no more. */
ZTS_API const char* zts_reader_warning(const zts_reader* reader, size_t index);

/* How many objects there are, and how many components of all of them. */
ZTS_API size_t zts_reader_count(const zts_reader* reader);
ZTS_API size_t zts_reader_component_count(const zts_reader* reader);
/* `count` objects from number `first` on, into an array of structs of `size` bytes. */
ZTS_API zts_status zts_reader_objects(const zts_reader* reader, size_t first, size_t count,
                                      zts_object* objects, size_t size);
/* The same of components, which follow each other object by object. */
ZTS_API zts_status zts_reader_components(const zts_reader* reader, size_t first, size_t count,
                                         zts_component* components, size_t size);
/* The number of the object with this name. ZTS_NOT_FOUND. */
ZTS_API zts_status zts_reader_find(const zts_reader* reader, const char* name, size_t name_bytes,
                                   size_t* object);

/* The attributes of an object, or with ZTS_FILE of the file, as a JSON object; byte strings are {"$bytes": "hexadecimal"}, and
 * numbers that JSON lacks {"$double": "nan"}, "inf" or "-inf". Free it with zts_free. */
ZTS_API zts_status zts_reader_attributes(const zts_reader* reader, size_t object, char** json);
/* One attribute of the file. ZTS_NOT_FOUND where there is none under this key, ZTS_INVALID_ARGUMENT where it is of another
 * kind. A text is valid as long as the reader; `bytes`, its length, may be null. A whole number is also a double. */
ZTS_API zts_status zts_reader_get_text(const zts_reader* reader, const char* key,
                                       const char** value, size_t* bytes);
ZTS_API zts_status zts_reader_get_int(const zts_reader* reader, const char* key, int64_t* value);
ZTS_API zts_status zts_reader_get_double(const zts_reader* reader, const char* key, double* value);
ZTS_API zts_status zts_reader_get_bool(const zts_reader* reader, const char* key, int* value);

/* Bytes of a component, counted from 0 within the object, and where they go. */
typedef struct zts_range {
  size_t object;
  size_t component;
  uint64_t offset; /* of the first decoded byte */
  uint64_t bytes;
  void* out; /* may be null where `bytes` is 0 */
} zts_range;

/* Copies decoded bytes of one component. Digests are not checked: see zts_reader_verify. */
ZTS_API zts_status zts_reader_read(const zts_reader* reader, size_t object, size_t component,
                                   uint64_t offset, void* out, uint64_t bytes);
/* Many ranges at once, by all threads, into memory of the caller that does not overlap. The error is that of the first range
 * that fails. `size` is that of a zts_range; `call` may be null. */
ZTS_API zts_status zts_reader_read_many(const zts_reader* reader, const zts_range* ranges,
                                        size_t count, size_t size, const zts_call* call);
/* The bytes of a component where they lie in its file, mapped; valid as long as the reader. The pages are the caller's own: what
 * is written to them changes neither the file nor other readers. ZTS_MISUSE where zts_component.mappable is 0, ZTS_INVALID_DATA
 * where another file has the name by now. A file that shrinks while it is mapped ends the process with SIGBUS. */
ZTS_API zts_status zts_reader_map(const zts_reader* reader, size_t object, size_t component,
                                  void** data, uint64_t* bytes);
/* Tells the kernel that a component will be read soon (1), or not again (0), where it lies in a file. A hint. */
ZTS_API zts_status zts_reader_advise(const zts_reader* reader, size_t object, size_t component,
                                     int needed);

/* What verification looked at. */
typedef struct zts_verify_report {
  uint64_t objects;
  uint64_t components;
  uint64_t digests;     /* compared */
  uint64_t unhashed;    /* components whose content no digest was compared with */
  uint64_t undecodable; /* components whose layout, type or encoding is not known */
  uint64_t unchecked;   /* objects with a rule that takes too much memory to be looked at */
  uint64_t problems;    /* things that are wrong */
} zts_verify_report;
/* One thing that is wrong; `object` is "" where it is the file's, `component` where it is the object's. */
typedef void (*zts_problem)(const char* object, size_t object_bytes, const char* component,
                            const char* message, void* user);
/* Reads every byte of one object, or with ZTS_FILE of all, and checks rules and digests. ZTS_INVALID_DATA where anything is
 * wrong, after `problem`, if not null, was called for each; ZTS_UNVERIFIED where nothing is, but `unhashed`, `undecodable` or
 * `unchecked` is not 0: formats other than .zt have no digests. `report` (of `size` bytes) and `call` may be null. */
ZTS_API zts_status zts_reader_verify(const zts_reader* reader, size_t object, zts_problem problem,
                                     void* user, zts_verify_report* report, size_t size,
                                     const zts_call* call);

/* ---- writing ---------------------------------------------------------------------------------------------------- */

typedef struct zts_writer zts_writer;

/* How tensors are stored. */
enum {
  ZTS_RAW = 0,
  ZTS_ZSTD = 1, /* zstd, where it gains */
  ZTS_PLANES =
      2 /* the byte planes of floats of 2, 4 or 8 bytes, zstd for the rest, each where it gains */
};

/* How a file is written. */
typedef struct zts_writer_options {
  size_t size;      /* set by zts_writer_options_init */
  const char* spec; /* "1.2" (default), "2.0", "1.1" or "0.1" */
  const char*
      digest;       /* "crc32c", "sha256", "xxh3" or "none"; null (default): crc32c, in 2.0 xxh3 */
  int compress;     /* ZTS_RAW (default), ZTS_ZSTD or ZTS_PLANES */
  int level;        /* of zstd; default 1 */
  double min_gain;  /* fraction a component must shrink by to be stored compressed; default 0.02 */
  unsigned threads; /* workers; 0 (default): all that can run at once */
  uint64_t
      memory_bytes; /* for chunks under way; 0 (default): 32 MiB for each worker, at least 64 MiB */
  int overwrite;    /* 1: an existing file is replaced; default 0 */
  int sync;         /* 1 (default): the file is on the disk when zts_writer_finish returns */
  zts_progress progress; /* while flushing, finishing or adding many bytes; default null */
  void* user;            /* for `progress` */
} zts_writer_options;
ZTS_API void zts_writer_options_init(zts_writer_options* options, size_t size);

/* A writer of the file `path`, which appears under its name only when it is finished. `options` may be null. `*writer` is null
 * where this fails.
 *
 * Once the bytes of a tensor were found wrong, or the system has refused something, every later call that adds, flushes or
 * finishes returns that first error again: free the writer. An argument that is refused (null, an unknown type, a shape
 * that cannot be, an object still open) leaves it as it was. In a forked child every call is ZTS_MISUSE. */
ZTS_API zts_status zts_writer_open(const char* path, const zts_writer_options* options,
                                   zts_writer** writer);
/* Into an open descriptor, in order, such as a pipe; it is not closed. */
ZTS_API zts_status zts_writer_open_fd(int fd, const char* name, const zts_writer_options* options,
                                      zts_writer** writer);
/* Where bytes go that functions of the caller take, in order. They are called by one thread at a time, not always the same;
 * each returns 0, or an error number of errno.h. */
typedef struct zts_sink {
  size_t size;      /* sizeof(zts_sink) */
  const char* name; /* stands for the file in errors */
  int (*append)(const void* data, size_t bytes, void* user);
  int (*finish)(uint64_t total, void* user); /* may be null: everything was appended */
  void (*abort)(void* user);                 /* may be null: what was appended is not to be kept */
  void* user;
} zts_sink;
ZTS_API zts_status zts_writer_open_sink(const zts_sink* sink, const zts_writer_options* options,
                                        zts_writer** writer);
/* Drops the writer. The output of one that was not finished is removed. */
ZTS_API void zts_writer_free(zts_writer* writer);

/* Sets an attribute of the file, before zts_writer_finish; the last one set under a key wins. */
ZTS_API zts_status zts_writer_set_text(zts_writer* writer, const char* key, const char* value);
ZTS_API zts_status zts_writer_set_int(zts_writer* writer, const char* key, int64_t value);
ZTS_API zts_status zts_writer_set_double(zts_writer* writer, const char* key, double value);
ZTS_API zts_status zts_writer_set_bool(zts_writer* writer, const char* key, int value);
/* Sets each member of a JSON object, in the form of zts_reader_attributes. */
ZTS_API zts_status zts_writer_set_json(zts_writer* writer, const char* json);

/* Adds one dense tensor. `dtype` is any name of a type that the program takes: "f32", "float32", "bf16", "f8_e4m3fn", ...
 * `bytes` is its size, which must agree with shape and type: types of 4 and 6 bits count the bytes they fill. `shape` may be
 * null where `rank` is 0, `data` where `bytes` is 0. The data must stay until zts_writer_flush or zts_writer_finish returns. */
ZTS_API zts_status zts_writer_add(zts_writer* writer, const char* name, size_t name_bytes,
                                  const char* dtype, const uint64_t* shape, size_t rank,
                                  const void* data, uint64_t bytes);
/* A second name for an object that was added before; both share their bytes. */
ZTS_API zts_status zts_writer_alias(zts_writer* writer, const char* name, size_t name_bytes,
                                    const char* of, size_t of_bytes);

/* A component of an object that is added. */
typedef struct zts_part {
  const char* role;  /* "data", "values", ... */
  const char* dtype; /* as of zts_writer_add */
  const void* data;  /* passed over by zts_writer_begin */
  uint64_t bytes;    /* ZTS_UNKNOWN in zts_writer_begin: whatever is appended */
} zts_part;
/* An object of any format: sparse_csr, quantized_group, or one of your own, such as "example.growing/1". */
typedef struct zts_declaration {
  size_t size; /* sizeof(zts_declaration) */
  const char* name;
  size_t name_bytes;
  const char* format; /* null: "dense" */
  const uint64_t* shape;
  size_t rank;
  const char* attributes; /* a JSON object, or null */
  const zts_part* parts;
  size_t part_count;
  size_t part_size; /* sizeof(zts_part) */
} zts_declaration;
ZTS_API zts_status zts_writer_add_object(zts_writer* writer, const zts_declaration* declaration);

/* Begins an object whose bytes come piece by piece; zts_writer_append copies each piece; zts_writer_next goes on to the next
 * part; zts_writer_end checks the sizes. Nothing else is added in between. */
ZTS_API zts_status zts_writer_begin(zts_writer* writer, const zts_declaration* declaration);
ZTS_API zts_status zts_writer_append(zts_writer* writer, const void* data, uint64_t bytes);
ZTS_API zts_status zts_writer_next(zts_writer* writer);
/* The first dimension of the object that was begun, where only the end of the data tells it. */
ZTS_API zts_status zts_writer_set_leading_dimension(zts_writer* writer, uint64_t size);
ZTS_API zts_status zts_writer_end(zts_writer* writer);

/* Waits until all that was added has been handed to the file, so that its memory may be reused. */
ZTS_API zts_status zts_writer_flush(zts_writer* writer);
/* Writes the manifest and publishes the file. The writer is used up, whatever comes back; free it. */
ZTS_API zts_status zts_writer_finish(zts_writer* writer);
/* Ends the call that is under way, and all later ones, with ZTS_CANCELLED. May be called by any thread. */
ZTS_API zts_status zts_writer_cancel(zts_writer* writer);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ZTSTREAM_C_H_ */
