// Hand-overs of workers between processes, and outages of their store.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { createLockClient, createLockWorker } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { sleep, timed, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis } from '../support/servers.mjs'
import { openStore, sharedStoreNames } from '../support/stores.mjs'

for (const name of sharedStoreNames) {
  describe(`worker hand-over: ${name}`, { timeout: 120_000 }, () => {
    const setUp = async (t) => {
      const store = await openStore(name, t)
      const key = randomUUID()
      const start = (workerId) => startChild(t, 'worker.mjs', { store, key, workerId })
      const a = start('a')
      const { fence } = await a.next('start')
      const b = start('b')
      await b.next('started')
      return { store, key, a, b, fence }
    }

    test('a worker that stops hands its lock over to the other process', async (t) => {
      const { a, b, fence } = await setUp(t)
      const { ms, value: begun } = await timed(async () => {
        assert.equal((await a.ask('stop')).state, 'idle')
        return b.next('start')
      })
      assert.ok(begun.fence > fence)
      const stopped = a.events.find(({ event }) => event === 'stop-work')
      assert.equal(stopped.reason, 'stopped')
      assert.ok(stopped.at < begun.at, 'the work ended before it began in the other process')
      t.diagnostic(`handed over in ${ms.toFixed(0)} ms`)
      a.tell('exit')
      await a.ended
    })

    test('the other process works after a worker is killed', async (t) => {
      const { a, b, fence } = await setUp(t)
      await a.kill()
      const begun = await b.next('start')
      assert.ok(begun.fence > fence)
    })

    test('ten hand-overs have no overlap', async (t) => {
      const { store, key, a, b } = await setUp(t)
      const running = [a, b]
      const terms = []
      for (let i = 0; i < 10; i++) {
        const [old, next] = running
        await old.ask('stop')
        const begun = await next.next('start')
        terms.push([old.events.findLast(({ event }) => event === 'stop-work').at, begun.at, begun.fence])
        await old.kill()
        running.reverse()
        running[1] = startChild(t, 'worker.mjs', { store, key, workerId: `w${i}` })
        await running[1].next('started')
      }
      assert.ok(terms.every(([ended, begun]) => ended < begun))
      assert.ok(terms.every(([, , fence], i) => i === 0 || fence > terms[i - 1][2]))
    })
  })
}

describe('worker: listeners that throw', { timeout: 60_000 }, () => {
  for (const throwing of ['state', 'acquired', 'renewed', 'released']) {
    test(`an exception of a '${throwing}' listener is uncaught, and the worker goes on`, async (t) => {
      const child = startChild(t, 'worker.mjs', { store: 'memory:x', key: 'k', ttl: 300, throwing })
      await child.next('start')
      if (throwing === 'renewed') await child.next('uncaught')
      assert.deepEqual((({ state, isHeld }) => ({ state, isHeld }))(await child.ask('look')), {
        state: 'working',
        isHeld: true,
      })
      assert.equal((await child.ask('stop')).state, 'idle')
      const exceptions = child.events.filter(({ event }) => event === 'uncaught')
      assert.ok(exceptions.length > 0 && exceptions.every(({ message }) => message === 'a mistake in a listener'))
    })
  }
})

describe('worker: redis outage', { timeout: 120_000 }, () => {
  test('if Redis restarts empty, the worker reports the loss and works again with a larger fence', async (t) => {
    const server = await startRedis(t)
    const child = startChild(t, 'worker.mjs', { store: server.url(), key: 'k' })
    const first = await child.next('start')
    await server.restartEmpty()
    const lost = await child.next('lost')
    assert.equal(lost.fence, first.fence)
    assert.ok(['missing', 'expired'].includes(lost.reason), lost.reason)
    assert.equal((await child.next('stop-work')).reason, lost.reason)
    const second = await child.next('start')
    assert.ok(second.fence > first.fence, `${second.fence} after ${first.fence}`)
    const names = child.events
      .filter(({ event }) => event === 'start' || event === 'stop-work')
      .map(({ event }) => event)
    assert.deepEqual(names, ['start', 'stop-work', 'start'])
    assert.equal((await child.ask('stop')).state, 'idle')
  })

  test('a worker whose store is down at its start works when the store is up', async (t) => {
    const server = await startRedis(t)
    await server.kill()
    const child = startChild(t, 'worker.mjs', { store: server.url(), key: 'k' })
    const failure = await child.next('error')
    assert.equal(failure.error.code, 'ERR_STORE_UNAVAILABLE')
    assert.equal((await child.ask('look')).isHeld, false)
    await server.start()
    await child.next('start')
    assert.equal((await child.ask('stop')).state, 'idle')
  })

  test('a worker without an error listener goes on after an outage', async (t) => {
    const server = await startRedis(t)
    await server.kill()
    const child = startChild(t, 'worker.mjs', { store: server.url(), key: 'k', deaf: true })
    await child.next('started')
    await new Promise((resolve) => setTimeout(resolve, 1_500))
    await server.start()
    await child.next('start')
    await server.kill()
    await child.next('stop-work')
    await server.start()
    await child.next('start')
    assert.equal(
      child.events.find(({ event }) => event === 'unhandled'),
      undefined,
    )
    const warnings = child.stderr.match(/LEASEHOLD_UNHEARD_ERROR/g)
    assert.equal(warnings?.length, 1, child.stderr)
    assert.match(child.stderr, /^\(node:\d+\) \[LEASEHOLD_UNHEARD_ERROR\] LeaseholdWarning: The worker of lock "k" has/)
  })

  test('stop() resolves while the store is down or frozen', async (t) => {
    for (const how of ['kill', 'freeze']) {
      const server = await startRedis(t)
      const child = startChild(t, 'worker.mjs', { store: server.url(), key: 'k' })
      await child.next('start')
      await server[how]()
      assert.equal((await within(`stop after ${how}`, child.ask('stop'), 20_000)).state, 'idle')
      child.tell('exit')
      assert.equal((await child.ended).code, 0)
    }
  })

  test('a deleted key is a loss, and the work begins again', async (t) => {
    const server = await startRedis(t)
    const redis = await server.command()
    const child = startChild(t, 'worker.mjs', { store: server.url(), key: 'k' })
    const first = await child.next('start')
    await redis('DEL', 'lock:k')
    assert.equal((await child.next('lost')).reason, 'missing')
    assert.equal((await child.next('stop-work')).reason, 'missing')
    const second = await child.next('start')
    assert.ok(second.fence > first.fence)
  })

  test('a worker does not close a client that it was given', async (t) => {
    const locks = createLockClient(`memory:${randomUUID()}`)
    atEnd(t, () => locks.close())
    const worker = createLockWorker({ client: locks, key: 'k', startWork() {} }).start()
    await new Promise((resolve) => worker.once('acquired', resolve))
    await worker.stop()
    assert.ok(await locks.tryAcquire('k'))
  })
})

describe('workers in the queue', { timeout: 60_000 }, () => {
  test('workers are served in arrival order for any retryInterval', async (t) => {
    const store = `memory:${randomUUID()}`
    const key = randomUUID()
    const began = []
    const start = (workerId, retryInterval) => {
      const worker = createLockWorker({ store, key, workerId, retryInterval, startWork: () => began.push(workerId) })
      atEnd(t, () => worker.stop())
      return worker.start()
    }
    const locks = createLockClient(store)
    atEnd(t, () => locks.close())
    const lease = await locks.acquire(key)
    const queued = (count) =>
      within(
        `${count} waiters`,
        (async () => {
          while ((await locks.inspect(key)).waiters.length < count) await sleep(5)
        })(),
      )
    const first = start('first', 20)
    await queued(1)
    const second = start('second', 60_000)
    await queued(2)
    await sleep(100)
    await lease.release()
    await within('the first', once(first, 'acquired'))
    await Promise.all([first.stop(), within('the second', once(second, 'acquired'))])
    assert.deepEqual(began, ['first', 'second'])
  })
})
