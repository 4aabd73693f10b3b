// Stands between a program and the kernel's positioned reads and writes, and meddles as a kernel may: of every NTH calls one is
// interrupted before anything happens, and the next moves only a part. At most what POSIX allows, so a correct program does not notice.
// usage: NTH=3 COUNT=file LD_PRELOAD=meddle.so program    (COUNT receives how often it meddled, at exit)
// While the file that FAIL names exists, every positioned write fails with the errno in it (28: no room).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

static atomic_ulong calls, meddled;
static unsigned long nth;

__attribute__((constructor)) static void begin(void) {
  const char *text = getenv("NTH");
  nth = text ? strtoul(text, NULL, 10) : 0;
}

__attribute__((destructor)) static void end(void) {
  const char *path = getenv("COUNT");
  FILE *out = path ? fopen(path, "w") : NULL;
  if (out) {
    fprintf(out, "%lu\n", atomic_load(&meddled));
    fclose(out);
  }
}

// Bytes to move, or -1: interrupted.
static ssize_t allowed(size_t count) {
  unsigned long call = atomic_fetch_add(&calls, 1);
  if (nth == 0 || call % nth > 1) return count;
  if (call % nth == 0) {
    atomic_fetch_add(&meddled, 1);
    errno = EINTR;
    return -1;
  }
  if (count < 2) return count;
  atomic_fetch_add(&meddled, 1);
  // Not a round number, and another one each time.
  return 1 + call * 2654435761u % (count - 1);
}

// The errno that writes are to fail with, or 0.
static int failure(void) {
  const char *path = getenv("FAIL");
  FILE *in = path ? fopen(path, "r") : NULL;
  int number = 0;
  if (in) {
    if (fscanf(in, "%d", &number) != 1) number = 0;
    fclose(in);
  }
  return number;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
  static ssize_t (*real)(int, const void *, size_t, off64_t);
  if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
  int number = failure();
  if (number) {
    errno = number;
    return -1;
  }
  ssize_t most = allowed(count);
  return most < 0 ? -1 : real(fd, bytes, most, at);
}

ssize_t pread64(int fd, void *bytes, size_t count, off64_t at) {
  static ssize_t (*real)(int, void *, size_t, off64_t);
  if (!real) real = dlsym(RTLD_NEXT, "pread64");
  ssize_t most = allowed(count);
  return most < 0 ? -1 : real(fd, bytes, most, at);
}
