// leasehold/remix with `until: 'body'`: if a lock is lost, the others are held while the source
// makes a chunk.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { withRequestLock } from 'leasehold/remix'
import { startChild } from '../support/child.mjs'
import { now, until, within } from '../support/clock.mjs'
import { gate } from '../support/gate.mjs'
import { free, open } from '../support/http-servers.mjs'
import { lost } from '../support/leases.mjs'

const SOON = 5_000
/** The holder notices a forced release at its next renewal, after a third of this time, in ms. */
const TTL = 1_500
/** The ttl of leases that a test lets expire, in ms. */
const SHORT_TTL = 600

/** Returns a source with a queue of `size` chunks. Each call of `next` makes one chunk. */
function source(size) {
  const chunks = []
  const cancelled = gate()
  const stream = new ReadableStream(
    {
      async pull(controller) {
        const chunk = gate()
        chunks.push({ ...chunk, isMade: false })
        const made = chunks.at(-1)
        await chunk.passed
        made.isMade = true
        controller.enqueue(new Uint8Array(1))
      },
      cancel: cancelled.pass,
    },
    { highWaterMark: size },
  )
  const isWorking = () => chunks.some(({ isMade }) => !isMade)
  return { stream, chunks, cancelled: cancelled.passed, isWorking, next: () => chunks.at(-1).pass() }
}

/**
 * Sources that never make a chunk: one has no `pull()`, and the other waits in `pull()` for an
 * event that never comes.
 */
const QUIET = { 'without pull()': undefined, 'with a pull() that waits': () => new Promise(() => {}) }

/** Returns a source with that `pull()`. Its `cancel()` settles when the test calls `stop`. */
function quiet(pull) {
  const [cancelled, stopped] = [gate(), gate()]
  const cancel = (reason) => {
    cancelled.pass(reason)
    return stopped.passed
  }
  return { stream: new ReadableStream({ pull, cancel }), cancelled: cancelled.passed, stop: stopped.pass }
}

async function serve(locks, key, stream, options) {
  const client = new AbortController()
  let held
  const handler = (lease) => {
    held = lease
    return new Response(stream)
  }
  const action = withRequestLock(locks, { key: () => key, maxKeys: 2, until: 'body', ...options }, handler)
  const response = await action(new Request('http://localhost/', { signal: client.signal }))
  return { client, held, reader: response.body.getReader() }
}

const ENDS = {
  'one of several keys is lost': {
    key: ['a', 'b'],
    ttl: TTL,
    reason: 'missing',
    stop: async (locks, held) => {
      await locks.forceRelease('a')
      await until('the loss', () => held.signal.aborted)
    },
  },
  'the drain is over': { key: 'b', reason: 'closed', stop: (locks) => locks.close({ drain: 20 }) },
}

for (const [what, { key, ttl, reason, stop }] of Object.entries(ENDS)) {
  describe(`withRequestLock until the body, ${what}`, { timeout: 60_000 }, () => {
    const both = (t, ownTtl = ttl) => {
      const store = `memory:${crypto.randomUUID()}`
      return [open(t, { store, ttl: ownTtl }), open(t, { store })]
    }

    test('the body fails at once for a waiting reader, and the lock is held until the chunk is made', async (t) => {
      const [locks, other] = both(t)
      const body = source(1)
      const { client, held, reader } = await serve(locks, key, body.stream)
      const failed = assert.rejects(reader.read(), lost(reason))
      await until('the source to work', body.isWorking)
      await stop(locks, held)
      await within('the body to fail', failed)
      // A server that sees the body fail often aborts the request.
      client.abort()
      assert.equal(await other.tryAcquire('b'), null, 'the source still works')
      body.next()
      assert.ok(lost(reason)(await within('the cancel', body.cancelled, SOON)))
      await free(other, 'b', SOON)
      assert.equal(body.isWorking(), false)
    })

    for (const ready of [0, 1, 2]) {
      test(`without a reader and with ${ready} chunks in the queue, the lock is held until the next chunk is made`, async (t) => {
        const [locks, other] = both(t)
        const body = source(2)
        const { held, reader } = await serve(locks, key, body.stream)
        for (let made = 1; made <= ready; made++) {
          await until('the source to work', () => body.chunks.length === made)
          body.next()
        }
        await until('the source to work', () => body.chunks.length === Math.min(ready + 1, 2))
        await stop(locks, held)
        await until('the source to work', body.isWorking)
        assert.equal(await other.tryAcquire('b'), null, 'the source still works')
        body.next()
        await within('the cancel', body.cancelled, SOON)
        await free(other, 'b', SOON)
        assert.equal(body.isWorking(), false)
        await assert.rejects(reader.read(), lost(reason))
      })
    }

    test('a source that is always ready is cancelled', async (t) => {
      const [locks, other] = both(t)
      const cancelled = gate()
      const pull = (controller) => controller.enqueue(new Uint8Array(1))
      const { held } = await serve(locks, key, new ReadableStream({ pull, cancel: cancelled.pass }))
      await stop(locks, held)
      await within('the cancel', cancelled.passed, SOON)
      await free(other, 'b', SOON)
    })

    for (const [kind, pull] of Object.entries(QUIET)) {
      for (const reads of [true, false]) {
        const who = reads ? 'with a waiting reader' : 'without a reader'
        test(`a source ${kind} that makes no chunk is cancelled after the ttl, ${who}`, async (t) => {
          const [locks, other] = both(t, SHORT_TTL)
          const body = quiet(pull)
          const { client, held, reader } = await serve(locks, key, body.stream)
          const failed = reads && assert.rejects(reader.read(), lost(reason))
          const start = now()
          await stop(locks, held)
          await failed
          client.abort()
          assert.equal(await other.tryAcquire('b'), null, 'the source may still work')
          assert.ok(lost(reason)(await within('the cancel', body.cancelled, SOON)))
          assert.ok(now() - start >= SHORT_TTL - 1, 'the later abort did not shorten the wait')
          body.stop()
          await free(other, 'b', SOON)
        })
      }
    }

    test('a source that fails frees the lock', async (t) => {
      const [locks, other] = both(t)
      const broken = gate()
      const { held } = await serve(locks, key, new ReadableStream({ pull: () => broken.passed.then(assert.fail) }))
      await stop(locks, held)
      assert.equal(await other.tryAcquire('b'), null, 'the source still works')
      broken.pass()
      await free(other, 'b', SOON)
    })
  })
}

describe('withRequestLock until the body', { timeout: 60_000 }, () => {
  test('if all keys are lost, a hanging source is cancelled', async (t) => {
    const locks = open(t, { ttl: TTL })
    const body = source(1)
    const { reader } = await serve(locks, ['a', 'b'], body.stream)
    const failed = assert.rejects(reader.read(), lost('missing'))
    await until('the source to work', body.isWorking)
    await locks.forceRelease('a')
    await within('the body to fail', failed)
    await locks.forceRelease('b')
    await within('the cancel', body.cancelled, SOON)
    await within('close()', locks.close({ drain: Infinity }), SOON)
  })

  test('if the source hangs, the lock is free one ttl after the drain', async (t) => {
    const store = `memory:${crypto.randomUUID()}`
    const [locks, other] = [open(t, { store, ttl: 300 }), open(t, { store })]
    const { reader } = await serve(locks, 'a', source(1).stream)
    reader.read().catch(() => {})
    await locks.close({ drain: 20 })
    assert.equal(await other.tryAcquire('a'), null)
    await free(other, 'a', SOON)
  })

  for (const [kind, pull] of Object.entries(QUIET)) {
    test(`if the request is aborted, a source ${kind} is cancelled at once, and a later loss changes nothing`, async (t) => {
      const locks = open(t, { ttl: TTL })
      const body = quiet(pull)
      const { client, held, reader } = await serve(locks, ['a', 'b'], body.stream)
      const failed = assert.rejects(reader.read(), { name: 'AbortError' })
      client.abort()
      await within('the body to fail', failed)
      assert.equal((await within('the cancel', body.cancelled, SOON)).name, 'AbortError')
      await locks.forceRelease('a')
      await until('the loss', () => held.signal.aborted)
      await assert.rejects(locks.acquire('b', { wait: 100 }), { code: 'ERR_LOCK_TIMEOUT' }, 'cancel() has not settled')
      body.stop()
      await free(locks, 'b', SOON)
    })
  }

  test('if a key is lost and the client closes, a quiet source is cancelled, and close() resolves', async (t) => {
    const locks = open(t, { ttl: SHORT_TTL })
    const body = quiet()
    const { client, held } = await serve(locks, ['a', 'b'], body.stream)
    await locks.forceRelease('a')
    await until('the loss', () => held.signal.aborted)
    client.abort()
    const closed = locks.close({ drain: Infinity })
    await within('the cancel', body.cancelled, SOON)
    body.stop()
    await within('close()', closed, SOON)
  })

  test('if a key is lost, the others are held until cancel() of a quiet source has settled', async (t) => {
    const locks = open(t, { ttl: SHORT_TTL })
    const body = quiet()
    const { held, reader } = await serve(locks, ['a', 'b'], body.stream)
    const failed = assert.rejects(reader.read(), lost('missing'))
    await locks.forceRelease('a')
    await failed
    assert.ok(held.leases[1].isHeld)
    await within('the cancel', body.cancelled, SOON)
    await assert.rejects(locks.acquire('b', { wait: 100 }), { code: 'ERR_LOCK_TIMEOUT' }, 'cancel() has not settled')
    body.stop()
    await free(locks, 'b', SOON)
  })

  test('if the reader cancels and the request aborts, the lock is held until cancel() has settled', async (t) => {
    const locks = open(t)
    const body = quiet()
    const { client, reader } = await serve(locks, 'a', body.stream)
    const cancelled = reader.cancel('enough')
    assert.equal(await body.cancelled, 'enough')
    client.abort()
    await assert.rejects(locks.acquire('a', { wait: 100 }), { code: 'ERR_LOCK_TIMEOUT' }, 'cancel() has not settled')
    body.stop()
    await cancelled
    await free(locks, 'a', SOON)
  })

  test('a quiet source is also cancelled under a fake clock that does not advance', async (t) => {
    const locks = open(t, { ttl: SHORT_TTL })
    const body = quiet()
    const { held } = await serve(locks, ['a', 'b'], body.stream)
    const loss = once(held.signal, 'abort')
    // This timer is real: it was set before the fake clock.
    const cancelled = within('the cancel', body.cancelled, SOON)
    t.mock.timers.enable()
    try {
      await locks.forceRelease('a')
      await loss
      await cancelled
    } finally {
      t.mock.timers.reset()
      body.stop()
    }
  })

  test('a quiet source does not keep the process alive after close()', async (t) => {
    const child = startChild(t, 'quiet-body.mjs', { ttl: 60_000 })
    await child.next('closed')
    assert.deepEqual(await within('the end of the process', child.ended, SOON), { code: 0, signal: null })
  })
})
