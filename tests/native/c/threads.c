/* threads.c: readers as threads, for the thread sanitizer. Pages are read and written by plain accesses, so a page
 * that is given away too early is a data race, and so is any field that the protocol does not order.
 *
 *   threads ROUNDS SEED
 *
 * Three reader threads; two of them share one attachment. */
#define _GNU_SOURCE 1
#include "nexuskv.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 16u
#define KEYS 24u
#define PAGE_WORDS 16u
#define READERS 3
#define WORDS 64u

static uint64_t pages[SLOTS][PAGE_WORDS];
static uint8_t keys[KEYS][32];
static uint32_t stop;
static uint64_t seed, hits;

static uint64_t draw(uint64_t *state) {
  uint64_t x = *state += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

static void expect(bool holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "threads: seed %llu: %s\n", (unsigned long long)seed, what);
  abort();
}

static void *allocate(size_t bytes) {
  void *memory = NULL;
  expect(posix_memalign(&memory, 64, bytes) == 0, "memory");
  return memset(memory, 0, bytes);
}

typedef struct task {
  nx_reader *reader;
  uint64_t random;
} task;

static void *read_all_the_time(void *argument) {
  task *me = argument;
  nx_handle handles[8];
  uint8_t presence[8];
  nx_segment row;
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
    size_t first = draw(&me->random) % (KEYS - 8), n = 1 + draw(&me->random) % 8;
    nx_lookup(me->reader, keys[first], n);
    nx_status(me->reader, keys[first], n, presence);
    nx_find_segment(me->reader, 1, &row);
    int64_t pinned = nx_pin(me->reader, keys[first], n, handles);
    expect(pinned >= 0, "pin");
    for (int64_t i = 0; i < pinned; i++)
      for (size_t j = 1; j < PAGE_WORDS; j++) {
        const uint64_t *page = pages[handles[i].offset / sizeof pages[0]];
        expect(page[0] >> 32 == first + (uint64_t)i && page[j] == page[0] + j,
               "a pinned page is not what its key says");
      }
    expect(nx_validate(me->reader, handles, (size_t)pinned) == pinned, "validate");
    expect(nx_unpin(me->reader, handles, (size_t)pinned) == NX_OK, "unpin");
    __atomic_fetch_add(&hits, (uint64_t)pinned, __ATOMIC_RELAXED);
  }
  return NULL;
}

static void write_page(uint32_t slot, uint64_t number, uint64_t version) {
  for (size_t j = 0; j < PAGE_WORDS; j++) pages[slot][j] = (number << 32 | (version & 0xffffffff)) + j;
}

static void evict_all_the_time(nx_writer *writer, nx_pins *const *pins, size_t pin_count, uint64_t rounds) {
  uint32_t free_slots[SLOTS], live[SLOTS], retiring[SLOTS], freed[SLOTS];
  size_t free_count = SLOTS, live_count = 0, retiring_count = 0;
  uint64_t random = seed, cursor = 0;
  for (uint32_t i = 0; i < SLOTS; i++) free_slots[i] = i;
  for (uint64_t round = 0; round < rounds; round++) {
    while (free_count > 0 && live_count < SLOTS) {
      uint64_t number = draw(&random) % KEYS;
      nx_record record = {
          .segment = 1, .offset = free_slots[free_count - 1] * sizeof pages[0], .length = sizeof pages[0]};
      memcpy(record.key, keys[number], 32);
      if (nx_reserve(writer, &record, 1) != 1) break;
      write_page(free_slots[--free_count], number, round);
      expect(nx_commit(writer, &record.bucket, NULL, 1) == 1, "commit");
      live[live_count++] = record.bucket;
    }
    for (uint64_t n = draw(&random) % 4; n > 0 && live_count > 0; n--)
      retiring[retiring_count++] = live[--live_count];
    nx_retire(writer, retiring, retiring_count);
    int64_t count = nx_reclaim(writer, retiring, retiring_count, pins, pin_count, freed);
    for (int64_t i = 0; i < count; i++) {
      nx_record record;
      nx_read(writer, freed[i], &record);
      free_slots[free_count] = (uint32_t)(record.offset / sizeof pages[0]);
      memset(pages[free_slots[free_count++]], 0xdb, sizeof pages[0]);
      for (size_t j = 0; j < retiring_count; j++)
        if (retiring[j] == freed[i]) retiring[j--] = retiring[--retiring_count];
    }
    if (round % 64 == 0) {
      uint32_t touched[64];
      nx_touched(writer, &cursor, touched, 64);
      nx_segment_remove(writer, 1);
      nx_segment row = {.segment = 1,
                        .arena = (uint32_t)round,
                        .slot_count = SLOTS,
                        .slot_bytes = sizeof pages[0],
                        .page_bytes = sizeof pages[0],
                        .segment_bytes = sizeof pages};
      expect(nx_segment_add(writer, &row) == NX_OK, "segment");
    }
  }
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  uint64_t rounds = strtoull(argv[1], NULL, 0), index_bytes, touch_bytes;
  seed = strtoull(argv[2], NULL, 0);
  nx_index_params params = {.max_entries = SLOTS,
                            .boot_epoch = 1,
                            .index_id = 1,
                            .directory_capacity = 2,
                            .instance = "threads",
                            .tenant = "t"};
  nx_index_bytes(&params, &index_bytes);
  nx_touch_bytes(&params, &touch_bytes);
  void *index = allocate(index_bytes), *touch = allocate(touch_bytes), *memory[2];
  nx_writer *writer;
  nx_reader *readers[2];
  nx_pins *pins[2];
  expect(nx_index_format(index, index_bytes, &params) == NX_OK, "format");
  expect(nx_writer_open(&writer, index, index_bytes, touch, touch_bytes) == NX_OK, "open");
  for (uint64_t i = 0; i < KEYS; i++) memcpy(keys[i], &i, 8);
  for (int i = 0; i < 2; i++) {
    memory[i] = allocate(nx_pin_bytes(WORDS));
    expect(nx_pin_format(memory[i], nx_pin_bytes(WORDS), 1, 1) == NX_OK, "format pins");
    expect(nx_attach_memory(&readers[i], index, index_bytes, touch, touch_bytes, memory[i], nx_pin_bytes(WORDS)) ==
               NX_OK,
           "attach");
    expect(nx_pins_open(&pins[i], memory[i], nx_pin_bytes(WORDS)) == NX_OK, "pins");
  }
  pthread_t threads[READERS];
  task tasks[READERS];
  for (int i = 0; i < READERS; i++) {
    tasks[i] = (task){readers[i % 2], seed + 1 + (uint64_t)i};
    expect(pthread_create(&threads[i], NULL, read_all_the_time, &tasks[i]) == 0, "thread");
  }
  evict_all_the_time(writer, pins, 2, rounds);
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < READERS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 2; i++) {
    nx_detach(readers[i]);
    nx_pins_close(pins[i]);
    free(memory[i]);
  }
  nx_writer_close(writer);
  free(index);
  free(touch);
  printf("seed %llu rounds %llu hits %llu ok\n", (unsigned long long)seed, (unsigned long long)rounds,
         (unsigned long long)hits);
  return 0;
}
