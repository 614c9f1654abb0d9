// Work that outlives stopTimeout: its signal aborts, stop() resolves, and the lock is held until
// the work ends.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { LockTimeoutError } from 'leasehold'
import { sleep, until, within } from '../support/clock.mjs'
import { gate } from '../support/gate.mjs'
import { lost } from '../support/leases.mjs'
import { overStores } from '../support/stores.mjs'
import { startWorker } from '../support/workers.mjs'

overStores('worker: overdue', (store) => {
  for (const own of [true, false]) {
    test(`the lock is free when the work ends, and not before, with ${own ? 'its own' : 'a given'} client`, async (t) => {
      const [other, end] = [store.client(t), gate()]
      const where = own ? [store.url, { ttl: 20_000 }] : [undefined, { client: store.client(t, { ttl: 20_000 }) }]
      let lease
      const { worker, key, errors } = startWorker(t, where[0], {
        ...where[1],
        stopTimeout: 100,
        startWork(given) {
          lease = given
          return end.passed
        },
      })
      await once(worker, 'acquired')
      await within('stop()', worker.stop())
      assert.ok(errors[0] instanceof LockTimeoutError, String(errors[0]))
      assert.match(errors[0].message, /free when the work ends/)
      assert.equal(worker.state, 'cleanup')
      lost('closed')(lease.signal.reason)
      assert.equal(await other.tryAcquire(key), null, 'the work still runs')
      await within('a second stop()', worker.stop())
      const waiting = other.acquire(key, { wait: 20_000 })
      end.pass()
      await within('the lock', waiting)
      await until('the worker to be idle', () => worker.state === 'idle')
    })
  }

  test('if the work never ends, the lock is free after its ttl', async (t) => {
    const {
      worker,
      key,
      lost: losses,
    } = startWorker(t, store.url, {
      ttl: 300,
      stopTimeout: 50,
      stopWork: () => new Promise(() => {}),
    })
    await once(worker, 'acquired')
    await within('stop()', worker.stop())
    const next = await store.client(t).acquire(key, { wait: 20_000 })
    assert.ok(next.isHeld)
    await until("'lost'", () => losses.length === 1)
  })

  test('work is never overdue with an endless stopTimeout', async (t) => {
    const [other, end] = [store.client(t), gate()]
    let lease
    const { worker, key, errors } = startWorker(t, store.url, {
      stopTimeout: Number.POSITIVE_INFINITY,
      startWork(given) {
        lease = given
        return end.passed
      },
    })
    await once(worker, 'acquired')
    const stopping = worker.stop()
    await sleep(200) // No error may occur meanwhile.
    assert.deepEqual([errors, worker.state, lease.isHeld, lease.signal.aborted], [[], 'cleanup', true, false])
    assert.equal(await other.tryAcquire(key), null)
    end.pass()
    await within('stop()', stopping)
    assert.ok(await other.tryAcquire(key))
  })

  test('no second term begins while the work of the first still runs', async (t) => {
    const [other, end, fences] = [store.client(t), gate(), []]
    let overlaps = 0
    const { worker, key, errors } = startWorker(t, store.url, {
      ttl: 300,
      stopTimeout: 50,
      retryInterval: 50,
      async startWork(lease) {
        fences.push(lease.fence)
        if (fences.length === 1) await end.passed
        else if (!isOver) overlaps++
      },
    })
    let isOver = false
    await once(worker, 'acquired')
    await other.forceRelease(key)
    await until('the work to be overdue', () => errors.length > 0)
    await sleep(500) // This is many times retryInterval.
    assert.deepEqual([worker.state, fences.length], ['pausing', 1])
    isOver = true
    end.pass()
    await until('the second term', () => fences.length === 2)
    assert.equal(overlaps, 0)
    assert.ok(fences[1] > fences[0])
  })

  test('a worker that starts again after an overdue stop begins when the work has ended', async (t) => {
    const [end, begun] = [gate(), []]
    const { worker } = startWorker(t, store.url, {
      stopTimeout: 50,
      async startWork(lease) {
        begun.push(lease.fence)
        if (begun.length === 1) await end.passed
      },
    })
    await once(worker, 'acquired')
    await worker.stop()
    worker.start()
    assert.deepEqual([worker.state, begun.length], ['cleanup', 1])
    end.pass()
    await until('the worker to work again', () => begun.length === 2)
    await worker.stop()
    assert.equal(worker.state, 'idle')
  })

  test('stop() resolves after stopTimeout, also if the worker was started again meanwhile', async (t) => {
    const [end, begun] = [gate(), []]
    const { worker, errors } = startWorker(t, store.url, {
      stopTimeout: 50,
      async startWork(lease) {
        begun.push(lease.fence)
        if (begun.length === 1) await end.passed
      },
    })
    await once(worker, 'acquired')
    const stopping = worker.stop()
    worker.start()
    await within('stop()', stopping)
    assert.deepEqual([errors.length, worker.state, begun.length], [1, 'cleanup', 1])
    end.pass()
    await until('the worker to work again', () => begun.length === 2)
    await worker.stop()
    assert.equal(worker.state, 'idle')
  })
})
