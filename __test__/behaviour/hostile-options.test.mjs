// Hostile options: properties on a prototype, arrays that change while the client reads them, and
// secrets in the wrong place.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createLockClient, createLockWorker } from 'leasehold'
import { until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'

const SECRET = 'hunter2'
const VALUE = { name: 'TypeError', code: 'ERR_INVALID_ARG_VALUE' }

function open(t, options) {
  const locks = createLockClient(options)
  atEnd(t, () => locks.close())
  return locks
}

/** Runs `work` while `Object.prototype` has these properties. */
async function polluted(properties, work) {
  for (const [name, value] of Object.entries(properties)) {
    Object.defineProperty(Object.prototype, name, { value, configurable: true, writable: true })
  }
  try {
    return await work()
  } finally {
    for (const name of Object.keys(properties)) delete Object.prototype[name]
  }
}

test('a polluted prototype changes no option', async (t) => {
  const properties = {
    prefix: 'evil:',
    ttl: 77_777,
    wait: 1,
    name: 'evil',
    username: 'evil',
    password: SECRET,
    autoRenew: false,
    retry: { retries: 0 },
    keep: 5_000,
    limit: 1,
    tls: {},
  }
  const { lease, locks } = await polluted(properties, async () => {
    const locks = open(t, { store: 'memory:polluted' })
    const bare = open(t, 'memory:polluted')
    const lease = await locks.acquire('k', {})
    assert.equal(await bare.tryAcquire('k', {}), null, 'both have the usual prefix')
    const adopted = await bare.adopt(await (await locks.acquire('other', { ttl: 3_000 })).detach(), {})
    assert.equal(adopted.ttl, 3_000)
    return { lease, locks }
  })
  assert.equal(lease.ttl, 10_000)
  const info = await locks.inspect('k')
  assert.notEqual(info.holder, 'evil')
  assert.ok(await open(t, { store: 'memory:polluted', prefix: '' }).inspect('lock:k'))
})

test('a polluted prototype disturbs no call with a signal', async (t) => {
  const locks = open(t, { store: 'memory:signals' })
  await locks.ready()
  const { signal } = new AbortController()
  const call = () => locks.withLock(['a', 'b'], { signal }, ({ isHeld }) => isHeld)
  assert.equal(await polluted({ signal: 'evil' }, call), true)
})

test('a signal without removeEventListener() is refused', async (t) => {
  const locks = open(t, { store: 'memory:signals' })
  const signal = { aborted: false, addEventListener() {} }
  await assert.rejects(locks.acquire('k', { signal }), { name: 'TypeError', code: 'ERR_INVALID_ARG_TYPE' })
})

test('a signal whose method is no function is refused', async (t) => {
  const locks = open(t, { store: 'memory:signals' })
  const signal = { aborted: false, addEventListener() {}, removeEventListener: 7 }
  await assert.rejects(locks.acquire('k', { signal }), { name: 'TypeError', code: 'ERR_INVALID_ARG_TYPE' })
})

test('a signal that throws keeps no call from settling', async (t) => {
  const locks = open(t, { store: 'memory:signals' })
  const thrown = []
  const others = process.listeners('uncaughtException')
  process.removeAllListeners('uncaughtException')
  process.on('uncaughtException', (error) => thrown.push(error.message))
  atEnd(t, () => {
    process.removeAllListeners('uncaughtException')
    for (const other of others) process.on('uncaughtException', other)
  })
  const signal = {
    aborted: false,
    addEventListener() {},
    removeEventListener() {
      throw new Error('a mistake of the signal')
    },
  }
  const keys = Array.from({ length: 20 }, (_, i) => `k${i}`)
  const leases = await Promise.all(keys.map((key, i) => locks.acquire(key, i % 2 ? { signal: { ...signal } } : {})))
  assert.ok(leases.every(({ isHeld }) => isHeld))
  await until('the mistakes to be thrown', () => thrown.length === 10)
  assert.deepEqual(thrown, Array(10).fill('a mistake of the signal'))
})

test('a signal that throws or calls its listener at once leaves no lease held', async (t) => {
  const locks = open(t, { store: 'memory:odd-signals' })
  const methods = { aborted: false, removeEventListener() {} }
  const mistake = new Error('a mistake of the signal')
  const throws = {
    ...methods,
    addEventListener() {
      throw mistake
    },
  }
  await assert.rejects(locks.acquire('k', { signal: throws }), mistake)
  const calls = { ...methods, reason: 'odd', addEventListener: (_, listener) => listener() }
  await assert.rejects(locks.acquire('k', { signal: calls }), { code: 'ERR_LOCK_ABORTED', cause: 'odd' })
  await (await locks.acquire('k', { wait: 1_000 })).release()
})

test('a signal that throws once can abort the next call', async (t) => {
  const locks = open(t, { store: 'memory:odd-signals' })
  const held = await locks.acquire('held')
  const controller = new AbortController()
  const { signal } = controller
  const mistake = new Error('a mistake of the signal')
  for (const key of ['held', ['a', 'held']]) {
    Object.defineProperty(signal, 'addEventListener', {
      value: () => {
        delete signal.addEventListener
        throw mistake
      },
      configurable: true,
    })
    await assert.rejects(locks.acquire(key, { signal }), mistake)
  }
  const call = assert.rejects(locks.acquire(['a', 'held'], { signal, wait: 5_000 }), { code: 'ERR_LOCK_ABORTED' })
  controller.abort()
  await call
  await held.release()
})

test('a polluted prototype names no store in the environment', async () => {
  const { LEASEHOLD_URL, REDIS_URL, NODE_ENV } = process.env
  for (const name of ['LEASEHOLD_URL', 'REDIS_URL']) delete process.env[name]
  process.env.NODE_ENV = 'production'
  try {
    await polluted({ LEASEHOLD_URL: 'memory:evil' }, async () => {
      assert.throws(() => createLockClient(), { ...VALUE, message: /No store is named/ })
    })
  } finally {
    for (const [name, value] of Object.entries({ LEASEHOLD_URL, REDIS_URL, NODE_ENV })) {
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
    }
  }
})

test('options that are inherited from a class or an object are an error', async (t) => {
  class Config {
    get ttl() {
      return 50
    }
  }
  const locks = open(t, 'memory:inherited')
  const inherited = { ...VALUE, message: /"ttl".*prototype/ }
  await assert.rejects(locks.acquire('k', new Config()), inherited)
  assert.throws(() => createLockClient(Object.create({ ttl: 50 })), inherited)
  const bare = Object.assign(Object.create(null), { ttl: 5_000 })
  assert.equal((await locks.acquire('k', bare)).ttl, 5_000)
})

/** Returns an array whose elements are `first` on the first read, and `later` after that. */
function shifting(first, later) {
  const seen = new Set()
  return new Proxy([...first], {
    get(target, name, receiver) {
      const index = typeof name === 'string' && /^\d+$/.test(name) ? Number(name) : -1
      if (index < 0) return Reflect.get(target, name, receiver)
      const value = seen.has(index) ? later[index] : first[index]
      seen.add(index)
      return value
    },
  })
}

test('an array is read once, so the client uses the elements that it checked', async (t) => {
  const locks = open(t, 'memory:shifting')
  const lease = await locks.acquire(shifting(['a', 'b'], ['a\0c', 'lone \ud800']))
  assert.deepEqual(lease.keys, ['a', 'b'])
  await lease.release()
  await locks.withLock(shifting(['a'], [7]), (held) => assert.deepEqual(held.keys, ['a']))
  const client = open(t, { store: 'memory:signals', releaseOnSignal: shifting(['SIGUSR2'], ['SIGNONE']) })
  await client.ready()
  assert.equal(process.listenerCount('SIGUSR2'), 1)
  assert.equal(process.listenerCount('SIGNONE'), 0)
})

test('no message shows a secret that was given in the wrong place', () => {
  const misplaced = [
    () => createLockClient(`${SECRET}@h:6379`),
    () => createLockClient(`${SECRET}:6379`),
    () => createLockClient(`user:${SECRET}@h:6379`),
    () => createLockClient(`${SECRET}:pass@h:6379/0`),
    () => createLockClient(SECRET),
    () => createLockClient(`redis:${SECRET}`),
    () => createLockClient(`redis:/${SECRET}/x`),
    () => createLockClient(`redis://h:${SECRET}`),
    () => createLockClient(`redis://h/${SECRET}`),
    () => createLockClient(`redis://h?${SECRET}=1`),
    () => createLockClient(`redis://h?db=${SECRET}`),
    () => createLockClient(`redis://u:${SECRET}%zz@h`),
    () => createLockClient(`redis://u:${SECRET}@h:99999`),
    () => createLockClient(`redis://u:${SECRET}/x@h`),
    () => createLockClient(`redis://u:${SECRET}#x@h`),
    () => createLockClient(`redis-cluster://u:${SECRET}@h:${SECRET}`),
    () => createLockClient(`redis-sentinel://u:${SECRET}@h:x/m`),
    () => createLockClient(`redis-sentinel://h:26379/m/${SECRET}`),
    () => createLockClient(`redis+unix://u:${SECRET}@`),
    () => createLockClient(['redis://a', 'redis://b', `redis://a?x=${SECRET}`]),
    () => createLockClient({ store: 'memory:a', [`redis://:${SECRET}@h`]: 1 }),
    () => createLockClient('memory:a', { [SECRET]: true }),
    () => createLockClient({ store: 'memory:a', [SECRET]: true }),
    () => createLockWorker({ store: 'memory:a', key: 'k', startWork() {}, [SECRET]: true }),
    () => createLockClient({ store: 'memory:a', releaseOnSignal: [SECRET] }),
    () => createLockClient({ store: 'memory:a', ttl: { constructor: { name: SECRET } } }),
    () => createLockClient({ store: 'memory:a', ttl: SECRET }),
    () => createLockClient({ store: 'memory:a', password: { constructor: { name: `${SECRET} x` } } }),
    () => createLockWorker({ store: `${SECRET}@h:6379`, key: 'k', startWork() {} }),
  ]
  for (const call of misplaced) {
    assert.throws(
      call,
      (error) => {
        const text = `${error.message}\n${error.stack}\n${JSON.stringify(error)}\n${error.cause ?? ''}`
        const shown = text.replaceAll(/^.*hostile-options.*$/gm, '')
        assert.ok(!shown.includes(SECRET), `${call}: ${error.message}`)
        return true
      },
      `${call}`,
    )
  }
})

test('an array with too many elements is refused before it is copied', async (t) => {
  const sparse = []
  sparse.length = 2 ** 32 - 1
  const tooLong = { ...VALUE, message: /has 4294967295 elements; pass at most 100000/ }
  const locks = open(t, 'memory:sparse')
  await assert.rejects(locks.acquire(sparse), tooLong)
  await assert.rejects(locks.tryAcquire(sparse), tooLong)
  await assert.rejects(
    locks.withLock(sparse, () => assert.fail('the section ran')),
    tooLong,
  )
  assert.throws(() => createLockClient(sparse), tooLong)
  assert.throws(() => createLockClient({ store: sparse }), tooLong)
  assert.throws(() => createLockClient({ store: 'rediss://localhost', tls: { ca: sparse } }), tooLong)
  assert.throws(() => createLockClient({ store: 'memory:sparse', releaseOnSignal: sparse }), tooLong)
})
