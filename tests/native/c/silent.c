/* silent.c: a hit makes no system call. After attaching, the kernel kills this program for any but read, write and
 * exit.
 *
 *   silent HITS   -> "HITS hits\n" */
#define _GNU_SOURCE 1
#include <nexuskv.h>

#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGES 512u
#define PAGE_BYTES 64u

static int object(size_t bytes, void **memory) {
  int fd = memfd_create("silent", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) exit(2);
  *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return fd;
}

static void publish(void *index, size_t bytes, uint64_t (*keys)[4]) {
  nx_writer *writer;
  nx_segment segment = {
      .slot_count = PAGES, .slot_bytes = PAGE_BYTES, .page_bytes = PAGE_BYTES, .segment_bytes = PAGES * PAGE_BYTES};
  if (nx_writer_open(&writer, index, bytes, NULL, 0) != NX_OK || nx_segment_add(writer, &segment) != NX_OK) exit(2);
  for (uint64_t i = 0; i < PAGES; i++) {
    nx_record record = {.offset = i * PAGE_BYTES, .length = PAGE_BYTES};
    keys[i][0] = i + 1;
    memcpy(record.key, keys[i], sizeof record.key);
    if (nx_publish(writer, &record, 1) != 1) exit(2);
  }
  nx_writer_close(writer);
}

int main(int argc, char **argv) {
  static uint64_t keys[PAGES][4];
  static nx_handle handles[PAGES];
  uint8_t presence[PAGES];
  nx_index_params params = {.max_entries = PAGES,
                            .boot_epoch = 1,
                            .index_id = 1,
                            .directory_capacity = 1,
                            .instance = "silent",
                            .tenant = "t"};
  uint64_t index_bytes, touch_bytes, hits = 0, wanted = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  void *index, *touch, *pins;
  nx_reader *reader;
  nx_index_bytes(&params, &index_bytes);
  nx_touch_bytes(&params, &touch_bytes);
  int index_fd = object(index_bytes, &index), touch_fd = object(touch_bytes, &touch),
      pin_fd = object(nx_pin_bytes(PAGES), &pins);
  if (nx_index_format(index, index_bytes, &params) != NX_OK ||
      nx_pin_format(pins, nx_pin_bytes(PAGES), 1, 1) != NX_OK)
    return 2;
  publish(index, index_bytes, keys);
  if (nx_attach(&reader, index_fd, touch_fd, pin_fd) != NX_OK) return 2;
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) return 77;
  for (uint64_t turn = 0; hits < wanted; turn++) {
    size_t first = turn % PAGES, n = 1 + turn * 7 % (PAGES - first);
    int64_t pinned = nx_pin(reader, keys[first], n, handles);
    if (pinned != (int64_t)n || nx_lookup(reader, keys[first], n) != pinned ||
        nx_status(reader, keys[first], n, presence) != NX_OK || nx_validate(reader, handles, n) != pinned ||
        nx_unpin(reader, handles, n) != NX_OK)
      syscall(SYS_exit, 1);
    hits += (uint64_t)pinned;
  }
  char line[64];
  int length = snprintf(line, sizeof line, "%llu hits\n", (unsigned long long)hits);
  syscall(SYS_exit,
          write(1, line, (size_t)length) == length ? 0 : 1); /* _exit would be exit_group, which is forbidden */
  return 0;
}
