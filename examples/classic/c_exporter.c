/* Writes a tensor, one that comes row by row and a sparse one, reads and verifies: C, any compiler. */
#include <stdio.h>
#include <string.h>

#include "ztstream/ztstream.h"

static int Fail(zts_status status) {
  fprintf(stderr, "%s\n", zts_last_error());
  return status;
}

/* Rows as they come: their number is set at the end. */
static zts_status WriteRows(zts_writer* writer, uint64_t rows) {
  const uint64_t shape[2] = {0, 3};
  const zts_part data = {"data", "f32", NULL, ZTS_UNKNOWN};
  const char* columns = "{\"columns\": [\"weight\", \"mean\", \"variance\"]}";
  const zts_declaration history = {sizeof history, "history", ZTS_TERMINATED, NULL, shape, 2,
                                   columns,        &data,     1,              sizeof data};
  zts_status status = zts_writer_begin(writer, &history);
  for (uint64_t row = 0; status == ZTS_OK && row < rows; ++row) {
    const float values[3] = {row, 0, 1};
    status = zts_writer_append(writer, values, sizeof values);
  }
  if (status == ZTS_OK) status = zts_writer_set_leading_dimension(writer, rows);
  return status == ZTS_OK ? zts_writer_end(writer) : status;
}

/* A sparse matrix: three arrays, which must stay until the writer has finished. */
static zts_status WriteSparse(zts_writer* writer) {
  static const float values[3] = {1, 2, 3};
  static const uint64_t columns[3] = {0, 2, 1}, rows[3] = {0, 2, 3}, shape[2] = {2, 3};
  const zts_part parts[3] = {{"values", "f32", values, sizeof values},
                             {"indices", "u64", columns, sizeof columns},
                             {"indptr", "u64", rows, sizeof rows}};
  const zts_declaration graph = {
      sizeof graph, "graph", ZTS_TERMINATED, "sparse_csr", shape, 2, NULL, parts, 3, sizeof parts[0]};
  return zts_writer_add_object(writer, &graph);
}

static zts_status Write(const char* path) {
  static const float values[6] = {0, 1, 2, 3, 4, 5};
  const uint64_t shape[2] = {2, 3};
  zts_writer_options options;
  zts_writer* writer;
  zts_writer_options_init(&options, sizeof options);
  options.overwrite = 1;
  zts_status status = zts_writer_open(path, &options, &writer);
  if (status != ZTS_OK) return status;
  status = zts_writer_add(writer, "weight", ZTS_TERMINATED, "f32", shape, 2, values, sizeof values);
  if (status == ZTS_OK) status = WriteRows(writer, 5);
  if (status == ZTS_OK) status = WriteSparse(writer);
  if (status == ZTS_OK) status = zts_writer_finish(writer);
  zts_writer_free(writer);
  return status;
}

static void Complain(const char* object, size_t bytes, const char* component, const char* message,
                     void* stream) {
  fprintf(stream, "%.*s %s: %s\n", (int)bytes, object, component, message);
}

static zts_status Print(const char* path) {
  void* data;
  uint64_t bytes;
  size_t index;
  zts_reader* reader;
  zts_status status = zts_reader_open(path, NULL, &reader);
  if (status != ZTS_OK) return status;
  status = zts_reader_find(reader, "weight", ZTS_TERMINATED, &index);
  if (status == ZTS_OK) status = zts_reader_map(reader, index, 0, &data, &bytes);
  for (uint64_t at = 0; status == ZTS_OK && at < bytes; at += sizeof(float)) {
    float value;
    memcpy(&value, (const char*)data + at, sizeof value);
    printf("%g\n", value);
  }
  if (status == ZTS_OK)
    status = zts_reader_verify(reader, ZTS_FILE, Complain, stderr, NULL, 0, NULL);
  zts_reader_free(reader);
  return status;
}

int main(int argc, char** argv) {
  if (argc != 2) return fprintf(stderr, "usage: exporter OUTPUT.zt\n"), 2;
  zts_status status = Write(argv[1]);
  if (status == ZTS_OK) status = Print(argv[1]);
  return status == ZTS_OK ? 0 : Fail(status);
}
