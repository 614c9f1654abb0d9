// Builds the image of examples/service, and starts its servers.

import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { within } from './clock.mjs'
import { atEnd } from './endings.mjs'
import { buildImage } from './image.mjs'
import { freePort } from './ports.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
export const SERVICE = join(ROOT, 'examples', 'service')
export const readService = (path) => readFileSync(join(SERVICE, path), 'utf8')

/** Packs this checkout as the README of the service says, and builds the image in `folder`. */
export async function buildService(folder) {
  const context = join(folder, 'context')
  cpSync(SERVICE, context, {
    recursive: true,
    filter: (path) => !/node_modules|dist$|\.tgz$/.test(path.slice(SERVICE.length)),
  })
  const env = { ...process.env, NODE_TEST_CONTEXT: undefined }
  await promisify(execFile)('npm', ['pack', '--ignore-scripts', '--pack-destination', context], { cwd: ROOT, env })
  return buildImage(context, join(folder, 'image'))
}

class Server {
  /** The lines of its log so far. */
  lines = []
  stderr = ''
  #process
  #waiting = new Set()

  constructor(image, name, port, env) {
    const [program, ...words] = image.command
    this.name = name
    this.url = `http://127.0.0.1:${port}`
    this.#process = spawn(program === 'node' ? process.execPath : program, words, {
      cwd: image.at('.'),
      env: { PATH: process.env.PATH, INSTANCE: name, PORT: String(port), ...image.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.#process.stderr.setEncoding('utf8').on('data', (text) => {
      this.stderr += text
    })
    createInterface(this.#process.stdout).on('line', (text) => {
      this.lines.push(JSON.parse(text))
      for (const look of this.#waiting) look()
    })
    /** Resolves to the server's exit code, or the signal that ended it. */
    this.ended = once(this.#process, 'close').then(([code, signal]) => signal ?? code)
  }

  get log() {
    return `${this.lines.map((line) => JSON.stringify(line)).join('\n')}\n${this.stderr}`
  }

  /** Returns the lines with that message. */
  all(message) {
    return this.lines.filter((line) => line.message === message)
  }

  /**
   * Resolves with the first line of that message and these `fields`. Rejects if the process ends
   * without it.
   */
  said(message, fields = {}) {
    const find = () =>
      this.all(message).find((line) => Object.entries(fields).every(([name, value]) => line[name] === value))
    const what = `${this.name}: ${message} ${JSON.stringify(fields)}`
    const line = new Promise((resolve, reject) => {
      const look = () => {
        const found = find()
        if (!found) return
        this.#waiting.delete(look)
        resolve(found)
      }
      this.#waiting.add(look)
      look()
      this.ended.then((how) => reject(new Error(`${what}: the server ended (${how})\n${this.log}`)))
    })
    return within(what, line)
  }

  signal(name) {
    this.#process.kill(name)
  }

  /** Resolves to the exit code or the signal of the server. */
  end(what = 'the end of the server') {
    return within(`${this.name}: ${what}`, this.ended)
  }

  pay(order) {
    return fetch(`${this.url}/orders/${order}/pay`, { method: 'POST' })
  }
}

/** Starts a server of `image`, which ends with the test. */
export async function launchServer(t, image, name, env) {
  const server = new Server(image, name, await freePort(), env)
  atEnd(t, () => {
    server.signal('SIGKILL')
    return server.end()
  })
  return server
}

/** Starts a server as `launchServer` does. Resolves when it listens. */
export async function startServer(t, image, name, env) {
  const server = await launchServer(t, image, name, env)
  await server.said('listening')
  return server
}

/**
 * Sends a GET without its last line. Returns a function that sends this line and resolves with the
 * text of the answer.
 */
export async function beginGet(t, url) {
  const { hostname, port, pathname } = new URL(url)
  const socket = connect(Number(port), hostname)
  atEnd(t, () => socket.destroy())
  await once(socket, 'connect')
  socket.write(`GET ${pathname} HTTP/1.1\r\nHost: test\r\n`)
  return async () => {
    socket.write('\r\n')
    return within('the answer and the end of the connection', text(socket))
  }
}

/** Returns the value of the series of a metric with these `labels`, or 0 if there is none. */
export function seriesValue(metrics, name, labels = {}) {
  const line = metrics.split('\n').find((each) => {
    const isOf = each.startsWith(`${name}{`) || each.startsWith(`${name} `)
    return isOf && Object.entries(labels).every(([label, value]) => each.includes(`${label}="${value}"`))
  })
  return Number(line?.split(' ').at(-1) ?? 0)
}
