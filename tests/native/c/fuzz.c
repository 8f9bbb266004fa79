/* fuzz.c: random bytes in any field, any truncation, before or after attaching, and a daemon that answers anything.
 * Nothing may crash or leave its object.
 *
 *   fuzz ROUNDS SEED
 *
 * The objects lie in allocations of exactly their size, so that the address sanitizer sees every step beyond.
 * Includes the C file itself, to seal a damaged header again: what a wrong seal would have caught must hold without
 * it. With -DNX_LIBFUZZER it is a libFuzzer target whose input is a list of patches. */
#include "nexuskv.c"

#include <stdio.h>

#define ENTRIES 60u
#define ROWS 4u
#define WORDS 40u
#define INDEX_ID 5u
#define KEYS 100u

typedef struct object {
  uint8_t *memory;
  size_t bytes;
} object;

typedef struct world {
  object index, touch, pins;
  uint8_t keys[KEYS][32];
} world;

static uint64_t state;
static uint64_t attached, refused, opened;

static uint64_t draw(void) {
  state += 0x9e3779b97f4a7c15ull;
  return nx_mix(nx_mix(state, 3), 7);
}

static void expect(bool holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "fuzz: %s\n", what);
  abort();
}

static object allocate(size_t bytes) {
  object made = {NULL, bytes};
  void *memory = NULL;
  expect(posix_memalign(&memory, 64, bytes == 0 ? 1 : bytes) == 0, "memory");
  made.memory = memory;
  memset(made.memory, 0, bytes);
  return made;
}

static void populate(world *w) {
  nx_writer *writer;
  nx_segment segment = {.segment = 1,
                        .arena = 2,
                        .slot_count = ENTRIES,
                        .slot_bytes = 128,
                        .page_bytes = 100,
                        .segment_bytes = 128 * ENTRIES};
  expect(nx_writer_open(&writer, w->index.memory, w->index.bytes, w->touch.memory, w->touch.bytes) == NX_OK, "open");
  expect(nx_segment_add(writer, &segment) == NX_OK, "segment");
  for (uint32_t i = 0; i < ENTRIES - 10; i++) {
    nx_record record = {.segment = 1, .offset = 128ull * i, .length = 100, .tokens = 16};
    memcpy(record.key, w->keys[i], 32);
    expect((i % 7 == 0 ? nx_reserve : nx_publish)(writer, &record, 1) == 1, "publish");
    if (i % 5 == 1) nx_retire(writer, &record.bucket, 1);
  }
  nx_writer_close(writer);
}

static void create(world *w) {
  nx_index_params params = {.max_entries = ENTRIES,
                            .boot_epoch = 1,
                            .index_id = INDEX_ID,
                            .directory_capacity = ROWS,
                            .instance = "fuzz",
                            .tenant = "t"};
  uint64_t index_bytes, touch_bytes;
  nx_index_bytes(&params, &index_bytes);
  nx_touch_bytes(&params, &touch_bytes);
  w->index = allocate(index_bytes);
  w->touch = allocate(touch_bytes);
  w->pins = allocate(nx_pin_bytes(WORDS));
  for (uint32_t i = 0; i < KEYS; i++)
    for (uint32_t j = 0; j < 4; j++) {
      uint64_t word = nx_mix(i * 4 + j, 11);
      memcpy(w->keys[i] + 8 * j, &word, 8);
    }
  expect(nx_index_format(w->index.memory, index_bytes, &params) == NX_OK, "format");
  expect(nx_pin_format(w->pins.memory, w->pins.bytes, INDEX_ID, 3) == NX_OK, "format pins");
  populate(w);
}

static void destroy(world *w) {
  free(w->index.memory);
  free(w->touch.memory);
  free(w->pins.memory);
}

/* ---- damage ---- */

static void shorten(object *whole) {
  object shorter = allocate(draw() % (whole->bytes + 1));
  memcpy(shorter.memory, whole->memory, shorter.bytes);
  free(whole->memory);
  *whole = shorter;
}

static uint64_t odd_value(void) {
  static const uint64_t odd[] = {0,
                                 1,
                                 63,
                                 64,
                                 65,
                                 0x7fffffff,
                                 0x80000000,
                                 0xffffffff,
                                 0x7fffffffffffffff,
                                 0x8000000000000000,
                                 UINT64_MAX,
                                 UINT64_MAX - 63};
  return draw() % 3 == 0 ? draw() : draw() % 3 == 0 ? draw() % 5000 : odd[draw() % (sizeof odd / sizeof *odd)];
}

static void poke(object *target, size_t from, size_t span) {
  if (target->bytes < from + 8) return;
  span = span < target->bytes - from ? span : target->bytes - from;
  size_t width = (size_t)1 << draw() % 4, at = from + draw() % span / width * width;
  uint64_t value = odd_value();
  if (at + width <= target->bytes) memcpy(target->memory + at, &value, width);
}

static void damage(world *w) {
  size_t rows = NX_INDEX_HEADER_BYTES;
  for (uint64_t n = draw() % 6; n > 0; n--) poke(&w->index, 0, sizeof(nx_index_header));
  for (uint64_t n = draw() % 12; n > 0; n--) poke(&w->index, rows, ROWS * sizeof(nx_segment_row));
  for (uint64_t n = draw() % 200; n > 0; n--) poke(&w->index, rows, w->index.bytes);
  for (uint64_t n = draw() % 4; n > 0; n--) poke(&w->pins, 0, NX_PIN_HEADER_BYTES);
  for (uint64_t n = draw() % 40; n > 0; n--) poke(&w->pins, NX_PIN_HEADER_BYTES, w->pins.bytes);
  for (uint64_t n = draw() % 40; n > 0; n--) poke(&w->touch, 0, w->touch.bytes);
  if (draw() % 4 != 0 && w->index.bytes >= sizeof(nx_index_header)) {
    nx_index_header *header = (nx_index_header *)(void *)w->index.memory;
    header->magic = NX_INDEX_MAGIC;
    header->layout_version = NX_LAYOUT_VERSION;
    header->header_bytes = NX_INDEX_HEADER_BYTES;
    header->seal = nx_header_seal(header);
  }
}

/* ---- use ---- */

static void use_reader(world *w, nx_reader *reader) {
  nx_handle handles[KEYS];
  uint8_t presence[KEYS];
  char segment[4096];
  nx_segment row;
  int64_t found = nx_lookup(reader, w->keys, KEYS);
  expect(found <= (int64_t)KEYS, "lookup");
  nx_status(reader, w->keys, KEYS, presence);
  for (uint32_t i = 0; i < KEYS; i += 1 + (uint32_t)(draw() % 5)) {
    int64_t pinned = nx_pin(reader, w->keys[i], 1 + draw() % (KEYS - i), handles);
    for (int64_t j = 0; j < pinned; j++) {
      const char *page = nx_page(segment, sizeof segment, &handles[j]);
      expect(page == NULL || (page >= segment && page + handles[j].length <= segment + sizeof segment), "page");
    }
    if (pinned < 0) continue;
    nx_touch(reader, handles, (size_t)pinned);
    nx_validate(reader, handles, (size_t)pinned);
    if (draw() % 8 == 0) poke(&w->pins, NX_PIN_HEADER_BYTES, w->pins.bytes);
    nx_unpin(reader, handles, (size_t)pinned);
    nx_unpin(reader, handles, (size_t)pinned);
  }
  nx_find_segment(reader, (uint32_t)odd_value(), &row);
  nx_epoch(reader);
}

static void use_writer(world *w, nx_writer *writer) {
  uint32_t buckets[64], freed[64];
  nx_record records[64];
  nx_segment rows[8], row = {.segment = (uint32_t)odd_value(),
                             .slot_count = 3,
                             .slot_bytes = 64,
                             .page_bytes = 64,
                             .segment_bytes = 192};
  nx_recovery report;
  nx_pins *pins = NULL;
  uint64_t cursor = draw() % 200 * 64, counts[3];
  if (nx_pins_open(&pins, w->pins.memory, w->pins.bytes) == NX_OK) {
    nx_pins_held(pins);
    nx_pins_counts(pins, counts);
  }
  if (draw() % 2) expect(nx_recover(writer, &report) == NX_OK, "recover");
  for (int i = 0; i < 64; i++) buckets[i] = draw() % 8 == 0 ? (uint32_t)odd_value() : (uint32_t)(draw() % 200);
  nx_segment_add(writer, &row);
  nx_segment_remove(writer, (uint32_t)odd_value());
  nx_segments(writer, rows, 8);
  nx_commit(writer, buckets, NULL, 64);
  nx_retire(writer, buckets + 8, 40);
  nx_reclaim(writer, buckets, 64, &pins, pins != NULL, freed);
  nx_abort(writer, buckets, 20);
  nx_touched(writer, &cursor, buckets, 64);
  for (uint32_t i = 0; i < KEYS; i++) {
    nx_record record = {.offset = odd_value(), .segment = (uint32_t)odd_value(), .length = (uint32_t)odd_value()};
    memcpy(record.key, w->keys[i], 32);
    nx_find(writer, w->keys[i]);
    (draw() % 2 ? nx_publish : nx_reserve)(writer, &record, 1);
  }
  cursor = odd_value();
  nx_entries(writer, &cursor, records, 64);
  nx_read(writer, (uint32_t)odd_value(), records);
  nx_pins_close(pins);
}

static void use(world *w, bool damage_late) {
  nx_reader *reader = NULL;
  nx_writer *writer = NULL;
  int code = nx_attach_memory(&reader, w->index.memory, w->index.bytes, w->touch.memory, w->touch.bytes,
                              w->pins.memory, w->pins.bytes);
  attached += code == NX_OK;
  refused += code != NX_OK;
  if (damage_late) damage(w);
  if (code == NX_OK) use_reader(w, reader);
  if (code == NX_OK) nx_detach(reader);
  if (nx_writer_open(&writer, w->index.memory, w->index.bytes, w->touch.memory, w->touch.bytes) != NX_OK) return;
  opened++;
  if (damage_late) damage(w);
  use_writer(w, writer);
  nx_writer_close(writer);
}

/* ---- the socket: a daemon that answers anything ---- */

static void answer(int fd) {
  static const char *const tags[] = {"attached", "segments", "dropped", "done", "refused", "welcome", "x"};
  static const uint8_t noise[40] = {0xc0, 0xdd, 0xff, 0x93};
  uint8_t bytes[1024];
  nx_out out = {bytes, 0, sizeof bytes, 0};
  nx_put_array(&out, (uint32_t)(2 + draw() % 4));
  nx_put_text(&out, tags[draw() % 7]);
  nx_put_uint(&out, draw() % 3);
  for (uint64_t n = draw() % 8; n > 0; n--) switch (draw() % 4) {
      case 0: nx_put_uint(&out, odd_value()); break;
      case 1: nx_put_array(&out, (uint32_t)(draw() % 6)); break;
      case 2: nx_put_text(&out, "text"); break;
      default: nx_put_binary(&out, noise, draw() % 40); break;
    }
  for (uint64_t n = draw() % 4; n > 0; n--) bytes[draw() % out.used] = (uint8_t)draw();
  expect(send(fd, bytes, 1 + draw() % out.used, 0) > 0, "send");
}

static void use_client(void) {
  nx_client client = {.fd = -1};
  nx_message message;
  int ends[2];
  expect(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "socketpair");
  for (int i = 0; i < 20; i++) answer(ends[1]);
  close(ends[1]);
  client.fd = ends[0];
  client.buffer = malloc(NX_MESSAGE_BYTES);
  for (int i = 0; i < 20; i++)
    if (nx_await(&client, 1, "done", &message) == NX_OK) nx_close_fds(&message);
  close(ends[0]);
  free(client.buffer);
}

#ifdef NX_LIBFUZZER
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  world w;
  create(&w);
  state = size;
  for (; size >= 5; data += 5, size -= 5) {
    uint32_t at;
    memcpy(&at, data, 4);
    w.index.memory[at % w.index.bytes] = data[4];
  }
  use(&w, false);
  destroy(&w);
  return 0;
}
#else
int main(int argc, char **argv) {
  if (argc != 3) return 2;
  uint64_t rounds = strtoull(argv[1], NULL, 0), seed = strtoull(argv[2], NULL, 0);
  for (uint64_t round = 0; round < rounds; round++) {
    world w;
    state = nx_mix(seed, round);
    create(&w);
    bool late = draw() % 2;
    if (!late) damage(&w);
    if (!late && draw() % 4 == 0) shorten(&w.index);
    if (!late && draw() % 8 == 0) shorten(&w.pins);
    if (!late && draw() % 8 == 0) shorten(&w.touch);
    use(&w, late);
    use_client();
    destroy(&w);
  }
  printf("seed %llu rounds %llu attached %llu refused %llu opened %llu ok\n", (unsigned long long)seed,
         (unsigned long long)rounds, (unsigned long long)attached, (unsigned long long)refused,
         (unsigned long long)opened);
  return 0;
}
#endif
