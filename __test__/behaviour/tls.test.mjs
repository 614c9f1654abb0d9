// Redis over TLS: the right ones come to each other, and everybody else is told why not, without a secret.

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

/** The name of the authority that signs what is right. */
const CALLED = 'the authority of the tests'

describe('tls', { timeout: 120_000 }, () => {
  const endings = []
  const all = { after: (ending) => endings.push(ending) }
  let authority
  let own
  let ca
  before(() => {
    authority = createAuthority(temporaryFolder(all), { called: CALLED })
    own = authority.issue('server')
    ca = tlsOptions(own).ca
  })
  after(async () => {
    for (const ending of endings.reverse()) await ending()
  })

  /** A server that shows `shown`, and wants certificates of its clients that our authority signed ('yes'), or not ('no'). */
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

  async function refused(t, store, tls, reason, said) {
    const locks = open(t, store, tls)
    await assert.rejects(within('the refusal', locks.tryAcquire('k')), (error) => {
      assert.ok(error instanceof StoreUnavailableError, error.stack)
      assert.equal(error.reason, reason, error.message)
      assert.match(error.message, said)
      assert.ok(!/PRIVATE KEY|BEGIN/.test(inspect(error, { showHidden: true, depth: 5 })))
      return true
    })
  }

  /** What an authority of its own signed, as options of a client. */
  const strange = (t, options) => tlsOptions(createAuthority(temporaryFolder(t), options).issue('stranger'))

  test('acquire, a hand-over that is told, and another connection when the first is lost', async (t) => {
    const { server, store } = await startSecure(t)
    const [a, b] = [open(t, store, { ca }), open(t, store, { ca: [`${ca}`] })]
    const first = await a.acquire('k')
    const waiting = b.acquire('k', { wait: 20_000 })
    const look = await server.command()
    await until('a waiter', async () => (await a.inspect('k')).waiters.length > 0)
    await first.release()
    const second = await waiting
    assert.ok(second.fence > first.fence)
    assert.equal(b.stats().remoteHandOffs, 1)
    assert.ok((await look('CLIENT', 'KILL', 'TYPE', 'pubsub')) >= 1, 'both have a connection that is told')
    // What was on its way on the old connection fails with it.
    await until('a renewal on a new one', () =>
      second.renew().then(
        () => true,
        () => false,
      ),
    )
    assert.equal(second.isHeld, true)
    assert.equal(await second.release(), true)
  })

  test('a name of the certificate that is not the host in the URL', async (t) => {
    const { store } = await startSecure(t, authority.issue('elsewhere', { names: 'DNS:redis.example' }))
    await refused(t, store, { ca }, 'untrusted', /another name: for redis\.example, not for 127\.0\.0\.1/)
    await open(t, store, { ca, servername: 'redis.example' }).ready()
  })

  test('an issuer whom nobody trusts', async (t) => {
    const { store } = await startSecure(t)
    await refused(t, store, { ca: strange(t).ca }, 'untrusted', /none of the authorities in tls\.ca/)
    await refused(t, store, { ca: strange(t, { called: CALLED }).ca }, 'untrusted', /authority of that name/)
    await refused(t, store, undefined, 'untrusted', /tls\.ca/)
  })

  test('a certificate that has expired', async (t) => {
    const { store } = await startSecure(t, authority.issue('expired', { days: -1 }))
    await refused(t, store, { ca }, 'untrusted', /expired/)
  })

  test('a client certificate: right, missing, of somebody else', async (t) => {
    const { store } = await startSecure(t, own, 'yes')
    const { cert, key } = tlsOptions(authority.issue('client', { names: 'DNS:a.client' }))
    await open(t, store, { ca, cert, key: `${key}` }).ready()
    await refused(t, store, { ca }, 'denied', /wants a client certificate/)
    const other = strange(t)
    await refused(t, store, { ca, cert: other.cert, key: other.key }, 'denied', /tls\.cert\) was refused/)
    assert.throws(() => open(t, store, { cert, key: other.key }), { code: 'ERR_INVALID_ARG_VALUE', message: /belong/ })
  })

  test('a cluster: every slot, a hand-over that is told, a slot that moves, a replica that takes over', async (t) => {
    const cluster = await startCluster(t, { tls: own })
    const [a, b] = [0, 0].map(() => open(t, cluster.url(), { ca }))
    const keys = Array.from({ length: 30 }, (_, i) => `key ${i}`)
    const leases = await Promise.all(keys.map((key) => a.acquire(key)))
    const slots = await Promise.all(keys.map((key) => cluster.slotOf(`lock:${key}`)))
    const masters = await Promise.all(slots.map(async (slot) => (await cluster.masterOf(slot)).id))
    assert.equal(new Set(masters).size, 3, 'all masters have some of them')

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

  test('a cluster whose nodes show what nobody trusts', async (t) => {
    const cluster = await startCluster(t, { replicas: false, tls: own })
    await refused(t, cluster.url(), { ca: strange(t).ca }, 'untrusted', /none of the authorities in tls\.ca/)
    await refused(t, cluster.url().replace('rediss', 'redis'), undefined, 'unsupported', /rediss-cluster:\/\//)
  })

  test('TLS on one side only', async (t) => {
    const { server, plain } = await startSecure(t)
    await refused(t, plain, undefined, 'unsupported', /write rediss:\/\//)
    await refused(t, server.url().replace('redis', 'rediss'), { ca }, 'unsupported', /speaks no TLS.*tls-cluster yes/)
  })
})
