// A teller's process, as seen from the one that watches, and the vault's answers to it.

import { fork } from 'node:child_process'
import { EventEmitter, once } from 'node:events'
import { fileURLToPath } from 'node:url'

const SCRIPT = fileURLToPath(new URL('teller.mjs', import.meta.url))

/** Emits what its teller tells, under the event's name; 'failure' if it can't go on. */
export class Clerk extends EventEmitter {
  #process

  constructor(settings, vault) {
    super()
    this.name = settings.name
    this.#process = fork(SCRIPT, [JSON.stringify(settings)])
    this.#process.on('message', ({ ask, id, words, event, ...details }) => {
      if (event === 'given up') this.emit('failure', new Error(details.message))
      else if (event) this.emit(event, details)
      else this.#process.send({ id, ...answerOf(() => vault[ask](...words)) })
    })
    this.#process.on('exit', (code, signal) => {
      if (code !== 0)
        this.emit('failure', new Error(`${this.name} ended unexpectedly: ${signal ?? `exit code ${code}`}`))
    })
  }

  order = (order) => this.#process.send({ order })

  /** As if its machine stood still. */
  freeze = () => this.#process.kill('SIGSTOP')

  /** Goes on where it was, and knows nothing of the time between. */
  thaw() {
    this.#process.kill('SIGCONT')
    this.#process.send({})
  }

  async end() {
    if (this.#process.exitCode !== null) return
    const gone = once(this.#process, 'exit')
    this.#process.send({ end: true })
    await gone
  }

  /** Ends it at once, if it still runs. */
  kill() {
    this.#process.removeAllListeners('exit')
    this.#process.kill('SIGKILL')
  }
}

function answerOf(call) {
  try {
    return { answer: call() ?? null }
  } catch ({ name, message }) {
    return { error: { name, message } }
  }
}
