// Reads what the commands of fixtures/cleaner.mjs wrote into one file.

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { until } from './clock.mjs'
import { atEnd } from './endings.mjs'
import { temporaryFolder } from './servers.mjs'

const CLEANER = fileURLToPath(new URL('../process/fixtures/cleaner.mjs', import.meta.url))
/** A time that is longer than any test, in ms. */
export const FOR_EVER = 600_000

export class Journal {
  #file

  constructor(t) {
    this.#file = join(temporaryFolder(t), 'journal')
    // A command that still runs must not outlive the test.
    atEnd(t, () => {
      for (const pid of new Set(this.#lines().map((line) => line.pid))) kill(pid)
    })
  }

  /**
   * Returns a command called `name`. It works for `work` ms or until SIGTERM, then cleans up for
   * `clean` ms.
   */
  command(name, { work = FOR_EVER, clean = 0 } = {}) {
    return [process.execPath, CLEANER, this.#file, name, String(work), String(clean)]
  }

  #lines() {
    if (!existsSync(this.#file)) return []
    const whole = readFileSync(this.#file, 'utf8').split('\n').slice(0, -1)
    return whole.map((line) => {
      const [name, pid, what, at] = line.split(' ')
      return { name, pid: Number(pid), what, at: Number(at) }
    })
  }

  /** Resolves with the first line of that kind, once it is written: { pid, at }. */
  seen(name, what) {
    const find = () => this.#lines().find((line) => line.name === name && line.what === what)
    return until(`${name} to ${what}`, find, 30_000)
  }

  /** Returns how often `name` wrote a line of that kind. */
  count(name, what) {
    return this.#lines().filter((line) => line.name === name && line.what === what).length
  }

  /** Returns when `name` began and ended, as far as that is known. */
  span(name) {
    const lines = this.#lines().filter((line) => line.name === name)
    return { begin: lines[0].at, end: lines.at(-1).at, ended: lines.at(-1).what === 'end' }
  }
}

function kill(pid) {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // The command is gone.
  }
}
