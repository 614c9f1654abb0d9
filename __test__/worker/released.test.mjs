// A lease that a worker's user releases: the end of the tenure, as good as any other.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { LockError } from 'leasehold'
import { until, within } from '../support/clock.mjs'
import { startRedis } from '../support/servers.mjs'
import { overStores } from '../support/stores.mjs'
import { startWorker } from '../support/workers.mjs'

// Not events.once(): it takes the 'error' of failed work for its own.
const told = (worker, event) => within(event, new Promise((resolve) => worker.once(event, resolve)))

/** Work that ends its first tenure by `first`; its later ones last until their signal. */
function work(first) {
  const tenures = []
  const startWork = (lease, signal) => {
    tenures.push({ lease, signal })
    return tenures.length === 1 ? first(lease, signal) : undefined
  }
  return { tenures, startWork }
}

const WAYS = {
  'and then resolves': async (lease) => {
    await lease.release()
  },
  'and then throws': async (lease) => {
    await lease.release()
    throw new Error('no more')
  },
  'without waiting for it, in its first breath': (lease) => {
    lease.release()
  },
  'and throws in the same breath': (lease) => {
    lease.release()
    throw new Error('no more')
  },
  'as `await using` does': async (lease) => {
    await lease[Symbol.asyncDispose]()
  },
  'and goes on until its signal says no': (lease, signal) => {
    const aborted = new Promise((resolve) => signal.addEventListener('abort', resolve))
    lease.release()
    return aborted
  },
  'and stumbles over that': async (lease) => {
    await lease.release()
    lease.assertHeld()
  },
}

overStores('worker whose lease is released', (store) => {
  for (const [how, first] of Object.entries(WAYS)) {
    test(`startWork releases it ${how}`, async (t) => {
      const { tenures, startWork } = work(first)
      const { worker, states, calls, errors, lost } = startWorker(t, store.url, { startWork, retryInterval: 50 })
      assert.equal(await told(worker, 'released'), tenures[0].lease)
      await until('the second tenure', () => tenures.length === 2)
      const [{ lease, signal }, second] = tenures
      assert.ok(signal.reason instanceof LockError)
      assert.equal(signal.reason.code, 'ERR_LOCK_RELEASED')
      assert.equal(lease.signal.aborted, false, 'giving back is no loss')
      assert.ok(second.lease.fence > lease.fence)
      assert.deepEqual(states, [
        'acquiring',
        ...['working', 'pausing', 'releasing', 'waiting'],
        ...['acquiring', 'working'],
      ])
      assert.deepEqual(calls, ['stop released'])
      assert.deepEqual(lost, [])
      // What work throws is told, unless it says only that its lease has ended.
      const expected = how.includes('throws') ? ['no more'] : []
      assert.deepEqual(
        errors.map(({ message }) => message),
        expected,
      )
      await worker.stop()
      assert.deepEqual(calls, ['stop released', 'stop stopped'])
    })
  }

  test('startWork detaches it: its tenure ends, and the lease goes on with whoever adopts it', async (t) => {
    let ticket
    const { startWork } = work(async (lease) => {
      ticket = await lease.detach()
    })
    const { worker, calls, errors, lost } = startWorker(t, store.url, { startWork, retryInterval: 50 })
    const lease = await told(worker, 'released')
    assert.deepEqual(calls, ['stop released'])
    const adopted = await store.client(t).adopt(ticket)
    assert.equal(adopted.fence, lease.fence)
    const again = told(worker, 'acquired')
    await adopted.release()
    assert.ok((await again).fence > lease.fence)
    await worker.stop()
    assert.deepEqual([errors, lost], [[], []])
  })

  test('others get their chance for retryInterval', async (t) => {
    const { startWork } = work((lease) => lease.release())
    const { worker, key } = startWorker(t, store.url, { startWork, retryInterval: 60_000 })
    await told(worker, 'released')
    await until('it to rest', () => worker.state === 'waiting')
    assert.ok(await store.client(t).tryAcquire(key))
    await within('a stop meanwhile', worker.stop(), 5_000)
  })

  test('from outside, in the middle of the work: stopWork is awaited before the next campaign', async (t) => {
    let finish
    const finished = new Promise((resolve) => {
      finish = resolve
    })
    const { worker, states, calls } = startWorker(t, store.url, { retryInterval: 1, stopWork: () => finished })
    const lease = await told(worker, 'acquired')
    await until('the work to begin', () => calls.length === 1)
    assert.equal(await worker.lease.release(), true)
    assert.equal(worker.state, 'pausing')
    assert.equal(worker.lease, null)
    await new Promise(setImmediate)
    assert.deepEqual(states, ['acquiring', 'working', 'pausing'])
    finish()
    assert.equal(await told(worker, 'released'), lease)
    await told(worker, 'acquired')
    assert.equal(calls[1], 'stop released')
  })

  for (const event of ['state', 'acquired']) {
    test(`by a listener of '${event}', before the work has begun`, async (t) => {
      const { worker, calls } = startWorker(t, store.url, { retryInterval: 50 })
      let first
      worker.on(event, () => {
        if (worker.state !== 'working' || first !== undefined) return
        first = worker.lease
        first.release()
      })
      await until('the second tenure', () => calls.length === 3)
      assert.deepEqual(calls.slice(0, 2), [`start ${first.fence}`, 'stop released'])
    })
  }

  test('by stopWork: it is being ended already', async (t) => {
    const { worker, states, calls } = startWorker(t, store.url, { stopWork: () => worker.lease.release() })
    const lease = await told(worker, 'acquired')
    await until('the work to begin', () => calls.length === 1)
    const released = told(worker, 'released')
    await within('stop()', worker.stop())
    assert.equal(await released, lease)
    assert.deepEqual(states, ['acquiring', 'working', 'cleanup', 'releasing', 'idle'])
    assert.deepEqual(calls, [`start ${lease.fence}`, 'stop stopped'])
  })
})

describe('worker whose lease is released: store away', { timeout: 60_000 }, () => {
  test('a release that fails is told, and the worker goes on', async (t) => {
    const server = await startRedis(t)
    const { worker, calls, errors } = startWorker(t, server.url(), { ttl: 500, retryInterval: 50 })
    const lease = await told(worker, 'acquired')
    await until('the work to begin', () => calls.length === 1)
    await server.kill()
    // Nobody handles its rejection.
    lease.release()
    await until('the work to end', () => calls.length === 2)
    assert.equal(calls[1], 'stop released')
    await until('the failure', () => errors.some(({ code }) => code === 'ERR_STORE_UNAVAILABLE'))
    await server.start()
    await until('the second tenure', () => calls.length === 3)
  })
})
