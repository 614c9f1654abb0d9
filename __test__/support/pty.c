// Runs a program on a terminal of its own: pty ROWS COLUMNS FILE [ARG…]. Standard input is typed at
// the terminal, and standard output gets what the terminal shows. Ends by the same signal as the
// program, or with its exit code. Node can't open a terminal, and every developer of leasehold has
// a C compiler.

#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __APPLE__
#include <util.h>
#else
#include <pty.h>
#endif

static int pass(int from, int to) {
  char bytes[4096];
  ssize_t count = read(from, bytes, sizeof bytes);
  for (ssize_t done = 0; done < count;) {
    ssize_t written = write(to, bytes + done, (size_t)(count - done));
    if (written < 0) return 0;
    done += written;
  }
  return count > 0;
}

int main(int count, char **words) {
  if (count < 4) return 64;
  struct winsize size = {.ws_row = (unsigned short)atoi(words[1]), .ws_col = (unsigned short)atoi(words[2])};
  int terminal;
  pid_t child = forkpty(&terminal, NULL, NULL, &size);
  if (child < 0) {
    perror("pty");
    return 71;
  }
  if (child == 0) {
    execvp(words[3], words + 3);
    perror(words[3]);
    _exit(127);
  }
  struct pollfd ends[] = {{.fd = terminal, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
  for (;;) {
    if (poll(ends, 2, -1) < 0) {
      if (errno == EINTR) continue;
      break;
    }
    // The input has ended. Keep the terminal open: a Ctrl-D would be typed otherwise.
    if (ends[1].revents && !pass(STDIN_FILENO, terminal)) ends[1].fd = -1;
    if (ends[0].revents && !pass(terminal, STDOUT_FILENO)) break;
  }
  // Processes that still have the terminal get a SIGHUP.
  close(terminal);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  return WEXITSTATUS(status);
}
