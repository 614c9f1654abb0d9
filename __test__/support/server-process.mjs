// A program that listens, and ends with this process, no matter how this process ends.

import { spawn } from 'node:child_process'
import { once } from 'node:events'

// The shell ends its server when our end of its stdin closes. The kernel closes it, no matter how
// this process ends.
const GUARD = '"$@" & server=$!; echo "pid $server"; read -r _; kill -KILL "$server" 2>/dev/null; wait'

export class ServerProcess {
  #guard
  #gone
  #isFrozen = false
  /** The last part of the program's output on stdout. */
  log = ''
  pid = 0

  /** Starts the program, and resolves when its process id is known. */
  async launch(program, words) {
    this.log = ''
    this.#guard = spawn('/bin/sh', ['-c', GUARD, 'guard', program, ...words.map(String)], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    this.#guard.stdin.on('error', () => {})
    this.#gone = once(this.#guard, 'exit')
    this.#guard.stdout.setEncoding('utf8')
    // The server may write before the shell does.
    const pid = new Promise((resolve) => {
      this.#guard.stdout.on('data', (text) => {
        this.log = (this.log + text).slice(-8_000)
        const told = /^pid (\d+)$/m.exec(this.log)
        if (told) resolve(Number(told[1]))
      })
    })
    this.pid = await pid
  }

  /** Returns true if the program was started and not killed. */
  get isLaunched() {
    return this.#guard !== undefined && this.#guard.exitCode === null
  }

  /** Returns true if the program can answer: it was started, and neither killed nor frozen. */
  get isRunning() {
    return this.isLaunched && !this.#isFrozen
  }

  /**
   * Stops the program from answering, as if its machine lost power or network: no connection is
   * closed.
   */
  freeze() {
    process.kill(this.pid, 'SIGSTOP')
    this.#isFrozen = true
  }

  thaw() {
    this.#isFrozen = false
    process.kill(this.pid, 'SIGCONT')
  }

  /** Ends the program with SIGKILL, if it runs. Resolves when it is gone. */
  async kill() {
    if (!this.#guard) return
    this.#guard.stdin.destroy()
    await this.#gone
    this.#guard = undefined
    this.#isFrozen = false
  }
}
