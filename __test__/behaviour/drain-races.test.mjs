// A lock is never handed over while its work still runs, also if a grant, a stop and a close()
// cross each other.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { createLockWorker } from 'leasehold'
import { withRequestLock } from 'leasehold/remix'
import { sleep, timed, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { gate } from '../support/gate.mjs'
import { overStores } from '../support/stores.mjs'

/** Blocks this thread for `ms`. */
const block = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)

overStores('drain: races', (store) => {
  const workerOf = (t, client, key, startWork = () => {}) => {
    const worker = createLockWorker({ client, key, startWork })
    atEnd(t, () => worker.stop())
    return worker
  }

  test('a section keeps its lock after a grant has crossed the stop of a worker', async (t) => {
    const [locks, other] = [store.client(t), store.client(t)]
    const [key, section] = [store.key(), store.key()]
    const worker = workerOf(t, locks, key).start()
    await once(worker, 'acquired')
    await worker.stop()
    // The release hands the lock to the worker in the same turn in which the worker is stopped.
    const lease = await locks.acquire(key)
    worker.start()
    await until('it to wait', () => locks.stats().waiting === 1)
    await lease.release()
    await worker.stop()
    const end = gate()
    const over = locks.withLock(section, () => end.passed)
    await until('the section to begin', async () => (await other.inspect(section)) !== null)
    const closing = locks.close()
    await sleep(100)
    assert.equal(await other.tryAcquire(section), null, 'the section still runs')
    end.pass()
    await over
    const { ms } = await timed(() => within('close()', closing))
    assert.ok(ms < 2_500, `${ms} ms`)
  })

  test('close() does not wait after a worker has released or lost its lease', async (t) => {
    const [locks, other] = [store.client(t, { ttl: 300 }), store.client(t)]
    const key = store.key()
    const worker = createLockWorker({ client: locks, key, retryInterval: 20, startWork: (lease) => lease.release() })
    atEnd(t, () => worker.stop())
    worker.start()
    await once(worker, 'released')
    await worker.stop()
    const lost = workerOf(t, locks, key).start()
    await once(lost, 'acquired')
    await other.forceRelease(key)
    await once(lost, 'lost')
    await lost.stop()
    const { ms } = await timed(() => locks.close())
    assert.ok(ms < 2_500, `${ms} ms`)
  })

  for (const event of ['acquired', 'state']) {
    test(`close() in the '${event}' listener of a worker leaves the lock to its work`, async (t) => {
      const [locks, other] = [store.client(t), store.client(t)]
      const [key, begun, end] = [store.key(), gate(), gate()]
      const worker = workerOf(t, locks, key, () => {
        begun.pass()
        return end.passed
      })
      let closing
      worker.on(event, () => {
        if (worker.state === 'working') closing ??= locks.close()
      })
      worker.start()
      await within('the work', begun.passed)
      await sleep(100)
      assert.equal(await other.tryAcquire(key), null, 'its work still runs')
      end.pass()
      await within('close()', closing)
      assert.ok(await other.tryAcquire(key))
    })
  }

  test('the lock of a body is held after the drain while its source still runs', async (t) => {
    const [locks, other] = [store.client(t), store.client(t)]
    const [key, cancelled, stop] = [store.key(), gate(), gate()]
    const serve = withRequestLock(locks, { key: () => key, until: 'body' }, () => {
      const body = new ReadableStream({
        pull: (controller) => controller.enqueue(new Uint8Array(1)),
        cancel() {
          cancelled.pass()
          return stop.passed
        },
      })
      return new Response(body)
    })
    const { body } = await serve(new Request('http://localhost/'))
    await body.getReader().read()
    await locks.close({ drain: 20 })
    await within('the cancel of its source', cancelled.passed)
    assert.equal(await other.tryAcquire(key), null, 'its source has not stopped yet')
    stop.pass()
    assert.ok(await until('the lock to be free', () => other.tryAcquire(key), 5_000))
  })

  test('the drain also ends under a fake clock that does not advance', async (t) => {
    const locks = store.client(t)
    const end = gate()
    const over = locks.withLock(store.key(), () => end.passed)
    await until('it to hold', () => locks.stats().held === 1)
    const closed = gate()
    // This timer is real: it was set before the fake clock.
    const closing = within('close()', closed.passed, 5_000)
    t.mock.timers.enable()
    locks.close({ drain: 50 }).then(closed.pass)
    try {
      await closing
    } finally {
      t.mock.timers.reset()
      end.pass()
    }
    await over
  })

  test('a section whose grant crosses the end of the drain sees its signal abort, or never begins', async (t) => {
    const other = store.client(t)
    for (let i = 0; i < 10; i++) {
      const locks = store.client(t, { ttl: 60_000 })
      await locks.ready()
      const [key, end] = [store.key(), gate()]
      let begun
      const section = (lease) => {
        begun = lease
        return end.passed
      }
      // The timers run next, before the engine's events.
      await new Promise(setImmediate)
      const over = locks.withLock(key, section).catch((error) => assert.equal(error.code, 'ERR_LOCK_CLOSED'))
      // The request is sent, and its reply arrives while this thread is blocked.
      await null
      await null
      block(20)
      const closing = locks.close({ drain: 0 })
      // The drain ends before this thread hears of the grant.
      block(5)
      await within('close()', closing)
      await sleep(5)
      if (begun !== undefined) assert.deepEqual([begun.isHeld, begun.signal.aborted], [false, true])
      end.pass()
      await over
      assert.ok(await until('the lock to be free', () => other.tryAcquire(key), 5_000))
    }
  })

  test('a listener that close() calls can shorten its drain', async (t) => {
    const locks = store.client(t)
    const [key, end] = [store.key(), gate()]
    const worker = workerOf(t, locks, key, () => end.passed)
    worker.start()
    await once(worker, 'acquired')
    worker.once('state', () => locks.close({ drain: 50 }))
    const { ms } = await timed(() => locks.close({ drain: 20_000 }))
    assert.ok(ms < 5_000, `${ms} ms`)
    end.pass()
    await worker.stop()
  })
})
