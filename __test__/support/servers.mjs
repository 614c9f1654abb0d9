// Real servers for tests: Redis on a free port of 127.0.0.1, and servers that aren't Redis.

import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { now, sleep } from './clock.mjs'
import { atEnd } from './endings.mjs'
import { freePort } from './ports.mjs'
import { findRedis } from './redis-server.mjs'
import { openResp } from './resp.mjs'
import { ServerProcess } from './server-process.mjs'
import { tlsWords } from './tls.mjs'

/** Creates a temporary folder that is removed when the test is over. */
export function temporaryFolder(t) {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-test-'))
  atEnd(t, () => removeFolder(folder))
  return folder
}

/**
 * Removes a folder. Meanwhile, a process that the test has killed, or its guard, may write its last
 * file. `rmSync` does not look for such files, so this function calls it again.
 */
function removeFolder(folder) {
  for (let tries = 10; ; tries--) {
    try {
      rmSync(folder, { recursive: true, force: true, maxRetries: 1 })
      return
    } catch (error) {
      if (error.code !== 'ENOTEMPTY' || tries === 0) throw error
    }
  }
}

class RedisServer extends ServerProcess {
  constructor(port, folder, settings) {
    super()
    this.port = port
    this.folder = folder
    this.settings = settings
    this.socket = settings.unixsocket ? join(folder, 'redis.sock') : undefined
    this.password = settings.password
    this.user = settings.user
    this.tls = settings.tls
  }

  /**
   * Returns the store's URL as a user of the library would write it. `login` is 'user:password' or
   * ''.
   */
  url(login = this.password ? `:${encodeURIComponent(this.password)}` : '') {
    return `${this.tls ? 'rediss' : 'redis'}://${login ? `${login}@` : ''}127.0.0.1:${this.port}`
  }

  #words() {
    const { password, user, replicaOf, keep = false, sentinel, args = [] } = this.settings
    const words = [this.tls ? '--tls-port' : '--port', this.port, '--bind', '127.0.0.1', '--dir', this.folder]
    if (this.tls) words.push('--port', 0, '--tls-replication', 'yes', ...tlsWords(this.tls))
    // A sentinel stores what it has learned in its file, which has to exist.
    if (sentinel) return [sentinel, '--sentinel', ...words, ...args]
    words.push('--save', '', '--appendonly', keep ? 'yes' : 'no', '--appendfsync', 'always')
    if (password) words.push('--requirepass', password)
    if (user) words.push('--user', user.name, 'on', `>${user.password}`, ...(user.rules ?? '~* &* +@all').split(' '))
    if (this.socket) words.push('--unixsocket', this.socket, '--unixsocketperm', '700')
    if (replicaOf) words.push('--replicaof', '127.0.0.1', replicaOf)
    // By default, a master waits five seconds for more replicas before it sends them its data.
    return [...words, '--repl-diskless-sync-delay', 0, ...args]
  }

  async start(...extra) {
    const program = findRedis()
    if (!program) throw new Error('no redis-server was found: npm test installs one, REDIS_SERVER names one')
    await this.launch(program, [...this.#words(), ...extra])
    const end = now() + 20_000
    for (;;) {
      try {
        await (await this.command()).close()
        return this
      } catch (error) {
        if (now() > end || !this.isLaunched) throw new Error(`Redis did not start: ${error.message}\n${this.log}`)
        await sleep(10)
      }
    }
  }

  /** Opens a connection, logged in, that has had a reply. LOADING counts as one. */
  async command() {
    const login = this.password ? [this.password] : []
    const command = await openResp({ port: this.port, tls: this.tls })
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

  /** Sends one command, on a new connection. Waits until the server has loaded its data. */
  async ask(...words) {
    const command = await this.command()
    try {
      for (;;) {
        try {
          return await command(...words)
        } catch (error) {
          if (!error.message.startsWith('LOADING')) throw error
          await sleep(10)
        }
      }
    } finally {
      command.close()
    }
  }

  /** Kills the server, if it runs, and starts it on the same port with its data (see `keep`). */
  async restart() {
    await this.kill()
    return this.start()
  }

  /** Removes the data that a killed server would load when it starts again. */
  forget() {
    rmSync(join(this.folder, 'dump.rdb'), { force: true })
    rmSync(join(this.folder, 'appendonlydir'), { recursive: true, force: true })
    rmSync(join(this.folder, 'appendonly.aof'), { force: true })
  }

  /** Kills the server, if it runs, and starts it on the same port without data. */
  async restartEmpty() {
    await this.kill()
    this.forget()
    await this.start()
  }
}

/**
 * Starts a Redis server that ends with the test (or with this process, no matter how it ends).
 * Settings: password, user: { name, password, rules }, unixsocket: true, replicaOf: port, port,
 * args, keep: true (each write is on disk before its reply), tls: { ca, cert, key, clients }
 * (files; see tls.mjs), sentinel (its file).
 */
export async function startRedis(t, settings = {}) {
  const folder = temporaryFolder(t)
  const server = new RedisServer(settings.port ?? (await freePort()), folder, settings)
  atEnd(t, () => server.kill())
  return server.start()
}

/** Starts a TCP server that isn't Redis. `talk(socket)` serves a connection. Returns the port. */
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
