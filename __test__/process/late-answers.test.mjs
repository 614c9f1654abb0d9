// An answer reaches its caller even if it comes while a lease passes between two waiters of this
// process, and while many other answers are delivered in slices.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { now, sleep } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'

const ROUNDS = 150
/** How long an answer may take, in ms. The store answers at once. */
const MOST = 5_000
/** A renewal would wake the event loop. With this ttl, the first one comes after 9 s. */
const OPTIONS = { ttl: 30_000, wait: 60_000 }

/** Blocks this thread for `ms`, so that the engine answers meanwhile. */
function spin(ms) {
  const end = now() + ms
  while (now() < end);
}

describe('late answers', { timeout: 120_000 }, () => {
  test('the answer to a release arrives while a lease is handed on and many answers are delivered', async (t) => {
    const locks = createLockClient({ store: 'memory:late-answers' })
    atEnd(t, () => locks.close())
    await locks.acquire('busy', OPTIONS)
    for (let round = 0; round < ROUNDS; round++) {
      const other = await locks.acquire('other', OPTIONS)
      const asked = Array.from({ length: 12 }, () => locks.acquire('wanted', OPTIONS))
      // After some turns, the engine leaves the hand-offs to this thread.
      for (const one of asked.slice(0, 5)) await (await one).release()
      const [holder, next] = [await asked[5], asked[6]]
      const tries = Array.from({ length: 260 + ((round * 37) % 240) }, () => locks.tryAcquire('busy'))
      await tries[50]
      // `next` gets the lease on this thread, while the engine answers the release of `other`.
      holder.release()
      const released = other.release()
      spin(2 + (round % 4))
      const late = sleep(MOST).then(() => `no answer in round ${round}`)
      assert.equal(await Promise.race([released, late]), true)
      await Promise.all(tries)
      await (await next).release()
      for (const one of asked.slice(7)) await (await one).release()
    }
  })
})
