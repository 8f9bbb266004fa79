/* Owns the daemon's handle on an index: the plan of its layout, formatting, opening, the header's moving parts. */

struct nx_writer {
  nx_table table;
  uint64_t *touch;
  uint8_t *candidate; /* one bit a bucket, all zero between calls: is it in the batch being reclaimed? */
};

static uint64_t nx_round(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

static int nx_plan(const nx_index_params *params, nx_index_header *header) {
  if (params->max_entries == 0 || params->max_entries > NX_CELL_MAX / 5 || params->index_id == 0 ||
      params->directory_capacity == 0 || params->instance == NULL || params->tenant == NULL ||
      strlen(params->instance) >= NX_NAME_BYTES || strlen(params->tenant) >= NX_NAME_BYTES)
    return NX_E_ARGUMENT;
  uint64_t buckets = nx_round(params->max_entries / 2 * 5 + 5, 64);
  *header = (nx_index_header){.magic = NX_INDEX_MAGIC,
                              .layout_version = NX_LAYOUT_VERSION,
                              .header_bytes = NX_INDEX_HEADER_BYTES,
                              .index_id = params->index_id,
                              .bucket_count = buckets,
                              .max_entries = params->max_entries,
                              .directory_capacity = params->directory_capacity,
                              .directory_offset = NX_INDEX_HEADER_BYTES,
                              .release = NX_RELEASE,
                              .boot_epoch = params->boot_epoch};
  header->hot_offset =
      nx_round(header->directory_offset + (uint64_t)params->directory_capacity * sizeof(nx_segment_row), 4096);
  header->cold_offset = nx_round(header->hot_offset + header->bucket_count * sizeof(nx_hot), 4096);
  header->total_bytes = nx_round(header->cold_offset + header->bucket_count * sizeof(nx_cold), 4096);
  header->seal = nx_header_seal(header);
  memcpy(header->instance, params->instance, strlen(params->instance));
  memcpy(header->tenant, params->tenant, strlen(params->tenant));
  return NX_OK;
}

int nx_index_bytes(const nx_index_params *params, uint64_t *bytes) {
  nx_index_header header;
  int code = nx_plan(params, &header);
  if (code == NX_OK) *bytes = header.total_bytes;
  return code;
}

int nx_touch_bytes(const nx_index_params *params, uint64_t *bytes) {
  nx_index_header header;
  int code = nx_plan(params, &header);
  if (code == NX_OK) *bytes = nx_round(8 * nx_touch_words(header.bucket_count), 4096);
  return code;
}

int nx_index_format(void *memory, size_t bytes, const nx_index_params *params) {
  nx_index_header header;
  int code = nx_plan(params, &header);
  if (code != NX_OK) return code;
  if (memory == NULL || bytes < header.total_bytes) return NX_E_BOUNDS;
  uint64_t magic = header.magic;
  header.magic = 0;
  memcpy(memory, &header, sizeof header);
  NX_STORE_RELEASE(&((nx_index_header *)memory)->magic, magic); /* last: a half-made object is no object */
  return NX_OK;
}

int nx_writer_open(nx_writer **out, void *index, size_t index_bytes, void *touch, size_t touch_bytes) {
  nx_table table;
  int code = nx_table_open(&table, index, index_bytes);
  if (code != NX_OK) return code;
  if (touch != NULL && (touch_bytes / 8 < nx_touch_words(table.bucket_count) || (uintptr_t)touch % 8 != 0))
    return NX_E_BOUNDS;
  nx_writer *writer = malloc(sizeof *writer);
  uint8_t *candidate = calloc(table.bucket_count / 8 + 1, 1);
  if (writer == NULL || candidate == NULL) {
    free(writer);
    free(candidate);
    return NX_E_SYSTEM;
  }
  *writer = (nx_writer){table, touch, candidate};
  *out = writer;
  return NX_OK;
}

void nx_writer_close(nx_writer *writer) {
  if (writer == NULL) return;
  free(writer->candidate);
  free(writer);
}

const nx_index_header *nx_writer_header(const nx_writer *writer) { return writer->table.header; }

void nx_set_epoch(nx_writer *writer, uint64_t boot_epoch) {
  NX_STORE_RELEASE(&writer->table.header->boot_epoch, boot_epoch);
}

void nx_set_moved(nx_writer *writer) { NX_STORE_RELEASE(&writer->table.header->moved, 1u); }
