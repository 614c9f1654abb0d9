// The servers of examples/, started as their READMEs say.

import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { until, within } from './clock.mjs'
import { atEnd } from './endings.mjs'
import { freePort } from './ports.mjs'
import { npmEnv } from './programs.mjs'

/**
 * The pause between two requests for the state of a server, in ms. If this is larger, tests notice
 * a state later. If it is smaller, the requests keep two processes busy.
 */
export const EVERY = 50

const EXAMPLES = fileURLToPath(new URL('../../examples/', import.meta.url))

class ExampleServer {
  log = ''
  #process

  constructor(id, port, { folder, words, env }) {
    this.id = id
    this.url = `http://127.0.0.1:${port}`
    this.#process = spawn(process.execPath, ['server.mjs', ...words], {
      cwd: folder,
      env: { ...process.env, NODE_TEST_CONTEXT: undefined, PORT: String(port), WORKER_ID: id, JOB_MS: '20', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    for (const stream of [this.#process.stdout, this.#process.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        this.log += text
      })
    }
    this.ended = once(this.#process, 'close').then(([code, signal]) => signal ?? code)
  }

  listening() {
    return until(`${this.id} to listen`, () => {
      if (this.#process.exitCode !== null) throw new Error(`${this.id} ended:\n${this.log}`)
      return / server started /.test(this.log)
    })
  }

  async state() {
    return (await fetch(`${this.url}/state`)).json()
  }

  /** Resolves with the state when the worker of the server is in the state `wanted`. */
  reached(wanted) {
    const isReached = async () => {
      const state = await this.state()
      return state.server.state === wanted && state
    }
    return until(`${this.id} to be ${wanted}`, isReached, 20_000, EVERY)
  }

  post(body) {
    return fetch(`${this.url}/jobs`, { method: 'POST', headers: { 'content-type': 'application/json' }, body })
  }

  /** Stops the process. Its connections stay open. */
  freeze() {
    this.#process.kill('SIGSTOP')
  }

  thaw() {
    this.#process.kill('SIGCONT')
  }

  signal(name) {
    this.#process.kill(name)
    return within(`${this.id} to end`, this.ended)
  }
}

/** Returns the folder of an example, after its dependencies are installed. */
export function installExample(name) {
  const folder = join(EXAMPLES, name)
  if (!existsSync(join(folder, 'node_modules'))) {
    execFileSync('npm', ['install', '--no-audit', '--no-fund'], { cwd: folder, env: npmEnv(), stdio: 'inherit' })
  }
  return folder
}

/**
 * Starts a server of the example in `folder`, on `port` or a free one. The server ends with the
 * test. Resolves when it listens.
 */
export async function startExample(t, id, { folder, words = [], env, port }) {
  const server = new ExampleServer(id, port ?? (await freePort()), { folder, words, env })
  atEnd(t, () => server.signal('SIGKILL'))
  await server.listening()
  return server
}
