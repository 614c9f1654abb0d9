// Loss is known in time, and ambiguity is cleaned up, while Redis is frozen or killed.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { describe, test } from 'node:test'
import { createLockClient, LockAbortedError, LockTimeoutError, StoreUnavailableError } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { now, sleep, timed, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { aborted, lost } from '../support/leases.mjs'
import { startRelay } from '../support/relay.mjs'
import { startRedis } from '../support/servers.mjs'

const TTL = 2_000

const clientOf = (t, store, options = {}) => {
  const client = createLockClient({ store, ...options })
  atEnd(t, () => client.close())
  return client
}

/** Blocks the event loop until `end`. */
function blockUntil(end) {
  while (now() < end);
}

// Each test waits for time to pass, with a server of its own.
describe('process: redis outage', { concurrency: 3, timeout: 240_000 }, () => {
  test('Redis frozen (SIGSTOP) for 3 ttls: the loss is known one ttl after the last renewal was sent', async (t) => {
    const server = await startRedis(t)
    const relay = await startRelay(t, server.port)
    const key = randomUUID()
    const holder = startChild(t, 'holder.mjs', { store: `redis://127.0.0.1:${relay.port}`, key, ttl: TTL })
    await holder.next('held')
    const granted = relay.sent
    await until('a renewal', () => relay.sent > granted)
    holder.tell('watch')
    const frozen = now()
    server.freeze()
    const watched = await holder.next('watch')
    const reported = await holder.next('aborted')
    const { sent } = relay

    assert.ok(sent <= frozen + 5, 'a renewal was answered after the freeze')
    assert.ok(
      watched.lastTrue <= sent + TTL,
      `isHeld read true ${watched.lastTrue - sent} ms after the last renewal was sent`,
    )
    assert.ok(watched.lastTrue >= sent + TTL / 2, 'the holder gave up early')
    // The signal is an event: it can be as late as the event loop, but not later.
    assert.ok(
      reported.at <= sent + TTL + watched.lag + 30,
      `the signal came ${reported.at - sent} ms after, lag ${watched.lag}`,
    )
    assert.equal(reported.error.reason, 'expired')
    assert.equal(reported.isHeld, false)

    await sleep(Math.max(0, frozen + 3 * TTL - now()))
    assert.equal((await holder.ask('look')).isHeld, false)
    server.thaw()
    const rival = await server.command()
    assert.equal(
      await rival('SET', `lock:${key}`, 'rival', 'NX', 'PX', 60_000),
      'OK',
      'the store knows no lease, either',
    )
    assert.equal((await holder.ask('release')).released, false)
    assert.equal(await rival('GET', `lock:${key}`), 'rival')
  })

  test('Redis thawed in the moment of expiry: no other client gets the lock before the holder knows', async (t) => {
    const server = await startRedis(t)
    const rival = await server.command()
    for (let round = 0; ; round++) {
      assert.ok(round < 10, 'a renewal came in every round')
      const key = randomUUID()
      const holder = startChild(t, 'holder.mjs', { store: server.url(), key, ttl: TTL })
      await holder.next('held')
      holder.tell('watch')
      const expiry = now() + (await rival('PTTL', `lock:${key}`))
      server.freeze()
      // The request lies in the server's buffer. The server executes it as soon as it runs again.
      const asked = rival('SET', `lock:${key}`, 'rival', 'NX', 'PX', 60_000)
      await sleep(expiry + 3 - now())
      const thawed = now()
      server.thaw()
      if ((await asked) !== 'OK') {
        await holder.kill()
        continue
      }
      const watched = await holder.next('watch')
      assert.ok(
        watched.lastTrue < thawed,
        `isHeld read true ${watched.lastTrue - thawed} ms after the rival could get in`,
      )
      assert.equal((await holder.ask('release')).released, false)
      assert.equal(await rival('GET', `lock:${key}`), 'rival')
      return
    }
  })

  test('Redis frozen for less than a ttl costs no lease', async (t) => {
    const server = await startRedis(t)
    const lease = await clientOf(t, server.url()).acquire(randomUUID(), { ttl: 4_000 })
    server.freeze()
    await sleep(1_500)
    server.thaw()
    await until('a renewal', () =>
      lease.renew().then(
        () => true,
        () => false,
      ),
    )
    assert.equal(lease.isHeld, true)
    assert.equal(await lease.release(), true)
  })

  test('Redis killed and restarted empty: the holder learns of the loss, and the fence still grows', async (t) => {
    const server = await startRedis(t)
    const locks = clientOf(t, server.url())
    const key = randomUUID()
    const lease = await locks.acquire(key, { ttl: TTL })
    await server.restartEmpty()
    await aborted(lease)
    assert.ok(['missing', 'expired'].includes(lease.signal.reason.reason), lease.signal.reason.reason)
    assert.equal(lease.isHeld, false)
    const next = await locks.acquire(key, { wait: 20_000 })
    assert.ok(next.fence > lease.fence, `${next.fence} after ${lease.fence}`)
  })

  test('a failed renewal has no effect once the next one succeeds', async (t) => {
    const server = await startRedis(t)
    const locks = clientOf(t, server.url())
    const lease = await locks.acquire('k', { ttl: TTL })
    await server.freeze()
    await assert.rejects(lease.renew(), StoreUnavailableError)
    server.thaw()
    await until('a renewal', () =>
      lease.renew().then(
        () => true,
        () => false,
      ),
    )
    const client = await server.command()
    await client('DEL', 'lock:k')
    await aborted(lease)
    assert.ok(lost('missing')(lease.signal.reason))
    assert.equal(lease.signal.reason.cause, undefined)
    assert.doesNotMatch(lease.signal.reason.message, /last renewal/)
  })

  for (const end of ['aborted', 'timed out']) {
    test(`an acquire ${end} in mid-flight (Redis frozen) leaves nothing behind`, async (t) => {
      const server = await startRedis(t)
      const look = await server.command()
      const locks = clientOf(t, server.url(), { storeTimeout: end === 'aborted' ? 60_000 : 200 })
      await locks.ready()
      const warm = await locks.acquire('warm')
      await warm.release()
      const keys = Array.from({ length: 20 }, () => randomUUID())
      server.freeze()
      const controller = new AbortController()
      const asked = keys.map((key) =>
        locks.acquire(key, { ttl: 600_000, wait: end === 'aborted' ? Infinity : 400, signal: controller.signal }),
      )
      const settled = Promise.allSettled(asked)
      if (end === 'aborted') {
        // Let the client send the request before it is aborted.
        await sleep(200)
        controller.abort()
      }
      const outcomes = await within('the calls to end though Redis is frozen', settled, 10_000)
      for (const { status, reason } of outcomes) {
        assert.equal(status, 'rejected')
        if (end === 'aborted') assert.ok(reason instanceof LockAbortedError, String(reason))
        else assert.ok(reason instanceof StoreUnavailableError || reason instanceof LockTimeoutError, String(reason))
      }
      server.thaw()
      // Each key is free long before the ttl of ten minutes, and stays free.
      for (const key of keys) {
        await until('the lock to be free', async () => (await look('GET', `lock:${key}`)) === null, 15_000)
      }
      const other = clientOf(t, server.url())
      const leases = await Promise.all(keys.map((key) => other.acquire(key, { wait: 5_000 })))
      await sleep(300)
      assert.ok(leases.every((lease) => lease.isHeld))
      for (const lease of leases) assert.equal(await lease.release(), true)
    })
  }

  test('a release that cannot reach Redis rejects in time, and is carried out when Redis is back', async (t) => {
    const server = await startRedis(t)
    const look = await server.command()
    const locks = clientOf(t, server.url(), { storeTimeout: 300 })
    const key = randomUUID()
    const lease = await locks.acquire(key, { ttl: 120_000 })
    server.freeze()
    const { error, ms } = await timed(() => lease.release())
    assert.ok(error instanceof StoreUnavailableError, String(error))
    assert.equal(error.reason, 'timeout')
    assert.ok(ms < 3_000, `${ms} ms`)
    assert.equal(lease.isHeld, false)
    server.thaw()
    await until('the release', async () => (await look('GET', `lock:${key}`)) === null, 20_000)
  })

  test('withLock keeps the result though its release cannot reach Redis', async (t) => {
    const server = await startRedis(t)
    const locks = clientOf(t, server.url(), { storeTimeout: 200 })
    const value = await locks.withLock(randomUUID(), { ttl: 60_000 }, async () => {
      server.freeze()
      return 'done'
    })
    assert.equal(value, 'done')
    server.thaw()
  })

  test('close gives up after 500 ms when Redis does not answer', async (t) => {
    const server = await startRedis(t)
    const locks = clientOf(t, server.url(), { storeTimeout: 5_000 })
    const lease = await locks.acquire(randomUUID(), { ttl: 60_000 })
    server.freeze()
    const { ms } = await timed(() => locks.close())
    assert.ok(ms < 1_500, `${ms} ms`)
    assert.equal(lease.isHeld, false)
    server.thaw()
  })

  for (const stage of ['acquire', 'held', 'waiting', 'renew', 'release', 'idle']) {
    test(`Redis dies during '${stage}': errors are reported, and none is left unhandled`, async (t) => {
      const server = await startRedis(t)
      const key = randomUUID()
      if (stage === 'waiting') await clientOf(t, server.url()).acquire(key, { ttl: 60_000 })
      const holder = startChild(t, 'outage.mjs', { store: server.url(), key, stage })
      await holder.next('ready')
      await server.kill()
      holder.tell('go')
      const { code, signal } = await within('the end of the process', holder.ended, 30_000)
      assert.deepEqual({ code, signal, stderr: holder.stderr }, { code: 0, signal: null, stderr: '' })
      assert.equal(
        holder.events.find(({ event }) => event === 'unhandled'),
        undefined,
      )
    })
  }
})

// This suite runs alone, because it blocks the thread of all tests in this file.
describe('process: why a lease was lost', { timeout: 120_000 }, () => {
  for (const [how, watch] of [
    ['when the loss is reported', (lease) => aborted(lease)],
    ['in the first line after a blocked event loop', () => blockUntil(now() + TTL)],
  ]) {
    test(`the error of a lease that is lost because Redis is gone says why the renewal failed, ${how}`, async (t) => {
      const server = await startRedis(t, { password: 'hunter2' })
      const locks = clientOf(t, server.url())
      const lease = await locks.acquire('k', { ttl: 800 })
      await server.kill()
      await watch(lease)
      let error
      assert.throws(
        () => lease.assertHeld(),
        (thrown) => {
          error = thrown
          return lost('expired')(error)
        },
      )
      for (const { message, cause } of [error, lease.signal.reason]) {
        assert.ok(cause instanceof StoreUnavailableError, message)
        assert.deepEqual([cause.reason, cause.key], ['unreachable', 'k'])
        const [, ago, why] =
          /^.*not renewed within its ttl of 800 ms(?:; this thread noticed the loss \d+ ms late)?. Check the store, or raise ttl; the last renewal failed (\d+) ms before: (.*)\. The lock is at the store redis:\/\/127\.0\.0\.1:\d+\. inspect\(\) or `leasehold inspect` shows who holds it now$/.exec(
            message,
          )
        assert.ok(Number(ago) < 800, message)
        assert.equal(why, cause.message)
        assert.match(why, /refused/)
        assert.doesNotMatch(message, /hunter2/)
      }
    })
  }
})
