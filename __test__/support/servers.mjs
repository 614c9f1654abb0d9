// Real servers for tests: Redis on a free port of 127.0.0.1, and servers that aren't Redis.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { now, sleep } from './clock.mjs'
import { atEnd } from './endings.mjs'
import { openResp } from './resp.mjs'

/** A temporary folder that is gone when the test is over. */
export function temporaryFolder(t) {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-test-'))
  atEnd(t, () => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }))
  return folder
}

/** A port of 127.0.0.1 on which nobody listens. */
export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  server.close()
  await once(server, 'close')
  return port
}

// The shell ends its server when our end of its stdin closes, which the kernel sees to however we die.
export const GUARD = '"$@" & server=$!; echo "$server"; read -r _; kill -KILL "$server" 2>/dev/null; wait'

class RedisServer {
  #guard
  #gone

  constructor(port, folder, settings) {
    this.port = port
    this.folder = folder
    this.settings = settings
    this.socket = settings.unixsocket ? join(folder, 'redis.sock') : undefined
    this.password = settings.password
    this.user = settings.user
  }

  /** The store's URL as a user of the library would write it. `login` is 'user:password' or ''. */
  url(login = this.password ? `:${encodeURIComponent(this.password)}` : '') {
    return `redis://${login ? `${login}@` : ''}127.0.0.1:${this.port}`
  }

  async start(...extra) {
    const { password, user, replicaOf, args = [] } = this.settings
    const words = ['--port', this.port, '--bind', '127.0.0.1', '--dir', this.folder, '--save', '', '--appendonly', 'no']
    if (password) words.push('--requirepass', password)
    if (user) words.push('--user', user.name, 'on', `>${user.password}`, ...(user.rules ?? '~* &* +@all').split(' '))
    if (this.socket) words.push('--unixsocket', this.socket, '--unixsocketperm', '700')
    if (replicaOf) words.push('--replicaof', '127.0.0.1', replicaOf)
    // A master waits five seconds for more replicas before it sends them what it has.
    words.push('--repl-diskless-sync-delay', 0, ...args, ...extra)
    const program = process.env.REDIS_SERVER ?? 'redis-server'
    this.#guard = spawn('/bin/sh', ['-c', GUARD, 'guard', program, ...words.map(String)], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    this.#guard.stdin.on('error', () => {})
    this.#gone = once(this.#guard, 'exit')
    let log = ''
    this.#guard.stdout.setEncoding('utf8')
    const firstLine = new Promise((resolve) => {
      this.#guard.stdout.on('data', (text) => {
        if (!log.includes('\n') && (log + text).includes('\n')) resolve((log + text).split('\n')[0])
        log = (log + text).slice(-8_000)
      })
    })
    this.pid = Number(await firstLine)
    const end = now() + 20_000
    for (;;) {
      try {
        await (await this.command()).close()
        return this
      } catch (error) {
        if (now() > end || this.#guard.exitCode !== null)
          throw new Error(`Redis did not start: ${error.message}\n${log}`)
        await sleep(10)
      }
    }
  }

  /** A connection of ours, logged in, that has seen an answer. LOADING counts as one. */
  async command() {
    const login = this.password ? [this.password] : []
    const command = await openResp({ port: this.port })
    try {
      if (login.length) await command('AUTH', ...login)
      await command('PING')
    } catch (error) {
      if (!/^(LOADING|NOAUTH|MASTERDOWN)/.test(error.message)) {
        command.close()
        throw error
      }
    }
    return command
  }

  /** Stops answering, as a machine does whose power or network fails: nothing is closed. */
  freeze() {
    process.kill(this.pid, 'SIGSTOP')
  }

  thaw() {
    process.kill(this.pid, 'SIGCONT')
  }

  async kill() {
    if (!this.#guard) return
    this.#guard.stdin.destroy()
    await this.#gone
    this.#guard = undefined
  }

  /** Kills the server, if it runs, and starts it on the same port with nothing in it. */
  async restartEmpty() {
    await this.kill()
    rmSync(join(this.folder, 'dump.rdb'), { force: true })
    await this.start()
  }
}

/**
 * Starts a Redis server that ends with the test (or with this process, however that ends).
 * Settings: password, user: { name, password, rules }, unixsocket: true, replicaOf: port, port, args.
 */
export async function startRedis(t, settings = {}) {
  const folder = temporaryFolder(t)
  const server = new RedisServer(settings.port ?? (await freePort()), folder, settings)
  atEnd(t, () => server.kill())
  return server.start()
}

/** A TCP server that isn't Redis: `talk(socket)` says what it does with a connection. Returns its port. */
export async function startTcp(t, talk) {
  const sockets = new Set()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    socket.on('error', () => {})
    talk(socket)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  atEnd(t, () => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return server.address().port
}
