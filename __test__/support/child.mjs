// Real Node processes that a test starts, commands, freezes and kills.
//
// A child writes one JSON line per event on its stdout ({ event, at, ... }) and reads one JSON line
// per command from its stdin; fixtures do both with process/fixtures/kit.mjs. Writes to a pipe are
// synchronous, so an event is out even when the child's event loop is blocked or the next line ends
// the process.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { within } from './clock.mjs'
import { atEnd } from './endings.mjs'

const FIXTURES = new URL('../process/fixtures/', import.meta.url)

class Child {
  #process
  #unread = []
  #waiting = []
  #rest = ''
  /** All events so far. */
  events = []
  stderr = ''

  constructor(script, options, { launcher = [], nodeArgs = [], env = {} } = {}) {
    const path = fileURLToPath(new URL(script, FIXTURES))
    const [command, ...args] = [...launcher, process.execPath, ...nodeArgs, path, JSON.stringify(options)]
    this.#process = spawn(command, args, {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { ...process.env, NODE_TEST_CONTEXT: undefined, ...env },
    })
    this.pid = this.#process.pid
    this.#process.stdin.on('error', () => {})
    this.#process.stderr.setEncoding('utf8').on('data', (text) => {
      this.stderr = (this.stderr + text).slice(-8_000)
    })
    this.#process.stdout.setEncoding('utf8').on('data', (text) => this.#read(text))
    /** Resolves to { code, signal } when the process is gone and all its output was read. */
    this.ended = once(this.#process, 'close').then(([code, signal]) => {
      const error = new Error(`${script} ended (${code ?? signal})\n${this.stderr}`)
      for (const { reject } of this.#waiting.splice(0)) reject(error)
      return { code, signal }
    })
  }

  #read(text) {
    const lines = (this.#rest + text).split('\n')
    this.#rest = lines.pop()
    for (const line of lines) {
      const event = JSON.parse(line)
      this.events.push(event)
      const i = this.#waiting.findIndex(({ name }) => name === event.event)
      if (i >= 0) this.#waiting.splice(i, 1)[0].resolve(event)
      else this.#unread.push(event)
    }
  }

  /**
   * Returns the next event of that name that was not returned yet. Rejects if the process ends
   * before.
   */
  next(name, timeout = 30_000) {
    const i = this.#unread.findIndex(({ event }) => event === name)
    if (i >= 0) return Promise.resolve(this.#unread.splice(i, 1)[0])
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) {
      return this.ended.then(() => {
        const late = this.#unread.findIndex(({ event }) => event === name)
        if (late >= 0) return this.#unread.splice(late, 1)[0]
        throw new Error(`ended without '${name}'\n${this.stderr}`)
      })
    }
    const event = new Promise((resolve, reject) => this.#waiting.push({ name, resolve, reject }))
    return within(`event '${name}'`, event, timeout)
  }

  /** Sends a command, and awaits the event of the same name that answers it. */
  ask(command, details = {}, timeout) {
    this.tell(command, details)
    return this.next(command, timeout)
  }

  tell(command, details = {}) {
    this.#process.stdin.write(`${JSON.stringify({ command, ...details })}\n`)
  }

  signal(name) {
    process.kill(this.pid, name)
  }

  /** Ends the process with SIGKILL, if it still runs. Resolves when it is gone. */
  kill() {
    this.#process.kill('SIGKILL')
    return this.ended
  }
}

/**
 * Starts `script`, a path from process/fixtures/, with `options` in its first argument. Kills it
 * when the test is over. `launcher` is a command that runs the rest of its command line, as `env`
 * does.
 */
export function startChild(t, script, options = {}, settings) {
  const child = new Child(script, options, settings)
  atEnd(t, () => child.kill())
  return child
}
