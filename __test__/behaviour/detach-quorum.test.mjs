// Detaches a lease over a quorum while its client reserves more fences for a local waiter.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createLockClient } from 'leasehold'
import { sleep } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { randomFrom } from '../support/random.mjs'
import { startRelay } from '../support/relay.mjs'
import { startRedis } from '../support/servers.mjs'

const ROUNDS = Number(process.env.LEASEHOLD_TEST_REPEAT ?? 30)
/** The delay of each direction, in ms. */
const DELAY = 5

test('the adopter has the fence of the lease that was detached while its client reserved more fences', async (t) => {
  const random = randomFrom(t)
  const servers = await Promise.all([0, 1, 2].map(() => startRedis(t)))
  const relays = await Promise.all(servers.map(({ port }) => startRelay(t, port)))
  for (const relay of relays) relay.slow(DELAY, { jitter: DELAY / 4, random })
  const store = relays.map(({ port }) => `redis://127.0.0.1:${port}`)
  const [locks, other] = ['detaches', 'adopts'].map((name) => createLockClient({ store, name, ttl: 20_000 }))
  atEnd(t, () => Promise.all([locks.close(), other.close()]))
  await Promise.all([locks.ready(), other.ready()])
  for (let round = 0; round < ROUNDS; round++) {
    const key = `round ${round}`
    const lease = await locks.acquire(key)
    const waiter = locks.acquire(key, { wait: 20_000 })
    // The client reserves fences for the waiter in two round trips. The test detaches the lease at
    // a random time during these.
    await sleep(random() * 4 * DELAY)
    const ticket = await lease.detach()
    const adopted = await other.adopt(ticket)
    assert.equal(adopted.fence, lease.fence, `round ${round}`)
    assert.equal((await other.inspect(key)).fence, lease.fence, `round ${round}`)
    await adopted.release()
    const next = await waiter
    assert.ok(next.fence > lease.fence, `round ${round}: ${next.fence} after ${lease.fence}`)
    await next.release()
  }
})
