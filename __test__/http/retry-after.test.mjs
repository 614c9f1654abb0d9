// Checks the Retry-After of refused requests. It follows from the time for which requests hold
// their locks, and from the number of waiters.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { describe, test } from 'node:test'
import { lockRequest } from 'leasehold/express'
import { withRequestLock } from 'leasehold/remix'
import { sleep, until } from '../support/clock.mjs'
import { frameworks, open, serve } from '../support/http-servers.mjs'

const { HoldTime } = createRequire(import.meta.url)('../../dist/integrations/http/hold-time.js')

const KEY = 'key'

describe('HoldTime', () => {
  test('the time is 1 s before the first hold, however many callers wait', () => {
    const hold = new HoldTime()
    assert.equal(hold.secondsBehind(0), 1)
    assert.equal(hold.secondsBehind(1_000), 1)
  })

  test('the holder and each waiter count with the time of earlier holds', () => {
    const hold = new HoldTime()
    hold.add(500)
    assert.deepEqual(
      [0, 1, 2, 3, 9].map((waiting) => hold.secondsBehind(waiting)),
      [1, 1, 2, 2, 5],
    )
  })

  test('the time is whole seconds from 1 to 60', () => {
    for (const [ms, seconds] of [
      [0, 1],
      [1, 1],
      [1_000, 1],
      [1_001, 2],
      [59_500, 60],
      [3_600_000, 60],
    ]) {
      const hold = new HoldTime()
      hold.add(ms)
      assert.equal(hold.secondsBehind(0), seconds, `${ms} ms`)
    }
    const hold = new HoldTime()
    hold.add(100)
    assert.equal(hold.secondsBehind(1e9), 60)
  })

  test('one long hold changes the time little, and many change it', () => {
    const hold = new HoldTime()
    for (let i = 0; i < 10; i++) hold.add(1_000)
    hold.add(9_000)
    assert.equal(hold.secondsBehind(0), 2, 'one hold counts for an eighth of the difference')
    for (let i = 0; i < 40; i++) hold.add(9_000)
    assert.equal(hold.secondsBehind(0), 9)
    for (let i = 0; i < 40; i++) hold.add(500)
    assert.equal(hold.secondsBehind(0), 1)
  })
})

const kinds = {
  lockRequest: (t, locks, options, work) =>
    serve(
      t,
      frameworks['Express 5'](lockRequest(locks, options), async (_request, response) => {
        await work()
        response.end()
      }),
    ),
  withRequestLock(t, locks, options, work) {
    const handler = withRequestLock(locks, options, async () => {
      await work()
      return new Response()
    })
    return serve(t, async (_request, response) => {
      const { status, headers } = await handler(new Request('http://host/'))
      response.writeHead(status, Object.fromEntries(headers))
      response.end()
    })
  },
}

for (const [name, start] of Object.entries(kinds)) {
  describe(`Retry-After of ${name}`, { timeout: 60_000 }, () => {
    const ask = async (url) => {
      const { status, headers } = await fetch(url)
      return [status, headers.get('retry-after')]
    }

    test('Retry-After is 1 s at first and for short work, although the ttl of the lease is 10 s', async (t) => {
      const locks = open(t, { wait: 0 })
      const url = await start(t, locks, { key: () => KEY }, () => sleep(50))
      const lease = await locks.acquire(KEY)
      assert.deepEqual(await ask(url), [423, '1'])
      await lease.release()
      assert.deepEqual(await ask(url), [200, null])
      await locks.acquire(KEY)
      assert.deepEqual(await ask(url), [423, '1'])
    })

    test('Retry-After is longer for longer work and for more waiters', async (t) => {
      const locks = open(t)
      const url = await start(t, locks, { key: () => KEY, wait: 20 }, () => sleep(1_050))
      assert.deepEqual(await ask(url), [200, null])
      const lease = await locks.acquire(KEY)
      const [status, alone] = await ask(url)
      assert.equal(status, 423)
      // The work takes a little over 1 s, and more on a busy machine.
      assert.ok(alone >= 2 && alone <= 3, alone)
      const waiting = Array.from({ length: 4 }, () => locks.withLock(KEY, () => {}))
      await until('them to wait', async () => (await locks.inspect(KEY)).waiting === 4)
      const [, behind] = await ask(url)
      assert.ok(behind >= 6 && behind <= 12, behind)
      await lease.release()
      await Promise.all(waiting)
    })
  })
}
