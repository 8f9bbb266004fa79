/* converse.c: an engine that does what it is told, a line at a time, so that a test can change the world in between.
 *
 *   pin KEY_IN_HEX -> "pinned N" (N numbers the page) or "miss" or "error SENTENCE";  sum N -> sum of its bytes;  unpin N
 *   fork N -> what a child gets: codes of register, pin and unpin, and "gone" if it has no page N */
#define _GNU_SOURCE 1
#include <nexuskv.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES 100

static nx_handle pages[PAGES];

static void pin(nx_client *client, const char *hex, unsigned *count) {
  unsigned char key[NX_KEY_BYTES];
  unsigned byte;
  for (unsigned i = 0; i < NX_KEY_BYTES && sscanf(hex + 2 * i, "%2x", &byte) == 1; i++) key[i] = (unsigned char)byte;
  int64_t pinned = nx_client_pin(client, key, 1, &pages[*count]);
  if (pinned == 1) printf("pinned %u\n", (*count)++);
  else if (pinned == 0) printf("miss\n");
  else printf("error %s\n", nx_client_reason(client));
}

static void sum(nx_client *client, unsigned number) {
  const unsigned char *page = nx_client_page(client, &pages[number]);
  unsigned long total = 0;
  for (unsigned i = 0; page != NULL && i < pages[number].length; i++) total += page[i];
  if (page == NULL) printf("gone\n");
  else printf("%lu\n", total);
}

static void fork_off(nx_client *client, nx_handle *page) {
  static const unsigned char key[NX_KEY_BYTES];
  pid_t child = fork();
  if (child == 0) {
    nx_handle other;
    uint32_t arena;
    printf("%d ", nx_client_register(client, "x", 1, &arena));
    printf("%d ", (int)nx_client_pin(client, key, 1, &other));
    printf("%d ", nx_client_unpin(client, page, 1));
    printf("%s\n", nx_client_page(client, page) == NULL ? "gone" : "there");
    fflush(stdout);
    nx_client_close(client);
    _exit(0);
  }
  waitpid(child, NULL, 0);
}

int main(int argc, char **argv) {
  char line[256];
  unsigned count = 0;
  nx_client *client;
  if (argc != 2 || nx_client_open(&client, argv[1], 2000) != NX_OK) return 3;
  while (count < PAGES && fgets(line, sizeof line, stdin) != NULL) {
    unsigned number = (unsigned)strtoul(line + strcspn(line, " "), NULL, 10) % PAGES;
    if (strncmp(line, "pin ", 4) == 0) pin(client, line + 4, &count);
    else if (strncmp(line, "sum ", 4) == 0) sum(client, number);
    else if (strncmp(line, "fork ", 5) == 0) fork_off(client, &pages[number]);
    else printf("%s\n", nx_client_unpin(client, &pages[number], 1) == NX_OK ? "ok" : "stale");
    fflush(stdout);
  }
  nx_client_close(client);
  return 0;
}
