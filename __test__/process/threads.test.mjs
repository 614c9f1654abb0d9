// Worker threads share the one engine of the process.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { Worker } from 'node:worker_threads'
import { createLockClient } from 'leasehold'
import { until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { openStore, storeNames } from '../support/stores.mjs'

const THREAD = new URL('fixtures/thread.mjs', import.meta.url)

function startThread(t, workerData) {
  const thread = new Worker(THREAD, { workerData })
  atEnd(t, () => thread.terminate())
  return thread
}

for (const name of storeNames) {
  describe(`threads: ${name}`, { timeout: 120_000 }, () => {
    test('worker threads exclude each other', async (t) => {
      const store = await openStore(name, t)
      const counter = new SharedArrayBuffer(8)
      const rounds = 50
      const threads = Array.from({ length: 3 }, () =>
        startThread(t, { store, keys: ['shared'], act: 'count', rounds, counter, ttl: 30_000 }),
      )
      const reports = await within(
        'the threads',
        Promise.all(threads.map((thread) => once(thread, 'message'))),
        100_000,
      )
      assert.equal(new BigInt64Array(counter)[0], BigInt(3 * rounds), 'no update is lost')
      const log = reports.flatMap(([{ fences }]) => fences).sort((a, b) => a[0] - b[0])
      assert.ok(
        log.every(([, fence], i) => i === 0 || fence > log[i - 1][1]),
        'fences follow the count',
      )
    })

    test('a thread that ends, is terminated or blocks does not disturb the others', async (t) => {
      const store = await openStore(name, t)
      const locks = createLockClient({ store })
      atEnd(t, () => locks.close())
      const mine = await locks.acquire('mine', { ttl: 600 })
      const keys = { end: randomUUID(), hang: randomUUID(), block: randomUUID() }
      for (const [act, key] of Object.entries(keys)) {
        const thread = startThread(t, { store, keys: [key], act, ttl: 60_000 })
        await within(act, once(thread, 'message'))
        if (act !== 'end') {
          assert.equal(await locks.tryAcquire(key), null)
          await thread.terminate()
        }
        await until(`the lock of a thread that did ${act}`, () => locks.tryAcquire(key))
        await mine.renew()
      }
      assert.equal(await mine.release(), true)
    })

    test('many threads come and go', async (t) => {
      const store = await openStore(name, t)
      const locks = createLockClient({ store })
      atEnd(t, () => locks.close())
      for (let i = 0; i < 10; i++) {
        const thread = startThread(t, {
          store,
          keys: ['a', 'b'].map((key) => `${key}${i}`),
          act: i % 2 ? 'hang' : 'end',
        })
        await within('the thread', once(thread, 'message'))
        await thread.terminate()
      }
      await until('all locks to be free', async () => {
        const infos = await Promise.all(Array.from({ length: 10 }, (_, i) => locks.inspect(`a${i}`)))
        return infos.every((info) => info === null)
      })
    })
  })
}
