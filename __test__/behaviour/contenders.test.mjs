// Many contenders in one process, who come back at once and hold the lock for a moment: leases are handed on within the
// JavaScript thread. What must be true of every lock has to be true of these.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { LockAbortedError } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { sleep, until, within } from '../support/clock.mjs'
import { overStores } from '../support/stores.mjs'

const TURNS = 3_000

/** Lets `count` contenders take turns until `turns` are taken or `stop` says so; asserts that none overlap. */
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
  test('take turns one at a time, each as often, and leave nothing behind', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const taken = await compete(locks, key, {})
    assert.ok(Math.max(...taken) - Math.min(...taken) <= 2, `${taken}`)
    assert.equal(await locks.inspect(key), null)
    const { acquired, released, held, waiting, localHandOffs, lost } = locks.stats()
    assert.ok(acquired >= TURNS && localHandOffs > TURNS / 2, `${localHandOffs} of ${acquired}`)
    assert.deepEqual({ released, held, waiting, lost }, { released: acquired, held: 0, waiting: 0, lost: 0 })
  })

  test('do not keep the event loop from anything else', async (t) => {
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
    // They hand on at most 16 times in a row.
    assert.ok(ticks > TURNS / 64, `${ticks} turns of the event loop for ${TURNS} of the lock`)
  })

  test('other locks are asked for meanwhile', async (t) => {
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

  test('one who holds on to it is waited for, and what was asked for just then is not forgotten', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    let turns = 0
    await compete(locks, key, {
      turns: 200,
      hold: async () => {
        if (++turns % 20 !== 0) return
        const other = locks.acquire(store.key(), { wait: 5_000 })
        await sleep(20)
        await (await within('a lock asked for just before a pause', other, 5_000)).release()
      },
    })
  })

  test('who aborts gets nothing, and nobody waits for it', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    let going = true
    let aborted = 0
    let granted = 0
    const fickle = async () => {
      while (going) {
        const controller = new AbortController()
        const asked = locks.acquire(key, { wait: 60_000, signal: controller.signal })
        // Now in the same turn of the event loop, now in a later one.
        if (granted % 2) setImmediate(() => controller.abort())
        else queueMicrotask(() => queueMicrotask(() => controller.abort()))
        try {
          const lease = await asked
          granted++
          await lease.release()
        } catch (error) {
          assert.ok(error instanceof LockAbortedError, String(error))
          aborted++
        }
        await sleep(0)
      }
    }
    const all = Promise.all([fickle(), fickle(), fickle()])
    // On a busy machine the others can be done before these have begun.
    const enough = async () => {
      while (aborted <= 10) await compete(locks, key, { turns: 2_000 })
    }
    await within('more than ten abort', enough(), 30_000)
    going = false
    await within('the fickle ones', all, 10_000)
    await until('nothing is left', async () => (await locks.inspect(key)) === null)
  })

  test('renewals, detaching and short leases among them', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    let turns = 0
    await compete(locks, key, {
      turns: 1_000,
      hold: async (lease) => {
        turns++
        if (turns % 50 === 0) await lease.renew()
        if (turns % 70 === 0) {
          // The promise of a renewal settles, although the lease is given back at once.
          lease.renew().catch((error) => assert.match(error.code, /^ERR_LOCK_/))
        }
      },
    })
    const stays = await locks.acquire(key)
    const waiters = Array.from({ length: 5 }, () => locks.acquire(key, { wait: 30_000 }))
    const adopted = await locks.adopt(await stays.detach())
    await adopted.release()
    for (const waiter of waiters) await (await within('the next', waiter, 10_000)).release()
  })

  test('every promise settles, however much is asked for in one go', async (t) => {
    const locks = store.client(t)
    for (let round = 0; round < 5; round++) {
      const key = store.key()
      const first = await locks.acquire(key)
      const [second, ...others] = Array.from({ length: 4 }, () => locks.acquire(key, { wait: 30_000 }))
      await until('they wait', () => locks.stats().waiting === 4)
      await Promise.all([first.release(), second])
      await sleep(1)
      // Native code is handed 512 at a time at most, and then at once: this release is the last of them.
      const many = Array.from({ length: 511 }, () => locks.acquire(store.key()))
      const released = (await second).release()
      assert.equal(await within('the release', released, 10_000), true)
      for (const other of others) await (await within('the next', other, 10_000)).release()
      await Promise.all((await Promise.all(many)).map((lease) => lease.release()))
    }
  })

  test('a test that mocks timers stops none of it', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    t.mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'setImmediate'] })
    // Which Jest's and Sinon's fake timers put off with the timers.
    const { queueMicrotask } = globalThis
    globalThis.queueMicrotask = () => {}
    try {
      for (let i = 0; i < 20; i++) await compete(locks, key, { count: 3, turns: 20 })
    } finally {
      globalThis.queueMicrotask = queueMicrotask
      t.mock.timers.reset()
    }
  })

  test('a free lock that is asked for together with a hand-off is asked for at once', async (t) => {
    const [locks, elsewhere] = [store.client(t), store.client(t)]
    const [key, free] = [store.key(), store.key()]
    let asked
    let turns = 0
    await compete(locks, key, {
      turns: 100,
      hold: () => {
        if (++turns === 50) asked = locks.acquire(free, { wait: 10_000 })
        // The thread is busy from the next turn on.
        if (turns === 51) for (const end = performance.now() + 100; performance.now() < end; );
      },
    })
    const lease = await asked
    assert.ok((await elsewhere.inspect(free)) !== null)
    assert.ok(lease.remaining < lease.ttl - 80, `it came only ${lease.ttl - lease.remaining} ms ago`)
    await lease.release()
  })

  test('the numbers are right in the midst of it', async (t) => {
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

  test('closing the client in the middle of it ends all of them', async (t) => {
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
    await until('they are at it', () => locks.stats().localHandOffs > 100)
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

describe('a process of contenders', () => {
  for (const end of ['natural', 'exit']) {
    test(`ends by itself, or at once (${end})`, async (t) => {
      const child = startChild(t, 'storm.mjs', { end })
      const { turns } = await child.next('over', 20_000)
      assert.ok(turns >= 500, `${turns}`)
      assert.deepEqual(await within('its end', child.ended, 5_000), { code: 0, signal: null }, child.stderr)
    })
  }
})
