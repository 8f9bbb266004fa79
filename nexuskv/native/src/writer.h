/* Owns the daemon's side of the table: the steps of an entry, reclaiming, touch bits, the directory.
 * One thread; it knows no policy and allocates no slots. */

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

static bool nx_owns(const nx_table *table, uint64_t bucket, const void *key) {
  unsigned state = NX_STATE(table->hot[bucket].generation);
  return (state == NX_LIVE || state == NX_WRITING) && nx_same_key(&table->hot[bucket], key);
}

/* NX_E_EXISTS: where the key is. NX_OK: the first free bucket within reach of its home. */
static int nx_place(const nx_table *table, const void *key, uint64_t *place) {
  uint64_t home = nx_home(key, table->bucket_count);
  for (uint64_t hops = table->hot[home].hops; hops != 0; hops &= hops - 1) {
    *place = nx_hop(table, home, (unsigned)__builtin_ctzll(hops));
    if (nx_owns(table, *place, key)) return NX_E_EXISTS;
  }
  for (unsigned distance = 0; distance < NX_REACH; distance++) {
    *place = nx_hop(table, home, distance);
    if (NX_STATE(table->hot[*place].generation) == NX_EMPTY) return NX_OK;
  }
  return NX_E_FULL;
}

static void nx_turn(nx_table *table, uint64_t bucket, unsigned state) {
  uint64_t *word = &table->hot[bucket].generation;
  NX_STORE_RELEASE(word, (NX_INCARNATION(*word) << 2) | state);
}

/* The bit of this bucket in its home's hops; false if its key does not belong here. */
static bool nx_hop_bit(const nx_table *table, uint64_t bucket, uint64_t *home, uint64_t *bit) {
  *home = nx_home(table->hot[bucket].key, table->bucket_count);
  uint64_t distance = bucket >= *home ? bucket - *home : bucket + table->bucket_count - *home;
  *bit = 1ull << (distance % NX_REACH);
  return distance < NX_REACH;
}

static void nx_vacate(nx_table *table, uint64_t bucket) {
  uint64_t home, bit;
  nx_turn(table, bucket, NX_EMPTY);
  if (nx_hop_bit(table, bucket, &home, &bit)) NX_STORE(&table->hot[home].hops, table->hot[home].hops & ~bit);
}

static void nx_tally(nx_table *table, int occupied, int live) {
  NX_STORE(&table->header->occupied, table->header->occupied + (uint64_t)(int64_t)occupied);
  NX_STORE(&table->header->live, table->header->live + (uint64_t)(int64_t)live);
}

/* ---- the steps of an entry ---- */

static void nx_fill(nx_writer *writer, uint64_t bucket, const nx_record *record) {
  nx_table *table = &writer->table;
  uint64_t home, bit;
  nx_hot *hot = &table->hot[bucket], fresh = {.place = (uint32_t)(record->offset / 64),
                                              .segment = record->segment,
                                              .length = record->length,
                                              .tokens = record->tokens};
  memcpy(fresh.key, record->key, sizeof fresh.key);
  nx_cold *cold = &table->cold[bucket];
  uint64_t incarnation = NX_INCARNATION(hot->generation) + 1;
  NX_STORE(&hot->generation, incarnation << 2 | NX_WRITING);                 /* P1 */
  __atomic_thread_fence(__ATOMIC_RELEASE);                                   /* P2 */
  nx_store_words(hot->key, fresh.key, sizeof fresh - offsetof(nx_hot, key)); /* P3 */
  *cold = (nx_cold){.checksum = record->checksum, .tick = record->tick, .owner = record->owner};
  memcpy(cold->parent, record->parent, sizeof cold->parent);
  if (cold->tick == 0) cold->tick = table->header->tick + 1;
  if (cold->tick > table->header->tick) NX_STORE(&table->header->tick, cold->tick);
  NX_STORE_RELEASE(&cold->seal, nx_entry_seal(incarnation, hot, cold)); /* after `owner`, which it does not cover */
  nx_hop_bit(table, bucket, &home, &bit);
  NX_STORE(&table->hot[home].hops, table->hot[home].hops | bit); /* before P4: who sees LIVE finds it */
}

static int nx_reserve_one(nx_writer *writer, nx_record *record) {
  uint64_t bucket = 0;
  if (record->offset % 64 != 0 || record->offset / 64 > UINT32_MAX) return NX_E_ARGUMENT;
  int code = nx_place(&writer->table, record->key, &bucket);
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

/* A table that pages were copied past is in no cache: the rows of some records ahead are fetched meanwhile. */
static inline void nx_fetch_ahead(const nx_table *table, const nx_record *records, size_t i, size_t n) {
  if (i + NX_BLOCK / 2 >= n) return;
  uint64_t home = nx_home(records[i + NX_BLOCK / 2].key, table->bucket_count);
  __builtin_prefetch(&table->hot[home], 1);
  __builtin_prefetch(&table->cold[home], 1);
}

int64_t nx_reserve(nx_writer *writer, nx_record *records, size_t n) {
  int64_t done = 0;
  for (size_t i = 0; i < n; i++) {
    nx_fetch_ahead(&writer->table, records, i, n);
    done += (records[i].status = nx_reserve_one(writer, &records[i])) == NX_OK;
  }
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

int64_t nx_tie(nx_writer *writer, const uint32_t *buckets, uint64_t word, size_t n) {
  int64_t done = 0;
  for (size_t i = 0; i < n; i++) {
    if (!nx_is(&writer->table, buckets[i], NX_WRITING) && !nx_is(&writer->table, buckets[i], NX_LIVE)) continue;
    NX_STORE_RELEASE(&writer->table.cold[buckets[i]].owner, word); /* in the order given, should we die here */
    done++;
  }
  return done;
}

int64_t nx_abort(nx_writer *writer, const uint32_t *buckets, size_t n) {
  int64_t done = 0;
  for (size_t i = 0; i < n; i++) {
    if (!nx_is(&writer->table, buckets[i], NX_WRITING)) continue;
    nx_vacate(&writer->table, buckets[i]);
    nx_tally(&writer->table, -1, 0);
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

/* The word of before comes back. It is no less true than it was: nothing was freed meanwhile, so it names the same bytes,
 * and a reader that saw it before and sees it now pinned a page that never changed. The next W1 starts the argument anew:
 * whoever's R5 comes before it in the order of the word has a pin that the next W3 sees. */
int64_t nx_revive(nx_writer *writer, const uint32_t *buckets, size_t n) {
  int64_t done = 0;
  uint64_t elsewhere;
  for (size_t i = 0; i < n; i++) {
    if (!nx_is(&writer->table, buckets[i], NX_RETIRING)) continue;
    if (nx_place(&writer->table, writer->table.hot[buckets[i]].key, &elsewhere) == NX_E_EXISTS) continue;
    nx_turn(&writer->table, buckets[i], NX_LIVE);
    nx_tally(&writer->table, 0, 1);
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
    if (nx_is(&writer->table, buckets[i], NX_RETIRING))
      writer->candidate[buckets[i] / 8] |= (uint8_t)(1u << (buckets[i] % 8));
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

int64_t nx_find(nx_writer *writer, const void *key) {
  uint64_t bucket = 0;
  return nx_place(&writer->table, key, &bucket) == NX_E_EXISTS ? (int64_t)bucket : NX_E_STALE;
}

int nx_read(nx_writer *writer, uint32_t bucket, nx_record *out) {
  if (bucket >= writer->table.bucket_count) return NX_E_ARGUMENT;
  const nx_hot *hot = &writer->table.hot[bucket];
  const nx_cold *cold = &writer->table.cold[bucket];
  *out = (nx_record){.offset = 64ull * hot->place,
                     .checksum = cold->checksum,
                     .tick = cold->tick,
                     .owner = cold->owner,
                     .segment = hot->segment,
                     .length = hot->length,
                     .tokens = hot->tokens,
                     .bucket = bucket,
                     .status = (int32_t)NX_STATE(hot->generation)};
  memcpy(out->key, hot->key, sizeof out->key);
  memcpy(out->parent, cold->parent, sizeof out->parent);
  return NX_OK;
}

int64_t nx_touched(nx_writer *writer, uint64_t *cursor, uint32_t *buckets, size_t limit) {
  uint64_t at = *cursor / 64, words = writer->touch == NULL ? 0 : nx_touch_words(writer->table.bucket_count);
  size_t found = 0;
  for (; at < words && found + 64 <= limit; at++) {
    if (NX_LOAD(&writer->touch[at]) == 0) continue;
    uint64_t bits = __atomic_exchange_n(&writer->touch[at], 0, __ATOMIC_RELAXED);
    for (; bits != 0; bits &= bits - 1) {
      uint32_t bucket = (uint32_t)(64 * at + (uint64_t)__builtin_ctzll(bits));
      if (nx_is(&writer->table, bucket, NX_LIVE)) buckets[found++] = bucket;
    }
  }
  *cursor = at < words ? 64 * at : 0;
  return (int64_t)found;
}
