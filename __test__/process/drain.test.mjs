// A lock is never handed over while its work still runs, also when a process ends by a signal or
// after a drain.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { sleep, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { openStore, sharedStoreNames } from '../support/stores.mjs'

const ON_SIGTERM = { releaseOnSignal: ['SIGTERM', 'SIGINT'] }
const OF_SIGTERM = { code: null, signal: 'SIGTERM' }

for (const name of sharedStoreNames) {
  describe(`drain: ${name}`, { timeout: 120_000 }, () => {
    /**
     * Starts a process that runs a section of the key `k`, and a client that waits for its lock.
     */
    async function running(t, options) {
      const store = await openStore(name, t)
      const locks = createLockClient({ store })
      atEnd(t, () => locks.close())
      const child = startChild(t, 'section.mjs', { store, ...options })
      await child.next('held')
      return { child, locks }
    }

    for (const as of ['withLock', 'worker']) {
      test(`releaseOnSignal lets a section end, and then the process ends by the signal: ${as}`, async (t) => {
        const { child, locks } = await running(t, { as, client: ON_SIGTERM })
        const waiting = locks.acquire('k', { wait: 20_000 })
        child.signal('SIGTERM')
        assert.equal(await Promise.race([child.ended, sleep(300)]), undefined, 'the section still runs')
        assert.notEqual(await locks.inspect('k'), null)
        child.tell('end')
        assert.equal((await child.next('ended')).isHeld, true)
        assert.deepEqual(await within('the end', child.ended, 10_000), OF_SIGTERM)
        await within('the lock', waiting, 5_000)
      })
    }

    test('a second signal ends the process at once', async (t) => {
      const { child } = await running(t, { client: ON_SIGTERM })
      child.signal('SIGTERM')
      // A signal within 0.5 s counts as the same one.
      assert.equal(await Promise.race([child.ended, sleep(600)]), undefined)
      child.signal('SIGINT')
      assert.deepEqual(await within('the end', child.ended, 2_000), { code: null, signal: 'SIGINT' })
    })

    test('a signal that a parent process forwards once more does not end the process', async (t) => {
      const { child } = await running(t, { client: ON_SIGTERM })
      child.signal('SIGTERM')
      assert.equal(await Promise.race([child.ended, sleep(50)]), undefined)
      child.signal('SIGTERM')
      assert.equal(await Promise.race([child.ended, sleep(200)]), undefined)
      child.tell('end')
      assert.equal((await child.next('ended')).isHeld, true)
      assert.deepEqual(await within('the end', child.ended, 10_000), OF_SIGTERM)
    })

    test('after the drain the signal of the section aborts, and the process ends by the signal', async (t) => {
      const { child } = await running(t, { hangs: true, client: { ...ON_SIGTERM, drain: 300 } })
      child.signal('SIGTERM')
      assert.equal((await child.next('aborted')).reason, 'closed')
      assert.deepEqual(await within('the end', child.ended, 2_000), OF_SIGTERM)
    })

    test('a section that never ends does not keep the process alive after close()', async (t) => {
      const { child, locks } = await running(t, { hangs: true })
      assert.equal(child.events.at(-1).event, 'held')
      child.tell('unref')
      child.tell('close', { drain: 100 })
      assert.deepEqual(await within('the end', child.ended, 10_000), { code: 0, signal: null })
      assert.equal((await locks.tryAcquire('k')) !== null, true, 'the lock is released when its process ends')
    })

    test('work that never ends, with an endless stopTimeout, does not keep the process alive after close()', async (t) => {
      const options = { as: 'worker', hangs: true, worker: { stopTimeout: 'Infinity' }, stops: false }
      const { child } = await running(t, { ...options, client: { drain: 100 } })
      child.tell('unref')
      child.tell('close')
      assert.deepEqual(await within('the end', child.ended, 10_000), { code: 0, signal: null })
    })

    test('releaseOnSignal does not cut off a shutdown that was registered before it', async (t) => {
      const { child } = await running(t, { client: ON_SIGTERM, registered: true })
      child.signal('SIGTERM')
      await child.next('shutting-down')
      child.tell('end')
      assert.deepEqual(await within('the end', child.ended, 10_000), { code: 7, signal: null })
    })

    test('a client that is opened while others drain is closed, too', async (t) => {
      const { child } = await running(t, { client: ON_SIGTERM, joins: true })
      child.signal('SIGTERM')
      child.tell('end')
      await child.next('joined')
      await child.next('late-ended')
      assert.deepEqual(await within('the end', child.ended, 10_000), OF_SIGTERM)
    })

    test('work that never ends does not keep the process alive after stop() and close()', async (t) => {
      const options = { as: 'worker', hangs: true, worker: { stopTimeout: 100 }, client: { drain: 100 } }
      const { child } = await running(t, options)
      child.tell('unref')
      child.tell('close')
      assert.match((await child.next('fault')).message, /did not end within 100 ms/)
      assert.deepEqual(await within('the end', child.ended, 10_000), { code: 0, signal: null })
    })
  })
}
