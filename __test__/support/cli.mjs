// Runs the command `leasehold` as a process of its own, and reads its output.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { within } from './clock.mjs'
import { atEnd } from './endings.mjs'

export const CLI = fileURLToPath(new URL('../../dist/cli/index.js', import.meta.url))

class Run {
  stdout = ''
  stderr = ''
  #heard = new Set()

  constructor(file, args, env, stdin) {
    const clean = { ...process.env, NODE_TEST_CONTEXT: undefined, FORCE_COLOR: undefined, LEASEHOLD_URL: undefined }
    this.process = spawn(file, args, {
      env: { ...clean, REDIS_URL: undefined, ...env },
      stdio: [stdin, 'pipe', 'pipe'],
    })
    this.pid = this.process.pid
    for (const name of ['stdout', 'stderr']) {
      this.process[name].setEncoding('utf8').on('data', (text) => {
        this[name] += text
        for (const hear of this.#heard) hear()
      })
    }
    /**
     * Resolves to { code, signal } when the process itself is gone, even if its children still run.
     */
    this.exited = once(this.process, 'exit').then(([code, signal]) => ({ code, signal }))
    /** Resolves to the same with all output, once no process can write more. */
    this.ended = once(this.process, 'close').then(([code, signal]) => {
      for (const hear of this.#heard) hear()
      return { code, signal, stdout: this.stdout, stderr: this.stderr }
    })
  }

  /** Resolves to the match when standard output, or the named stream, matches `pattern`. */
  says(pattern, name = 'stdout') {
    const said = new Promise((resolve, reject) => {
      const hear = () => {
        const match = pattern.exec(this[name])
        if (match) {
          this.#heard.delete(hear)
          resolve(match)
        }
      }
      this.#heard.add(hear)
      hear()
      this.ended.then(() => reject(new Error(`ended without ${pattern}\n${this.stdout}\n${this.stderr}`)))
    })
    return within(`${pattern}`, said, 20_000)
  }

  signal(name) {
    process.kill(this.pid, name)
  }
}

/** Starts any program, which is killed when the test is over. */
export function start(t, file, args, env = {}, stdin = 'ignore') {
  const run = new Run(file, args, env, stdin)
  atEnd(t, async () => {
    run.process.kill('SIGKILL')
    await run.exited
  })
  return run
}

/** Starts `leasehold` with these words. */
export const leasehold = (t, words, env) => start(t, process.execPath, [CLI, ...words], env)

/** Runs `leasehold` until it ends. */
export const run = (t, words, env) => within(`leasehold ${words.join(' ')}`, leasehold(t, words, env).ended, 30_000)

/** Kills a process, or with a minus its group, unless it has ended. */
export function killIfThere(pid) {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if (error.code !== 'ESRCH') throw error
  }
}

/** Returns true if a process with that id runs. A zombie does not count. */
export function isThere(pid) {
  try {
    process.kill(pid, 0)
    if (process.platform !== 'linux') return true
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}
