/* Owns the daemon's side of the table: formatting, the steps of an entry, reclaiming, touch bytes, the directory.
 * One thread; it knows no policy and allocates no slots. */

struct nx_writer {
  nx_table table;
  uint8_t *touch;
  uint8_t *candidate; /* one bit a bucket, all zero between calls: is it in the batch being reclaimed? */
};

/* ---- format ---- */

static uint64_t nx_round(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

static int nx_plan(const nx_index_params *params, nx_index_header *header) {
  if (params->max_entries == 0 || params->max_entries > NX_CELL_MAX / 2 - 64 || params->index_id == 0 ||
      params->directory_capacity == 0 || params->instance == NULL || params->tenant == NULL ||
      strlen(params->instance) >= NX_NAME_BYTES || strlen(params->tenant) >= NX_NAME_BYTES)
    return NX_E_ARGUMENT;
  uint64_t buckets = nx_round(2 * params->max_entries, 64);
  *header = (nx_index_header){.magic = NX_INDEX_MAGIC,
                              .layout_version = NX_LAYOUT_VERSION,
                              .header_bytes = NX_INDEX_HEADER_BYTES,
                              .index_id = params->index_id,
                              .bucket_count = buckets,
                              .max_entries = params->max_entries,
                              .probe_limit = NX_PROBE_LIMIT,
                              .directory_capacity = params->directory_capacity,
                              .directory_offset = NX_INDEX_HEADER_BYTES,
                              .release = NX_RELEASE,
                              .boot_epoch = params->boot_epoch};
  header->tag_offset =
      nx_round(header->directory_offset + (uint64_t)params->directory_capacity * sizeof(nx_segment_row), 4096);
  header->hot_offset = nx_round(header->tag_offset + header->bucket_count, 4096);
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
  if (code == NX_OK) *bytes = nx_round(header.bucket_count, 4096);
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
  if (touch != NULL && (touch_bytes < table.bucket_count || (uintptr_t)touch % 8 != 0)) return NX_E_BOUNDS;
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

/* ---- the segment directory ---- */

static bool nx_segment_sane(const nx_segment *segment) {
  return segment->slot_count > 0 && segment->slot_bytes >= 64 && segment->slot_bytes % 64 == 0 &&
         segment->page_bytes > 0 && segment->page_bytes <= segment->slot_bytes &&
         segment->slot_count <= segment->segment_bytes / segment->slot_bytes;
}

int nx_segment_add(nx_writer *writer, const nx_segment *segment) {
  if (!nx_segment_sane(segment)) return NX_E_ARGUMENT;
  nx_segment_row *row = &writer->table.directory[segment->segment % writer->table.directory_capacity];
  if (row->state != 0) return row->segment == segment->segment ? NX_E_EXISTS : NX_E_FULL;
  nx_segment_row fresh = {.segment = segment->segment,
                          .arena = segment->arena,
                          .slot_count = segment->slot_count,
                          .slot_bytes = segment->slot_bytes,
                          .page_bytes = segment->page_bytes,
                          .segment_bytes = segment->segment_bytes};
  memcpy(fresh.digest, segment->digest, sizeof fresh.digest);
  fresh.seal = nx_segment_seal(&fresh);
  __atomic_thread_fence(__ATOMIC_RELEASE); /* who sees a new field also sees that the row was free before */
  nx_store_words(row, &fresh, sizeof fresh);
  NX_STORE_RELEASE(&row->state, 1u);
  NX_STORE(&writer->table.header->segment_count, writer->table.header->segment_count + 1);
  return NX_OK;
}

int nx_segment_remove(nx_writer *writer, uint32_t segment) {
  nx_segment_row *row = &writer->table.directory[segment % writer->table.directory_capacity];
  if (row->state == 0 || row->segment != segment) return NX_E_STALE;
  NX_STORE_RELEASE(&row->state, 0u);
  NX_STORE(&writer->table.header->segment_count, writer->table.header->segment_count - 1);
  return NX_OK;
}

int64_t nx_segments(nx_writer *writer, nx_segment *out, size_t limit) {
  size_t found = 0;
  for (uint32_t i = 0; i < writer->table.directory_capacity && found < limit; i++)
    found += nx_copy_segment(&writer->table, i, &out[found]);
  return (int64_t)found;
}

/* ---- places ---- */

/* Where a new entry of this key goes: the first TOMB on its way, else the EMPTY bucket that ends it. */
static int nx_place(const nx_table *table, const nx_key *key, uint64_t *place) {
  uint64_t bucket = nx_home(nx_hash(key), table->bucket_count);
  bool found = false;
  for (uint32_t i = 0; i < table->probe_limit; i++, bucket = nx_next(table, bucket)) {
    unsigned state = NX_STATE(table->hot[bucket].generation);
    if (!found && (state == NX_TOMB || state == NX_EMPTY)) {
      *place = bucket;
      found = true;
    }
    if (state == NX_EMPTY) break;
    if ((state == NX_LIVE || state == NX_WRITING) && nx_same_key(&table->hot[bucket], key)) {
      *place = bucket;
      return NX_E_EXISTS;
    }
  }
  return found ? NX_OK : NX_E_FULL;
}

static void nx_turn(nx_table *table, uint64_t bucket, unsigned state) {
  uint64_t *word = &table->hot[bucket].generation;
  NX_STORE_RELEASE(word, (NX_INCARNATION(*word) << 3) | state);
}

static void nx_set_tag(nx_table *table, uint64_t bucket, uint64_t tag) {
  uint64_t *word = &table->tags[bucket / NX_LANES];
  unsigned shift = 8 * (unsigned)(bucket % NX_LANES);
  uint64_t changed = (*word & ~(0xffull << shift)) | (tag << shift);
  if (changed != *word) NX_STORE(word, changed);
}

static void nx_empty(nx_table *table, uint64_t bucket) {
  nx_turn(table, bucket, NX_EMPTY);
  nx_set_tag(table, bucket, 0);
}

/* Rule 6: EMPTY only before an EMPTY one, then backwards over the tombs that this lays bare. */
static void nx_vacate(nx_table *table, uint64_t bucket) {
  nx_turn(table, bucket, NX_TOMB);
  if (NX_STATE(table->hot[nx_next(table, bucket)].generation) != NX_EMPTY) return;
  for (uint64_t i = 0; i < table->bucket_count && NX_STATE(table->hot[bucket].generation) == NX_TOMB; i++) {
    nx_empty(table, bucket);
    bucket = bucket == 0 ? table->bucket_count - 1 : bucket - 1;
  }
}

static void nx_tally(nx_table *table, int occupied, int live) {
  NX_STORE(&table->header->occupied, table->header->occupied + (uint64_t)(int64_t)occupied);
  NX_STORE(&table->header->live, table->header->live + (uint64_t)(int64_t)live);
}

/* ---- the steps of an entry ---- */

static void nx_fill(nx_writer *writer, uint64_t bucket, const nx_record *record) {
  nx_table *table = &writer->table;
  nx_hot *hot = &table->hot[bucket], fresh = {.offset = record->offset,
                                              .segment = record->segment,
                                              .length = record->length,
                                              .tokens = record->tokens,
                                              .arena = record->arena};
  memcpy(fresh.key, record->key, sizeof fresh.key);
  nx_cold *cold = &table->cold[bucket];
  uint64_t incarnation = NX_INCARNATION(hot->generation) + 1;
  NX_STORE(&hot->generation, incarnation << 3 | NX_WRITING);  /* P1 */
  __atomic_thread_fence(__ATOMIC_RELEASE);                    /* P2 */
  nx_store_words(hot->key, fresh.key, sizeof fresh - offsetof(nx_hot, key)); /* P3 */
  *cold = (nx_cold){.checksum = record->checksum, .tick = record->tick, .owner = record->owner};
  memcpy(cold->parent, record->parent, sizeof cold->parent);
  if (cold->tick == 0) cold->tick = table->header->tick + 1;
  if (cold->tick > table->header->tick) NX_STORE(&table->header->tick, cold->tick);
  cold->seal = nx_entry_seal(incarnation, hot, cold);
  nx_set_tag(table, bucket, nx_tag(nx_hash(&(nx_key){{fresh.key[0], fresh.key[1], fresh.key[2], fresh.key[3]}})));
  if (writer->touch != NULL) NX_STORE(&writer->touch[bucket], 0);
}

static int nx_reserve_one(nx_writer *writer, nx_record *record) {
  nx_key key = nx_key_of(record->key);
  uint64_t bucket = 0;
  int code = nx_place(&writer->table, &key, &bucket);
  record->bucket = (uint32_t)bucket;
  if (code == NX_OK && writer->table.header->occupied >= writer->table.max_entries) code = NX_E_FULL;
  if (code != NX_OK) return code;
  nx_fill(writer, bucket, record);
  nx_tally(&writer->table, 1, 0);
  return NX_OK;
}

static bool nx_is(const nx_table *table, uint32_t bucket, unsigned state) {
  return bucket < table->bucket_count && NX_STATE(table->hot[bucket].generation) == state;
}

int64_t nx_reserve(nx_writer *writer, nx_record *records, size_t n) {
  int64_t done = 0;
  for (size_t i = 0; i < n; i++) done += (records[i].status = nx_reserve_one(writer, &records[i])) == NX_OK;
  return done;
}

int64_t nx_publish(nx_writer *writer, nx_record *records, size_t n) {
  int64_t done = 0;
  for (size_t i = 0; i < n; i++) {
    records[i].status = nx_reserve_one(writer, &records[i]);
    if (records[i].status != NX_OK) continue;
    nx_turn(&writer->table, records[i].bucket, NX_LIVE); /* P4 */
    nx_tally(&writer->table, 0, 1);
    done++;
  }
  return done;
}

int64_t nx_commit(nx_writer *writer, const uint32_t *buckets, const uint64_t *checksums, size_t n) {
  nx_table *table = &writer->table;
  int64_t done = 0;
  for (size_t i = 0; i < n; i++) {
    if (!nx_is(table, buckets[i], NX_WRITING)) continue;
    nx_hot *hot = &table->hot[buckets[i]];
    nx_cold *cold = &table->cold[buckets[i]];
    if (checksums != NULL && cold->checksum != checksums[i]) {
      cold->checksum = checksums[i];
      cold->seal = nx_entry_seal(NX_INCARNATION(hot->generation), hot, cold);
    }
    nx_turn(table, buckets[i], NX_LIVE); /* P4 */
    nx_tally(table, 0, 1);
    done++;
  }
  return done;
}

int64_t nx_abort(nx_writer *writer, const uint32_t *buckets, size_t n) {
  static const uint64_t nobody[4] = {0, 0, 0, 0};
  nx_table *table = &writer->table;
  int64_t done = 0;
  for (size_t i = 0; i < n; i++) {
    if (!nx_is(table, buckets[i], NX_WRITING)) continue;
    nx_store_words(table->hot[buckets[i]].key, nobody, sizeof nobody); /* it was never there, so it was not evicted */
    nx_vacate(table, buckets[i]);
    nx_tally(table, -1, 0);
    done++;
  }
  return done;
}

int64_t nx_retire(nx_writer *writer, const uint32_t *buckets, size_t n) {
  int64_t done = 0;
  for (size_t i = 0; i < n; i++) {
    if (!nx_is(&writer->table, buckets[i], NX_LIVE)) continue;
    nx_turn(&writer->table, buckets[i], NX_RETIRING); /* W1 */
    nx_tally(&writer->table, 0, -1);
    done++;
  }
  return done;
}

static bool nx_take_bit(uint8_t *bits, uint64_t at) {
  uint8_t mask = (uint8_t)(1u << (at % 8));
  bool was = (bits[at / 8] & mask) != 0;
  bits[at / 8] &= (uint8_t)~mask;
  return was;
}

/* Unmarks every candidate that a word names. A word that names no bucket of this table is somebody's scribble. */
static void nx_spare_pinned(nx_writer *writer, const nx_pins *pins) {
  for (uint64_t i = 0, used = nx_pins_used(pins); i < used; i++) {
    uint64_t cell = (uint32_t)NX_LOAD_ACQUIRE(&pins->words[i]); /* W3 */
    if (cell != 0 && cell <= writer->table.bucket_count) nx_take_bit(writer->candidate, cell - 1);
  }
}

int64_t nx_reclaim(nx_writer *writer, const uint32_t *buckets, size_t n, nx_pins *const *pins, size_t pin_count,
                   uint32_t *freed) {
  int64_t done = 0;
  for (size_t i = 0; i < n; i++)
    if (nx_is(&writer->table, buckets[i], NX_RETIRING)) writer->candidate[buckets[i] / 8] |= (uint8_t)(1u << (buckets[i] % 8));
  NX_WRITER_FENCE(); /* W2 */
  for (size_t i = 0; i < pin_count; i++) nx_spare_pinned(writer, pins[i]);
  for (size_t i = 0; i < n; i++) {
    if (buckets[i] >= writer->table.bucket_count || !nx_take_bit(writer->candidate, buckets[i])) continue;
    nx_vacate(&writer->table, buckets[i]); /* W4 */
    freed[done++] = buckets[i];
  }
  nx_tally(&writer->table, -(int)done, 0);
  return done;
}

/* ---- reading back ---- */

int64_t nx_find(nx_writer *writer, const void *bytes) {
  nx_key key = nx_key_of(bytes);
  uint64_t bucket = 0;
  return nx_place(&writer->table, &key, &bucket) == NX_E_EXISTS ? (int64_t)bucket : NX_E_STALE;
}

int nx_read(nx_writer *writer, uint32_t bucket, nx_record *out) {
  if (bucket >= writer->table.bucket_count) return NX_E_ARGUMENT;
  const nx_hot *hot = &writer->table.hot[bucket];
  const nx_cold *cold = &writer->table.cold[bucket];
  *out = (nx_record){.offset = hot->offset,
                     .checksum = cold->checksum,
                     .tick = cold->tick,
                     .owner = cold->owner,
                     .segment = hot->segment,
                     .arena = hot->arena,
                     .length = hot->length,
                     .tokens = hot->tokens,
                     .bucket = bucket,
                     .status = (int32_t)NX_STATE(hot->generation)};
  memcpy(out->key, hot->key, sizeof out->key);
  memcpy(out->parent, cold->parent, sizeof out->parent);
  return NX_OK;
}

int64_t nx_touched(nx_writer *writer, uint64_t *cursor, uint32_t *buckets, size_t limit) {
  uint64_t bucket = *cursor, end = writer->touch == NULL ? 0 : writer->table.bucket_count;
  size_t found = 0;
  while (bucket < end && found < limit) {
    uint8_t *byte = &writer->touch[bucket];
    if (bucket % 8 == 0 && bucket + 8 <= end && NX_LOAD((const uint64_t *)(const void *)byte) == 0) {
      bucket += 8;
      continue;
    }
    if (NX_LOAD(byte) != 0) {
      NX_STORE(byte, 0);
      if (nx_is(&writer->table, (uint32_t)bucket, NX_LIVE)) buckets[found++] = (uint32_t)bucket;
    }
    bucket++;
  }
  *cursor = bucket < end ? bucket : 0;
  return (int64_t)found;
}
