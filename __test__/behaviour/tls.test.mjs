// Redis over TLS: client and server with the right certificates connect, and every refusal gives
// its reason and no secret.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { inspect } from 'node:util'
import { createLockClient, StoreUnavailableError } from 'leasehold'
import { until, within } from '../support/clock.mjs'
import { startCluster } from '../support/cluster.mjs'
import { atEnd } from '../support/endings.mjs'
import { freePort } from '../support/ports.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'
import { createAuthority, tlsOptions, tlsWords } from '../support/tls.mjs'

/** The name of the trusted authority. */
const AUTHORITY = 'the authority of the tests'

describe('tls', { timeout: 120_000 }, () => {
  const endings = []
  const all = { after: (ending) => endings.push(ending) }
  let authority
  let own
  let ca
  before(() => {
    authority = createAuthority(temporaryFolder(all), { called: AUTHORITY })
    own = authority.issue('server')
    ca = tlsOptions(own).ca
  })
  after(async () => {
    for (const ending of endings.reverse()) await ending()
  })

  /**
   * Starts a server with the certificate `shown`. With `clients` = 'yes', it requires certificates
   * of its clients that the trusted authority signed.
   */
  async function startSecure(t, shown = own, clients = 'no') {
    const port = await freePort()
    const server = await startRedis(t, { args: ['--tls-port', port, ...tlsWords({ ...shown, clients })] })
    return { server, plain: `redis://127.0.0.1:${port}`, store: `rediss://127.0.0.1:${port}` }
  }

  function open(t, store, tls) {
    const locks = createLockClient({ store, tls })
    atEnd(t, () => locks.close())
    return locks
  }

  async function refused(t, store, tls, reason, pattern) {
    const locks = open(t, store, tls)
    await assert.rejects(within('the refusal', locks.tryAcquire('k')), (error) => {
      assert.ok(error instanceof StoreUnavailableError, error.stack)
      assert.equal(error.reason, reason, error.message)
      assert.match(error.message, pattern)
      assert.ok(!/PRIVATE KEY|BEGIN/.test(inspect(error, { showHidden: true, depth: 5 })))
      return true
    })
  }

  /** Returns the options of a client with the certificates of another authority. */
  const untrusted = (t, options) => tlsOptions(createAuthority(temporaryFolder(t), options).issue('stranger'))

  test('acquires, hand-overs with notices, and reconnections work', async (t) => {
    const { server, store } = await startSecure(t)
    const [a, b] = [open(t, store, { ca }), open(t, store, { ca: [`${ca}`] })]
    const first = await a.acquire('k')
    const waiting = b.acquire('k', { wait: 20_000 })
    const redis = await server.command()
    await until('a waiter', async () => (await a.inspect('k')).waiters.length > 0)
    await first.release()
    const second = await waiting
    assert.ok(second.fence > first.fence)
    assert.equal(b.stats().remoteHandOffs, 1)
    assert.ok((await redis('CLIENT', 'KILL', 'TYPE', 'pubsub')) >= 1, 'clients have a connection for notices')
    // A request that was in flight on the old connection fails.
    await until('a renewal on a new connection', () =>
      second.renew().then(
        () => true,
        () => false,
      ),
    )
    assert.equal(second.isHeld, true)
    assert.equal(await second.release(), true)
  })

  test('a certificate for another host is refused, unless servername is its name', async (t) => {
    const { store } = await startSecure(t, authority.issue('elsewhere', { names: 'DNS:redis.example' }))
    await refused(t, store, { ca }, 'untrusted', /another name: for redis\.example, not for 127\.0\.0\.1/)
    await open(t, store, { ca, servername: 'redis.example' }).ready()
  })

  test('a certificate of an untrusted authority is refused', async (t) => {
    const { store } = await startSecure(t)
    await refused(t, store, { ca: untrusted(t).ca }, 'untrusted', /none of the authorities in tls\.ca/)
    await refused(t, store, { ca: untrusted(t, { called: AUTHORITY }).ca }, 'untrusted', /authority of that name/)
    await refused(t, store, undefined, 'untrusted', /tls\.ca/)
  })

  test('an expired certificate is refused', async (t) => {
    const { store } = await startSecure(t, authority.issue('expired', { days: -1 }))
    await refused(t, store, { ca }, 'untrusted', /expired/)
  })

  test('a missing or untrusted client certificate is refused, and the right one is accepted', async (t) => {
    const { store } = await startSecure(t, own, 'yes')
    const { cert, key } = tlsOptions(authority.issue('client', { names: 'DNS:a.client' }))
    await open(t, store, { ca, cert, key: `${key}` }).ready()
    await refused(t, store, { ca }, 'denied', /wants a client certificate/)
    const other = untrusted(t)
    await refused(t, store, { ca, cert: other.cert, key: other.key }, 'denied', /tls\.cert\) was refused/)
    assert.throws(() => open(t, store, { cert, key: other.key }), { code: 'ERR_INVALID_ARG_VALUE', message: /belong/ })
  })

  test('a cluster works with hand-overs, moved slots and a failover', async (t) => {
    const cluster = await startCluster(t, { tls: own })
    const [a, b] = [0, 0].map(() => open(t, cluster.url(), { ca }))
    const keys = Array.from({ length: 30 }, (_, i) => `key ${i}`)
    const leases = await Promise.all(keys.map((key) => a.acquire(key)))
    const slots = await Promise.all(keys.map((key) => cluster.slotOf(`lock:${key}`)))
    const masters = await Promise.all(slots.map(async (slot) => (await cluster.masterOf(slot)).id))
    assert.equal(new Set(masters).size, 3, 'every master has some of the locks')

    const waiting = keys.map((key) => b.acquire(key, { wait: 20_000 }))
    for (const key of keys) await until('a waiter', async () => (await a.inspect(key)).waiters.length > 0)
    await Promise.all(leases.map((lease) => lease.release()))
    const taken = await Promise.all(waiting)
    for (const [i, lease] of taken.entries()) assert.ok(lease.fence > leases[i].fence)
    assert.equal(b.stats().remoteHandOffs, keys.length)

    await cluster.reshard(slots.slice(0, 3))
    const { old, master } = await cluster.failOver(slots[3])
    assert.notEqual(master, old)
    for (const lease of taken) {
      await lease.renew()
      assert.equal(await lease.release(), true)
    }
  })

  test('a cluster with untrusted certificates is refused', async (t) => {
    const cluster = await startCluster(t, { replicas: false, tls: own })
    await refused(t, cluster.url(), { ca: untrusted(t).ca }, 'untrusted', /none of the authorities in tls\.ca/)
    await refused(t, cluster.url().replace('rediss', 'redis'), undefined, 'unsupported', /rediss-cluster:\/\//)
  })

  test('TLS on one side only is refused with advice', async (t) => {
    const { server, plain } = await startSecure(t)
    await refused(t, plain, undefined, 'unsupported', /write rediss:\/\//)
    await refused(t, server.url().replace('redis', 'rediss'), { ca }, 'unsupported', /speaks no TLS.*tls-cluster yes/)
  })
})
