// once(): one caller runs the work of an id, the others do not, and a failure leaves no id behind.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient, LockAbortedError, LockClosedError, StoreUnavailableError } from 'leasehold'
import { until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { freePort } from '../support/ports.mjs'
import { startRelay } from '../support/relay.mjs'
import { startRedis } from '../support/servers.mjs'
import { overStores, storeNames } from '../support/stores.mjs'

const NOT_RUN = { ran: false }
const unexpected = () => assert.fail('the work ran again')
const mistake = new Error('a mistake of the user')
const failing = () => {
  throw mistake
}

overStores('once', (store) => {
  test('if many callers ask at the same time, one runs the work, and the others get ran: false', async (t) => {
    const clients = [store.client(t), store.client(t), store.client(t)]
    const key = store.key()
    let runs = 0
    const calls = Array.from({ length: 30 }, (_, i) => clients[i % 3].once(key, 'id', () => ++runs))
    const outcomes = await Promise.all(calls)
    assert.deepEqual(
      outcomes.filter(({ ran }) => ran),
      [{ ran: true, value: 1, kept: true }],
    )
    for (const outcome of outcomes.filter(({ ran }) => !ran)) assert.deepEqual(outcome, NOT_RUN)
    assert.equal(runs, 1)
    for (const locks of clients) assert.deepEqual(await locks.once(key, 'id', unexpected), NOT_RUN)
  })

  test('other callers do not wait for the work, its lease is held, and the id outlives the client', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    let finish
    const finished = new Promise((resolve) => {
      finish = resolve
    })
    let lease
    const doing = a.once(key, 'id', async (given) => {
      lease = given
      await finished
      return 'done'
    })
    await until('it to begin', () => lease)
    assert.deepEqual(await b.once(key, 'id', unexpected), NOT_RUN)
    assert.equal(lease.isHeld, true)
    assert.equal(lease.key, `${key}@once:id`)
    assert.equal(a.stats().held, 1)
    finish()
    assert.deepEqual(await doing, { ran: true, value: 'done', kept: true })
    assert.equal(a.stats().held, 0)
    await a.close()
    assert.deepEqual(await b.once(key, 'id', unexpected), NOT_RUN)
    const info = await b.inspect(`${key}@once:id`)
    assert.ok(info.remaining > 3_590_000 && info.remaining <= 3_600_000, `not an hour: ${info.remaining}`)
  })

  test('each pair of key and id runs once', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const pairs = [
      [key, 'a'],
      [key, 'b'],
      [`${key}@once:a`, 'b'],
      [key, 'a@once:b'],
      [key, 'a%40once:b'],
      [key, '{a}'],
      [key, '%7ba%7d'],
      [key, '鍵 '],
      [`{${key}}`, 'a'],
    ]
    for (const [k, id] of pairs) assert.equal((await locks.once(k, id, () => id)).value, id)
    for (const [k, id] of pairs) assert.deepEqual(await locks.once(k, id, unexpected), NOT_RUN)
  })

  test('if the work fails, its error is thrown, and the next caller runs the work', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    await assert.rejects(a.once(key, 'id', failing), mistake)
    let fence
    await assert.rejects(
      b.once(key, 'id', async (lease) => {
        fence = lease.fence
        await failing()
      }),
      mistake,
    )
    const outcome = await b.once(key, 'id', (lease) => lease.fence)
    assert.ok(outcome.value > fence)
    assert.deepEqual(await a.once(key, 'id', unexpected), NOT_RUN)
  })

  test("with onFailure: 'keep', failed work is not run again", async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    await assert.rejects(a.once(key, 'id', failing, { onFailure: 'keep' }), mistake)
    assert.deepEqual(await b.once(key, 'id', unexpected), NOT_RUN)
  })

  test('the id is forgotten after keep', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    const options = { ttl: 200, keep: 400 }
    assert.equal((await a.once(key, 'id', () => 1, options)).kept, true)
    assert.deepEqual(await b.once(key, 'id', unexpected, options), NOT_RUN)
    const start = performance.now()
    await until('the id to be forgotten', async () => (await b.once(key, 'id', () => 2, options)).ran)
    assert.ok(performance.now() - start < 2_000)
  })

  test('key and id may have 1024 bytes together, and no more', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const room = 1_024 - Buffer.byteLength(`${key}@once:`)
    const id = 'i'.repeat(room)
    assert.equal((await locks.once(key, id, () => 1)).ran, true)
    assert.deepEqual(await locks.once(key, id, unexpected), NOT_RUN)
    const tooLong = { constructor: RangeError, code: 'ERR_OUT_OF_RANGE', message: /1025 bytes/ }
    await assert.rejects(locks.once(key, `${id}i`, unexpected), tooLong)
    await assert.rejects(locks.once(key, `${'@'.repeat(room / 2)}`, unexpected), { code: 'ERR_OUT_OF_RANGE' })
  })

  test('the id is not kept if the work releases the lease, and kept if the work outlives its client', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    const errors = []
    a.on('error', (error) => errors.push(error))
    const released = await a.once(key, 'id', async (lease) => lease.release())
    assert.deepEqual(released, { ran: true, value: true, kept: false })
    assert.equal((await b.once(key, 'id', () => 1)).ran, true)
    assert.deepEqual(errors, [])
    const closing = await a.once(key, 'other', async (lease) => {
      await a.close({ drain: 50 })
      assert.equal(lease.isHeld, false)
      return 'done'
    })
    assert.deepEqual(closing, { ran: true, value: 'done', kept: true })
    assert.deepEqual(await b.once(key, 'other', unexpected), NOT_RUN)
    assert.deepEqual(errors, [])
  })

  test('a closed client and an aborted signal run nothing', async (t) => {
    const locks = store.client(t)
    const signal = AbortSignal.abort()
    await assert.rejects(locks.once('key', 'id', unexpected, { signal }), LockAbortedError)
    await locks.close()
    await assert.rejects(locks.once('key', 'id', unexpected), LockClosedError)
  })

  test('with two arguments, once() is that of EventEmitter', async (t) => {
    const locks = store.client(t)
    const errors = []
    assert.equal(
      locks.once('error', (error) => errors.push(error)),
      locks,
    )
    locks.emit('error', mistake)
    assert.deepEqual(errors, [mistake])
    assert.equal(locks.listenerCount('error'), 0)
  })
})

test('memory: the ids and tickets of closed clients are still valid', async () => {
  const use = async (work) => {
    const locks = createLockClient('memory:closed clients')
    try {
      return await work(locks)
    } finally {
      await locks.close()
    }
  }
  const [{ kept }, ticket, fence] = await use(async (locks) => {
    const lease = await locks.acquire('detached')
    return [await locks.once('key', 'id', () => {}), await lease.detach(30_000), lease.fence]
  })
  assert.equal(kept, true)
  await use(async (locks) => {
    assert.deepEqual(await locks.once('key', 'id', unexpected), NOT_RUN)
    assert.equal(await locks.tryAcquire('detached'), null)
    const lease = await locks.adopt(ticket)
    assert.equal(lease.fence, fence)
    await lease.release()
    assert.ok((await locks.acquire('detached')).fence > fence)
  })
})

describe('once: a store that fails', { timeout: 60_000 }, () => {
  test('once() asks the store until `wait` ends, and rejects without running the work', async (t) => {
    const locks = createLockClient(`redis://127.0.0.1:${await freePort()}`)
    atEnd(t, () => locks.close())
    const start = performance.now()
    await assert.rejects(locks.once('key', 'id', unexpected, { wait: 500 }), StoreUnavailableError)
    const ms = performance.now() - start
    assert.ok(ms >= 490 && ms < 2_500, `${ms}`)
    const signal = AbortSignal.timeout(100)
    await assert.rejects(locks.once('key', 'id', unexpected, { signal }), LockAbortedError)
  })

  test('if the store is back within `wait`, one caller runs the work', async (t) => {
    const server = await startRedis(t, { keep: true })
    const [a, b] = [createLockClient(server.url()), createLockClient(server.url())]
    atEnd(t, () => Promise.all([a.close(), b.close()]))
    await a.ready()
    await server.kill()
    const outcomes = Promise.all([a, b].map((locks) => locks.once('key', 'id', () => 1, { wait: 20_000 })))
    await server.start()
    assert.deepEqual((await outcomes).map(({ ran }) => ran).sort(), [false, true])
  })

  test('a grant whose reply was lost does not count as the work of another client', async (t) => {
    const server = await startRedis(t)
    const relay = await startRelay(t, server.port)
    const locks = createLockClient({ store: `redis://127.0.0.1:${relay.port}`, storeTimeout: 100, name: 'me' })
    atEnd(t, () => locks.close())
    await locks.ready()
    relay.bar(['toClient'])
    const ids = Array.from({ length: 40 }, (_, i) => `id-${i}`)
    const doing = Promise.all(ids.map((id) => locks.once('key', id, () => id, { wait: 20_000 })))
    await until('all to be granted', async () => {
      const held = await server.ask('EXISTS', ...ids.map((id) => `lock:key@once:${id}`))
      return held === ids.length
    })
    // The releases do not arrive, either. When the server is back, they race with the new requests.
    relay.bar()
    await until('time-outs', () => locks.stats().errors >= ids.length)
    relay.cut()
    await relay.heal()
    assert.deepEqual(
      (await doing).map(({ value }) => value),
      ids,
    )
  })

  test('if the store fails after the work, the client stores the id as soon as the store is back', async (t) => {
    const server = await startRedis(t, { keep: true })
    const [a, b] = [createLockClient({ store: server.url(), storeTimeout: 100 }), createLockClient(server.url())]
    atEnd(t, () => Promise.all([a.close(), b.close()]))
    const doing = a.once('key', 'id', () => server.kill(), { ttl: 10_000 })
    await until('an attempt', () => a.stats().errors > 0)
    await server.start()
    assert.equal((await doing).kept, true)
    assert.deepEqual(await b.once('key', 'id', unexpected), NOT_RUN)
  })

  test('if the store fails for longer than the ttl, once() returns the value with kept: false', async (t) => {
    const server = await startRedis(t)
    const locks = createLockClient({ store: server.url(), storeTimeout: 100 })
    atEnd(t, () => locks.close())
    const errors = []
    locks.on('error', (error) => errors.push(error))
    const work = async () => {
      await server.kill()
      return 'done'
    }
    const outcome = await locks.once('key', 'id', work, { ttl: 500 })
    assert.deepEqual(outcome, { ran: true, value: 'done', kept: false })
    assert.deepEqual(
      errors.map(({ code, reason }) => [code, reason]),
      [['ERR_LOCK_LOST', 'expired']],
    )
  })
})

describe('once: a quorum', { timeout: 60_000 }, () => {
  const openQuorum = async (t) => {
    const servers = await Promise.all([1, 2, 3].map(() => startRedis(t)))
    const store = servers.map((server) => server.url())
    const clientOf = () => {
      const locks = createLockClient({ store })
      atEnd(t, () => locks.close())
      return locks
    }
    return { servers, clientOf }
  }

  test('one of many callers runs the work, and a majority of nodes keeps the id', async (t) => {
    const { servers, clientOf } = await openQuorum(t)
    const clients = Array.from({ length: 6 }, clientOf)
    for (let round = 0; round < 20; round++) {
      const outcomes = await Promise.all(clients.map((locks) => locks.once('key', `id-${round}`, () => round)))
      assert.equal(outcomes.filter(({ ran }) => ran).length, 1, `round ${round}`)
    }
    await servers[0].kill()
    assert.deepEqual(await clients[0].once('key', 'id-7', unexpected), NOT_RUN)
    assert.equal((await clients[1].once('key', 'another', () => 1)).kept, true)
  })

  test('split votes do not count as a client that runs the work', async (t) => {
    const { servers, clientOf } = await openQuorum(t)
    const locks = clientOf()
    await locks.ready()
    const nodes = await Promise.all(servers.slice(0, 2).map((server) => server.command()))
    atEnd(t, () => {
      for (const node of nodes) node.close()
    })
    // Two other clients have one node each, and are about to release them.
    await Promise.all(nodes.map((node, i) => node('SET', 'lock:key@once:id', `other-${i}`, 'PX', 40)))
    assert.equal((await locks.once('key', 'id', () => 'done')).value, 'done')
  })

  test('other callers get ran: false while the work runs', async (t) => {
    const { clientOf } = await openQuorum(t)
    const [a, b] = [clientOf(), clientOf()]
    const outcome = await a.once('key', 'id', () => b.once('key', 'id', unexpected))
    assert.deepEqual(outcome, { ran: true, value: NOT_RUN, kept: true })
  })
})

describe('once: a user who lacks a right', { skip: !storeNames.includes('redis'), timeout: 60_000 }, () => {
  const start = async (t, rules) => {
    const server = await startRedis(t, { user: { name: 'app', password: 'secret', rules: `~* &* +@all ${rules}` } })
    const errors = []
    const locks = createLockClient({ store: server.url('app:secret'), ttl: 1_000 })
    locks.on('error', (error) => errors.push(error))
    atEnd(t, () => locks.close({ drain: 0 }))
    return { server, locks, errors }
  }
  const names = (command) => ({
    code: 'ERR_STORE_UNAVAILABLE',
    reason: 'denied',
    message: new RegExp(`'?${command}'?.*\\+get`),
  })

  test('to read marks: it rejects, the work does not run, and the lock is free', async (t) => {
    const { server, locks } = await start(t, '-get')
    await within('once() to end', assert.rejects(locks.once('k', 'id', unexpected), names('get')), 5_000)
    const redis = await server.command()
    assert.equal(await redis('EXISTS', 'lock:k@once:id'), 0)
  })

  test('to read marks, since an earlier call: it ends, and the error is told', async (t) => {
    const { server, locks, errors } = await start(t, '')
    assert.deepEqual(await locks.once('k', '1', () => 1), { ran: true, value: 1, kept: true })
    const redis = await server.command()
    await redis('ACL', 'SETUSER', 'app', '-get')
    const asked = locks.once('k', '2', () => 2)
    assert.deepEqual(await within('once() to end', asked, 5_000), { ran: true, value: 2, kept: false })
    assert.equal(errors.length, 1)
    assert.match(errors[0].message, names('get').message)
    assert.equal(errors[0].reason, 'denied')
    await redis('ACL', 'SETUSER', 'app', '+get')
    assert.deepEqual(await locks.once('k', '2', () => 3), { ran: true, value: 3, kept: true })
  })

  test('to read marks: a schedule does not run its job, and says why', async (t) => {
    const { locks } = await start(t, '-get')
    const schedule = locks.schedule('job', '* * * * * *', unexpected)
    const missed = new Promise((resolve) => schedule.once('missed', (_, error) => resolve(error)))
    const error = await within('the tick to be missed', missed, 10_000)
    assert.equal(error.reason, 'denied')
    await schedule.stop()
  })
})
