// Starts a teller's process, watches it, and answers its calls to the vault.

import { fork } from 'node:child_process'
import { EventEmitter, once } from 'node:events'
import { fileURLToPath } from 'node:url'

const SCRIPT = fileURLToPath(new URL('teller.mjs', import.meta.url))

/** Emits the events of its teller by name, and 'failure' if the teller can't continue. */
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

  /** Freezes the process, as if its machine stood still. */
  freeze = () => this.#process.kill('SIGSTOP')

  /** Lets the process continue where it was. It does not know how long it was frozen. */
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

  /** Ends the process at once, if it still runs. */
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
