// A lock is never handed over while its work still runs: close() leaves it to its section, on every
// store and for every kind of section.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { createLockWorker, LockClosedError } from 'leasehold'
import { withRequestLock } from 'leasehold/remix'
import { sleep, timed, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { gate } from '../support/gate.mjs'
import { aborted, lost } from '../support/leases.mjs'
import { overStores } from '../support/stores.mjs'

const EACH_SECOND = '* * * * * *'

/**
 * Each function begins a section of `key` that calls `begun(lease)` and ends when `end` resolves.
 * Returns its promise.
 */
const SECTIONS = {
  withLock: (locks, key, begun, end) =>
    locks.withLock(key, async (lease) => {
      begun(lease)
      await end
    }),
  'withLock with a callback': (locks, key, begun, end) =>
    new Promise((resolve, reject) => {
      locks.withLock(key, async (error, lease, done) => {
        if (error) reject(error)
        begun(lease)
        await end
        done((failure) => (failure ? reject(failure) : resolve()))
      })
    }),
  'withLock of several keys': (locks, key, begun, end) =>
    locks.withLock([key, `${key}:2`], async (lease) => {
      begun(lease)
      await end
    }),
  'a semaphore': (locks, key, begun, end) =>
    locks.semaphore(key, 1).withLock(async (lease) => {
      begun(lease)
      await end
    }),
  'withLock with retries': (locks, key, begun, end) =>
    locks.withLock(key, { retry: true }, async (lease) => {
      begun(lease)
      await end
    }),
  withAdopted: async (locks, key, begun, end) => {
    const lease = await locks.acquire(key)
    await locks.withAdopted(await lease.detach(), async (adopted) => {
      begun(adopted)
      await end
    })
  },
  withRequestLock: (locks, key, begun, end) =>
    withRequestLock(locks, { key: () => key }, async (lease) => {
      begun(lease)
      await end
    })(new Request('http://localhost/')),
  'a worker': (locks, key, begun, end) => {
    const worker = createLockWorker({
      client: locks,
      key,
      async startWork(lease) {
        begun(lease)
        await end
      },
    })
    const released = once(worker, 'released')
    worker.start()
    return released
  },
  'the job of a schedule': (locks, key, begun, end) =>
    new Promise((resolve) => {
      locks.schedule(key, EACH_SECOND, async (lease) => {
        begun(lease)
        await end
        resolve()
      })
    }),
}

/** Begins a section. Resolves with its lease, its promise, and a function that ends it. */
async function running(kind, locks, key) {
  const [begun, end] = [gate(), gate()]
  const over = SECTIONS[kind](locks, key, begun.pass, end.passed)
  const lease = await within('the section', begun.passed)
  return { lease, over, end: () => end.pass() }
}

overStores('drain', (store) => {
  for (const kind of Object.keys(SECTIONS)) {
    test(`close() waits for ${kind}, and renews its lease meanwhile`, async (t) => {
      const [locks, other] = [store.client(t, { ttl: 1_000 }), store.client(t)]
      const key = store.key()
      const { lease, over, end } = await running(kind, locks, key)
      let hasClosed = false
      const closing = locks.close().then(() => {
        hasClosed = true
      })
      const waiting = other.acquire(key, { wait: 20_000 })
      const { renewals } = locks.stats()
      await until('two renewals', () => locks.stats().renewals >= renewals + 2)
      assert.equal(hasClosed, false)
      assert.equal(lease.isHeld, true, 'renewed')
      assert.equal(lease.signal.aborted, false)
      assert.notEqual(await other.inspect(key), null)
      await assert.rejects(async () => locks.acquire(store.key()), LockClosedError)
      end()
      await within('close()', closing)
      await over
      const { ms } = await timed(() => waiting)
      assert.ok(ms < 2_500, `${ms} ms`)
    })
  }

  test('close() while once() runs: the store still remembers the id', async (t) => {
    const [locks, other] = [store.client(t), store.client(t)]
    const [key, begun, end] = [store.key(), gate(), gate()]
    const ran = locks.once(key, 'id', async () => {
      begun.pass()
      await end.passed
      return 'done'
    })
    await begun.passed
    const closing = locks.close()
    end.pass()
    assert.deepEqual(await ran, { ran: true, value: 'done', kept: true })
    await within('close()', closing)
    assert.deepEqual(await other.once(key, 'id', () => assert.fail('twice')), { ran: false })
  })

  test('a section that outlives the drain sees its signal abort, and its end releases the lock', async (t) => {
    const [locks, other] = [store.client(t, { ttl: 20_000 }), store.client(t)]
    const key = store.key()
    const emitted = once(locks, 'lost')
    const { lease, over, end } = await running('withLock', locks, key)
    const { ms } = await timed(() => locks.close({ drain: 100 }))
    assert.ok(ms >= 99 && ms < 2_500, `${ms} ms`)
    lost('closed')(lease.signal.reason)
    assert.deepEqual(await emitted, [lease, lease.signal.reason])
    assert.deepEqual([lease.isHeld, lease.remaining], [false, 0])
    assert.throws(() => lease.assertHeld(), lost('closed'))
    await assert.rejects(lease.renew(), lost('closed'))
    assert.equal(await other.tryAcquire(key), null, 'its work still runs')
    end()
    await over
    assert.ok(await other.tryAcquire(key), 'the end of the section releases the lock')
  })

  test('a section that outlives the drain by its ttl loses its lock, and withLock rejects', async (t) => {
    const [locks, other] = [store.client(t, { ttl: 300 }), store.client(t)]
    const key = store.key()
    const { lease, over, end } = await running('withLock', locks, key)
    await locks.close({ drain: 0 })
    const began = Date.now()
    const next = await other.acquire(key, { wait: 20_000 })
    assert.ok(Date.now() - began < 1_500 && next.fence > lease.fence)
    end()
    await assert.rejects(over, lost('closed'))
    assert.equal(next.isHeld, true)
  })

  test('release() resolves with true after a section has outlived the drain, for one lease and for several', async (t) => {
    const [locks, other] = [store.client(t, { ttl: 20_000 }), store.client(t)]
    const [one, two, three] = [store.key(), store.key(), store.key()]
    const [begun, end] = [gate(), gate()]
    const released = []
    const section = async (lease) => {
      begun.pass()
      await end.passed
      released.push([lease.isHeld, await lease.release()])
    }
    const over = Promise.all([locks.withLock(one, section), locks.withLock([two, three], section)])
    over.catch(() => {})
    await until('both to be held', async () => (await other.inspect(one)) && (await other.inspect(three)))
    await begun.passed
    await locks.close({ drain: 0 })
    end.pass()
    await over
    assert.deepEqual(released, [
      [false, true],
      [false, true],
    ])
    for (const key of [one, two, three]) assert.ok(await other.tryAcquire(key), 'released')
  })

  test('if one lease of several is lost, nothing releases the others while the section runs', async (t) => {
    const [locks, other] = [store.client(t), store.client(t)]
    const keys = [store.key(), store.key()]
    const [begun, end] = [gate(), gate()]
    const over = locks.withLock(keys, async (leases) => {
      begun.pass(leases)
      await end.passed
    })
    const leases = await begun.passed
    await other.forceRelease(keys[0])
    await leases.leases[0].renew().catch(() => {})
    await aborted(leases)
    assert.equal(await other.tryAcquire(keys[1]), null, 'the section still runs')
    end.pass()
    await assert.rejects(over, lost('missing'))
    assert.ok(await other.tryAcquire(keys[1]))
  })

  test('maxHold ends a lease by its ttl: nothing releases the lease while the work runs', async (t) => {
    const [locks, other] = [store.client(t), store.client(t)]
    const key = store.key()
    const { lease, over, end } = await (async () => {
      const [begun, end] = [gate(), gate()]
      const over = locks.withLock(key, { ttl: 300, maxHold: 700 }, async (lease) => {
        begun.pass(lease)
        await end.passed
      })
      return { lease: await begun.passed, over, end: () => end.pass() }
    })()
    const began = Date.now()
    await aborted(lease)
    const next = await other.acquire(key, { wait: 20_000 })
    const ms = Date.now() - began
    assert.ok(ms >= 650 && ms < 1_500, `${ms} ms`)
    end()
    await assert.rejects(over, lost('expired'))
    assert.equal(next.isHeld, true)
  })

  test('a second close() with a shorter drain shortens the first', async (t) => {
    const locks = store.client(t)
    const { lease, over, end } = await running('withLock', locks, store.key())
    const closing = locks.close({ drain: Infinity })
    await locks.ready().catch(() => {})
    assert.equal(lease.signal.aborted, false)
    assert.equal(locks.close({ drain: 20 }), closing)
    await within('close()', closing)
    assert.equal(lease.signal.aborted, true)
    end()
    await over
  })

  test('close() and await using have the drain of the client by default', async (t) => {
    const locks = store.client(t, { drain: 50 })
    const { lease, over, end } = await running('withLock', locks, store.key())
    await within('the close', locks[Symbol.asyncDispose]())
    assert.equal(lease.signal.aborted, true)
    end()
    await over
  })

  test('close() refuses every kind of waiter while sections drain', async (t) => {
    const [locks, other] = [store.client(t), store.client(t)]
    const keys = [store.key(), store.key()].sort()
    const { over, end } = await running('withLock', locks, keys[0])
    const never = () => assert.fail('the section ran')
    const held = await other.acquire(keys[1])
    const waiting = [
      locks.acquire(keys[0], { wait: Infinity }),
      locks.withLock(keys[0], { wait: Infinity }, never),
      locks.withLock(keys[1], { wait: Infinity }, never),
      locks.withLock(['a-free-one', keys[1]], { wait: Infinity }, never),
      locks.acquire(keys[0], { retry: { minDelay: 60_000 } }),
    ]
    const refusals = waiting.map((promise) => assert.rejects(within('a refusal', promise), LockClosedError))
    await until('all callers to wait', () => locks.stats().waiting >= 4)
    const closing = locks.close()
    await Promise.all(refusals)
    assert.equal(await other.inspect('a-free-one'), null)
    end()
    await over
    await within('close()', closing)
    await held.release()
  })

  test('close() releases a bare lease at once while sections drain', async (t) => {
    const [locks, other] = [store.client(t), store.client(t)]
    const { over, end } = await running('withLock', locks, store.key())
    const bare = await locks.acquire(store.key(), { ttl: 60_000 })
    const closing = locks.close()
    const next = await other.acquire(bare.key, { wait: 5_000 })
    assert.equal(bare.isHeld, false)
    lost('closed')(bare.signal.reason)
    end()
    await over
    await closing
    assert.ok(next.isHeld)
  })

  test('a section whose grant crosses close() either runs to its end or never begins', async (t) => {
    const other = store.client(t)
    const outcomes = []
    for (let i = 0; i < 40; i++) {
      const locks = store.client(t)
      const key = store.key()
      let overlaps = false
      const section = async (lease) => {
        await sleep(5)
        overlaps = !lease.isHeld || (await other.tryAcquire(key)) !== null
        return 'ran'
      }
      const over = locks.withLock(key, section).catch((error) => error.code)
      for (let turn = 0; turn < i % 5; turn++) await new Promise(setImmediate)
      await locks.close()
      outcomes.push(await over)
      assert.equal(overlaps, false)
      assert.ok(await other.tryAcquire(key), 'no lock is left behind')
    }
    assert.deepEqual(
      [...new Set(outcomes)].filter((outcome) => !['ran', 'ERR_LOCK_CLOSED'].includes(outcome)),
      [],
    )
  })

  test('close() stops the workers of the client after their work has ended', async (t) => {
    const [locks, other] = [store.client(t), store.client(t)]
    const [key, end, reasons] = [store.key(), gate(), []]
    const worker = createLockWorker({
      client: locks,
      key,
      startWork: () => end.passed,
      stopWork: (reason) => reasons.push(reason),
    })
    atEnd(t, () => worker.stop())
    worker.start()
    await once(worker, 'acquired')
    const closing = locks.close()
    await until('stopWork', () => reasons.length > 0)
    assert.deepEqual(reasons, ['closed'])
    assert.equal(await other.tryAcquire(key), null)
    end.pass()
    await within('close()', closing)
    assert.ok(await other.tryAcquire(key))
    assert.equal(worker.state, 'idle')
  })

  test('a bad drain is refused, and the client stays open', async (t) => {
    const locks = store.client(t)
    await assert.rejects(locks.close({ drain: -1 }), { name: 'RangeError', code: 'ERR_OUT_OF_RANGE' })
    await assert.rejects(locks.close({ drain: '1' }), { name: 'TypeError', code: 'ERR_INVALID_ARG_TYPE' })
    await assert.rejects(locks.close({ drains: 1 }), /did you mean "drain"/)
    assert.throws(() => store.client(t, { drain: Number.NaN }), { code: 'ERR_OUT_OF_RANGE' })
    assert.ok(await locks.tryAcquire(store.key()))
  })
})
