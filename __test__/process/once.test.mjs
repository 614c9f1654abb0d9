// A process does work once, while the store can't remember the id.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { now, within } from '../support/clock.mjs'
import { startRedis } from '../support/servers.mjs'

describe('once: a store that dies before it remembers', { timeout: 60_000 }, () => {
  /** Starts a process, and kills the store when the work of the process has begun. */
  async function forgotten(t, ttl) {
    const server = await startRedis(t)
    const child = startChild(t, 'once-mark.mjs', { store: server.url(), ttl })
    await child.next('began')
    await server.kill()
    return child
  }

  test('close() ends the attempts with the drain, and the process', async (t) => {
    const child = await forgotten(t, 30_000)
    const start = now()
    child.tell('close', { drain: 300 })
    child.tell('finish')
    const { error } = await child.next('failed', 5_000)
    assert.equal(error.code, 'ERR_STORE_UNAVAILABLE')
    const { ran, kept, at } = await child.next('outcome')
    assert.deepEqual([ran, kept], [true, false])
    assert.ok(at - start >= 299, `the process gave up before the drain was over, after ${at - start} ms`)
    assert.deepEqual(await within('the end of the process', child.ended, 5_000), { code: 0, signal: null })
    t.diagnostic(`the process was gone after ${(now() - start).toFixed(0)} ms`)
  })

  test('without close(), the process stays until once() settles', async (t) => {
    const child = await forgotten(t, 1_000)
    child.tell('finish')
    const { kept } = await child.next('outcome', 10_000)
    assert.equal(kept, false)
    assert.deepEqual(await within('the end of the process', child.ended, 10_000), { code: 0, signal: null })
    const reasons = child.events.filter(({ event }) => event === 'failed').map(({ error }) => error.reason)
    assert.deepEqual(reasons, ['expired'])
  })
})
