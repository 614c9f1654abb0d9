// A worker in one process: its states, its calls of startWork and stopWork, and its failures.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { EventEmitter, once } from 'node:events'
import { describe, test } from 'node:test'
import { createLockClient, createLockWorker } from 'leasehold'
import { sleep, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { overStores } from '../support/stores.mjs'
import { startWorker } from '../support/workers.mjs'

overStores('worker', (store) => {
  test('the states are idle, acquiring, working, cleanup, releasing and idle', async (t) => {
    const { worker, states, calls } = startWorker(t, store.url)
    assert.ok(worker instanceof EventEmitter)
    const [lease] = await within('acquired', once(worker, 'acquired'))
    await until('the work to begin', () => calls.length === 1)
    assert.equal(worker.state, 'working')
    assert.equal(worker.lease, lease)
    assert.equal(lease.isHeld, true)
    const released = once(worker, 'released')
    await worker.stop()
    assert.equal((await released)[0], lease)
    assert.equal(worker.state, 'idle')
    assert.equal(worker.lease, null)
    assert.equal(lease.isHeld, false)
    assert.deepEqual(states, ['acquiring', 'working', 'cleanup', 'releasing', 'idle'])
    assert.deepEqual(calls, [`start ${lease.fence}`, 'stop stopped'])
  })

  test('the own client of a worker has the prefix of its options', async (t) => {
    const locks = store.client(t, { prefix: '' })
    const { worker, key } = startWorker(t, store.url, { prefix: '' })
    const [lease] = await within('acquired', once(worker, 'acquired'))
    assert.equal((await locks.inspect(key)).fence, lease.fence)
    await worker.stop()
    assert.equal(await locks.inspect(key), null)
  })

  test('a listener that always starts an idle worker again does not block the event loop', async (t) => {
    const locks = store.client(t)
    const worker = createLockWorker({ client: locks, key: store.key(), startWork() {} })
    worker.on('error', () => {})
    const acquired = once(worker, 'acquired')
    worker.start()
    await within('acquired', acquired)
    let restarts = 0
    worker.on('state', (state) => {
      if (state === 'idle' && ++restarts < 10_000) worker.start()
    })
    await within('close()', locks.close({ drain: 100 }))
    for (let turns = 0; turns < 10; turns++) await new Promise((resolve) => setImmediate(resolve))
    worker.removeAllListeners('state')
    await worker.stop()
    assert.ok(restarts < 1_000, `${restarts} restarts`)
  })

  test('startWork runs once per term, however often the lease is renewed', async (t) => {
    const { worker, calls } = startWorker(t, store.url, { ttl: 300 })
    for (let i = 0; i < 5; i++) await within('renewed', once(worker, 'renewed'))
    assert.equal(calls.length, 1)
    assert.equal(worker.state, 'working')
    await worker.stop()
    assert.equal(calls.length, 2)
  })

  test('stopWork is awaited before the lock is released', async (t) => {
    const locks = store.client(t)
    let finish
    const finished = new Promise((resolve) => {
      finish = resolve
    })
    const { worker, key } = startWorker(t, store.url, { stopWork: () => finished })
    await once(worker, 'acquired')
    let stopped = false
    const stopping = worker.stop().then(() => {
      stopped = true
    })
    await sleep(200)
    assert.equal(worker.state, 'cleanup')
    assert.equal(worker.lease.isHeld, true)
    assert.equal(await locks.tryAcquire(key), null)
    assert.equal(stopped, false)
    finish()
    await stopping
    assert.ok(await locks.tryAcquire(key))
  })

  test('stop() aborts the signal of startWork, and waits for its promise', async (t) => {
    let ended = false
    const { worker } = startWorker(t, store.url, {
      async startWork(_, signal) {
        await once(signal, 'abort')
        await sleep(50)
        ended = true
      },
    })
    await once(worker, 'acquired')
    await worker.stop()
    assert.equal(ended, true)
  })

  test('if work rejects with an error whose properties throw, the worker still stops and releases the lock', async (t) => {
    const hostile = Object.defineProperty(new Error('hostile'), 'code', {
      get() {
        throw new Error('a getter')
      },
    })
    const errors = []
    const { worker, key } = startWorker(t, store.url, {
      async startWork(_, signal) {
        await once(signal, 'abort')
        throw hostile
      },
    })
    worker.removeAllListeners('error').on('error', (error) => errors.push(error))
    await once(worker, 'acquired')
    await within('stop() to resolve', worker.stop(), 5_000)
    assert.deepEqual([worker.state, errors[0]], ['idle', hostile])
    assert.equal(await store.client(t).inspect(key), null)
  })

  test('one of two workers works, and the other works with a larger fence when it stops', async (t) => {
    const key = store.key()
    const a = startWorker(t, store.url, { key })
    await once(a.worker, 'acquired')
    const b = startWorker(t, store.url, { key, retryInterval: 100 })
    await until('b to wait', () => b.worker.state === 'waiting')
    assert.equal(b.calls.length, 0)
    const first = a.worker.lease.fence
    const taken = once(b.worker, 'acquired')
    await a.worker.stop()
    const [lease] = await within('the hand-over', taken)
    assert.ok(lease.fence > first)
    assert.equal(a.worker.state, 'idle')
  })

  test('if startWork throws or rejects, other clients get a chance, and the worker tries again', async (t) => {
    const key = store.key()
    const failures = [
      () => {
        throw new Error('cannot begin')
      },
      () => Promise.reject(new Error('cannot go on')),
      () => 'works',
    ]
    let tries = 0
    const { worker, errors, calls, states } = startWorker(t, store.url, {
      key,
      retryInterval: 150,
      startWork: () => failures[tries++](),
    })
    await until('the third try', () => tries === 3)
    await until('the worker to work', () => worker.state === 'working')
    assert.deepEqual(
      errors.map((error) => error.message),
      ['cannot begin', 'cannot go on'],
    )
    assert.deepEqual(calls, ['stop failed', 'stop failed'])
    assert.ok(states.includes('pausing') && states.includes('waiting'), states.join())
    await worker.stop()
  })

  test('if work throws a value that is not an Error, the value is the cause of the reported error', async (t) => {
    const thrown = ['text', { code: 7 }, undefined]
    let tries = 0
    const { worker, errors } = startWorker(t, store.url, {
      retryInterval: 50,
      startWork() {
        if (tries < thrown.length) throw thrown[tries++]
      },
    })
    await until('the worker to work', () => worker.state === 'working' && errors.length === thrown.length)
    for (const error of errors) assert.ok(error instanceof Error)
    assert.deepEqual(
      errors.map((error) => error.cause),
      thrown,
    )
    assert.equal(errors[0].message, 'what was thrown is not an Error, but "text"')
    await worker.stop()
  })

  test('the message for any thrown value is short, and has no secret', async (t) => {
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    const fail = () => assert.fail('a getter was called')
    class Refusal {
      code = 'ERR_REFUSED'
      message = 'not today'
    }
    const cases = [
      [{ code: 7, password: 'secret' }, 'an object, code 7'],
      [new Refusal(), 'an instance of Refusal, code "ERR_REFUSED", message "not today"'],
      [Object.fromEntries(Array.from({ length: 20_000 }, (_, i) => [`property${i}`, 'secret'])), 'an object'],
      [{ message: 'm'.repeat(100_000), name: { secret: 1 } }, `an object, message "${'m'.repeat(200)}…"`],
      ['t'.repeat(100_000), `"${'t'.repeat(200)}…"`],
      [10n ** 100_000n, `1${'0'.repeat(199)}…`],
      [Object.create(null), 'an object'],
      [['secret'], 'an array'],
      [() => 'secret', 'a function'],
      [null, 'null'],
      [undefined, 'undefined'],
      [Symbol('mine'), 'Symbol(mine)'],
      [Object.defineProperty({}, Symbol.toStringTag, { get: fail }), 'an object'],
      [Object.defineProperty({}, 'message', { get: fail }), 'object'],
      [{ [Symbol.toPrimitive]: fail, toString: fail }, 'an object'],
      [proxy, 'object'],
    ]
    let tries = 0
    const { worker, errors } = startWorker(t, store.url, {
      retryInterval: 10,
      startWork() {
        if (tries < cases.length) throw cases[tries++][0]
      },
    })
    await until('the worker to work', () => worker.state === 'working' && errors.length === cases.length)
    for (const [i, [thrown, what]] of cases.entries()) {
      assert.equal(errors[i].message, `what was thrown is not an Error, but ${what}`)
      assert.ok(errors[i].cause === thrown, what)
    }
    await worker.stop()
  })

  test('the lock is free while a failed worker pauses', async (t) => {
    const key = store.key()
    const { worker } = startWorker(t, store.url, {
      key,
      retryInterval: 60_000,
      startWork() {
        throw new Error('cannot begin')
      },
    })
    // events.once() would reject with the 'error' event of the failure.
    await within('the failure', new Promise((resolve) => worker.once('released', resolve)))
    const lease = await store.client(t).acquire(key, { wait: 5_000 })
    assert.equal(lease.isHeld, true)
    await worker.stop()
    assert.equal(worker.state, 'idle')
  })

  test('stop() succeeds although stopWork throws', async (t) => {
    const locks = store.client(t)
    const { worker, key, errors } = startWorker(t, store.url, {
      stopWork() {
        throw new Error('cannot end')
      },
    })
    await once(worker, 'acquired')
    await worker.stop()
    assert.equal(worker.state, 'idle')
    assert.equal(errors[0].message, 'cannot end')
    assert.ok(await locks.tryAcquire(key))
  })

  test('start() and stop() work in every state, and may be repeated', async (t) => {
    const key = store.key()
    const { worker, calls } = startWorker(t, store.url, { key, retryInterval: 50 })
    assert.equal(worker.start(), worker)
    await worker.stop() // in the state acquiring
    assert.equal(worker.state, 'idle')
    await Promise.all([worker.stop(), worker.stop()]) // in the state idle
    const before = calls.length
    worker.start().start()
    await until('the worker to work', () => worker.state === 'working')
    assert.equal(calls.length, before + 1, 'two calls of start() begin the work once')
    const stopping = worker.stop() // in the state working
    const again = worker.stop() // in the state cleanup
    worker.start() // starts the worker after its stop
    await Promise.all([stopping, again])
    await until('the worker to work again', () => worker.state === 'working')
    await worker.stop()

    const holder = store.client(t)
    const lease = await holder.acquire(key)
    worker.start()
    await until('the worker to wait', () => worker.state === 'waiting')
    await within('a stop while waiting', worker.stop(), 5_000)
    assert.equal(worker.state, 'idle')
    await lease.release()
    assert.ok(await holder.tryAcquire(key), 'a stopped worker acquires no lock')
  })

  test('disposal stops the worker', async (t) => {
    const { worker } = startWorker(t, store.url)
    await once(worker, 'acquired')
    await worker[Symbol.asyncDispose]()
    assert.equal(worker.state, 'idle')
  })

  test('after a loss, the worker pauses, calls stopWork with the reason, and campaigns again', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const { worker, states, calls, lost } = startWorker(t, store.url, {
      client: locks,
      store: undefined,
      key,
      ttl: 400,
      retryInterval: 100,
    })
    const [lease] = await once(worker, 'acquired')
    // The thread blocks for longer than maxStall.
    const stalled = createLockClient({ store: store.url, maxStall: 100 })
    atEnd(t, () => stalled.close())
    const second = startWorker(t, undefined, {
      client: stalled,
      store: undefined,
      key: `${key}-2`,
      ttl: 400,
      retryInterval: 50,
    })
    const [stalledLease] = await once(second.worker, 'acquired')
    await until('the work to begin', () => second.calls.length === 1)
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_000)
    assert.equal(stalledLease.isHeld, false)
    assert.equal(lease.isHeld, true, 'the other client has a longer maxStall')
    const [again] = await within('the second term', once(second.worker, 'acquired'))
    assert.ok(again.fence > stalledLease.fence)
    assert.deepEqual(second.lost, ['stalled'])
    assert.deepEqual(second.calls.slice(0, 2), [`start ${stalledLease.fence}`, 'stop stalled'])
    assert.ok(second.states.includes('pausing'), second.states.join())
    assert.deepEqual([lost, calls.length, states.at(-1)], [[], 1, 'working'])
  })
})

describe('worker: properties', () => {
  test('workerId is a UUID unless the options have one', (t) => {
    const locks = createLockClient(`memory:${randomUUID()}`)
    atEnd(t, () => locks.close())
    const make = (options) => createLockWorker({ client: locks, key: 'k', startWork() {}, ...options })
    assert.match(make().workerId, /^[0-9a-f-]{36}$/)
    assert.notEqual(make().workerId, make().workerId)
    assert.equal(make({ workerId: 'one' }).workerId, 'one')
    assert.equal(make().state, 'idle')
    assert.equal(make().lease, null)
  })
})
