// Data of other applications under the client's prefix, in Redis: no call may change it.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { createLockClient, StoreUnavailableError } from 'leasehold'
import { until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis } from '../support/servers.mjs'
import { storeNames } from '../support/stores.mjs'

describe("other applications' data in Redis", { skip: !storeNames.includes('redis'), timeout: 240_000 }, () => {
  let server
  let redis
  const endings = []
  before(async () => {
    server = await startRedis({ after: (ending) => endings.push(ending) })
    redis = await server.command()
  })
  after(async () => {
    for (const ending of endings.reverse()) await ending()
  })

  const clientOf = (t, prefix = '') => {
    const locks = createLockClient({ store: server.url(), prefix })
    atEnd(t, () => locks.close())
    return locks
  }
  const refused = (error) => {
    assert.ok(error instanceof StoreUnavailableError, String(error))
    assert.equal(error.reason, 'wrongtype')
    return true
  }
  const scores = (key) => redis('ZRANGE', key, 0, -1, 'WITHSCORES')

  test('no call changes the entries of a leaderboard', async (t) => {
    const board = ['alice', '100', 'bob', '200']
    await redis('ZADD', 'leaderboard', 100, 'alice', 200, 'bob')
    // The application also uses the key that would have the holders of a lock.
    await redis('ZADD', 'ranks', 100, 'alice', 200, 'bob')
    await redis('HSET', '{ranks}:holders', 'carol', '1 carol')
    const locks = clientOf(t)
    const free = await locks.acquire('free')
    const listed = await locks.list()
    assert.deepEqual([listed.locks.map(({ key }) => key), listed.complete], [['free'], true])
    await free.release()
    for (const key of ['leaderboard', 'ranks']) {
      for (const call of [
        () => locks.acquire(key, { wait: 300 }),
        () => locks.tryAcquire(key),
        () => locks.semaphore(key, 3).acquire({ wait: 300 }),
        () => locks.readWriteLock(key).read.acquire({ wait: 300 }),
        () => locks.inspect(key),
        () => locks.forceRelease(key),
      ]) {
        await assert.rejects(call, refused, `${call}`)
        assert.deepEqual(await scores(key), board, `${call}`)
      }
    }
    assert.deepEqual(await redis('HGETALL', '{ranks}:holders'), ['carol', '1 carol'])
    await redis('DEL', 'leaderboard', 'ranks', '{ranks}:holders')
  })

  test('forceRelease of other data names the key and the prefix, and says what to do', async (t) => {
    await redis('HSET', 'app:user', 'name', 'ann')
    await assert.rejects(clientOf(t, 'app:').forceRelease('user'), (error) => {
      assert.equal(error.key, 'user')
      assert.match(
        error.message,
        /^could not release the lock "user" by force: redis:.* other data lies under .*\. That data is no lock, so it was kept: check the key, and the client's prefix "app:"$/,
      )
      return refused(error)
    })
    assert.equal(await redis('HGET', 'app:user', 'name'), 'ann')
    await redis('DEL', 'app:user')
  })

  test('a sorted set with a score in the future is not treated as a lock', async (t) => {
    const later = String(Date.now() + 3_600_000)
    await redis('ZADD', 'schedule', later, 'job:1')
    const locks = clientOf(t)
    assert.deepEqual((await locks.list()).locks, [])
    await assert.rejects(locks.readWriteLock('schedule').read.acquire({ wait: 300 }), refused)
    assert.deepEqual(await scores('schedule'), ['job:1', later])
    assert.equal(await redis('PTTL', 'schedule'), -1)
    await redis('DEL', 'schedule')
  })

  test('shared leases stay held if the server has evicted the key of their holders', async (t) => {
    const [locks, others] = [clientOf(t), clientOf(t)]
    const pool = locks.semaphore('evicted', 2)
    const lease = await pool.acquire({ ttl: 1_000 })
    await redis('DEL', '{evicted}:holders')
    await lease.renew()
    const other = await others.semaphore('evicted', 2).acquire({ wait: 5_000 })
    assert.equal(await others.semaphore('evicted', 2).tryAcquire(), null)
    assert.ok(other.fence > lease.fence)
    const { leases } = await locks.inspect('evicted')
    assert.deepEqual(leases.map(({ holder }) => holder === null).sort(), [false, true])
    await lease.release()
    await other.release()
    assert.equal(await redis('EXISTS', 'evicted'), 0)
  })

  test('shared leases that expired free their permits', async (t) => {
    const locks = clientOf(t)
    const pool = locks.semaphore('pool', 2)
    for (let i = 0; i < 2; i++) await pool.acquire({ ttl: 200, autoRenew: false })
    assert.equal(await redis('TYPE', 'pool'), 'zset')
    assert.equal((await locks.inspect('pool')).holders?.length ?? 2, 2)
    await until('both to expire', async () => (await locks.inspect('pool')) === null)
    const lease = await pool.acquire({ wait: 5_000 })
    assert.equal(lease.isHeld, true)
    await lease.release()
  })
})
