// leasehold/remix with handlers that get a Request, or an object that has one, and return any
// value.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { withRequestLock } from 'leasehold/remix'
import { until, within } from '../support/clock.mjs'
import { gate } from '../support/gate.mjs'
import { free, serve as http, open } from '../support/http-servers.mjs'
import { lost } from '../support/leases.mjs'
import { freePort } from '../support/ports.mjs'

const KEY = 'account:secret'
const URL_ = 'http://host/accounts/1?key=mine'

/** Returns the argument of a Remix action, with the AbortController of its client. */
function ask(url = URL_) {
  const client = new AbortController()
  return { request: new Request(url, { method: 'POST', signal: client.signal }), params: { id: '1' }, client }
}

describe('withRequestLock', { timeout: 60_000 }, () => {
  test('the handler gets the lease and all arguments, and its value is returned', async (t) => {
    const locks = open(t)
    const remix = withRequestLock(locks, { key: ({ params }) => `order:${params.id}` }, (lease, { params }, more) => ({
      key: lease.key,
      isHeld: lease.isHeld,
      params,
      more,
    }))
    const value = await remix(ask(), 'more')
    assert.deepEqual(value, { key: 'order:1', isHeld: true, params: { id: '1' }, more: 'more' })
    assert.equal(await locks.inspect('order:1'), null, 'the lock is free when the call settles')

    const key = async (request) => new URL(request.url).searchParams.get('key')
    const plain = withRequestLock(locks, { key }, (lease) => new Response(lease.key))
    assert.equal(await (await plain(new Request(URL_))).text(), 'mine')

    const several = withRequestLock(locks, { key: () => ['b', 'a'], maxKeys: 2 }, (leases) => leases.keys)
    assert.deepEqual(await several(ask()), ['a', 'b'])
    const none = withRequestLock(locks, { key: () => undefined, optional: true }, (lease) => lease)
    assert.equal(await none(ask()), undefined)
  })

  test('a busy lock is answered with 423, Retry-After and a problem without the key', async (t) => {
    const locks = open(t, { wait: 0 })
    await locks.acquire(KEY)
    const action = withRequestLock(locks, { key: () => KEY }, () => assert.fail('the handler ran without the lock'))
    const response = await action(ask())
    assert.deepEqual([response.status, response.headers.get('retry-after')], [423, '1'])
    assert.equal(response.headers.get('content-type'), 'application/problem+json')
    assert.doesNotMatch(await response.text(), /secret/)
  })

  test('an outage is answered with 503 and Retry-After', async (t) => {
    const locks = open(t, { store: `redis://:hush@127.0.0.1:${await freePort()}`, wait: 50 })
    const action = withRequestLock(locks, { key: () => KEY }, () => assert.fail('the handler ran without the lock'))
    const response = await action(ask())
    assert.deepEqual([response.status, response.headers.get('retry-after')], [503, '5'])
    assert.doesNotMatch(await response.text(), /hush|127/)
  })

  test('onBusy and onUnavailable may return or throw any answer', async (t) => {
    const locks = open(t, { wait: 0 })
    await locks.acquire(KEY)
    const never = () => assert.fail('the handler ran without the lock')
    const onBusy = ({ status, error }, { params }) => ({ status, code: error.code, id: params.id })
    assert.deepEqual(await withRequestLock(locks, { key: () => KEY, onBusy }, never)(ask()), {
      status: 423,
      code: 'ERR_LOCK_TIMEOUT',
      id: '1',
    })
    const thrown = new Response(null, { status: 409 })
    const fail = () => {
      throw thrown
    }
    await assert.rejects(withRequestLock(locks, { key: () => KEY, onBusy: fail }, never)(ask()), (e) => e === thrown)
    await locks.close()
    const down = withRequestLock(locks, { key: () => KEY, onUnavailable: ({ error }) => error.code }, never)
    assert.equal(await down(ask()), 'ERR_LOCK_CLOSED')
  })

  test('if the client leaves during the wait, the wait ends, and the handler does not run', async (t) => {
    const locks = open(t)
    const holder = await locks.acquire(KEY)
    let ran = 0
    const { client, ...args } = ask()
    const answer = withRequestLock(locks, { key: () => KEY }, () => ran++)(args)
    await until('the request to wait', () => locks.stats().waiting === 1)
    client.abort()
    const response = await answer
    assert.deepEqual([response.status, await response.text()], [499, ''])
    await holder.release()
    await free(locks, KEY)
    assert.deepEqual([ran, locks.stats().acquired], [0, 1])
  })

  test('if the client leaves during the work, the lock is held until the handler ends', async (t) => {
    const locks = open(t)
    const begun = gate()
    const work = gate()
    const { client, ...args } = ask()
    const answer = withRequestLock(locks, { key: () => KEY }, async () => {
      begun.pass()
      await work.passed
      return 'done'
    })(args)
    await begun.passed
    client.abort()
    assert.equal(await locks.tryAcquire(KEY), null)
    work.pass()
    assert.equal(await answer, 'done')
    assert.equal(await locks.inspect(KEY), null)
  })

  test('an error of the handler or of the key function is thrown, and the lock is free', async (t) => {
    const locks = open(t)
    const redirect = Response.redirect('http://host/elsewhere')
    const fail = () => {
      throw redirect
    }
    const given = (error) => error === redirect
    await assert.rejects(withRequestLock(locks, { key: () => KEY }, fail)(ask()), given)
    await assert.rejects(withRequestLock(locks, { key: () => KEY }, async () => fail())(ask()), given)
    assert.equal(await locks.inspect(KEY), null)
    await assert.rejects(withRequestLock(locks, { key: fail }, () => 'never')(ask()), given)
  })

  test('if the lease is lost while the handler runs, the call rejects with LockLostError', async (t) => {
    const action = withRequestLock(open(t), { key: () => KEY, ttl: 100, maxHold: 100 }, async (lease) => {
      await within('the loss', once(lease.signal, 'abort'))
      return 'done'
    })
    await assert.rejects(action(ask()), lost('expired'))
  })

  test('bad options are refused when the handler is made, and a missing request when it is called', async (t) => {
    const locks = open(t)
    const key = () => KEY
    const handler = () => 'never'
    for (const [bad, code] of [
      [() => withRequestLock({}, { key }, handler), 'ERR_INVALID_ARG_TYPE'],
      [() => withRequestLock(locks, {}, handler), 'ERR_INVALID_ARG_TYPE'],
      [() => withRequestLock(locks, { key }), 'ERR_INVALID_ARG_TYPE'],
      [() => withRequestLock(locks, { key, until: 'later' }, handler), 'ERR_INVALID_ARG_VALUE'],
      [() => withRequestLock(locks, { key, onbusy: handler }, handler), 'ERR_INVALID_ARG_VALUE'],
      [() => withRequestLock(locks, { key, wait: '1s' }, handler), 'ERR_INVALID_ARG_TYPE'],
    ]) {
      assert.throws(bad, { code })
    }
    await assert.rejects(withRequestLock(locks, { key }, handler)({ params: {} }), { code: 'ERR_INVALID_ARG_TYPE' })
    await assert.rejects(withRequestLock(locks, { key }, handler)(), { code: 'ERR_INVALID_ARG_TYPE' })
  })
})

describe('withRequestLock and a body that is streamed', { timeout: 60_000 }, () => {
  /**
   * Returns a body that sends a part when the test calls `next`, and a promise of its cancellation.
   */
  function source() {
    let controller
    const cancelled = gate()
    const stream = new ReadableStream({
      start(given) {
        controller = given
      },
      cancel: cancelled.pass,
    })
    return {
      stream,
      cancelled: cancelled.passed,
      next: (text) => controller.enqueue(new TextEncoder().encode(text)),
      end: () => controller.close(),
      fail: (error) => controller.error(error),
    }
  }
  const headers = { 'x-mine': 'yes' }
  /**
   * Serves a handler that gets a Request, like adapters: they do not read the body for a HEAD
   * request.
   */
  const listen = (t, handler) =>
    http(t, async ({ method, url }, response) => {
      const answer = await handler(new Request(new URL(url, URL_), { method }))
      response.writeHead(answer.status, Object.fromEntries(answer.headers))
      if (method !== 'HEAD') for await (const part of answer.body) response.write(part)
      response.end()
    })
  const serve = (locks, stream, args = ask(), options = {}) =>
    withRequestLock(
      locks,
      { key: () => KEY, until: 'body', ...options },
      () => new Response(stream, { status: 201, headers }),
    )(args)

  test('by default, the lock is free when the handler has returned', async (t) => {
    const locks = open(t)
    const body = source()
    const response = await serve(locks, body.stream, ask(), { until: 'handler' })
    assert.equal(await locks.inspect(KEY), null)
    body.next('whole')
    body.end()
    assert.equal(await response.text(), 'whole')
  })

  test('until the body: the lock is held until the body was read to its end', async (t) => {
    const locks = open(t)
    const body = source()
    const response = await serve(locks, body.stream)
    assert.deepEqual([response.status, response.headers.get('x-mine')], [201, 'yes'])
    const reader = response.body.getReader()
    body.next('first')
    assert.equal(Buffer.from((await reader.read()).value).toString(), 'first')
    assert.equal(await locks.tryAcquire(KEY), null)
    body.next('last')
    body.end()
    assert.equal(Buffer.from((await reader.read()).value).toString(), 'last')
    assert.equal((await reader.read()).done, true)
    await free(locks, KEY)
  })

  test('until the body: a cancelled body frees the lock, and cancels its source', async (t) => {
    const locks = open(t)
    const body = source()
    const response = await serve(locks, body.stream)
    await response.body.cancel('enough')
    assert.equal(await body.cancelled, 'enough')
    await free(locks, KEY)
  })

  test('until the body: a failing body frees the lock, and its reader gets the error', async (t) => {
    const locks = open(t)
    const body = source()
    const response = await serve(locks, body.stream)
    const mistake = new Error('mine')
    body.fail(mistake)
    await assert.rejects(response.text(), (error) => error === mistake)
    await free(locks, KEY)
  })

  test('until the body: an aborted request frees the lock, even if the body is not read', async (t) => {
    const locks = open(t)
    const body = source()
    const { client, ...args } = ask()
    const response = await serve(locks, body.stream, args)
    client.abort()
    await body.cancelled
    await free(locks, KEY)
    await assert.rejects(response.text(), { name: 'AbortError' })
  })

  test('until the body: a lost lease ends the body with an error', async (t) => {
    const locks = open(t)
    const body = source()
    const response = await serve(locks, body.stream, ask(), { ttl: 100, maxHold: 100 })
    body.next('half of')
    await assert.rejects(response.text(), lost('expired'))
    assert.ok(lost('expired')(await body.cancelled))
  })

  test('until the body: without a body, the lock is free at once', async (t) => {
    const locks = open(t)
    for (const result of [new Response(null, { status: 204 }), { plain: true }, undefined, null]) {
      assert.equal(await withRequestLock(locks, { key: () => KEY, until: 'body' }, () => result)(ask()), result)
      assert.equal(await locks.inspect(KEY), null)
    }
  })

  test('until the body: the body for a HEAD request is cancelled, and the lock is free', async (t) => {
    const locks = open(t)
    const head = () => ({ request: new Request(URL_, { method: 'HEAD' }) })
    const body = source()
    const response = await serve(locks, body.stream, head())
    await free(locks, KEY)
    assert.equal((await body.cancelled).name, 'AbortError')
    assert.deepEqual([response.status, response.headers.get('x-mine'), response.body], [201, 'yes', null])
    assert.ok(response instanceof Response)

    // A body that is locked to a reader can't be cancelled. The call must not fail.
    const read = source()
    read.stream.getReader()
    const key = () => KEY
    const answer = { status: 200, headers: new Headers(), body: read.stream, constructor: Response }
    assert.equal((await withRequestLock(locks, { key, until: 'body' }, () => answer)(head())).body, null)
    await free(locks, KEY)

    const whole = await withRequestLock(locks, { key }, () => new Response('data'))(head())
    assert.equal(await whole.text(), 'data', 'until the handler, the response keeps its body')
  })

  test('until the body: a server that does not read the body for HEAD frees the lock', async (t) => {
    const locks = open(t, { wait: 0 })
    const handler = withRequestLock(locks, { key: () => KEY, until: 'body' }, () => new Response('body', { headers }))
    const url = await listen(t, handler)
    for (const method of ['HEAD', 'HEAD', 'GET', 'HEAD']) {
      const response = await fetch(url, { method })
      assert.deepEqual([response.status, response.headers.get('x-mine')], [200, 'yes'], method)
      assert.equal(await response.text(), method === 'HEAD' ? '' : 'body')
      await free(locks, KEY)
    }
  })
})
