// list() and forceRelease(), which an operator of locks needs, on every store.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { LockClosedError } from 'leasehold'
import { until } from '../support/clock.mjs'
import { aborted, lost } from '../support/leases.mjs'
import { overStores } from '../support/stores.mjs'

overStores('operating', (store) => {
  test('list() returns the held locks of the prefix, in the order of their keys', async (t) => {
    const prefix = `${store.key()}*?[`
    const [a, b] = [store.client(t, { name: 'a', prefix }), store.client(t, { name: 'b', prefix })]
    const outside = store.client(t, { prefix: prefix.slice(0, -1) })
    assert.deepEqual(await a.list(), { locks: [], complete: true })
    const lease = await a.acquire('mail:1', { ttl: 20_000 })
    await a.acquire('mail:2')
    await a.acquire('*')
    await b.readWriteLock('config').read.acquire()
    await outside.acquire('mail:3')
    const waiting = b.acquire('mail:1', { wait: 20_000 })
    await until('b to wait', async () => (await a.inspect('mail:1')).waiters.length === 1)

    const { locks, complete } = await b.list()
    assert.deepEqual([locks.map(({ key }) => key), complete], [['*', 'config', 'mail:1', 'mail:2'], true])
    const [, config, mail] = locks
    assert.deepEqual([config.shared, config.holder, mail.shared], [true, 'b', false])
    assert.deepEqual([mail.holder, mail.fence, mail.waiters[0].holder], ['a', lease.fence, 'b'])
    assert.ok(mail.remaining > 10_000 && mail.remaining <= 20_000, `${mail.remaining}`)
    assert.ok(!JSON.stringify(locks).includes(lease.token), 'the result must not contain the token')

    const keys = async (options) => (await b.list(options)).locks.map(({ key }) => key)
    assert.deepEqual(await keys({ pattern: 'mail:*' }), ['mail:1', 'mail:2'])
    assert.deepEqual(await keys({ pattern: '?????2' }), ['mail:2'])
    assert.deepEqual(await keys({ pattern: '\\*' }), ['*'])
    await a.once('welcome', '7', () => {})
    assert.deepEqual(await keys({}), ['*', 'config', 'mail:1', 'mail:2'], 'an id of once() is not a held lock')
    assert.deepEqual(await keys({ pattern: 'welcome@once:*' }), ['welcome@once:7'])
    const part = await b.list({ limit: 2 })
    assert.deepEqual([part.locks.length, part.complete], [2, false])
    await lease.release()
    await (await waiting).release()
    assert.deepEqual(await keys({ pattern: 'mail:1' }), [])
  })

  test('forceRelease() hands the lock to the next waiter, and the old holder loses it at its next renewal', async (t) => {
    const [a, b, c] = ['a', 'b', 'c'].map((name) => store.client(t, { name }))
    const key = store.key()
    assert.equal(await c.forceRelease(key), false)
    const lease = await a.acquire(key, { ttl: 600 })
    const next = b.acquire(key, { wait: 20_000 })
    await until('b to wait', async () => (await c.inspect(key)).waiters.length === 1)
    assert.equal(await c.forceRelease(key), true)
    const second = await next
    assert.ok(second.fence > lease.fence)
    await aborted(lease)
    assert.throws(() => lease.assertHeld(), lost('taken'))
    // Without a waiter, the lock is free.
    assert.equal(await c.forceRelease(key), true)
    assert.equal(await c.inspect(key), null)
    assert.equal(await c.forceRelease(key), false)
    await assert.rejects(second.renew(), lost('missing'))
    assert.ok(await c.tryAcquire(key))
  })

  test('forceRelease() ends all leases of a shared lock', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    const permits = a.semaphore(key, 3)
    await Promise.all([permits.acquire(), permits.acquire()])
    assert.equal(await b.forceRelease(key), true)
    assert.equal(await b.inspect(key), null)
    assert.ok(await b.tryAcquire(key))
  })

  test('bad arguments and a closed client are refused', async (t) => {
    const locks = store.client(t)
    await assert.rejects(locks.list({ pattern: 1 }), { code: 'ERR_INVALID_ARG_TYPE' })
    await assert.rejects(locks.list({ limit: 0 }), { code: 'ERR_OUT_OF_RANGE' })
    await assert.rejects(locks.list({ limits: 1 }), /did you mean "limit"/)
    await assert.rejects(locks.list('mail:*'), { code: 'ERR_INVALID_ARG_TYPE' })
    await assert.rejects(locks.forceRelease(''), { code: 'ERR_INVALID_ARG_VALUE' })
    await locks.close()
    await assert.rejects(locks.list(), LockClosedError)
    await assert.rejects(locks.forceRelease('k'), LockClosedError)
  })
})
