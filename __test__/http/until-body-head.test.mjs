// leasehold/remix with `until: 'body'` and HEAD: the response has no body, and the lock is held
// until the source of the body has stopped.

import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { describe, test } from 'node:test'
import { withRequestLock } from 'leasehold/remix'
import { until, within } from '../support/clock.mjs'
import { gate } from '../support/gate.mjs'
import { free, open } from '../support/http-servers.mjs'
import { lost } from '../support/leases.mjs'

const SOON = 5_000
const URL_ = 'http://localhost/'
const BUSY = { code: 'ERR_LOCK_TIMEOUT' }

/**
 * Sources that keep the rule of `until: 'body'`: their cancel() settles when the work has stopped.
 * Each calls `begin`, and then works until `stopped` resolves.
 */
const SOURCES = {
  'work in start()'(begin, stopped) {
    const start = () => {
      begin()
      return stopped
    }
    return new ReadableStream({ start, cancel: () => stopped })
  },
  'work in pull()'(begin, stopped) {
    const pull = async (controller) => {
      begin()
      await stopped
      controller.enqueue(new Uint8Array(1))
    }
    return new ReadableStream({ pull, cancel: () => stopped })
  },
  'work in cancel()'(begin, stopped) {
    const cancel = () => {
      begin()
      return stopped
    }
    return new ReadableStream({ cancel })
  },
}

/** A Response of a polyfill. Its body may be a stream of Node. */
class OtherResponse {
  constructor(body, { status, headers } = { status: 200, headers: new Headers() }) {
    Object.assign(this, { body, status, headers })
  }
}

/** Returns a stream of Node that calls `begin`, and then works until `stopped` resolves. */
function nodeStream(begin, stopped) {
  return new Readable({
    read() {},
    destroy(error, callback) {
      begin()
      stopped.then(() => callback(error))
    },
  })
}

const clients = (t, options) => {
  const store = `memory:${crypto.randomUUID()}`
  return [open(t, { store, ...options }), open(t, { store })]
}

const serve = (locks, handler, { method = 'HEAD', key = 'a', ...options } = {}) =>
  withRequestLock(
    locks,
    { key: () => key, maxKeys: 2, until: 'body', ...options },
    handler,
  )(new Request(URL_, { method }))

describe('withRequestLock until the body, HEAD', { timeout: 60_000 }, () => {
  for (const [what, make] of Object.entries(SOURCES)) {
    test(`with ${what}, the response is sent at once, and the lock is held until cancel() has settled`, async (t) => {
      const [locks, other] = clients(t)
      const [begun, stopped] = [gate(), gate()]
      const response = await within(
        'the answer',
        serve(locks, () => new Response(make(begun.pass, stopped.passed), { status: 201 })),
        SOON,
      )
      assert.deepEqual([response.status, response.body], [201, null])
      await begun.passed
      await assert.rejects(other.acquire('a', { wait: 100 }), BUSY, 'the source still works')
      const closed = locks.close({ drain: Infinity })
      await assert.rejects(other.acquire('a', { wait: 100 }), BUSY, 'close() waits for the source')
      stopped.pass()
      await free(other, 'a', SOON)
      await within('close()', closed, SOON)
    })
  }

  test('a cancel() that fails frees the lock', async (t) => {
    const locks = open(t)
    const [cancelled, broken] = [gate(), gate()]
    const cancel = () => {
      cancelled.pass()
      return broken.passed.then(assert.fail)
    }
    await serve(locks, () => new Response(new ReadableStream({ cancel })))
    await cancelled.passed
    await assert.rejects(locks.acquire('a', { wait: 100 }), BUSY, 'cancel() has not settled')
    broken.pass()
    await free(locks, 'a', SOON)
  })

  test('a cancel() that never settles holds the lock for at most maxHold', async (t) => {
    const locks = open(t, { ttl: 300 })
    const hung = new ReadableStream({ cancel: () => new Promise(() => {}) })
    const response = await within(
      'the answer',
      serve(locks, () => new Response(hung), { maxHold: 600 }),
      SOON,
    )
    assert.equal(response.body, null)
    assert.notEqual(await locks.inspect('a'), null)
    await free(locks, 'a', SOON)
    await locks.close({ drain: 20 })
  })

  test('if cancel() never settles, the lock is free one ttl after the drain', async (t) => {
    const [locks, other] = clients(t, { ttl: 300 })
    await serve(locks, () => new Response(new ReadableStream({ cancel: () => new Promise(() => {}) })))
    await locks.close({ drain: 20 })
    assert.equal(await other.tryAcquire('a'), null)
    await free(other, 'a', SOON)
  })

  test('if one of two leases is lost while the handler runs, the other is held until the source stops', async (t) => {
    const locks = open(t, { ttl: 300 })
    const stopped = gate()
    const answer = serve(
      locks,
      async (lease) => {
        await locks.forceRelease('a')
        await until('the loss', () => lease.signal.aborted)
        return new Response(new ReadableStream({ cancel: () => stopped.passed }))
      },
      { key: ['a', 'b'] },
    )
    const failed = assert.rejects(answer, lost('missing'))
    await until('a to be free', async () => (await locks.inspect('a')) === null)
    await assert.rejects(locks.acquire('b', { wait: 600 }), BUSY, 'the source still works')
    stopped.pass()
    await within('the error', failed, SOON)
    assert.equal(await locks.inspect('b'), null)
  })

  test('a body that is a stream of Node is destroyed, and the lock is held until it has closed', async (t) => {
    const locks = open(t)
    const [begun, stopped] = [gate(), gate()]
    const response = await within(
      'the answer',
      serve(locks, () => new OtherResponse(nodeStream(begun.pass, stopped.passed))),
      SOON,
    )
    assert.ok(response instanceof OtherResponse)
    assert.equal(response.body, null)
    await begun.passed
    await assert.rejects(locks.acquire('a', { wait: 100 }), BUSY, 'the stream still works')
    stopped.pass()
    await free(locks, 'a', SOON)
  })

  test('a stream of Node that has closed, or fails when it is destroyed, frees the lock', async (t) => {
    const locks = open(t)
    const closed = Readable.from(['data'])
    await closed.forEach(() => {})
    const failing = new Readable({ read() {}, destroy: (_error, callback) => callback(new Error('failing')) })
    for (const body of [closed, failing]) {
      assert.equal((await serve(locks, () => new OtherResponse(body))).body, null)
      await free(locks, 'a', SOON)
      assert.ok(body.destroyed)
    }
  })
})

describe('withRequestLock until the body, GET', { timeout: 60_000 }, () => {
  test('a body that is a stream of Node is an error that names the cause, after the stream has closed', async (t) => {
    const locks = open(t)
    const [begun, stopped] = [gate(), gate()]
    const body = nodeStream(begun.pass, stopped.passed)
    const answer = serve(locks, () => new OtherResponse(body), { method: 'GET' })
    const failed = assert.rejects(answer, (error) => {
      assert.deepEqual([error.name, error.code], ['TypeError', 'ERR_INVALID_ARG_VALUE'])
      assert.match(error.message, /until: "body".* ReadableStream/)
      assert.match(error.message, /stream of Node/)
      return true
    })
    await within('the end of the stream', begun.passed, SOON)
    await assert.rejects(locks.acquire('a', { wait: 100 }), BUSY, 'the stream still works')
    stopped.pass()
    await within('the error', failed, SOON)
    assert.equal(await locks.inspect('a'), null)
  })
})
