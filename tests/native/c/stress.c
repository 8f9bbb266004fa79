/* stress.c: processes that read while another evicts as fast as it can. Every byte of every pinned page is verified.
 *
 *   stress SECONDS READERS SEED SLOTS PAGE_BYTES KILLS
 *
 * A page holds its key's number, a version and words that follow from both. The writer retires random entries,
 * reclaims, scribbles over each slot it gets back, fills it for another key and publishes it. With KILLS > 0 the
 * parent kills the writer that many times, at random moments, and starts another, which recovers the index;
 * `promise` says what must be there then. Ends with one line of figures; exit status 1 if any page was wrong. */
#define _GNU_SOURCE 1
#include "nexuskv.h"

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_READERS 16
#define BATCH 16
#define PIN_WORDS 256
#define INDEX_ID 77

typedef struct control {
  uint32_t stop, failed;
  uint64_t hits[MAX_READERS], misses[MAX_READERS];
  uint64_t published, reclaimed, waited, torn, recoveries;
  uint64_t version;
  uint64_t promise[]; /* by key: version that is committed, 0 = not */
} control;

static control *shared;
static size_t slots, page_bytes, keys;
static int index_fd, touch_fd, data_fd, pin_fd[MAX_READERS], readers;
static uint64_t seed;

static uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

static uint64_t draw(uint64_t *state) { return mix(*state += 0x9e3779b97f4a7c15ull); }

static void key_of(uint64_t number, uint8_t key[32]) {
  for (uint64_t i = 0; i < 4; i++) {
    uint64_t word = i == 0 ? number : mix(4 * number + i);
    memcpy(key + 8 * i, &word, 8);
  }
}

static void die(const char *what, int code) {
  fprintf(stderr, "stress: seed %llu: %s: %s\n", (unsigned long long)seed, what, nx_error(code));
  __atomic_store_n(&shared->failed, 1, __ATOMIC_RELAXED);
  _exit(1);
}

static void *map(int fd, int writable, size_t *bytes) {
  void *memory = NULL;
  int code = nx_map(fd, writable, &memory, bytes);
  if (code != NX_OK) die("map", code);
  return memory;
}

static int object(const char *name, size_t bytes) {
  int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) exit(2);
  return fd;
}

/* ---- readers ---- */

static uint64_t verify(const volatile uint64_t *page, uint64_t number) {
  uint64_t version = page[1];
  bool whole = page[0] == number;
  for (size_t i = 2; i < page_bytes / 8; i++) whole &= page[i] == mix(number ^ (version << 20) ^ i);
  if (!whole) die("a pinned page is not what its key says", NX_E_TORN);
  return version;
}

static void read_some(nx_reader *reader, const char *data, size_t data_bytes, int me, uint64_t *random) {
  uint64_t first = draw(random) % keys, versions[BATCH];
  size_t n = 1 + draw(random) % BATCH;
  uint8_t wanted[BATCH][32];
  nx_handle handles[BATCH];
  for (size_t i = 0; i < n; i++) key_of((first + i) % keys, wanted[i]);
  int64_t pinned = nx_pin(reader, wanted, n, handles);
  if (pinned < 0) die("pin", (int)pinned);
  shared->hits[me] += (uint64_t)pinned;
  shared->misses[me] += (uint64_t)pinned < n;
  for (int64_t i = 0; i < pinned; i++) {
    const void *page = nx_page(data, data_bytes, &handles[i]);
    if (page == NULL) die("page", NX_E_BOUNDS);
    versions[i] = verify(page, (first + (uint64_t)i) % keys);
  }
  if (draw(random) % 4 == 0) sched_yield();
  for (int64_t i = 0; i < pinned; i++)
    if (verify(nx_page(data, data_bytes, &handles[i]), (first + (uint64_t)i) % keys) != versions[i])
      die("a pinned page was replaced", NX_E_TORN);
  if (nx_validate(reader, handles, (size_t)pinned) != pinned) die("validate", NX_E_STALE);
  int code = nx_unpin(reader, handles, (size_t)pinned);
  if (code != NX_OK) die("unpin", code);
}

static void run_reader(int me) {
  nx_reader *reader;
  size_t data_bytes;
  const char *data = map(data_fd, 0, &data_bytes);
  uint64_t random = mix(seed + 1 + (uint64_t)me);
  int code = nx_attach(&reader, index_fd, touch_fd, pin_fd[me]);
  if (code != NX_OK) die("attach", code);
  while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) read_some(reader, data, data_bytes, me, &random);
  nx_detach(reader);
  _exit(0);
}

/* ---- the writer ---- */

typedef struct daemon {
  nx_writer *writer;
  nx_pins *pins[MAX_READERS];
  char *data;
  uint32_t *free_slots, *live, *retiring; /* slots, buckets, buckets */
  size_t free_count, live_count, retiring_count;
} daemon_state;

static void must(bool holds, const char *what) {
  if (!holds) die(what, NX_E_STATE);
}

static uint64_t number_of(nx_writer *writer, uint32_t bucket, uint64_t *slot) {
  nx_record record;
  uint64_t number;
  must(nx_read(writer, bucket, &record) == NX_OK, "read");
  memcpy(&number, record.key, 8);
  if (slot != NULL) *slot = record.offset / page_bytes;
  return number;
}

static void fill(uint64_t *page, uint64_t number, uint64_t version) {
  page[0] = number;
  page[1] = version;
  for (size_t i = 2; i < page_bytes / 8; i++) page[i] = mix(number ^ (version << 20) ^ i);
}

static void publish_one(daemon_state *d, uint64_t number) {
  nx_record record = {.length = (uint32_t)page_bytes, .tokens = 1, .owner = 9};
  uint32_t slot = d->free_slots[d->free_count - 1];
  key_of(number, record.key);
  record.offset = slot * page_bytes;
  if (nx_reserve(d->writer, &record, 1) != 1) {
    must(record.status == NX_E_EXISTS, "reserve");
    return;
  }
  d->free_count--;
  uint64_t version = __atomic_add_fetch(&shared->version, 1, __ATOMIC_RELAXED);
  char *page = d->data + slot * page_bytes;
  memset(page, 0xdb, page_bytes);
  fill((uint64_t *)(void *)page, number, version);
  must(nx_commit(d->writer, &record.bucket, &version, 1) == 1, "commit");
  __atomic_store_n(&shared->promise[number], version, __ATOMIC_RELEASE);
  d->live[d->live_count++] = record.bucket;
  shared->published++;
}

static void evict_some(daemon_state *d, uint64_t *random) {
  uint32_t victims[64], *freed = malloc(sizeof *freed * (slots + 64));
  size_t n = 0;
  for (size_t want = 1 + draw(random) % 32; n < want && d->live_count > 0; n++) {
    size_t at = draw(random) % d->live_count;
    victims[n] = d->live[at];
    d->live[at] = d->live[--d->live_count];
    __atomic_store_n(&shared->promise[number_of(d->writer, victims[n], NULL)], 0, __ATOMIC_RELEASE);
    d->retiring[d->retiring_count++] = victims[n];
  }
  must(nx_retire(d->writer, victims, n) == (int64_t)n, "retire");
  int64_t count = nx_reclaim(d->writer, d->retiring, d->retiring_count, d->pins, (size_t)readers, freed);
  for (int64_t i = 0; i < count; i++) {
    uint64_t slot;
    number_of(d->writer, freed[i], &slot);
    d->free_slots[d->free_count++] = (uint32_t)slot;
    memset(d->data + slot * page_bytes, 0xdb, page_bytes); /* a page that is still read shows it at once */
    for (size_t j = 0; j < d->retiring_count; j++)
      if (d->retiring[j] == freed[i]) d->retiring[j--] = d->retiring[--d->retiring_count];
  }
  shared->reclaimed += (uint64_t)count;
  shared->waited += d->retiring_count;
  free(freed);
}

static void keep_promises(daemon_state *d) {
  for (uint64_t number = 0; number < keys; number++) {
    uint64_t version = shared->promise[number], slot;
    uint8_t key[32];
    key_of(number, key);
    if (version == 0) continue;
    int64_t bucket = nx_find(d->writer, key);
    must(bucket >= 0, "a committed page is gone");
    number_of(d->writer, (uint32_t)bucket, &slot);
    must(verify((const volatile uint64_t *)(const void *)(d->data + slot * page_bytes), number) == version,
         "a page of another version");
  }
}

/* What a new daemon does: recover, drop what was being written, take over the rest. */
static void take_over(daemon_state *d) {
  nx_recovery found;
  uint8_t *used = calloc(slots, 1);
  uint64_t cursor = 0;
  int code = nx_recover(d->writer, &found);
  if (code != NX_OK) die("recover", code);
  shared->torn += found.torn;
  shared->recoveries++;
  keep_promises(d);
  do {
    nx_record record;
    if (nx_entries(d->writer, &cursor, &record, 1) == 0) break;
    if (record.status == NX_WRITING) {
      must(nx_abort(d->writer, &record.bucket, 1) == 1, "abort");
      continue;
    }
    used[record.offset / page_bytes] = 1;
    if (record.status == NX_LIVE) d->live[d->live_count++] = record.bucket;
    else d->retiring[d->retiring_count++] = record.bucket;
  } while (cursor != 0);
  for (uint32_t slot = 0; slot < slots; slot++)
    if (!used[slot]) d->free_slots[d->free_count++] = slot;
  free(used);
}

static void run_writer(uint64_t run) {
  daemon_state d = {0};
  size_t index_bytes, touch_bytes, bytes;
  void *index = map(index_fd, 1, &index_bytes), *touch = map(touch_fd, 1, &touch_bytes);
  uint64_t random = mix(seed ^ (run << 32)), cursor = 0;
  uint32_t touched[256];
  d.data = map(data_fd, 1, &bytes);
  int code = nx_writer_open(&d.writer, index, index_bytes, touch, touch_bytes);
  if (code != NX_OK) die("open", code);
  for (int i = 0; i < readers; i++)
    if ((code = nx_pins_open(&d.pins[i], map(pin_fd[i], 0, &bytes), nx_pin_bytes(PIN_WORDS))) != NX_OK)
      die("pins", code);
  d.free_slots = calloc(2 * slots, 4);
  d.live = calloc(2 * slots, 4);
  d.retiring = calloc(2 * slots, 4);
  take_over(&d);
  while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
    evict_some(&d, &random);
    for (int tries = 0; d.free_count > 0 && tries < 200; tries++) publish_one(&d, draw(&random) % keys);
    nx_touched(d.writer, &cursor, touched, 256);
  }
  _exit(0);
}

/* ---- the parent ---- */

static pid_t start(void (*run)(uint64_t), uint64_t argument) {
  pid_t child = fork();
  if (child == 0) run(argument);
  return child;
}

static void run_reader_number(uint64_t me) { run_reader((int)me); }

static void create(void) {
  nx_index_params params = {.max_entries = slots,
                            .boot_epoch = 1,
                            .index_id = INDEX_ID,
                            .directory_capacity = 4,
                            .instance = "stress",
                            .tenant = "t"};
  nx_segment segment = {.slot_count = (uint32_t)slots,
                        .slot_bytes = page_bytes,
                        .page_bytes = page_bytes,
                        .segment_bytes = slots * page_bytes};
  uint64_t index_bytes, touch_bytes;
  size_t bytes;
  nx_writer *writer;
  nx_index_bytes(&params, &index_bytes);
  nx_touch_bytes(&params, &touch_bytes);
  index_fd = object("index", index_bytes);
  touch_fd = object("touch", touch_bytes);
  data_fd = object("data", slots * page_bytes);
  void *index = map(index_fd, 1, &bytes);
  nx_index_format(index, bytes, &params);
  if (nx_writer_open(&writer, index, bytes, NULL, 0) != NX_OK || nx_segment_add(writer, &segment) != NX_OK) exit(2);
  nx_writer_close(writer);
  for (int i = 0; i < readers; i++) {
    pin_fd[i] = object("pins", nx_pin_bytes(PIN_WORDS));
    void *pins = map(pin_fd[i], 1, &bytes);
    nx_pin_format(pins, bytes, INDEX_ID, (uint64_t)i + 1);
    nx_unmap(pins, bytes);
  }
}

static void pause_us(uint64_t us) {
  struct timespec time = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
  nanosleep(&time, NULL);
}

int main(int argc, char **argv) {
  if (argc != 7) return 2;
  double seconds = atof(argv[1]);
  readers = atoi(argv[2]);
  seed = strtoull(argv[3], NULL, 0);
  slots = strtoull(argv[4], NULL, 0);
  page_bytes = strtoull(argv[5], NULL, 0);
  uint64_t kills = strtoull(argv[6], NULL, 0), random = mix(seed), hits = 0, misses = 0;
  keys = 2 * slots;
  if (readers < 1 || readers > MAX_READERS || slots == 0 || page_bytes % 64 != 0 || page_bytes == 0) return 2;
  shared = mmap(NULL, sizeof *shared + 8 * keys, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  create();
  pid_t children[MAX_READERS], writer = start(run_writer, 0);
  for (int i = 0; i < readers; i++) children[i] = start(run_reader_number, (uint64_t)i);
  for (uint64_t kill_number = 1; kill_number <= kills && !shared->failed; kill_number++) {
    pause_us((uint64_t)(seconds * 1e6 / (double)kills * ((double)(draw(&random) % 1000) / 500.0)));
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    if (!shared->failed) writer = start(run_writer, kill_number);
  }
  for (int i = 0; kills == 0 && i < (int)(seconds * 100) && !shared->failed; i++) pause_us(10000);
  __atomic_store_n(&shared->stop, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < readers; i++) waitpid(children[i], NULL, 0);
  waitpid(writer, NULL, 0);
  for (int i = 0; i < readers; i++) {
    hits += shared->hits[i];
    misses += shared->misses[i];
  }
  printf("seed %llu hits %llu misses %llu published %llu reclaimed %llu waited %llu recoveries %llu torn %llu %s\n",
         (unsigned long long)seed, (unsigned long long)hits, (unsigned long long)misses,
         (unsigned long long)shared->published, (unsigned long long)shared->reclaimed,
         (unsigned long long)shared->waited, (unsigned long long)shared->recoveries, (unsigned long long)shared->torn,
         shared->failed ? "FAILED" : "ok");
  return shared->failed ? 1 : 0;
}
