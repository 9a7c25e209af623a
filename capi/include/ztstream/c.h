/* ztstream/c.h — the C interface of libztstream: reads checkpoints of any format, and writes zTensor
 * .zt files.
 *
 * Conventions
 *
 *   - A function that can fail returns a zts_status. zts_last_error() then has the message of the
 *     calling thread, in one line; zts_last_error_place() has the file and the tensor in it.
 *   - Structs are passed with their size, the `sizeof` of the caller, so that later versions can
 *     append members: the library does not touch missing members of a shorter struct, and fills
 *     the rest of a longer one with zeros. An options struct is first filled with defaults by its
 *     zts_..._init.
 *   - Texts are UTF-8. Texts of the library end with a zero byte. Names may contain U+0000: they are
 *     passed with their length in bytes, or with ZTS_TERMINATED for "up to the first zero byte".
 *   - Tensor bytes are little-endian and in C order.
 *   - A null pointer is ZTS_INVALID_ARGUMENT, unless the comment allows it. The zts_..._free
 *     functions take null and do nothing.
 *   - Functions of the caller must not throw, or leave by longjmp: the process would end.
 *   - Several threads may use a reader at once, and one at a time a writer. A forked child may use
 *     a reader, unless it reads a URL: then calls that read are ZTS_MISUSE there.
 *   - A released function or struct member keeps its meaning. zts_abi() grows with additions.
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

/* The value, or more, that zts_abi() returns in a library with all of this header. */
#define ZTS_ABI 1
/* The length of a name that ends at its first zero byte. */
#define ZTS_TERMINATED SIZE_MAX
/* Stands for the file instead of the number of an object. */
#define ZTS_FILE SIZE_MAX
/* A size that is known only at the end of the data. */
#define ZTS_UNKNOWN UINT64_MAX

/* ---- library and errors ---------------------------------------------------------------------- */

/* The result of a call. The values up to 7, and 130, are the exit statuses of the program. */
typedef enum zts_status {
  ZTS_OK = 0,
  ZTS_INVALID_ARGUMENT = 2, /* the arguments are invalid */
  ZTS_EXISTS = 3,           /* the output exists and may not be replaced */
  ZTS_INVALID_DATA = 4,     /* an input is malformed, truncated or contradicts itself */
  ZTS_UNSUPPORTED = 5,      /* an input is well formed but of a kind that is not supported */
  ZTS_IO = 6,               /* the system refused: reading, writing, space, memory */
  ZTS_NUMERIC = 7,          /* a number does not fit its target */
  ZTS_UNVERIFIED = 8,       /* nothing wrong was found, but not all content could be checked */
  ZTS_NOT_FOUND = 9,        /* there is no tensor or attribute of that name */
  ZTS_MISUSE = 70,          /* the library was called out of order, or has a fault */
  ZTS_CANCELLED = 130       /* by a progress function or zts_writer_cancel */
} zts_status;

/* The version of this interface in the library: at least the ZTS_ABI of the header that the program
 * was built with. */
ZTS_API unsigned zts_abi(void);
/* "0.1.0". Static. */
ZTS_API const char* zts_version(void);
/* The message of the last call of this thread that failed, or "". Valid until the next call of the
 * thread that fails. */
ZTS_API const char* zts_last_error(void);
/* The file and the tensor that the message names, or "". Either pointer may be null. Valid as long
 * as the message. */
ZTS_API void zts_last_error_place(const char** file, const char** tensor, size_t* tensor_bytes);
/* What would help about that error: names such as "memory" or "npy_void", with a space between two,
 * or "". The message words what a member of a struct here is for; `*message_bytes`, which may be
 * null, is its length without these words. Valid as long as the message. */
ZTS_API const char* zts_last_error_advice(size_t* message_bytes);
/* Frees a text that a function returned for the caller to free; null is allowed. */
ZTS_API void zts_free(char* text);

/* Called by the calling thread about every 50 ms while a long call runs. A value other than 0
 * cancels the call. `total` is 0 if it is unknown. It must not use the writer, or free the reader,
 * of the call. */
typedef int (*zts_progress)(uint64_t done, uint64_t total, void* user);

/* Options of a long call. Null stands for the values that zts_call_init sets. */
typedef struct zts_call {
  size_t size;           /* set by zts_call_init */
  unsigned threads;      /* 0 (default): all that can run at once */
  zts_progress progress; /* may be null */
  void* user;            /* for `progress` */
} zts_call;
ZTS_API void zts_call_init(zts_call* call, size_t size);

/* The type with a name that the program knows: "f32", "float32" and "torch.float32" are "f32".
 * `*dtype` is static. `*bytes` is the size of an element of a shape: 1 for types of 4 and 6 bits,
 * whose shapes count packed bytes. Both may be null. ZTS_INVALID_ARGUMENT if there is none. */
ZTS_API zts_status zts_type(const char* name, const char** dtype, size_t* bytes);

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct zts_reader zts_reader;

/* How to open inputs. */
typedef struct zts_reader_options {
  size_t size;        /* set by zts_reader_options_init */
  const char* format; /* "zt", "safetensors", "gguf", ...; null (default): by content */
  /* The type of elements of numpy's void arrays: "bf16", ...; null (default): they are refused. */
  const char* npy_void;
  int follow_links; /* 1: files of a folder may be symbolic links that lead out of it; default 0 */
  int keep_sparse;  /* 1: scipy's sparse archives stay separate arrays; default 0 */
  /* The limit for data that must be sorted or decoded as a whole; default 64 MiB. */
  uint64_t memory_bytes;
  /* Of "s3://" URLs: the profile of the AWS tools, which then comes before credentials of the
   * environment; the region; the URL of another store. Null (default): as the environment says. */
  const char* profile;
  const char* region;
  const char* endpoint_url;
  int no_sign_request; /* 1: they are asked without a signature, for public buckets; default 0 */
  /* "f32", "f16" or "bf16": quantized tensors (FP8, FP4, GPTQ, AWQ, ...) are numbers of that type,
   * their scales and the like are left out. Null (default): they are as they are stored. */
  const char* dequantize;
  /* Of a folder: the variant of the weights, "fp16" for model.fp16.safetensors; null (default): the
   * files without one. */
  const char* variant;
  /* Paths of the bases of deltas (docs/DELTA.md); null and 0 (default): they lie beside the deltas. */
  const char* const* base;
  size_t bases;
  /* Headers for "s3://", as "x-amz-request-payer=requester" (docs/REMOTE.md); null and 0 (default). */
  const char* const* s3_headers;
  size_t s3_header_count;
  /* 1: the base of a delta is in memory, for zts_reader_update_many; default 0. */
  int base_in_memory;
} zts_reader_options;
ZTS_API void zts_reader_options_init(zts_reader_options* options, size_t size);

/* Opens any input of the program: a .zt file of any version, the root or the index of its shards, a
 * checkpoint of another format (safetensors, GGUF, PyTorch, npy, npz, ONNX), a folder of one, or a
 * URL of any of them ("https://", "s3://", "hf://"), for which libcurl is loaded. Headers are read
 * and checked, data is not. Only the program reads HDF5. `options` may be null. `*reader` is null
 * on failure. */
ZTS_API zts_status zts_reader_open(const char* path, const zts_reader_options* options,
                                   zts_reader** reader);
/* Opens several inputs as one; a name that is in two of them is ZTS_INVALID_DATA. */
ZTS_API zts_status zts_reader_open_all(const char* const* paths, size_t count,
                                       const zts_reader_options* options, zts_reader** reader);
/* Opens a file in memory. It belongs to the caller until `release`, if not null, is called with
 * `user`: when the reader is freed, or before this function returns an error. `name` is the name of
 * the file in errors. */
ZTS_API zts_status zts_reader_open_memory(const void* data, uint64_t bytes, const char* name,
                                          void (*release)(void* user), void* user,
                                          const zts_reader_options* options, zts_reader** reader);
/* Opens an open descriptor, which is not closed. A regular file starts at its offset; a pipe is
 * read from front to back, in the order of the objects. It must stay open as long as the reader. */
ZTS_API zts_status zts_reader_open_fd(int fd, const char* name, const zts_reader_options* options,
                                      zts_reader** reader);
/* Bytes that functions of the caller read, such as objects of a store. */
typedef struct zts_source {
  size_t size;      /* sizeof(zts_source) */
  const char* name; /* stands for the file in errors */
  uint64_t bytes;   /* in all */
  /* Fills `out` with `bytes` bytes from `offset`; returns 0, or an error number of errno.h. Several
   * threads may call it at once. */
  int (*read_at)(uint64_t offset, void* out, size_t bytes, void* user);
  /* May be null. Called once: when the reader is freed, or before opening fails. */
  void (*release)(void* user);
  void* user;
} zts_source;
ZTS_API zts_status zts_reader_open_source(const zts_source* source,
                                          const zts_reader_options* options, zts_reader** reader);
/* Adds a user of the reader. It is closed when zts_reader_free was called once for each
 * zts_reader_open and zts_reader_retain. */
ZTS_API void zts_reader_retain(zts_reader* reader);
/* Pointers from the reader are valid until it is closed. */
ZTS_API void zts_reader_free(zts_reader* reader);

/* A tensor, or another named object in the file. Pointers are valid as long as the reader. */
typedef struct zts_object {
  const char* name;
  size_t name_bytes;
  const char* format;    /* "dense", "sparse_csr", "gguf.q4_k/1", ... */
  const char* type;      /* the common name of its type: "bf16", "q4_k", "sparse_csr" */
  const uint64_t* shape; /* logical, in elements; null where `rank` is 0 */
  size_t rank;
  size_t components; /* their number; a dense object has one */
  /* The number of its first component among those of all objects: see zts_reader_components. */
  size_t first_component;
  /* The path of a file that goes with a model, "config.json"; null for a tensor. */
  const char* path;
} zts_object;

/* The bytes of an object, or one of their parts. Pointers are valid as long as the reader. */
typedef struct zts_component {
  size_t object;        /* the number of its object */
  const char* role;     /* "data", "values", ... */
  const char* dtype;    /* the logical type where there is one: "bf16", "f8_e4m3fn" */
  const char* storage;  /* the storage type: "bf16", "u8" */
  const char* encoding; /* "raw", "zstd", ...; "" where the input's format does not tell */
  const char* digest;   /* "crc32c:0x1234ABCD"; "" where there is none */
  /* The file in which it lies; of a shard of 2.0 the root's path, ": shard " and the shard's name. */
  const char* file;
  /* Of the stored bytes in that file; ZTS_UNKNOWN if they do not lie in it unchanged. */
  uint64_t offset;
  uint64_t length; /* of the stored bytes; ZTS_UNKNOWN likewise */
  /* Of the decoded bytes; ZTS_UNKNOWN if it cannot be decoded and its size is not stated. */
  uint64_t bytes;
  const char* unreadable; /* the reason if it cannot be decoded, else "" */
  int mappable;           /* 1 if zts_reader_map can map it */
} zts_component;

/* The format of the input, "zt", "safetensors", ..., and the version of a .zt file, "" for other
 * formats. */
ZTS_API const char* zts_reader_format(const zts_reader* reader);
ZTS_API const char* zts_reader_version(const zts_reader* reader);
/* Warning number `index`, about harmless faults and ignored content; null after the last one. */
ZTS_API const char* zts_reader_warning(const zts_reader* reader, size_t index);

/* The number of objects, and the number of components of all objects. */
ZTS_API size_t zts_reader_count(const zts_reader* reader);
ZTS_API size_t zts_reader_component_count(const zts_reader* reader);
/* Lists `count` objects from number `first` on in an array of structs of `size` bytes. */
ZTS_API zts_status zts_reader_objects(const zts_reader* reader, size_t first, size_t count,
                                      zts_object* objects, size_t size);
/* The same for components, which are ordered by their objects. */
ZTS_API zts_status zts_reader_components(const zts_reader* reader, size_t first, size_t count,
                                         zts_component* components, size_t size);
/* Finds the number of the object with this name. ZTS_NOT_FOUND. */
ZTS_API zts_status zts_reader_find(const zts_reader* reader, const char* name, size_t name_bytes,
                                   size_t* object);

/* Gets the attributes of an object, or with ZTS_FILE of the file, as a JSON object. Byte strings
 * are {"$bytes": "hexadecimal"}, numbers that JSON lacks are {"$double": "nan"}, "inf" or "-inf". A
 * map within a value that only looks so, by its one key, has one more '$'. Free it with zts_free. */
ZTS_API zts_status zts_reader_attributes(const zts_reader* reader, size_t object, char** json);
/* Gets an attribute of the file. ZTS_NOT_FOUND if there is none with this key, ZTS_INVALID_ARGUMENT
 * if it has another type. A key ends at its first zero byte: zts_reader_attributes has all. A text
 * is valid as long as the reader; `bytes`, its length, which U+0000 does not end, may be null.
 * An integer can be read as a double, too. */
ZTS_API zts_status zts_reader_get_text(const zts_reader* reader, const char* key,
                                       const char** value, size_t* bytes);
ZTS_API zts_status zts_reader_get_int(const zts_reader* reader, const char* key, int64_t* value);
ZTS_API zts_status zts_reader_get_double(const zts_reader* reader, const char* key, double* value);
ZTS_API zts_status zts_reader_get_bool(const zts_reader* reader, const char* key, int* value);

/* A range of a component, whose number counts from 0 within the object, and the buffer for it. */
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
/* Reads many ranges with many threads into memory of the caller, which must not overlap. The error
 * is that of the first range that fails. `size` is the size of a zts_range; `call` may be null. */
ZTS_API zts_status zts_reader_read_many(const zts_reader* reader, const zts_range* ranges,
                                        size_t count, size_t size, const zts_call* call);
/* The same for memory that holds these ranges of another version of the model: of a delta
 * (docs/DELTA.md) only what changed is decoded, and all else is compared with its digest. Ranges are
 * whole components. What holds neither version is read with the base; where that is in memory alone,
 * it is ZTS_INVALID_ARGUMENT, before anything is changed, unless it is tied to one that does hold a
 * version. */
ZTS_API zts_status zts_reader_update_many(const zts_reader* reader, const zts_range* ranges,
                                          size_t count, size_t size, const zts_call* call);
/* Maps the bytes of a component in its file; valid as long as the reader. The pages are private:
 * writing to them changes neither the file nor other readers. ZTS_MISUSE if zts_component.mappable
 * is 0, ZTS_INVALID_DATA if the size of the file has changed. A file that shrinks while it is
 * mapped ends the process with SIGBUS. */
ZTS_API zts_status zts_reader_map(const zts_reader* reader, size_t object, size_t component,
                                  void** data, uint64_t* bytes);
/* The same in pages of their own, which no other call gets: what is written there is seen nowhere
 * else. The whole file is mapped, so that other components of it lie where their offsets say.
 * The bytes are valid until zts_pages_free, also after the reader. */
typedef struct zts_pages zts_pages;
ZTS_API zts_status zts_reader_map_pages(const zts_reader* reader, size_t object, size_t component,
                                        zts_pages** pages, void** data, uint64_t* bytes);
ZTS_API void zts_pages_free(zts_pages* pages);
/* Tells the kernel that a component in a file will be read soon (1), or not again (0). Components of
 * a URL that will be read soon are requested ahead of the next read. A hint. */
ZTS_API zts_status zts_reader_advise(const zts_reader* reader, size_t object, size_t component,
                                     int needed);

/* The counts of a verification. */
typedef struct zts_verify_report {
  uint64_t objects;
  uint64_t components;
  uint64_t digests;     /* compared */
  uint64_t unhashed;    /* components without a digest that could be compared */
  uint64_t undecodable; /* objects or components of an unknown layout, type or encoding */
  uint64_t unchecked;   /* objects with a rule that takes too much memory to check */
  uint64_t problems;    /* faults that were found */
} zts_verify_report;
/* A fault. `object` is "" if it concerns the file, `component` is "" if it concerns the object. */
typedef void (*zts_problem)(const char* object, size_t object_bytes, const char* component,
                            const char* message, void* user);
/* Reads every byte of an object, or with ZTS_FILE of all objects, and checks rules and digests.
 * ZTS_INVALID_DATA if there are faults, after `problem`, if not null, was called for each.
 * ZTS_UNVERIFIED if there are none but `unhashed`, `undecodable` or `unchecked` is not 0: formats
 * other than .zt have no digests. `report` (of `size` bytes) and `call` may be null. */
ZTS_API zts_status zts_reader_verify(const zts_reader* reader, size_t object, zts_problem problem,
                                     void* user, zts_verify_report* report, size_t size,
                                     const zts_call* call);

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct zts_writer zts_writer;

/* The compression of tensors. */
enum {
  ZTS_RAW = 0,
  ZTS_ZSTD = 1, /* zstd, if it saves enough */
  /* Byte planes for floats of 2, 4 or 8 bytes, and zstd for the rest, if they save enough. Only
   * ztstream reads byte planes. */
  ZTS_PLANES = 2
};

/* How to write a file. */
typedef struct zts_writer_options {
  size_t size;      /* set by zts_writer_options_init */
  const char* spec; /* "1.2" (default), "2.0", "1.1" or "0.1" */
  /* "crc32c", "sha256", "xxh3" or "none"; null (default): crc32c, in 2.0 xxh3. */
  const char* digest;
  int compress;     /* ZTS_RAW (default), ZTS_ZSTD or ZTS_PLANES */
  int level;        /* of zstd; default 1 */
  double min_gain;  /* compress components that shrink by this fraction; default 0.02 */
  unsigned threads; /* workers; 0 (default): all that can run at once */
  /* The limit for chunks in flight; 0 (default): 32 MiB for each worker, at least 64 MiB. */
  uint64_t memory_bytes;
  int overwrite;         /* 1: an existing file is replaced; default 0 */
  int sync;              /* 1 (default): the file is on the disk when zts_writer_finish returns */
  zts_progress progress; /* while flushing, finishing or adding many bytes; default null */
  void* user;            /* for `progress` */
  /* As those of zts_reader_options. */
  const char* profile;
  const char* region;
  const char* endpoint_url;
  int no_sign_request;
  int resume; /* 1: an upload to "s3://" that ended early is continued; default 0 */
  const char* const* s3_headers;
  size_t s3_header_count;
} zts_writer_options;
ZTS_API void zts_writer_options_init(zts_writer_options* options, size_t size);

/* Makes a writer of the file `path`, or of an "s3://" URL, which appears under its name only when
 * it is finished. `options` may be null. `*writer` is null on failure.
 *
 * After invalid bytes of a tensor, a name that cannot be added (twice, not UTF-8, in 2.0 empty) or an
 * error of the system, every later call that adds, flushes or finishes returns that first error
 * again: free the writer. A refused argument (null, an unknown type, an invalid shape, an object still
 * open) does not change the writer. In a forked child every call is ZTS_MISUSE. */
ZTS_API zts_status zts_writer_open(const char* path, const zts_writer_options* options,
                                   zts_writer** writer);
/* Writes to an open descriptor, in order, such as a pipe; it is not closed. */
ZTS_API zts_status zts_writer_open_fd(int fd, const char* name, const zts_writer_options* options,
                                      zts_writer** writer);
/* Functions of the caller that take the bytes, in order. One thread at a time calls them, not
 * always the same one. Each returns 0, or an error number of errno.h. */
typedef struct zts_sink {
  size_t size;      /* sizeof(zts_sink) */
  const char* name; /* stands for the file in errors */
  int (*append)(const void* data, size_t bytes, void* user);
  int (*finish)(uint64_t total, void* user); /* may be null; called after the last byte */
  /* May be null; discards the appended bytes. */
  void (*abort)(void* user);
  void* user;
} zts_sink;
ZTS_API zts_status zts_writer_open_sink(const zts_sink* sink, const zts_writer_options* options,
                                        zts_writer** writer);
/* Frees the writer. Output that was not finished is removed. */
ZTS_API void zts_writer_free(zts_writer* writer);

/* Sets an attribute of the file, before zts_writer_finish; the last one set under a key wins. Key
 * and text end at their first zero byte; zts_writer_set_json takes texts with U+0000. */
ZTS_API zts_status zts_writer_set_text(zts_writer* writer, const char* key, const char* value);
ZTS_API zts_status zts_writer_set_int(zts_writer* writer, const char* key, int64_t value);
ZTS_API zts_status zts_writer_set_double(zts_writer* writer, const char* key, double value);
ZTS_API zts_status zts_writer_set_bool(zts_writer* writer, const char* key, int value);
/* Sets each member of a JSON object, in the form of zts_reader_attributes. */
ZTS_API zts_status zts_writer_set_json(zts_writer* writer, const char* json);

/* Adds a dense tensor. `dtype` is any name of a type that the program takes: "f32", "float32",
 * "bf16", "f8_e4m3fn", ... `bytes` must agree with shape and type: types of 4 and 6 bits count
 * whole bytes. `shape` may be null if `rank` is 0, `data` if `bytes` is 0. The data must stay until
 * zts_writer_flush or zts_writer_finish returns. */
ZTS_API zts_status zts_writer_add(zts_writer* writer, const char* name, size_t name_bytes,
                                  const char* dtype, const uint64_t* shape, size_t rank,
                                  const void* data, uint64_t bytes);
/* Adds a second name for an object; both share their bytes. */
ZTS_API zts_status zts_writer_alias(zts_writer* writer, const char* name, size_t name_bytes,
                                    const char* of, size_t of_bytes);

/* A component of an object to add. */
typedef struct zts_part {
  const char* role;  /* "data", "values", ... */
  const char* dtype; /* as of zts_writer_add */
  const void* data;  /* ignored by zts_writer_begin */
  uint64_t bytes;    /* in zts_writer_begin it may be ZTS_UNKNOWN: the bytes that are appended */
} zts_part;
/* An object of any format: sparse_csr, quantized_group, or an own one, such as "example.growing/1".
 */
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

/* Begins an object that is written piece by piece. zts_writer_append copies each piece,
 * zts_writer_next goes to the next part, and zts_writer_end checks the sizes. Nothing else can be
 * added in between. */
ZTS_API zts_status zts_writer_begin(zts_writer* writer, const zts_declaration* declaration);
ZTS_API zts_status zts_writer_append(zts_writer* writer, const void* data, uint64_t bytes);
ZTS_API zts_status zts_writer_next(zts_writer* writer);
/* Sets the first dimension of the current object if it is known only at the end of the data. */
ZTS_API zts_status zts_writer_set_leading_dimension(zts_writer* writer, uint64_t size);
ZTS_API zts_status zts_writer_end(zts_writer* writer);

/* Waits until everything that was added is written to the file, so that its memory may be reused.
 */
ZTS_API zts_status zts_writer_flush(zts_writer* writer);
/* Writes the manifest and publishes the file. Afterwards, even after an error, the writer can only
 * be freed. */
ZTS_API zts_status zts_writer_finish(zts_writer* writer);
/* Cancels the current call and all later ones with ZTS_CANCELLED. Any thread may call it. */
ZTS_API zts_status zts_writer_cancel(zts_writer* writer);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ZTSTREAM_C_H_ */
