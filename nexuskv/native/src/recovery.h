/* Owns what a new daemon does with the index of a dead one. Readers go on meanwhile: entries that hold are not
 * touched.
 *
 * kill -9 leaves at most one bucket half written (in WRITING), because every step of an entry is one store of its
 * generation word. The seals catch that one, and with it what a scribble or a bug may have left. What is dropped here is
 * freed without a look at the pins: an entry whose place cannot be believed has no page to protect. */

/* One bit a slot of every segment: no two entries may share a slot. */
typedef struct nx_claims {
  uint8_t **slots; /* by directory row */
} nx_claims;

static void nx_claims_close(const nx_table *table, nx_claims *claims) {
  for (uint32_t i = 0; claims->slots != NULL && i < table->directory_capacity; i++) free(claims->slots[i]);
  free(claims->slots);
}

static int nx_claims_open(nx_writer *writer, nx_claims *claims, nx_recovery *report) {
  nx_table *table = &writer->table;
  uint32_t in_use = 0;
  claims->slots = calloc(table->directory_capacity, sizeof *claims->slots);
  if (claims->slots == NULL) return NX_E_SYSTEM;
  for (uint32_t i = 0; i < table->directory_capacity; i++) {
    nx_segment segment;
    if (table->directory[i].state == 0) continue;
    if (!nx_copy_segment(table, i, &segment) || !nx_segment_sane(&segment) ||
        segment.segment % table->directory_capacity != i) {
      NX_STORE_RELEASE(&table->directory[i].state, 0u);
      report->segments_dropped++;
      continue;
    }
    claims->slots[i] = calloc((size_t)segment.slot_count / 8 + 1, 1);
    if (claims->slots[i] == NULL) return NX_E_SYSTEM;
    in_use++;
  }
  NX_STORE(&table->header->segment_count, in_use);
  return NX_OK;
}

static bool nx_claim(const nx_table *table, nx_claims *claims, const nx_hot *hot) {
  uint32_t number = hot->segment % table->directory_capacity;
  const nx_segment_row *row = &table->directory[number];
  if (row->state != 1 || row->segment != hot->segment) return false;
  uint64_t offset = 64ull * hot->place, slot = offset / row->slot_bytes;
  if (offset % row->slot_bytes != 0 || slot >= row->slot_count || hot->length > row->slot_bytes) return false;
  uint8_t mask = (uint8_t)(1u << (slot % 8)), *byte = &claims->slots[number][slot / 8];
  bool taken = (*byte & mask) != 0;
  *byte |= mask;
  return !taken;
}

static bool nx_whole(const nx_table *table, uint64_t bucket) {
  const nx_hot *hot = &table->hot[bucket];
  return table->cold[bucket].seal == nx_entry_seal(NX_INCARNATION(hot->generation), hot, &table->cold[bucket]);
}

/* A second LIVE or WRITING entry of the same key: readers may find either, so one must go. */
static bool nx_doubled(const nx_table *table, uint64_t bucket, uint64_t home, uint64_t hops) {
  for (; hops != 0; hops &= hops - 1)
    if (nx_owns(table, nx_hop(table, home, (unsigned)__builtin_ctzll(hops)), table->hot[bucket].key)) return true;
  return false;
}

/* `hops` collects what the entries themselves say; the hops in the table are believed by nobody here. */
static bool nx_keeps(const nx_table *table, nx_claims *claims, uint64_t *hops, uint64_t bucket) {
  uint64_t home, bit;
  if (!nx_whole(table, bucket) || !nx_hop_bit(table, bucket, &home, &bit)) return false;
  if (NX_STATE(table->hot[bucket].generation) != NX_RETIRING && nx_doubled(table, bucket, home, hops[home]))
    return false;
  if (!nx_claim(table, claims, &table->hot[bucket])) return false;
  hops[home] |= bit;
  return true;
}

static void nx_sweep(nx_table *table, nx_claims *claims, uint64_t *hops, nx_recovery *report) {
  for (uint64_t bucket = 0; bucket < table->bucket_count; bucket++) {
    unsigned state = NX_STATE(table->hot[bucket].generation);
    if (state == NX_EMPTY) continue;
    if (!nx_keeps(table, claims, hops, bucket)) {
      nx_turn(table, bucket, NX_EMPTY);
      report->torn++;
      continue;
    }
    report->live += state == NX_LIVE;
    report->retiring += state == NX_RETIRING;
    report->writing += state == NX_WRITING;
  }
  for (uint64_t bucket = 0; bucket < table->bucket_count; bucket++)
    if (table->hot[bucket].hops != hops[bucket]) NX_STORE(&table->hot[bucket].hops, hops[bucket]);
}

int nx_recover(nx_writer *writer, nx_recovery *report) {
  nx_claims claims;
  nx_table *table = &writer->table;
  uint64_t *hops = calloc(table->bucket_count, sizeof *hops);
  *report = (nx_recovery){0};
  int code = nx_claims_open(writer, &claims, report);
  if (code == NX_OK && hops == NULL) code = NX_E_SYSTEM;
  if (code == NX_OK) {
    nx_sweep(table, &claims, hops, report);
    NX_STORE(&table->header->occupied, report->live + report->retiring + report->writing);
    NX_STORE(&table->header->live, report->live);
    NX_STORE(&table->header->torn_dropped, table->header->torn_dropped + report->torn);
  }
  nx_claims_close(table, &claims);
  free(hops);
  return code;
}

int64_t nx_entries(nx_writer *writer, uint64_t *cursor, nx_record *out, size_t limit) {
  uint64_t bucket = *cursor, end = writer->table.bucket_count;
  size_t found = 0;
  for (; bucket < end && found < limit; bucket++) {
    unsigned state = NX_STATE(writer->table.hot[bucket].generation);
    if (state == NX_WRITING || state == NX_LIVE || state == NX_RETIRING)
      nx_read(writer, (uint32_t)bucket, &out[found++]);
  }
  *cursor = bucket < end ? bucket : 0;
  return (int64_t)found;
}
