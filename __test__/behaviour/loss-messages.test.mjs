// The messages of lost leases name the store, and say what may have happened there.

import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { test } from 'node:test'
import { aborted, lost } from '../support/leases.mjs'
import { overStores } from '../support/stores.mjs'

/** Blocks this thread. */
const block = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)

/** Removes a lock file and the files beside it. */
const removeFile = (store) => {
  for (const end of ['', '-wal', '-shm']) rmSync(store.url.slice('sqlite:'.length) + end)
}

/** Removes from a message how late a busy thread noticed the loss. */
const punctual = (message) => message.replace(/; this thread noticed the loss \d+ ms late/, '')

const ACQUIRE = 'if the work is not done, acquire the lock'
const STOP = 'Stop the work: the next holder may have begun'
/** Returns the store of `locks`, as messages name it. */
const placeOf = (store, locks) =>
  store.name === 'sqlite'
    ? `the lock file ${store.url.slice('sqlite:'.length)}`
    : `the store ${locks.stats().stores[0]?.store ?? store.url}`

/** Returns the sentence that says what shows the holder. No command sees a memory store. */
const look = (store) =>
  `${store.name === 'memory' ? 'inspect()' : 'inspect() or `leasehold inspect`'} shows who holds it now`

/** Returns the sentences that say where a lock is, and how to see who holds it. */
const where = (store, locks) =>
  `The lock is ${store.name === 'sqlite' ? 'in' : 'at'} ${placeOf(store, locks)}. ${look(store)}`

/** Returns the text that begins an error about the loss of `key`. */
const begin = (key) => `the lease of "${key}" is lost: `

overStores('messages of lost leases', (store) => {
  test('a lease that was released by force names the store, without a password', async (t) => {
    const [locks, other] = [store.client(t), store.client(t)]
    const key = store.key()
    const lease = await locks.acquire(key)
    await other.forceRelease(key)
    await assert.rejects(lease.renew(), lost('missing'))
    const said = {
      memory: `the store ${store.url} knows nothing of it any more: the lock was released by force`,
      sqlite:
        `the lock file ${store.url.slice('sqlite:'.length)} knows nothing of it any more: ` +
        'the file was removed or replaced, or the lock was released by force',
    }
    assert.throws(() => lease.assertHeld(), {
      message: `${begin(key)}${said[store.name] ?? redisSaid(locks)}. ${STOP}. ${look(store)}`,
    })
  })

  test('a lease that another client took over names the store, and says how to see the holder', async (t) => {
    const [locks, other] = [store.client(t), store.client(t)]
    const key = store.key()
    const lease = await locks.acquire(key)
    await other.forceRelease(key)
    await other.acquire(key)
    await assert.rejects(lease.renew(), lost('taken'))
    assert.throws(() => lease.assertHeld(), {
      message: `${begin(key)}another client holds the lock now. ${STOP}. ${where(store, locks)}`,
    })
  })

  test('a lease that nothing renews names its ttl, and says what to do', async (t) => {
    const key = store.key()
    const locks = store.client(t)
    const losses = []
    locks.on('lost', (_lease, error) => losses.push(error))
    const lease = await locks.acquire(key, { ttl: 200, autoRenew: false })
    await lease.renew(250)
    await aborted(lease)
    const message = `${begin(key)}it was not renewed within its ttl of 250 ms. autoRenew is off: renew it sooner, or raise ttl. ${where(store, locks)}`
    assert.equal(punctual(lease.signal.reason.message), message)
    assert.throws(() => lease.assertHeld(), { message: lease.signal.reason.message })
    assert.deepEqual(losses, [lease.signal.reason])
  })

  test('a lease with maxHold names both limits, and says what to do', async (t) => {
    const key = store.key()
    const locks = store.client(t)
    const lease = await locks.acquire(key, { ttl: 200, maxHold: 300 })
    await aborted(lease)
    assert.equal(
      punctual(lease.signal.reason.message),
      `${begin(key)}it had reached its maxHold of 300 ms, or was not renewed within its ttl of 200 ms. ` +
        `Raise maxHold, or do less work under one lease. ${where(store, locks)}`,
    )
  })

  test('a lease whose thread was blocked says how late the thread noticed the loss', async (t) => {
    const key = store.key()
    const locks = store.client(t)
    await locks.ready()
    const began = performance.now()
    const lease = await locks.acquire(key, { ttl: 200, autoRenew: false })
    block(600)
    assert.equal(lease.isHeld, false)
    const late = performance.now() - began - 200
    block(300)
    await aborted(lease)
    const { message } = lease.signal.reason
    const noticed = /within its ttl of 200 ms; this thread noticed the loss (\d+) ms late\. autoRenew is off: /.exec(
      message,
    )
    assert.ok(noticed, message)
    // The call of isHeld counts, not the event.
    assert.ok(Math.abs(noticed[1] - late) < 100, `${late} ms: ${message}`)
    assert.throws(() => lease.assertHeld(), { message })
  })

  test('a lease that is lost by a stall names maxStall, and says how late the thread noticed the loss', async (t) => {
    const key = store.key()
    const locks = store.client(t, { maxStall: 100 })
    const lease = await locks.acquire(key, { ttl: 200 })
    block(1_500)
    await aborted(lease)
    lost('stalled')(lease.signal.reason)
    const { message } = lease.signal.reason
    assert.ok(
      message.startsWith(`${begin(key)}this thread was blocked for longer than its client's maxStall of 100 ms`),
      message,
    )
    const noticed = /, and noticed the loss (\d+) ms late\. Use a worker thread, or raise maxStall/.exec(message)
    assert.ok(noticed && noticed[1] >= 500 && noticed[1] < 1_500, message)
    assert.ok(message.endsWith(`. ${where(store, locks)}`), message)
  })

  if (store.name === 'sqlite') {
    test('a lease whose lock file was removed names the file', async (t) => {
      const key = store.key()
      const lease = await store.client(t).acquire(key)
      removeFile(store)
      await aborted(lease)
      lost('missing')(lease.signal.reason)
      const { message } = lease.signal.reason
      assert.ok(message.startsWith(`${begin(key)}the lock file ${store.url.slice('sqlite:'.length)} knows`), message)
      assert.match(message, /: the file was removed or replaced, or /)
    })
  }
})

overStores('messages of tickets that can not be adopted', (store) => {
  test('a ticket that this client has adopted already', async (t) => {
    const [locks, other] = [store.client(t), store.client(t)]
    const key = store.key()
    const ticket = await (await locks.acquire(key)).detach()
    const lease = await locks.adopt(ticket)
    const here = 'this client adopted the ticket already, and holds the lease'
    await assert.rejects(locks.adopt(ticket), notAdopted('taken', key, here))
    const elsewhere = `another client holds the lock now. A ticket can be adopted once, and before its time is over: ${ACQUIRE}. ${where(store, other)}`
    await assert.rejects(other.adopt(ticket), notAdopted('taken', key, elsewhere))
    await lease.release()
    const gone = `${placeOf(store, locks)} has no lease for the ticket. The lease was released, or its time is over, or the ticket is of another store or prefix: ${ACQUIRE}`
    await assert.rejects(locks.adopt(ticket), notAdopted('missing', key, gone))
  })

  test('a lock that this client holds by another ticket, or without one', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const ticket = await (await locks.acquire(key)).detach()
    await (await locks.adopt(ticket)).release()
    const lease = await locks.acquire(key)
    const elsewhere = `another client holds the lock now. A ticket can be adopted once, and before its time is over: ${ACQUIRE}. ${where(store, locks)}`
    await assert.rejects(locks.adopt(ticket), notAdopted('taken', key, elsewhere))
    await locks.adopt(await lease.detach())
    await assert.rejects(locks.adopt(ticket), notAdopted('taken', key, elsewhere))
  })
})

/** For assert.rejects: checks the reason and the message of a refused adoption. */
const notAdopted = (reason, key, because) => (error) => {
  assert.equal(error.message, `could not adopt the lease of "${key}": ${because}`)
  return lost(reason)(error)
}

const redisSaid = (locks) =>
  `the store ${locks.stats().stores[0].store} knows nothing of it any more: ` +
  'it lost the lease (a restart, a failover or an eviction), or the lock was released by force'
