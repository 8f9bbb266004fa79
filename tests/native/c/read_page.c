/* read_page.c: an engine in C. Finds a page by its key, reads it in place, compares it with a file.
 *
 *   read_page unix:/path/to/socket KEY_IN_HEX FILE
 *
 * Prints where the page lies; exit status 1 = it is not resident, 2 = it differs, 3 = an error, which it names. */
#include <nexuskv.h>

#include <stdio.h>
#include <string.h>

static int parse_key(const char *hex, unsigned char key[NX_KEY_BYTES]) {
  if (strlen(hex) != 2 * NX_KEY_BYTES) return 0;
  for (unsigned i = 0; i < NX_KEY_BYTES; i++) {
    unsigned byte;
    if (sscanf(hex + 2 * i, "%2x", &byte) != 1) return 0;
    key[i] = (unsigned char)byte;
  }
  return 1;
}

static int same_as_file(const unsigned char *page, size_t bytes, const char *name) {
  FILE *file = fopen(name, "rb");
  int same = file != NULL;
  for (size_t i = 0; same && i < bytes; i++) same = fgetc(file) == page[i];
  same = same && fgetc(file) == EOF;
  if (file != NULL) fclose(file);
  return same;
}

int main(int argc, char **argv) {
  unsigned char key[NX_KEY_BYTES];
  nx_client *client;
  nx_handle handle;
  if (argc != 4 || !parse_key(argv[2], key)) return 3;
  int status = 3;
  int64_t pinned = nx_client_open(&client, argv[1], 5000);
  if (pinned == NX_OK) pinned = nx_client_pin(client, key, 1, &handle);
  if (pinned == 1) {
    status = same_as_file(nx_client_page(client, &handle), handle.length, argv[3]) ? 0 : 2;
    printf("segment %u offset %llu length %u tokens %u\n", handle.segment, (unsigned long long)handle.offset,
           handle.length, handle.tokens);
    nx_client_unpin(client, &handle, 1);
  } else if (pinned == 0) {
    status = 1;
  } else {
    fprintf(stderr, "%s\n", nx_client_reason(client));
  }
  nx_client_close(client);
  return status;
}
