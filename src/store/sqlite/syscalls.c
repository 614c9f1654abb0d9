/*
** The fcntl() that SQLite uses for its locks; see syscalls.rs. It is in C because fcntl() takes a
** variable number of arguments. On some systems (Apple's on arm64), a function with a fixed number
** reads those from other registers.
*/
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
/* SQLite is built with the same value, so both use the same struct flock. */
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__) && !defined(F_OFD_SETLK)
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#define F_OFD_SETLKW 38
#endif

/*
** Returns whether the error of a lock operation means that this kernel or file system has no locks
** of open files. An old kernel does not know the operation. Some network file systems refuse it.
*/
int leasehold_has_no_such_lock(int error) {
  switch (error) {
    case EINVAL:
    case ENOTSUP:
#if EOPNOTSUPP != ENOTSUP
    case EOPNOTSUPP:
#endif
      return 1;
  }
  return 0;
}

#ifdef F_OFD_SETLK
/* Maps each lock operation to the one whose lock belongs to the open file, not to the process. */
static int open_file_operation(int operation) {
  switch (operation) {
    case F_GETLK: return F_OFD_GETLK;
    case F_SETLK: return F_OFD_SETLK;
    case F_SETLKW: return F_OFD_SETLKW;
  }
  return -1;
}
#endif

int leasehold_fcntl(int fd, int operation, ...) {
  va_list arguments;
  va_start(arguments, operation);
  int result;
  switch (operation) {
    case F_GETFD:
    case F_GETFL:
      result = fcntl(fd, operation);
      break;
    case F_GETLK:
    case F_SETLK:
    case F_SETLKW: {
      struct flock *lock = va_arg(arguments, struct flock *);
#ifdef F_OFD_SETLK
      struct flock owned = *lock;
      owned.l_pid = 0;
      result = fcntl(fd, open_file_operation(operation), &owned);
      if (result != -1 || !leasehold_has_no_such_lock(errno)) {
        if (result != -1 && operation == F_GETLK) *lock = owned;
        break;
      }
#endif
      /* Take the usual POSIX locks. */
      result = fcntl(fd, operation, lock);
      break;
    }
    default:
      /* F_SETFD and similar operations. */
      result = fcntl(fd, operation, va_arg(arguments, int));
      break;
  }
  va_end(arguments);
  return result;
}

/* Sets the error of an open() that is refused. */
void leasehold_refuse(void) {
  errno = EACCES;
}

/*
** Locks the first byte for this open file. Returns 0 if the file now has the lock, 1 if another
** open file has it, -1 if the system has no such locks, and -2 after another error, which is in
** errno.
*/
int leasehold_lock_open_file(int fd) {
#ifdef F_OFD_SETLK
  struct flock lock;
  memset(&lock, 0, sizeof lock);
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return 0;
  if (errno == EAGAIN || errno == EACCES) return 1;
  return leasehold_has_no_such_lock(errno) ? -1 : -2;
#else
  (void)fd;
  return -1;
#endif
}
