/* ztstream/c.h — the C interface of libztstream: writes and reads zTensor .zt files from any language.
 *
 * Every function that can fail returns a zts_status; zts_last_error() then has the message, in one line, for the
 * calling thread. Pointers that a function returns stay valid as the comment beside it says. Strings are UTF-8 and end
 * with a zero byte. Tensor bytes are little-endian, in C order. A writer is used by one thread at a time; an open
 * reader may be used by several.
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

/* What a call ended with; the same numbers as the program's exit statuses. */
typedef enum zts_status {
  ZTS_OK = 0,
  ZTS_INVALID_ARGUMENT = 2, /* the caller asked for something that cannot be */
  ZTS_EXISTS = 3,           /* the output exists and may not be replaced */
  ZTS_INVALID_DATA = 4,     /* an input is malformed, truncated or contradicts itself */
  ZTS_UNSUPPORTED = 5,      /* an input is well formed but of a kind that is not supported */
  ZTS_IO = 6,               /* the system refused: reading, writing, space, memory */
  ZTS_NUMERIC = 7,          /* a number does not fit its target */
  ZTS_MISUSE = 70,          /* the library was called out of order, or has a fault */
  ZTS_CANCELLED = 130
} zts_status;

/* "0.1.0": the version of the library. Static. */
ZTS_API const char* zts_version(void);
/* The message of the last call of this thread that failed; "" before. Valid until the thread's next call that fails. */
ZTS_API const char* zts_last_error(void);

/* ---- writing -------------------------------------------------------------------------------------------------- */

typedef struct zts_writer zts_writer;

/* How tensors are stored. */
enum {
  ZTS_RAW = 0,
  /* zstd, where it gains */
  ZTS_ZSTD = 1,
  /* the byte planes of floats of 2, 4 or 8 bytes, zstd for the rest, each where it gains */
  ZTS_PLANES = 2
};

/* How a file is written. Always filled by zts_writer_options_init first, so that later members have their default. */
typedef struct zts_writer_options {
  size_t size;      /* of this struct, as its user was compiled */
  const char* spec; /* "1.2" (default), "2.0", "1.1" or "0.1" */
  /* "crc32c" (not in 2.0), "sha256", "xxh3" or "none"; null (default): crc32c, in 2.0 xxh3 */
  const char* digest;
  int compress;     /* ZTS_RAW (default), ZTS_ZSTD or ZTS_PLANES */
  int level;        /* of zstd; default 1 */
  double min_gain;  /* fraction a component must shrink by to be stored compressed; default 0.02 */
  unsigned threads; /* workers; 0 (default): all that can run at once */
  uint64_t memory_bytes; /* for chunks under way; 0: 32 MiB for each worker, at least 64 MiB */
  int overwrite;         /* 1: an existing file is replaced; default 0 */
  int sync;              /* 1 (default): the file is on the disk when zts_writer_finish returns */
} zts_writer_options;

ZTS_API void zts_writer_options_init(zts_writer_options* options);

/* A writer of the file `path`, which appears under its name only when it is finished. `options` may be null. `*writer`
 * is null where this fails.
 *
 * Once the bytes of a tensor were found wrong, or the system has refused something, every later call that adds, flushes or
 * finishes returns that first error again: free the writer. An argument that is refused (null, an unknown type, a shape
 * that cannot be, an object still open) leaves it as it was. */
ZTS_API zts_status zts_writer_open(const char* path, const zts_writer_options* options,
                                   zts_writer** writer);
/* Drops the writer. The output of one that was not finished is removed. Null is allowed. */
ZTS_API void zts_writer_free(zts_writer* writer);

/* Sets an attribute of the file, before zts_writer_finish; the last one set under a key wins. */
ZTS_API zts_status zts_writer_set_text(zts_writer* writer, const char* key, const char* value);
ZTS_API zts_status zts_writer_set_int(zts_writer* writer, const char* key, int64_t value);
ZTS_API zts_status zts_writer_set_double(zts_writer* writer, const char* key, double value);
ZTS_API zts_status zts_writer_set_bool(zts_writer* writer, const char* key, int value);

/* Adds one dense tensor. `dtype` is a storage or logical type: "f32", "bf16", "f8_e4m3fn", ... `bytes` is its size,
 * which must agree with shape and type: types of 4 and 6 bits count the bytes they fill. `shape` may be null where `rank`
 * is 0, `data` where `bytes` is 0. The data must stay until zts_writer_flush or zts_writer_finish returns. */
ZTS_API zts_status zts_writer_add(zts_writer* writer, const char* name, const char* dtype,
                                  const uint64_t* shape, size_t rank, const void* data,
                                  uint64_t bytes);
/* A second name for a tensor that was added before; both share their bytes. */
ZTS_API zts_status zts_writer_alias(zts_writer* writer, const char* name, const char* of);

/* Begins a dense tensor whose bytes come piece by piece; zts_writer_append copies each piece; zts_writer_end checks
 * the size. Nothing else is added in between. */
ZTS_API zts_status zts_writer_begin(zts_writer* writer, const char* name, const char* dtype,
                                    const uint64_t* shape, size_t rank);
ZTS_API zts_status zts_writer_append(zts_writer* writer, const void* data, uint64_t bytes);
ZTS_API zts_status zts_writer_end(zts_writer* writer);

/* Waits until all that was added has been handed to the file, so that its memory may be reused. */
ZTS_API zts_status zts_writer_flush(zts_writer* writer);
/* Writes the manifest and publishes the file. The writer is used up, whatever comes back; free it. */
ZTS_API zts_status zts_writer_finish(zts_writer* writer);

/* ---- reading -------------------------------------------------------------------------------------------------- */

typedef struct zts_reader zts_reader;

/* One object of a file. Its pointers are valid as long as the reader. */
typedef struct zts_object {
  const char* name;
  const char* format;    /* "dense", "sparse_csr", ... */
  const uint64_t* shape; /* logical, in elements */
  size_t rank;
  size_t components; /* how many there are; a dense object has one */
} zts_object;

/* One component of an object. Its pointers are valid as long as the reader. */
typedef struct zts_component {
  const char* role;     /* "data", "values", ... */
  const char* dtype;    /* the logical type where there is one: "bf16", "f8_e4m3fn" */
  const char* storage;  /* the storage type: "bf16", "u8" */
  const char* encoding; /* "raw", "zstd", "ztstream.planes/1" */
  const char* digest;   /* "crc32c:0x1234ABCD"; "" where there is none */
  uint64_t offset;      /* of the stored bytes in the file */
  uint64_t length;      /* of the stored bytes */
  uint64_t bytes;       /* of the decoded bytes */
} zts_component;

/* Opens a .zt file of any version and checks its header, footer and manifest. */
ZTS_API zts_status zts_reader_open(const char* path, zts_reader** reader);
/* Closes it; every pointer it gave is then invalid. Null is allowed. */
ZTS_API void zts_reader_free(zts_reader* reader);

/* How many objects the file has. */
ZTS_API size_t zts_reader_count(const zts_reader* reader);
/* Object number `index`, from 0. */
ZTS_API zts_status zts_reader_object(const zts_reader* reader, size_t index, zts_object* object);
/* The number of the object with this name; ZTS_INVALID_ARGUMENT where there is none. */
ZTS_API zts_status zts_reader_find(const zts_reader* reader, const char* name, size_t* index);
/* Component number `component` of object number `index`. */
ZTS_API zts_status zts_reader_component(const zts_reader* reader, size_t index, size_t component,
                                        zts_component* out);
/* Copies decoded bytes from `offset` on to `out`. Digests are not checked: see zts_reader_verify. */
ZTS_API zts_status zts_reader_read(const zts_reader* reader, size_t index, size_t component,
                                   uint64_t offset, void* out, uint64_t bytes);
/* The bytes of a raw component where they lie in the file, mapped; valid as long as the reader. ZTS_MISUSE where the
 * component is compressed: zts_reader_read has its bytes. */
ZTS_API zts_status zts_reader_map(const zts_reader* reader, size_t index, size_t component,
                                  const void** data, uint64_t* bytes);
/* An attribute of the file. ZTS_INVALID_ARGUMENT where there is none under this key, or it is of another kind. A text is
 * valid as long as the reader, and ends for C at its first zero byte; a whole number is also a double. */
ZTS_API zts_status zts_reader_get_text(const zts_reader* reader, const char* key,
                                       const char** value);
ZTS_API zts_status zts_reader_get_int(const zts_reader* reader, const char* key, int64_t* value);
ZTS_API zts_status zts_reader_get_double(const zts_reader* reader, const char* key, double* value);
ZTS_API zts_status zts_reader_get_bool(const zts_reader* reader, const char* key, int* value);

/* Reads every byte and checks every rule and digest. `problem`, if not null, is called for each thing that is wrong.
 * ZTS_INVALID_DATA where there is any. `threads`: 0 for all that can run at once. ZTS_OK says nothing of content that the
 * file has no digest for: zts_reader_verify_report counts it. */
ZTS_API zts_status zts_reader_verify(const zts_reader* reader, unsigned threads,
                                     void (*problem)(const char* object, const char* component,
                                                     const char* message, void* user),
                                     void* user);

/* What verification looked at. */
typedef struct zts_verify_report {
  uint64_t objects;     /* in the file */
  uint64_t components;  /* in the file */
  uint64_t digests;     /* compared */
  uint64_t unhashed;    /* components whose content no digest was compared with */
  uint64_t undecodable; /* components whose layout, type or encoding is not known */
  uint64_t unchecked;   /* objects with a rule that takes too much memory to be looked at */
} zts_verify_report;
/* zts_reader_verify, which fills `report` where that is not null. */
ZTS_API zts_status zts_reader_verify_report(const zts_reader* reader, unsigned threads,
                                            void (*problem)(const char* object,
                                                            const char* component,
                                                            const char* message, void* user),
                                            void* user, zts_verify_report* report);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ZTSTREAM_C_H_ */
