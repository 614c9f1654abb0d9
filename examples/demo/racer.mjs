// A process of the demo, as seen from the one that conducts it.

import { fork } from 'node:child_process'
import { EventEmitter, once } from 'node:events'
import { fileURLToPath } from 'node:url'

const SCRIPT = fileURLToPath(new URL('worker.mjs', import.meta.url))

/** The clock that all processes of a host share, ms: times of different processes can be subtracted. */
export const now = () => Number(process.hrtime.bigint()) / 1e6

const TEXTS = {
  started: ({ pid }) => `started, pid ${pid}`,
  waiting: () => '· waits',
  working: ({ withoutLock }) => (withoutLock ? '● works without it' : '● has the lock'),
  done: ({ job }) => `│ job ${job} done`,
  released: () => '○ gave the lock back',
  lost: ({ message }) => `✗ ${message}`,
  error: ({ message }) => `! ${message}`,
}

/** Emits 'event' for everything that its process tells of itself: { event, at, … }. */
export class Racer extends EventEmitter {
  /** How many jobs it did so far. */
  done = 0
  /** Rejects when its process ends although nobody asked it to. */
  failure
  #process
  #mayEnd = false

  constructor(name, settings, timeline) {
    super()
    // One listener for each event that is awaited; there are several at a time.
    this.setMaxListeners(0)
    this.name = name
    this.#process = fork(SCRIPT, [JSON.stringify({ ...settings, name })])
    this.failure = this.#watch()
    this.failure.catch(() => {})

    let waits = false
    this.#process.on('message', (message) => {
      const { event, at } = message
      if (event === 'done') this.done++
      // A waiting worker looks again now and then; that it still waits is no news.
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
      const look = (message) => {
        if (message.event !== name || !matches(message)) return
        this.off('event', look)
        resolve(message)
      }
      this.on('event', look)
    })
  }

  /** Asks it to end its work, give the lock back and go. Resolves when it is gone. */
  async stop() {
    this.#mayEnd = true
    const gone = once(this.#process, 'exit')
    this.#process.send('stop')
    await gone
  }

  /** Ends it with SIGKILL, if it still runs. Resolves, when it is gone, with the time of the signal. */
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
