// A program that listens, and ends with this process, however that ends.

import { spawn } from 'node:child_process'
import { once } from 'node:events'

// The shell ends its server when our end of its stdin closes, which the kernel sees to however we die.
const GUARD = '"$@" & server=$!; echo "pid $server"; read -r _; kill -KILL "$server" 2>/dev/null; wait'

export class ServerProcess {
  #guard
  #gone
  #isFrozen = false
  /** The last of what it wrote on stdout. */
  log = ''
  pid = 0

  /** Starts it, and resolves when its process id is known. */
  async launch(program, words) {
    this.log = ''
    this.#guard = spawn('/bin/sh', ['-c', GUARD, 'guard', program, ...words.map(String)], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    this.#guard.stdin.on('error', () => {})
    this.#gone = once(this.#guard, 'exit')
    this.#guard.stdout.setEncoding('utf8')
    // The server may have said something before the shell does.
    const pid = new Promise((resolve) => {
      this.#guard.stdout.on('data', (text) => {
        this.log = (this.log + text).slice(-8_000)
        const told = /^pid (\d+)$/m.exec(this.log)
        if (told) resolve(Number(told[1]))
      })
    })
    this.pid = await pid
  }

  /** Whether it was started and not killed. */
  get isLaunched() {
    return this.#guard !== undefined && this.#guard.exitCode === null
  }

  /** Whether it can answer: it was started, and neither killed nor frozen. */
  get isRunning() {
    return this.isLaunched && !this.#isFrozen
  }

  /** Stops answering, as a machine does whose power or network fails: nothing is closed. */
  freeze() {
    process.kill(this.pid, 'SIGSTOP')
    this.#isFrozen = true
  }

  thaw() {
    this.#isFrozen = false
    process.kill(this.pid, 'SIGCONT')
  }

  /** Ends it with SIGKILL, if it runs. Resolves when it is gone. */
  async kill() {
    if (!this.#guard) return
    this.#guard.stdin.destroy()
    await this.#gone
    this.#guard = undefined
    this.#isFrozen = false
  }
}
