/* hit.c: times hits from C, against a running daemon.
 *
 *   hit unix:/path/to/socket TIMES KEY_IN_HEX...
 *
 * For each line on standard input it pins and unpins TIMES single pages, one key after the other, and prints the seconds
 * that one took. Exit status 1 = an error, which it names. */
#include <nexuskv.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static int parse_key(const char *hex, unsigned char *key) {
  if (strlen(hex) != 2 * NX_KEY_BYTES) return 0;
  for (unsigned i = 0; i < NX_KEY_BYTES; i++) {
    unsigned byte;
    if (sscanf(hex + 2 * i, "%2x", &byte) != 1) return 0;
    key[i] = (unsigned char)byte;
  }
  return 1;
}

/* Seconds a hit, or a negative number when one did not find its page. */
static double hit(nx_client *client, const unsigned char *keys, long key_count, long times) {
  nx_handle handle;
  double start = now();
  for (long i = 0, at = 0; i < times; i++) {
    if (nx_client_pin(client, keys + at * NX_KEY_BYTES, 1, &handle) != 1) return -1;
    nx_client_unpin(client, &handle, 1);
    if (++at == key_count) at = 0;
  }
  return (now() - start) / (double)times;
}

int main(int argc, char **argv) {
  nx_client *client = NULL;
  long key_count = argc - 3, times = argc > 2 ? atol(argv[2]) : 0;
  unsigned char *keys = key_count > 0 ? malloc((size_t)key_count * NX_KEY_BYTES) : NULL;
  int right = keys != NULL && times > 0;
  for (long i = 0; right && i < key_count; i++) right = parse_key(argv[3 + i], keys + i * NX_KEY_BYTES);
  if (!right) fprintf(stderr, "usage: hit unix:/path/to/socket TIMES KEY_IN_HEX...\n");
  if (right && nx_client_open(&client, argv[1], 5000) != NX_OK) {
    fprintf(stderr, "%s\n", nx_client_reason(client));
    right = 0;
  }
  while (right && getchar() != EOF) {
    double seconds = hit(client, keys, key_count, times);
    right = seconds >= 0;
    if (right) printf("%.12f\n", seconds);
    else fprintf(stderr, "a page that is resident was not found: %s\n", nx_client_reason(client));
    fflush(stdout);
  }
  nx_client_close(client);
  free(keys);
  return right ? 0 : 1;
}
