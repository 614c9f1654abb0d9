// Many contenders in one process hold a lock for a moment and acquire it again at once. Their
// leases are handed on within the JavaScript thread, and must keep every promise.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { LockAbortedError } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { sleep, until, within } from '../support/clock.mjs'
import { overStores } from '../support/stores.mjs'

const TURNS = 3_000

/**
 * Lets `count` contenders hold the lock in turn until it was held `turns` times or `stop` returns
 * true. Checks that no leases overlap. Returns how often each contender held the lock.
 */
async function compete(locks, key, { count = 16, turns = TURNS, stop = () => false, hold = () => {} }) {
  const taken = new Array(count).fill(0)
  let holders = 0
  let fence = 0
  let total = 0
  await Promise.all(
    taken.map(async (_, me) => {
      while (total < turns && !stop()) {
        const lease = await locks.acquire(key, { wait: 60_000 })
        assert.equal(++holders, 1, 'two hold the lock')
        assert.ok(lease.isHeld && lease.remaining > 0)
        assert.ok(lease.fence > fence, `${lease.fence} after ${fence}`)
        fence = lease.fence
        total++
        taken[me]++
        await hold(lease)
        holders--
        assert.equal(await lease.release(), true)
        assert.equal(lease.isHeld, false)
      }
    }),
  )
  return taken
}

overStores('contenders', (store) => {
  test('contenders hold the lock one at a time, equally often, and leave no lock behind', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const taken = await compete(locks, key, {})
    assert.ok(Math.max(...taken) - Math.min(...taken) <= 2, `${taken}`)
    assert.equal(await locks.inspect(key), null)
    const { acquired, released, held, waiting, localHandOffs, lost } = locks.stats()
    assert.ok(acquired >= TURNS && localHandOffs > TURNS / 2, `${localHandOffs} of ${acquired}`)
    assert.deepEqual({ released, held, waiting, lost }, { released: acquired, held: 0, waiting: 0, lost: 0 })
  })

  test('contenders do not block the event loop', async (t) => {
    const locks = store.client(t)
    let ticks = 0
    let going = true
    const tick = () => {
      ticks++
      if (going) setImmediate(tick)
    }
    tick()
    await compete(locks, store.key(), {})
    going = false
    // The client hands the lock on at most 16 times in a turn of the event loop.
    assert.ok(ticks > TURNS / 64, `${ticks} turns of the event loop for ${TURNS} of the lock`)
  })

  test('other locks are granted meanwhile', async (t) => {
    const locks = store.client(t)
    const busy = store.key()
    const others = Array.from({ length: 200 }, store.key)
    await compete(locks, busy, {
      hold: async () => {
        const other = others.pop()
        if (other === undefined) return
        const lease = await within('another lock', locks.acquire(other, { wait: 10_000 }), 10_000)
        await lease.release()
      },
    })
    assert.equal(others.length, 0)
  })

  test('an acquire is sent although the contenders pause right after it', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    let turns = 0
    await compete(locks, key, {
      turns: 200,
      hold: async () => {
        if (++turns % 20 !== 0) return
        const other = locks.acquire(store.key(), { wait: 5_000 })
        await sleep(20)
        await (await within('a lock that was requested just before a pause', other, 5_000)).release()
      },
    })
  })

  test('a contender that aborts gets no lease, and the others go on', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    let going = true
    let aborted = 0
    let granted = 0
    const aborting = async () => {
      while (going) {
        const controller = new AbortController()
        const acquiring = locks.acquire(key, { wait: 60_000, signal: controller.signal })
        // Aborts in the same turn of the event loop or in a later one.
        if (granted % 2) setImmediate(() => controller.abort())
        else queueMicrotask(() => queueMicrotask(() => controller.abort()))
        try {
          const lease = await acquiring
          granted++
          await lease.release()
        } catch (error) {
          assert.ok(error instanceof LockAbortedError, String(error))
          aborted++
        }
        await sleep(0)
      }
    }
    const all = Promise.all([aborting(), aborting(), aborting()])
    // On a busy machine, the contenders can be done before the first abort.
    const enough = async () => {
      while (aborted <= 10) await compete(locks, key, { turns: 2_000 })
    }
    await within('more than ten aborts', enough(), 30_000)
    going = false
    await within('the aborting contenders', all, 10_000)
    await until('the lock to be free', async () => (await locks.inspect(key)) === null)
  })

  test('leases can be renewed and detached between hand-offs', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    let turns = 0
    await compete(locks, key, {
      turns: 1_000,
      hold: async (lease) => {
        turns++
        if (turns % 50 === 0) await lease.renew()
        if (turns % 70 === 0) {
          // The promise of a renewal settles, although the lease is released at once.
          lease.renew().catch((error) => assert.match(error.code, /^ERR_LOCK_/))
        }
      },
    })
    const lease = await locks.acquire(key)
    const waiters = Array.from({ length: 5 }, () => locks.acquire(key, { wait: 30_000 }))
    const adopted = await locks.adopt(await lease.detach())
    await adopted.release()
    for (const waiter of waiters) await (await within('the next', waiter, 10_000)).release()
  })

  test('every promise settles, however many calls one turn makes', async (t) => {
    const locks = store.client(t)
    for (let round = 0; round < 5; round++) {
      const key = store.key()
      const first = await locks.acquire(key)
      const [second, ...others] = Array.from({ length: 4 }, () => locks.acquire(key, { wait: 30_000 }))
      await until('four waiters', () => locks.stats().waiting === 4)
      await Promise.all([first.release(), second])
      await sleep(1)
      // The addon gets at most 512 calls in one batch, and a full batch at once. This release is
      // the last call of a full batch.
      const many = Array.from({ length: 511 }, () => locks.acquire(store.key()))
      const released = (await second).release()
      assert.equal(await within('the release', released, 10_000), true)
      for (const other of others) await (await within('the next', other, 10_000)).release()
      await Promise.all((await Promise.all(many)).map((lease) => lease.release()))
    }
  })

  test('mocked timers do not stop hand-offs', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    t.mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'setImmediate'] })
    // The fake timers of Jest and Sinon also delay microtasks.
    const { queueMicrotask } = globalThis
    globalThis.queueMicrotask = () => {}
    try {
      for (let i = 0; i < 20; i++) await compete(locks, key, { count: 3, turns: 20 })
    } finally {
      globalThis.queueMicrotask = queueMicrotask
      t.mock.timers.reset()
    }
  })

  test('the request for a free lock is sent at once, also during a hand-off', async (t) => {
    const [locks, elsewhere] = [store.client(t), store.client(t)]
    const [key, free] = [store.key(), store.key()]
    let acquiring
    let turns = 0
    await compete(locks, key, {
      turns: 100,
      hold: () => {
        if (++turns === 50) acquiring = locks.acquire(free, { wait: 10_000 })
        // The next turn blocks the thread.
        if (turns === 51) for (const end = performance.now() + 100; performance.now() < end; );
      },
    })
    const lease = await acquiring
    assert.ok((await elsewhere.inspect(free)) !== null)
    assert.ok(lease.remaining < lease.ttl - 80, `it came only ${lease.ttl - lease.remaining} ms ago`)
    await lease.release()
  })

  test('stats() is correct between hand-offs', async (t) => {
    const locks = store.client(t)
    let turns = 0
    await compete(locks, store.key(), {
      turns: 500,
      hold: () => {
        const { acquired, released, held } = locks.stats()
        assert.deepEqual([acquired, released, held], [++turns, turns - 1, 1])
      },
    })
  })

  test('close() ends all contenders', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const endings = []
    const contenders = Array.from({ length: 16 }, async () => {
      try {
        for (;;) await (await locks.acquire(key, { wait: 60_000 })).release()
      } catch (error) {
        endings.push(error.code)
      }
    })
    await until('hand-offs', () => locks.stats().localHandOffs > 100)
    await locks.close()
    await within('the contenders', Promise.all(contenders), 10_000)
    assert.equal(endings.length, 16)
    assert.ok(
      endings.every((code) => code === 'ERR_LOCK_CLOSED' || code === 'ERR_LOCK_LOST'),
      `${endings}`,
    )
    const other = store.client(t)
    await (await other.acquire(key, { wait: 5_000 })).release()
  })
})

describe('a process with contenders', () => {
  for (const end of ['natural', 'exit']) {
    test(`the process ends by itself, or at once with process.exit() (${end})`, async (t) => {
      const child = startChild(t, 'storm.mjs', { end })
      const { turns } = await child.next('over', 20_000)
      assert.ok(turns >= 500, `${turns}`)
      assert.deepEqual(await within('its end', child.ended, 5_000), { code: 0, signal: null }, child.stderr)
    })
  }
})
