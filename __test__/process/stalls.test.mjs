// Renewal does not depend on the event loop, but a hung process does not hold a lock for ever.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { timed, until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { openStore, sharedStoreNames } from '../support/stores.mjs'

const TTL = 500

for (const name of sharedStoreNames) {
  // Each test waits for time to pass, with a server of its own.
  describe(`process: ${name}`, { concurrency: 3, timeout: 240_000 }, () => {
    const setUp = async (t, options = {}) => {
      const store = await openStore(name, t)
      const locks = createLockClient(store)
      atEnd(t, () => locks.close())
      const key = randomUUID()
      const holder = startChild(t, 'holder.mjs', { store, key, ttl: TTL, ...options })
      const held = await holder.next('held')
      return { locks, key, holder, held }
    }

    for (const how of ['busy', 'wait']) {
      test(`the JS thread blocked for 10 ttls (${how}) does not cost the lease`, async (t) => {
        const { locks, key, holder, held } = await setUp(t)
        const blocked = holder.ask('block', { ms: 10 * TTL, how })
        let done = false
        blocked.finally(() => {
          done = true
        })
        let looks = 0
        while (!done) {
          assert.equal(await locks.tryAcquire(key), null, 'another client got the lock during the block')
          looks++
          await new Promise((resolve) => setTimeout(resolve, 20))
        }
        const first = await blocked
        assert.equal(first.isHeld, true, 'the first line after the block')
        assert.equal(first.aborted, false)
        assert.ok(first.remaining > 0)
        assert.ok(looks > 20, `${looks} looks`)
        assert.equal((await locks.inspect(key)).fence, held.fence, 'the lease has changed')
        assert.equal((await holder.ask('release')).released, true)
      })
    }

    test('a JS thread blocked for longer than maxStall loses the lease', async (t) => {
      const maxStall = 1_500
      const { locks, key, holder, held } = await setUp(t, { client: { maxStall } })
      const blocked = holder.ask('block', { ms: maxStall + 10 * TTL, how: 'wait' })
      const { ms, value: next } = await timed(() => locks.acquire(key, { wait: 30_000 }))
      assert.ok(next.fence > held.fence)
      // The thread last answered at some time before the block began, and a renewal may be recent
      // when renewing stops.
      assert.ok(ms > maxStall / 2, `the lock was free while the thread may still hold it: ${ms} ms`)
      assert.ok(ms < maxStall + 2 * TTL + 2_000, `the lease was too long at the store: ${ms} ms`)
      const first = await blocked
      assert.equal(first.isHeld, false, 'the first line after the block')
      assert.equal(first.remaining, 0)
      const aborted = await holder.next('aborted')
      assert.equal(aborted.error.reason, 'stalled')
      assert.equal(aborted.error.code, 'ERR_LOCK_LOST')
      assert.match(
        aborted.error.message,
        /this thread was blocked for longer than its client's maxStall of 1500 ms, and noticed the loss \d+ ms late\. /,
      )
      assert.equal((await holder.ask('release')).released, false)
      assert.equal(next.isHeld, true)
    })

    test('stalls shorter than maxStall have no effect, however many', async (t) => {
      const { holder } = await setUp(t, { client: { maxStall: 2_000 } })
      for (let i = 0; i < 4; i++) {
        assert.equal((await holder.ask('block', { ms: 1_000, how: 'wait' })).isHeld, true)
        assert.equal((await holder.ask('look')).isHeld, true)
      }
      assert.equal((await holder.ask('release')).released, true)
    })

    test('a holder frozen (SIGSTOP) past its ttl: its first line reads false, and its release affects no other client', async (t) => {
      const { locks, key, holder, held } = await setUp(t)
      holder.tell('thawed', { jump: TTL })
      await holder.next('spinning')
      holder.signal('SIGSTOP')
      const next = await locks.acquire(key, { wait: 30_000, ttl: 60_000 })
      assert.ok(next.fence > held.fence)
      // The jump has to be longer than a ttl even if the lease was old when the freeze began.
      await new Promise((resolve) => setTimeout(resolve, TTL))
      holder.signal('SIGCONT')
      const first = await holder.next('thawed')
      assert.ok(first.slept > TTL)
      assert.equal(first.isHeld, false, 'the first line after the freeze')
      const { reason, message } = (await holder.next('aborted')).error
      assert.equal(reason, 'expired')
      assert.match(
        message,
        /was not renewed within its ttl of 500 ms; this thread noticed the loss \d+ ms late\. Probably, this process or its machine was stopped or overloaded .*: look for long pauses, or raise ttl/,
      )
      assert.equal((await holder.ask('release')).released, false)
      assert.equal(next.isHeld, true)
      await next.renew()
      assert.equal(await locks.tryAcquire(key), null)
      assert.equal(await next.release(), true)
    })

    test(`SIGKILL of the holder: the next waiter has the lock ${name === 'sqlite' ? 'within 200 ms' : 'when the ttl is over'}`, async (t) => {
      // The waiter may be between two polls. On Redis, the bound allows a quarter of a second in
      // addition to the ttl.
      const ttl = name === 'sqlite' ? 60_000 : 1_000
      const bound = name === 'sqlite' ? 200 : ttl + 250
      const { locks, key, holder, held } = await setUp(t, { ttl })
      const waiting = locks.acquire(key, { wait: Infinity })
      await until('the waiter to wait', () => locks.stats().contended > 0)
      const { ms, value: next } = await timed(async () => {
        await holder.kill()
        return waiting
      })
      assert.ok(next.fence > held.fence)
      assert.ok(ms < bound, `${ms} ms`)
      t.diagnostic(`handed over ${ms.toFixed(1)} ms after SIGKILL (ttl ${ttl} ms)`)
    })
  })
}
