// If the user of a worker releases its lease, the term ends like any other.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { LockError } from 'leasehold'
import { until, within } from '../support/clock.mjs'
import { startRedis } from '../support/servers.mjs'
import { overStores } from '../support/stores.mjs'
import { startWorker } from '../support/workers.mjs'

/**
 * Resolves with the first argument of the event. events.once() would reject with an 'error' event.
 */
const nextEvent = (worker, event) => within(event, new Promise((resolve) => worker.once(event, resolve)))

/**
 * Returns a startWork that runs `first` in its first term, and lasts until stop() in later terms.
 */
function work(first) {
  const terms = []
  const startWork = (lease, signal) => {
    terms.push({ lease, signal })
    return terms.length === 1 ? first(lease, signal) : undefined
  }
  return { terms, startWork }
}

const WAYS = {
  'and then resolves': async (lease) => {
    await lease.release()
  },
  'and then throws': async (lease) => {
    await lease.release()
    throw new Error('no more')
  },
  'without waiting for it': (lease) => {
    lease.release()
  },
  'and throws at once': (lease) => {
    lease.release()
    throw new Error('no more')
  },
  'as `await using` does': async (lease) => {
    await lease[Symbol.asyncDispose]()
  },
  'and works until its signal aborts': (lease, signal) => {
    const aborted = new Promise((resolve) => signal.addEventListener('abort', resolve))
    lease.release()
    return aborted
  },
  'and then calls assertHeld()': async (lease) => {
    await lease.release()
    lease.assertHeld()
  },
}

overStores('worker whose lease is released', (store) => {
  for (const [how, first] of Object.entries(WAYS)) {
    test(`startWork releases its lease ${how}`, async (t) => {
      const { terms, startWork } = work(first)
      const { worker, states, calls, errors, lost } = startWorker(t, store.url, { startWork, retryInterval: 50 })
      assert.equal(await nextEvent(worker, 'released'), terms[0].lease)
      await until('the second term', () => terms.length === 2)
      const [{ lease, signal }, second] = terms
      assert.ok(signal.reason instanceof LockError)
      assert.equal(signal.reason.code, 'ERR_LOCK_RELEASED')
      assert.equal(lease.signal.aborted, false, 'a release is not a loss')
      assert.ok(second.lease.fence > lease.fence)
      assert.deepEqual(states, [
        'acquiring',
        ...['working', 'pausing', 'releasing', 'waiting'],
        ...['acquiring', 'working'],
      ])
      assert.deepEqual(calls, ['stop released'])
      assert.deepEqual(lost, [])
      // The worker reports an error of the work, except an error about the end of its lease.
      const expected = how.includes('throws') ? ['no more'] : []
      assert.deepEqual(
        errors.map(({ message }) => message),
        expected,
      )
      await worker.stop()
      assert.deepEqual(calls, ['stop released', 'stop stopped'])
    })
  }

  test('if startWork detaches its lease, the term ends, and another client can adopt the lease', async (t) => {
    let ticket
    const { startWork } = work(async (lease) => {
      ticket = await lease.detach()
    })
    const { worker, calls, errors, lost } = startWorker(t, store.url, { startWork, retryInterval: 50 })
    const lease = await nextEvent(worker, 'released')
    assert.deepEqual(calls, ['stop released'])
    const adopted = await store.client(t).adopt(ticket)
    assert.equal(adopted.fence, lease.fence)
    const again = nextEvent(worker, 'acquired')
    await adopted.release()
    assert.ok((await again).fence > lease.fence)
    await worker.stop()
    assert.deepEqual([errors, lost], [[], []])
  })

  test('other clients get a chance for retryInterval', async (t) => {
    const { startWork } = work((lease) => lease.release())
    const { worker, key } = startWorker(t, store.url, { startWork, retryInterval: 60_000 })
    await nextEvent(worker, 'released')
    await until('the worker to wait', () => worker.state === 'waiting')
    assert.ok(await store.client(t).tryAcquire(key))
    await within('stop()', worker.stop(), 5_000)
  })

  test('if another caller releases the lease, stopWork is awaited before the next campaign', async (t) => {
    let finish
    const finished = new Promise((resolve) => {
      finish = resolve
    })
    const { worker, states, calls } = startWorker(t, store.url, { retryInterval: 1, stopWork: () => finished })
    const lease = await nextEvent(worker, 'acquired')
    await until('the work to begin', () => calls.length === 1)
    assert.equal(await worker.lease.release(), true)
    assert.equal(worker.state, 'pausing')
    assert.equal(worker.lease, null)
    await new Promise(setImmediate)
    assert.deepEqual(states, ['acquiring', 'working', 'pausing'])
    finish()
    assert.equal(await nextEvent(worker, 'released'), lease)
    await nextEvent(worker, 'acquired')
    assert.equal(calls[1], 'stop released')
  })

  for (const event of ['state', 'acquired']) {
    test(`a listener of '${event}' may release the lease before the work begins`, async (t) => {
      const { worker, calls } = startWorker(t, store.url, { retryInterval: 50 })
      let first
      worker.on(event, () => {
        if (worker.state !== 'working' || first !== undefined) return
        first = worker.lease
        first.release()
      })
      await until('the second term', () => calls.length === 3)
      assert.deepEqual(calls.slice(0, 2), [`start ${first.fence}`, 'stop released'])
    })
  }

  test('stopWork may release the lease, which the worker releases anyway', async (t) => {
    const { worker, states, calls } = startWorker(t, store.url, { stopWork: () => worker.lease.release() })
    const lease = await nextEvent(worker, 'acquired')
    await until('the work to begin', () => calls.length === 1)
    const released = nextEvent(worker, 'released')
    await within('stop()', worker.stop())
    assert.equal(await released, lease)
    assert.deepEqual(states, ['acquiring', 'working', 'cleanup', 'releasing', 'idle'])
    assert.deepEqual(calls, [`start ${lease.fence}`, 'stop stopped'])
  })
})

describe('worker whose lease is released: outage', { timeout: 60_000 }, () => {
  test('the worker reports a failed release, and goes on', async (t) => {
    const server = await startRedis(t)
    const { worker, calls, errors } = startWorker(t, server.url(), { ttl: 500, retryInterval: 50 })
    const lease = await nextEvent(worker, 'acquired')
    await until('the work to begin', () => calls.length === 1)
    await server.kill()
    // The test does not handle the rejection of this call.
    lease.release()
    await until('the work to end', () => calls.length === 2)
    assert.equal(calls[1], 'stop released')
    await until('the failure', () => errors.some(({ code }) => code === 'ERR_STORE_UNAVAILABLE'))
    await server.start()
    await until('the second term', () => calls.length === 3)
  })
})
