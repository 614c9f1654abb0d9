// A process that exits releases its locks. If a process can still act when it ends, its locks are
// free at once.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { Worker } from 'node:worker_threads'
import { createLockClient } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { now, sleep, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { openStore, sharedStoreNames } from '../support/stores.mjs'

/**
 * Asserts that the locks of many.mjs are free now. The process is gone, so it must have released
 * them before.
 */
async function assertFree(locks, count) {
  const infos = await Promise.all(Array.from({ length: count }, (_, i) => locks.inspect(`k${i}`)))
  assert.equal(infos.filter(Boolean).length, 0, `of ${count} locks some are still held`)
}

for (const name of sharedStoreNames) {
  describe(`ends: ${name}`, { timeout: 240_000 }, () => {
    const ENDS = {
      exit: ['process.exit() while holding 1000 leases: all free within 500 ms', 1_000, 0],
      'exit-blocked': ['process.exit() right after a blocked loop, 100 leases', 100, 0],
      throw: ['an uncaught exception, 100 leases', 100, 1],
      natural: ['the natural end of the event loop with held leases, 100 leases', 100, 0],
    }
    for (const [end, [title, count, code]] of Object.entries(ENDS)) {
      test(title, async (t) => {
        const store = await openStore(name, t)
        const locks = createLockClient({ store, prefix: 'many:' })
        atEnd(t, () => locks.close())
        const child = startChild(t, 'many.mjs', { store, count, ttl: 60_000, end })
        assert.equal((await child.next('held', 60_000)).count, count)
        assert.ok(await locks.inspect('k0'))
        child.tell('go')
        const going = await child.next('going')
        const ended = await within('the end of the process', child.ended, 10_000)
        const ms = now() - going.at
        await assertFree(locks, count)
        assert.deepEqual(ended, { code, signal: null }, child.stderr)
        assert.ok(ms < 500, `the last line was ${ms} ms before the end of the process`)
        if (end === 'throw') assert.match(child.stderr, /a mistake of the user/)
        t.diagnostic(`${count} leases free and the process gone ${ms.toFixed(0)} ms after its last line`)
      })
    }

    test('20 copies of the package in one process add one listener, and the exit releases the leases of all copies', async (t) => {
      const store = await openStore(name, t)
      const locks = createLockClient({ store, prefix: 'many:' })
      atEnd(t, () => locks.close())
      const child = startChild(t, 'reloads.mjs', { store, count: 20 })
      const { copies, listeners, warnings } = await child.next('held', 60_000)
      assert.deepEqual({ copies, listeners, warnings }, { copies: 20, listeners: 1, warnings: [] })
      assert.ok(await locks.inspect('k0'))
      child.tell('end')
      assert.deepEqual(await within('the end', child.ended, 10_000), { code: 0, signal: null })
      await assertFree(locks, 20)
    })

    test('releaseOnSignal: SIGTERM releases the leases, and the process still ends by SIGTERM', async (t) => {
      const store = await openStore(name, t)
      const locks = createLockClient({ store, prefix: 'many:' })
      atEnd(t, () => locks.close())
      const child = startChild(t, 'many.mjs', {
        store,
        count: 50,
        ttl: 60_000,
        client: { releaseOnSignal: ['SIGTERM', 'SIGINT'] },
      })
      await child.next('held')
      const sent = now()
      child.signal('SIGTERM')
      assert.deepEqual(await within('the end', child.ended, 10_000), { code: null, signal: 'SIGTERM' })
      assert.ok(now() - sent < 1_000, `${now() - sent} ms`)
      await assertFree(locks, 50)
    })

    test('releaseOnSignal does not end the process if the user listens to the signal', async (t) => {
      const store = await openStore(name, t)
      const locks = createLockClient({ store, prefix: 'many:' })
      atEnd(t, () => locks.close())
      const child = startChild(t, 'listener.mjs', { store })
      await child.next('held')
      child.signal('SIGTERM')
      await child.next('heard')
      await until('the lease to be released', async () => (await locks.inspect('k0')) === null)
      assert.equal((await child.ask('still-here')).aborted, true)
      child.tell('exit')
      assert.deepEqual(await child.ended, { code: 7, signal: null })
    })

    test('without releaseOnSignal, SIGTERM ends the process as usual', async (t) => {
      const store = await openStore(name, t)
      const child = startChild(t, 'many.mjs', { store, ttl: 500 })
      await child.next('held')
      child.signal('SIGTERM')
      assert.deepEqual(await within('the end', child.ended, 10_000), { code: null, signal: 'SIGTERM' })
    })

    test('worker-thread terminate() releases what the thread held', async (t) => {
      const store = await openStore(name, t)
      const locks = createLockClient(store)
      atEnd(t, () => locks.close())
      const key = randomUUID()
      const thread = new Worker(new URL('fixtures/thread.mjs', import.meta.url), {
        workerData: { store, keys: [key], ttl: 60_000, act: 'hang' },
      })
      atEnd(t, () => thread.terminate())
      await within('the thread to hold', once(thread, 'message'))
      assert.equal(await locks.tryAcquire(key), null)
      const terminated = now()
      await thread.terminate()
      await until('the lock to be free', () => locks.tryAcquire(key))
      assert.ok(now() - terminated < 1_500, `${now() - terminated} ms`)
    })
  })
}

describe('ends: after all clients were closed, and another one was opened', { timeout: 120_000 }, () => {
  for (const end of ['exit', 'exit-blocked', 'throw', 'natural']) {
    test(`the end of the process releases 10 leases: ${end}`, async (t) => {
      const store = await openStore('sqlite', t)
      const locks = createLockClient({ store, prefix: 'many:' })
      atEnd(t, () => locks.close())
      const child = startChild(t, 'many.mjs', { store, count: 10, ttl: 60_000, end, reopened: true })
      await child.next('held')
      assert.ok(await locks.inspect('k0'))
      child.tell('go')
      const { code } = await within('the end of the process', child.ended, 10_000)
      // Do not wait here: the store also frees the locks of a process that is gone, but later.
      await assertFree(locks, 10)
      assert.equal(code, end === 'throw' ? 1 : 0, child.stderr)
    })
  }

  test('terminate() releases what a worker thread held', async (t) => {
    const store = `memory:${randomUUID()}`
    const locks = createLockClient(store)
    atEnd(t, () => locks.close())
    const thread = new Worker(new URL('fixtures/thread.mjs', import.meta.url), {
      workerData: { store, keys: ['k'], ttl: 60_000, act: 'hang', reopened: true },
    })
    atEnd(t, () => thread.terminate())
    await within('the thread to hold', once(thread, 'message'))
    assert.equal(await locks.tryAcquire('k'), null)
    await thread.terminate()
    await until('the lock to be free', () => locks.tryAcquire('k'))
  })
})

describe('ends: staying alive', { timeout: 120_000 }, () => {
  const store = `memory:${randomUUID()}`

  const IDLE = ['client', 'lease', 'aborted', 'worker-stopped', 'ready', 'settled', 'close-again']
  for (const idle of [...IDLE, 'retry-aborted', 'callback-done', 'detached']) {
    test(`the process exits by itself when only this is left: ${idle}`, async (t) => {
      const child = startChild(t, 'alive.mjs', { store, left: idle })
      await child.next('last-line')
      const { code, signal } = await within('the natural end', child.ended, 10_000)
      assert.deepEqual({ code, signal }, { code: 0, signal: null }, child.stderr)
    })
  }

  for (const [pending, proof] of [
    ['acquire', 'ERR_LOCK_TIMEOUT'],
    ['release', true],
    ['inspect', 'inspected'],
    ['close', 'closed'],
    ['withLock', 'ERR_LOCK_LOST'],
    ['callback', 'ERR_LOCK_LOST'],
    ['retry', 'ERR_LOCK_TIMEOUT'],
    ['several', 'ERR_LOCK_TIMEOUT'],
  ]) {
    test(`the process stays until a pending promise settles: ${pending}`, async (t) => {
      const child = startChild(t, 'alive.mjs', { store, left: pending })
      await child.next('last-line')
      const { code } = await within('the natural end', child.ended, 20_000)
      assert.equal(code, 0, child.stderr)
      assert.equal(
        child.events.find(({ event }) => event === 'settled')?.value,
        proof,
        'the process ended before the promise settled',
      )
    })
  }

  test('the process stays while a worker runs, and ends when it has stopped', async (t) => {
    const child = startChild(t, 'alive.mjs', { store, left: 'worker' })
    await child.next('last-line')
    const outcome = await Promise.race([child.ended.then(() => 'ended'), sleep(1_000).then(() => 'alive')])
    assert.equal(outcome, 'alive')
    child.signal('SIGUSR2')
    const { code } = await within('the end after stop()', child.ended, 10_000)
    assert.equal(code, 0, child.stderr)
  })
})
