// A failover by Redis Sentinel while clients hold leases and wait, and leases that replicas must
// have.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient, LockLostError, StoreUnavailableError } from 'leasehold'
import { now, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { bulk, list, startFakeRedis } from '../support/fake-redis.mjs'
import { aborted, lost } from '../support/leases.mjs'
import { startSentinels } from '../support/sentinel.mjs'
import { startRedis, startTcp } from '../support/servers.mjs'

const clientOf = (t, store, options = {}) => {
  const client = createLockClient({ store, ...options })
  atEnd(t, () => client.close())
  return client
}

describe('process: sentinel', { timeout: 120_000 }, () => {
  test('a redis:// URL that names a Sentinel is refused, and the error names the right URL', async (t) => {
    const system = await startSentinels(t)
    const locks = clientOf(t, `redis://127.0.0.1:${system.sentinels[0].port}`)
    await assert.rejects(locks.acquire('k', { wait: 5_000 }), ({ code, message }) => {
      assert.equal(code, 'ERR_STORE_UNAVAILABLE')
      assert.match(message, /is a Sentinel, .*redis-sentinel:\/\//)
      return true
    })
  })

  test('the master is killed: a lease is kept or reported lost, waiters are served, service is back within 1 s', async (t) => {
    const system = await startSentinels(t)
    const [a, b] = [clientOf(t, system.url()), clientOf(t, system.url())]
    const long = await a.acquire('long', { ttl: 20_000 })
    const short = await a.acquire('short', { ttl: 500 })
    const waiters = [b.acquire('long', { wait: 60_000 }), b.acquire('short', { wait: 60_000 })]
    await until('two waiters', async () => {
      const infos = await Promise.all(['long', 'short'].map((key) => a.inspect(key)))
      return infos.every((info) => info?.waiters.length === 1)
    })
    // Wait until both replicas have every write so far. WAIT covers only writes of its own
    // connection.
    const look = await (await system.master()).command()
    await look('SET', 'written', 1)
    assert.equal(await look('WAIT', 2, 5_000), 2)
    const killed = now()
    const toldLost = aborted(short).then(() => {
      assert.throws(() => short.assertHeld(), lost('expired'))
      assert.ok(now() - killed < 1_500, `the loss was reported after ${now() - killed} ms`)
    })
    const [{ ms: failover }] = await Promise.all([system.loseMaster(), toldLost])
    const switched = killed + failover
    const again = await within('service', a.acquire('another', { wait: 10_000 }))
    assert.ok(now() - switched < 1_000, `service came back ${now() - switched} ms after the failover`)
    await again.release()

    assert.equal(long.isHeld, true)
    await long.renew()
    assert.equal(await long.release(), true)
    const [next, afterShort] = await within('the waiters', Promise.all(waiters))
    assert.ok(next.fence > long.fence && afterShort.fence > short.fence)
    t.diagnostic(`failover ${Math.round(failover)} ms`)
  })

  test('the master is frozen: service is back soon after the failover', async (t) => {
    const system = await startSentinels(t)
    const locks = clientOf(t, system.url())
    await locks.withLock('k', () => {})
    const [master] = system.servers
    const failover = system.freezeMaster().then(() => now())
    await until('the master to be frozen', () => !master.isRunning)
    const back = locks.acquire('k', { wait: 60_000 }).then(() => now())
    const ms = (await back) - (await failover)
    // The requests to the frozen master have to time out first, which takes 1 s by default.
    assert.ok(ms < 1_800, `service came back ${ms} ms after the failover`)
    t.diagnostic(`service ${ms.toFixed(0)} ms after the failover`)
  })

  test('a sentinel that is found just after another one was replaced is asked 1 s later', async (t) => {
    const master = await startRedis(t)
    // Starts a server that counts its connections and closes each of them.
    const startSilent = async () => {
      const silent = { tries: 0 }
      silent.port = await startTcp(t, (socket) => {
        silent.tries++
        socket.destroy()
      })
      return silent
    }
    const start = (count) => Promise.all(Array.from({ length: count }, startSilent))
    const [full, found] = [await start(15), await start(2)]
    const place = ['127.0.0.1', String(master.port)]
    const pairs = (record) => list(...Object.entries(record).flat().map(bulk))
    const listeners = new Set()
    const port = await startFakeRedis(t, {
      SENTINEL: ([, question]) => {
        if (question === 'MYID') return bulk('5e47')
        if (question === 'MASTER') return pairs({ ip: place[0], port: place[1], flags: 'master' })
        if (question === 'get-master-addr-by-name') return list(...place.map(bulk))
        return list(...full.map(({ port }) => pairs({ ip: '127.0.0.1', port: String(port), runid: `id-${port}` })))
      },
      SUBSCRIBE: (_, socket) => {
        listeners.add(socket)
      },
    })
    await clientOf(t, `redis-sentinel://127.0.0.1:${port}/main`).ready()
    // The second attempt shows that the client has noticed the failure of the first one.
    await until('the list to be full of sentinels that are gone', () => full.every(({ tries }) => tries >= 2))
    const messages = found.map(({ port }) => {
      const text = `sentinel id-${port} 127.0.0.1 ${port} @ main ${place.join(' ')}`
      return `>3\r\n${['message', '+sentinel', text].map(bulk).join('')}`
    })
    for (const socket of listeners) socket.write(messages.join(''))
    await until('the first one to be asked', () => found[0].tries > 0)
    await until('the second one to be asked', () => found[1].tries > 0, 5_000)
  })

  test('minReplicas: a lease that too few replicas have is neither granted nor renewed', async (t) => {
    const master = await startRedis(t)
    const locks = clientOf(t, master.url(), { minReplicas: 1, storeTimeout: 600 })
    await assert.rejects(locks.tryAcquire('k'), (error) => {
      assert.ok(error instanceof StoreUnavailableError)
      assert.equal(error.reason, 'timeout')
      assert.match(error.message, /fewer than the 1 of minReplicas/)
      return true
    })
    const look = await master.command()
    await until('the release of the lease without replicas', async () => (await look('EXISTS', 'lock:k')) === 0)
    const pending = locks.acquire('k', { ttl: 2_000, wait: 30_000 })
    const replica = await startRedis(t, { replicaOf: master.port })
    const lease = await pending
    const atReplica = await replica.command()
    assert.equal(await atReplica('GET', 'lock:k'), lease.token)
    replica.freeze()
    await assert.rejects(lease.renew(), StoreUnavailableError)
    await aborted(lease)
    assert.throws(() => lease.assertHeld(), LockLostError)
    replica.thaw()
  })

  test('minReplicas: diagnose() counts the replicas of the current master', async (t) => {
    const system = await startSentinels(t, { keep: true })
    const worse = async (store, minReplicas) => {
      const { findings } = await clientOf(t, store, { minReplicas }).diagnose()
      return findings.filter(({ level }) => level !== 'info').map(({ code }) => code)
    }
    assert.deepEqual(await worse(system.url(), 3), ['too-few-replicas'])
    assert.deepEqual(await worse(system.url(), 2), ['no-spare-replica'])
    assert.deepEqual(await worse(system.url(), 1), [])
    // The master of a Sentinel group may be another server at any time.
    const others = [await system.master(), await startRedis(t, { keep: true })].map((server) => server.url())
    assert.deepEqual(await worse([system.url(), ...others]), [])
    await system.loseMaster()
    await until('the other replica to follow the new master', async () => {
      const [code] = await worse(system.url(), 1)
      return code === 'no-spare-replica'
    })
  })

  test('minReplicas: a waiter gets a lease only once the replicas have it', async (t) => {
    const master = await startRedis(t)
    const replica = await startRedis(t, { replicaOf: master.port })
    const look = await replica.command()
    await until('the replica to follow', async () => /master_link_status:up/.test(await look('INFO', 'replication')))
    const [a, b] = [1, 2].map(() => clientOf(t, master.url(), { minReplicas: 1 }))
    for (let turn = 0; turn < 20; turn++) {
      const held = await a.acquire('k')
      const waiting = b.acquire('k', { wait: 20_000 })
      await until('a waiter', async () => (await a.inspect('k')).waiters.length === 1)
      await held.release()
      const next = await waiting
      assert.equal(await look('GET', 'lock:k'), next.token)
      assert.ok(next.fence > held.fence)
      await next.release()
    }
    assert.equal(b.stats().remoteHandOffs, 20)
  })
})
