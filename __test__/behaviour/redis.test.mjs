// Tests of Redis alone: the keys of a lease, changes by other clients, and ways to connect.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, before, describe, test } from 'node:test'
import { createLockClient, LockTimeoutError, StoreUnavailableError } from 'leasehold'
import { until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { aborted, lost } from '../support/leases.mjs'
import { keysWithTtl } from '../support/resp.mjs'
import { startRedis } from '../support/servers.mjs'

const clientOf = (t, store, options = {}) => {
  const client = createLockClient({ store, ...options })
  atEnd(t, () => client.close())
  return client
}

describe('redis', { timeout: 120_000 }, () => {
  const endings = []
  let server
  let redis
  before(async () => {
    server = await startRedis({ after: (ending) => endings.push(ending) })
    redis = await server.command()
  })
  after(async () => {
    for (const ending of endings.reverse()) await ending()
  })

  test('a lease is a string key with its token and ttl, and its fence is another key that expires', async (t) => {
    const key = randomUUID()
    const lease = await clientOf(t, server.url()).acquire(key, { ttl: 20_000 })
    assert.equal(await redis('GET', `lock:${key}`), lease.token)
    const ttl = await redis('PTTL', `lock:${key}`)
    assert.ok(ttl > 10_000 && ttl <= 20_000, `${ttl}`)
    assert.ok((await redis('PTTL', `{lock:${key}}:fence`)) > 0)
    await lease.release()
    assert.equal(await redis('GET', `lock:${key}`), null)
  })

  test('a lock of another library (SET NX PX) and a lease exclude each other', async (t) => {
    const locks = clientOf(t, server.url())
    const key = randomUUID()
    await redis('SET', `lock:${key}`, 'foreign', 'NX', 'PX', 800)
    assert.equal(await locks.tryAcquire(key), null)
    const info = await locks.inspect(key)
    assert.equal(info.holder ?? null, null)
    assert.equal(info.fence ?? null, null)
    assert.ok(info.remaining > 0 && info.remaining <= 800)
    const lease = await locks.acquire(key, { wait: 20_000 })
    assert.equal(await redis('SET', `lock:${key}`, 'foreign', 'NX', 'PX', 800), null)
    assert.equal(await lease.release(), true)
  })

  test('acquire waits for a foreign lock without expiry until its wait ends', async (t) => {
    const locks = clientOf(t, server.url())
    const key = randomUUID()
    await redis('SET', `lock:${key}`, 'foreign')
    await assert.rejects(locks.acquire(key, { wait: 200 }), LockTimeoutError)
    const waiting = locks.acquire(key, { wait: 20_000 })
    await redis('DEL', `lock:${key}`)
    assert.equal((await waiting).isHeld, true)
  })

  test('if the key is deleted, the lease is lost (missing), and the client does not acquire it again', async (t) => {
    const key = randomUUID()
    const lease = await clientOf(t, server.url()).acquire(key, { ttl: 900 })
    await redis('DEL', `lock:${key}`)
    await aborted(lease)
    lost('missing')(lease.signal.reason)
    assert.equal(lease.isHeld, false)
    assert.equal(await redis('GET', `lock:${key}`), null)
  })

  test('if the key is overwritten, the lease is lost (taken), and the client does not change the key', async (t) => {
    const key = randomUUID()
    const lease = await clientOf(t, server.url()).acquire(key, { ttl: 900 })
    await redis('SET', `lock:${key}`, 'foreign', 'PX', 60_000)
    await aborted(lease)
    lost('taken')(lease.signal.reason)
    assert.equal(await lease.release(), false)
    assert.equal(await redis('GET', `lock:${key}`), 'foreign')
  })

  test('renew() also reports a deleted or overwritten key', async (t) => {
    const locks = clientOf(t, server.url())
    const [deleted, taken] = [randomUUID(), randomUUID()]
    const leases = await Promise.all([locks.acquire(deleted), locks.acquire(taken)])
    await redis('DEL', `lock:${deleted}`)
    await redis('SET', `lock:${taken}`, 'foreign', 'PX', 60_000)
    await assert.rejects(leases[0].renew(), lost('missing'))
    await assert.rejects(leases[1].renew(), lost('taken'))
    assert.equal(leases[0].isHeld || leases[1].isHeld, false)
  })

  test('the client loads scripts again after SCRIPT FLUSH', async (t) => {
    const locks = clientOf(t, server.url())
    const key = randomUUID()
    const lease = await locks.acquire(key)
    await redis('SCRIPT', 'FLUSH')
    await lease.renew()
    await redis('SCRIPT', 'FLUSH')
    assert.equal((await locks.inspect(key)).fence, lease.fence)
    await redis('SCRIPT', 'FLUSH')
    assert.equal(await lease.release(), true)
    await redis('SCRIPT', 'FLUSH')
    assert.ok(await locks.tryAcquire(key))
  })

  test('the client reconnects after a lost connection, and the lease is held', async (t) => {
    const locks = clientOf(t, server.url())
    const lease = await locks.acquire(randomUUID(), { ttl: 3_000 })
    for (let i = 0; i < 5; i++) {
      await redis('CLIENT', 'KILL', 'SKIPME', 'yes')
      await until(
        'the connection',
        () =>
          lease.renew().then(
            () => true,
            () => false,
          ),
        10_000,
      )
    }
    assert.equal(lease.isHeld, true)
    assert.equal(await lease.release(), true)
  })

  test('a key of another type is reported as wrongtype', async (t) => {
    const key = randomUUID()
    await redis('RPUSH', `lock:${key}`, 'a', 'list')
    await assert.rejects(clientOf(t, server.url()).acquire(key, { wait: 5_000 }), (error) => {
      assert.ok(error instanceof StoreUnavailableError, String(error))
      assert.equal(error.reason, 'wrongtype')
      return true
    })
    await redis('DEL', `lock:${key}`)
  })

  test('the same key in another database is another lock', async (t) => {
    const key = randomUUID()
    const leases = await Promise.all(
      ['/0', '/1', '/15', ''].map((db) => clientOf(t, `${server.url()}${db}`).tryAcquire(key)),
    )
    assert.deepEqual(leases.map(Boolean).filter((got) => got).length, 3, 'no number means database 0')
  })

  test('10 000 keys locked and released leave no key that does not expire', async (t) => {
    const fresh = await startRedis(t)
    const locks = clientOf(t, fresh.url(), { ttl: 30_000, wait: 60_000 })
    const redis = await fresh.command()
    for (let batch = 0; batch < 10; batch++) {
      await Promise.all(
        Array.from({ length: 1_000 }, async (_, i) => {
          const lease = await locks.acquire(`key-${batch}-${i}`)
          assert.equal(await lease.release(), true)
        }),
      )
    }
    const keys = await keysWithTtl(redis)
    assert.deepEqual(
      keys.filter(([, ttl]) => ttl === -1),
      [],
    )
    assert.deepEqual(
      keys.filter(([key]) => !key.endsWith(':fence')),
      [],
      'only the fences of the leases are left',
    )
  })
})

describe('redis: ways to connect', { timeout: 120_000 }, () => {
  const assertUsable = async (t, options) => {
    const locks = clientOf(t, options.store, options)
    await locks.ready()
    const lease = await locks.acquire(randomUUID())
    assert.equal(await lease.release(), true)
  }

  test('a password, or a user and a password, may be in the URL or in the options', async (t) => {
    const password = 'p@ss:w/rd?#%'
    const server = await startRedis(t, { password, user: { name: 'al:ice', password: 'S3cret/' } })
    const base = `127.0.0.1:${server.port}`
    const [p, u] = [password, 'al:ice'].map(encodeURIComponent)
    await assertUsable(t, { store: `redis://:${p}@${base}` })
    await assertUsable(t, { store: `redis://default:${p}@${base}/2` })
    await assertUsable(t, { store: `redis://${u}:${encodeURIComponent('S3cret/')}@${base}` })
    await assertUsable(t, { store: `redis://${base}`, password })
    await assertUsable(t, { store: `redis://${base}`, username: 'al:ice', password: 'S3cret/' })
  })

  test('a URL may name a unix socket and a database', async (t) => {
    const server = await startRedis(t, { unixsocket: true })
    await assertUsable(t, { store: `redis+unix://${server.socket}` })
    await assertUsable(t, { store: `redis+unix://${server.socket}?db=3` })
  })

  test('a URL may have the name of a host', async (t) => {
    const server = await startRedis(t)
    await assertUsable(t, { store: `redis://localhost:${server.port}` })
  })
})
