// Unusable servers: each error gives its reason, comes within the time-outs, and shows no password.

import assert from 'node:assert/strict'
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { inspect } from 'node:util'
import { createLockClient, LockError, LockTimeoutError, StoreUnavailableError } from 'leasehold'
import { timed, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { freePort } from '../support/ports.mjs'
import { startRedis, startTcp, temporaryFolder } from '../support/servers.mjs'

const SECRET = 'hunter2-is-a-secret'
const STORE_TIMEOUT = 400
const WAIT = 600
// The time-outs of the connection and of the reply, and a margin for a busy machine.
const BOUND = 2 * STORE_TIMEOUT + 3_000

/** Checks that every method rejects with one of `reasons`, in time, and shows no password. */
async function unusable(t, options, ...reasons) {
  const locks = createLockClient({ storeTimeout: STORE_TIMEOUT, ...options })
  atEnd(t, () => locks.close())
  const methods = {
    ready: () => locks.ready(),
    tryAcquire: () => locks.tryAcquire('k'),
    acquire: () => locks.acquire('k', { wait: WAIT }),
    inspect: () => locks.inspect('k'),
    withLock: () => locks.withLock('k', () => assert.fail('the section ran without a lock')),
  }
  const outcomes = await Promise.all(
    Object.entries(methods).map(async ([method, call]) => [method, await within(method, timed(call), 60_000)]),
  )
  for (const [method, { ms, error }] of outcomes) {
    assert.ok(error instanceof StoreUnavailableError && error instanceof LockError, `${method}: ${error?.stack}`)
    assert.equal(error.code, 'ERR_STORE_UNAVAILABLE')
    assert.equal(error.name, 'StoreUnavailableError')
    assert.ok(reasons.includes(error.reason), `${method}: ${error.reason}: ${error.message}`)
    assert.ok(error.message.length > 10)
    assert.ok(!inspect(error, { showHidden: true, depth: 5 }).includes(SECRET), error.stack)
    const bound = method === 'acquire' ? WAIT + BOUND : method === 'withLock' ? 10_000 + BOUND : BOUND
    assert.ok(ms < bound, `${method} took ${ms} ms`)
  }
  assert.ok(!inspect(locks, { showHidden: true, depth: 10 }).includes(SECRET))
  await locks.close()
}

describe('bad servers', { timeout: 240_000 }, () => {
  test('a wrong password is reported as denied', async (t) => {
    const server = await startRedis(t, { password: 'right' })
    await unusable(t, { store: server.url(`:${SECRET}`), wait: 100 }, 'denied')
  })

  test('a missing password is reported as denied', async (t) => {
    const server = await startRedis(t, { password: 'right' })
    await unusable(t, { store: server.url(''), wait: 100 }, 'denied')
  })

  test('a wrong user is reported as denied', async (t) => {
    const server = await startRedis(t, { password: 'right' })
    await unusable(t, { store: server.url(`nobody:${SECRET}`), wait: 100 }, 'denied')
  })

  test('a user without permission for scripts is reported as denied', async (t) => {
    const server = await startRedis(t, {
      user: { name: 'reader', password: SECRET, rules: '~* &* +@read +@connection' },
    })
    await unusable(t, { store: server.url(`reader:${SECRET}`), wait: 100 }, 'denied')
  })

  test('a user without permission for the keys of locks is reported as denied', async (t) => {
    const server = await startRedis(t, { user: { name: 'other', password: SECRET, rules: '~other:* &* +@all' } })
    const locks = createLockClient({ store: server.url(`other:${SECRET}`) })
    atEnd(t, () => locks.close())
    await assert.rejects(locks.acquire('k', { wait: 5_000 }), (error) => {
      assert.ok(error instanceof StoreUnavailableError, error.stack)
      assert.equal(error.reason, 'denied')
      return !inspect(error).includes(SECRET)
    })
  })

  test('a closed port is reported as unreachable', async (t) => {
    await unusable(t, { store: `redis://:${SECRET}@127.0.0.1:${await freePort()}`, wait: 100 }, 'unreachable')
  })

  test('a host name that does not resolve is reported as unreachable or a time-out', async (t) => {
    await unusable(t, { store: `redis://:${SECRET}@no-such-host.invalid:6379`, wait: 100 }, 'unreachable', 'timeout')
  })

  test('a server that accepts connections and never replies is reported as a time-out', async (t) => {
    const port = await startTcp(t, (socket) => socket.resume())
    await unusable(t, { store: `redis://:${SECRET}@127.0.0.1:${port}`, wait: 100 }, 'timeout')
  })

  test('a server that closes its connections is reported as unreachable', async (t) => {
    const port = await startTcp(t, (socket) => socket.end())
    await unusable(t, { store: `redis://:${SECRET}@127.0.0.1:${port}`, wait: 100 }, 'unreachable')
  })

  test('a web server is reported as unsupported', async (t) => {
    const port = await startTcp(t, (socket) =>
      socket.once('data', () => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n')),
    )
    await unusable(t, { store: `redis://:${SECRET}@127.0.0.1:${port}`, wait: 100 }, 'unsupported')
  })

  test('a server that sends endless garbage is reported as unsupported', async (t) => {
    const port = await startTcp(t, (socket) => socket.on('data', () => socket.write(Buffer.alloc(4_096, 0xff))))
    await unusable(t, { store: `redis://:${SECRET}@127.0.0.1:${port}`, wait: 100 }, 'unsupported')
  })

  test('a read-only replica is reported as readonly', async (t) => {
    const master = await startRedis(t)
    const replica = await startRedis(t, { replicaOf: master.port })
    const redis = await replica.command()
    await until('the replica to follow', async () => /master_link_status:up/.test(await redis('INFO', 'replication')))
    const locks = createLockClient({ store: replica.url() })
    atEnd(t, () => locks.close())
    for (const call of [() => locks.tryAcquire('k'), () => locks.acquire('k', { wait: 300 })]) {
      const { error, ms } = await timed(call)
      assert.ok(error instanceof StoreUnavailableError, error?.stack)
      assert.equal(error.reason, 'readonly')
      assert.ok(ms < BOUND)
    }
  })

  test('a server without free memory is reported as full', async (t) => {
    const server = await startRedis(t, { args: ['--maxmemory', '1', '--maxmemory-policy', 'noeviction'] })
    const locks = createLockClient({ store: server.url() })
    atEnd(t, () => locks.close())
    const { error, ms } = await timed(() => locks.acquire('k', { wait: 300 }))
    assert.ok(error instanceof StoreUnavailableError, error?.stack)
    assert.equal(error.reason, 'full')
    assert.ok(ms < 300 + BOUND)
  })

  test('a server that loads its data is reported as loading, and acquire waits for it', async (t) => {
    const server = await startRedis(t, { args: ['--enable-debug-command', 'yes'] })
    const redis = await server.command()
    await redis('DEBUG', 'POPULATE', 8_000)
    await redis('SAVE')
    await server.kill()
    // Loading takes 4 s, half a ms for each of 8 000 keys. The server replies in between, often
    // enough for a few round trips.
    await server.start('--key-load-delay', '500', '--loading-process-events-interval-bytes', '1024')
    const locks = createLockClient({ store: server.url() })
    atEnd(t, () => locks.close())
    await assert.rejects(locks.tryAcquire('k'), (error) => {
      assert.ok(error instanceof StoreUnavailableError, error.stack)
      assert.equal(error.reason, 'loading')
      return true
    })
    const lease = await locks.acquire('k', { wait: 60_000 })
    assert.equal(lease.isHeld, true, 'acquire waits until the server has loaded')
  })

  test('a missing unix socket is reported as unreachable', async (t) => {
    await unusable(t, { store: `redis+unix://${join(temporaryFolder(t), 'none.sock')}`, wait: 100 }, 'unreachable')
  })

  test('a database number that the server does not have is reported as unsupported', async (t) => {
    const server = await startRedis(t)
    await unusable(t, { store: `${server.url()}/9999`, wait: 100 }, 'unsupported')
  })

  test('sqlite: a missing folder is reported as unreachable', async (t) => {
    await unusable(t, { store: `sqlite:${join(temporaryFolder(t), 'none', 'locks.db')}`, wait: 100 }, 'unreachable')
  })

  test('sqlite: a folder instead of a file is reported as unreachable or unsupported', async (t) => {
    const path = join(temporaryFolder(t), 'locks.db')
    mkdirSync(path)
    await unusable(t, { store: `sqlite:${path}`, wait: 100 }, 'unreachable', 'unsupported')
  })

  test('sqlite: a file that is not a database is reported as unsupported', async (t) => {
    const path = join(temporaryFolder(t), 'letter.txt')
    writeFileSync(path, 'Dear reader, '.repeat(1_000))
    await unusable(t, { store: `sqlite:${path}`, wait: 100 }, 'unsupported')
  })

  const asRoot = process.getuid?.() === 0
  test('sqlite: a folder without write permission is reported', {
    skip: asRoot && 'root may write everywhere',
  }, async (t) => {
    const folder = join(temporaryFolder(t), 'closed')
    mkdirSync(folder)
    chmodSync(folder, 0o500)
    await unusable(t, { store: `sqlite:${join(folder, 'locks.db')}`, wait: 100 }, 'denied', 'unreachable', 'readonly')
  })

  test('acquire rejects with StoreUnavailableError only if its last request failed', async (t) => {
    const server = await startRedis(t)
    const [a, b] = [1, 2].map(() => createLockClient({ store: server.url(), storeTimeout: STORE_TIMEOUT }))
    atEnd(t, () => Promise.all([a.close(), b.close()]))
    await a.acquire('k')
    await assert.rejects(b.acquire('k', { wait: 200 }), LockTimeoutError)
    await server.kill()
    await assert.rejects(b.acquire('k', { wait: 200 }), StoreUnavailableError)
    await server.start()
    const lease = await within('the reconnection', b.acquire('k', { wait: 20_000 }))
    assert.equal(lease.isHeld, true, 'the client reconnects by itself')
  })

  test('acquire gets the lock from a server that starts while it waits', async (t) => {
    const server = await startRedis(t)
    await server.kill()
    const locks = createLockClient({ store: server.url(), storeTimeout: STORE_TIMEOUT })
    atEnd(t, () => locks.close())
    const waiting = locks.acquire('k', { wait: 60_000 })
    await assert.rejects(locks.tryAcquire('k'), StoreUnavailableError)
    await server.start()
    assert.equal((await waiting).isHeld, true)
  })
})
