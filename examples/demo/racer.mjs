// Starts a process of the demo, and watches it.

import { fork } from 'node:child_process'
import { EventEmitter, once } from 'node:events'
import { fileURLToPath } from 'node:url'

const SCRIPT = fileURLToPath(new URL('worker.mjs', import.meta.url))

/**
 * The clock that all processes of a host share, in ms: times of different processes can be
 * subtracted.
 */
export const now = () => Number(process.hrtime.bigint()) / 1e6

const TEXTS = {
  started: ({ pid }) => `started, pid ${pid}`,
  waiting: () => '· waits',
  working: ({ withoutLock }) => (withoutLock ? '● works without it' : '● has the lock'),
  done: ({ job }) => `│ job ${job} done`,
  released: () => '○ released the lock',
  lost: ({ message }) => `✗ ${message}`,
  error: ({ message }) => `! ${message}`,
}

/** Emits 'event' for each message of its process: { event, at, … }. */
export class Racer extends EventEmitter {
  /** How many jobs the process has done so far. */
  done = 0
  /** Rejects when the process ends unexpectedly. */
  failure
  #process
  #mayEnd = false

  constructor(name, settings, timeline) {
    super()
    // Each awaited event has a listener, and several events are awaited at a time.
    this.setMaxListeners(0)
    this.name = name
    this.#process = fork(SCRIPT, [JSON.stringify({ ...settings, name })])
    this.failure = this.#watch()
    this.failure.catch(() => {})

    let waits = false
    this.#process.on('message', (message) => {
      const { event, at } = message
      if (event === 'done') this.done++
      // A waiting worker polls from time to time. Only its first 'waiting' is shown.
      if (TEXTS[event] && !(waits && event === 'waiting')) {
        timeline.event(at, name, TEXTS[event](message), event === 'working')
      }
      if (event === 'waiting' || event === 'working') waits = event === 'waiting'
      this.emit('event', message)
    })
  }

  async #watch() {
    const [code, signal] = await once(this.#process, 'exit')
    if (!this.#mayEnd) throw new Error(`${this.name} ended unexpectedly: ${signal ?? `exit code ${code}`}`)
    return new Promise(() => {})
  }

  /** Resolves with the next event called `name` for which `matches` holds. */
  next(name, matches = () => true) {
    return new Promise((resolve) => {
      const listener = (message) => {
        if (message.event !== name || !matches(message)) return
        this.off('event', listener)
        resolve(message)
      }
      this.on('event', listener)
    })
  }

  /** Tells the process to end its work, release the lock and exit. Resolves when it is gone. */
  async stop() {
    this.#mayEnd = true
    const gone = once(this.#process, 'exit')
    this.#process.send('stop')
    await gone
  }

  /**
   * Ends the process with SIGKILL, if it still runs. Resolves with the time of the signal when the
   * process is gone.
   */
  async kill() {
    this.#mayEnd = true
    const at = now()
    if (this.#process.exitCode === null && this.#process.signalCode === null) {
      this.#process.kill('SIGKILL')
      await once(this.#process, 'exit')
    }
    return at
  }
}
