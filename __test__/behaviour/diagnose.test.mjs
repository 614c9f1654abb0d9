// diagnose(): what is wrong with a store is told in plain words, each thing on a real server that has just that.

import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { inspect } from 'node:util'
import { createLockClient, LockClosedError, StoreUnavailableError } from 'leasehold'
import { timed, until } from '../support/clock.mjs'
import { startCluster } from '../support/cluster.mjs'
import { diagnose, only, SECRET, USUAL } from '../support/diagnoses.mjs'
import { atEnd } from '../support/endings.mjs'
import { freePort } from '../support/ports.mjs'
import { startRedis, startTcp, temporaryFolder } from '../support/servers.mjs'
import { allStoreNames, overStores } from '../support/stores.mjs'

const DURABLE = ['--appendonly', 'yes', '--appendfsync', 'always']

overStores(
  'diagnose',
  (store) => {
    test('says where it looked, and nothing worse than how far that reaches', async (t) => {
      const locks = store.client(t)
      const { ok, findings, stores } = await locks.diagnose()
      assert.equal(ok, true, inspect(findings))
      // Of a cluster every master.
      assert.equal(stores.length, store.name === 'redis-cluster' ? 3 : 1)
      const [facts] = stores
      if (store.name.startsWith('redis')) {
        if (store.name === 'redis') assert.equal(facts.store, store.url)
        assert.match(facts.version, /^(Valkey )?\d+\.\d+/)
        assert.ok(facts.roundTrip > 0 && facts.roundTrip < 500, `${facts.roundTrip}`)
        assert.ok(Math.abs(facts.clockOffset) < 500, `${facts.clockOffset}`)
      } else {
        assert.deepEqual(facts, { store: store.url, version: null, roundTrip: null, clockOffset: null })
        assert.equal(findings[0].code, store.name === 'memory' ? 'process-only' : 'host-only')
      }
      await locks.close()
      await assert.rejects(locks.diagnose(), LockClosedError)
    })
  },
  allStoreNames,
)

/** Resolves when the master has so many replicas that get what is written. */
const followed = (master, count) =>
  until(`${count} replicas`, async () => {
    const said = await master.ask('INFO', 'replication')
    return said.match(/^slave\d+:.*state=online/gm)?.length === count
  })

test('diagnose: a cluster, each master of which has too few replicas', async (t) => {
  const cluster = await startCluster(t, { replicas: false })
  const { findings, stores } = await diagnose(t, cluster.url(), { minReplicas: 1 })
  const few = findings.filter(({ code, level }) => code === 'too-few-replicas' && level === 'error')
  assert.deepEqual(few.map(({ store }) => store).sort(), stores.map(({ store }) => store).sort())
  assert.equal(few.length, 3)
})

test('diagnose: a lock file that can not be', async (t) => {
  const found = await diagnose(t, `sqlite:${join(temporaryFolder(t), 'missing', 'locks.db')}`)
  assert.equal(found.findings.length, 1)
  assert.equal(found.findings[0].level, 'error')
  assert.equal(found.ok, false)
})

describe('diagnose: one Redis server', { timeout: 240_000 }, () => {
  test('one that keeps everything has nothing to be told of; one that keeps little is told as info', async (t) => {
    const durable = await startRedis(t, { args: DURABLE })
    const { findings, ok } = await diagnose(t, durable.url())
    assert.deepEqual(
      findings.filter(({ code }) => code !== 'old'),
      [],
    )
    assert.equal(ok, true)
    const words = []
    for (const args of [[], ['--save', '60', '1'], ['--appendonly', 'yes', '--appendfsync', 'everysec']]) {
      const server = await startRedis(t, { args })
      const { level, message } = only(await diagnose(t, server.url()), 'persistence', ['old'])
      assert.equal(level, 'info')
      words.push(message)
    }
    assert.equal(new Set(words).size, 3, 'each is told apart')
  })

  test('eviction that may drop locks', async (t) => {
    for (const policy of ['allkeys-lru', 'volatile-ttl']) {
      const server = await startRedis(t, { args: ['--maxmemory', '10mb', '--maxmemory-policy', policy] })
      const found = only(await diagnose(t, server.url()), 'eviction')
      assert.equal(found.level, 'warning')
      assert.ok(found.message.includes(policy), found.message)
      assert.equal(found.store, server.url())
    }
    const server = await startRedis(t, { args: ['--maxmemory', '10mb', '--maxmemory-policy', 'noeviction'] })
    assert.deepEqual(
      (await diagnose(t, server.url())).findings.map(({ code }) => code),
      USUAL,
    )
  })

  test('a user who may not look at settings or be told of free locks', async (t) => {
    const rules = '~* resetchannels +@all -config -info'
    const server = await startRedis(t, { user: { name: 'app', password: SECRET, rules } })
    const found = await diagnose(t, server.url(`app:${SECRET}`))
    assert.match(only(found, 'unchecked', ['notices']).message, /INFO, CONFIG GET/)
    assert.equal(only(found, 'notices', ['unchecked']).level, 'warning')
    assert.equal(found.stores[0].version, null)
  })

  test('a user who may not run scripts, a wrong password, a wrong port: findings, not errors', async (t) => {
    const rules = '~* &* +@all -@scripting'
    const server = await startRedis(t, { user: { name: 'app', password: SECRET, rules } })
    const port = await freePort()
    const web = await startTcp(t, (socket) => socket.once('data', () => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n')))
    for (const [url, code, words] of [
      [server.url(`app:${SECRET}`), 'denied', /script/],
      [server.url(`app:${SECRET}!`), 'denied', /password/],
      [`redis://:${SECRET}@127.0.0.1:${port}`, 'unreachable', /is the server up/],
      [`redis://:${SECRET}@127.0.0.1:${web}`, 'unsupported', /not a Redis/],
    ]) {
      const found = await diagnose(t, url)
      const { level, message } = only(found, code, [])
      assert.equal(level, 'error')
      assert.match(message, words)
      assert.equal(found.stores[0].roundTrip, null)
    }
  })

  for (const [what, rules] of [
    ['other keys', '~other:* &* +@all'],
    ['no commands of the queue', '~* &* +@all -zadd'],
  ]) {
    test(`a user who may use the server, but ${what}, is told so`, async (t) => {
      const server = await startRedis(t, { user: { name: 'app', password: SECRET, rules } })
      const { level, message } = only(await diagnose(t, server.url(`app:${SECRET}`)), 'denied')
      assert.equal(level, 'error')
      assert.match(message, /refused \((NOPERM|ERR The user executing the script can't run)/)
    })
  }

  test('a user who lacks one command that the scripts call is told so, whichever it is', async (t) => {
    const scripts = new URL('../../src/store/redis/scripts/', import.meta.url)
    const texts = readdirSync(scripts).map((name) => readFileSync(new URL(name, scripts), 'utf8'))
    const calls = texts.join().matchAll(/call\('([A-Z]+)'/g)
    const commands = new Set([...calls].map(([, name]) => name))
    assert.ok(commands.size > 20 && commands.has('ZSCORE'), [...commands].join())
    // Without this one, waiters look by themselves a little later. SPUBLISH is for clusters.
    for (const name of ['PUBSUB', 'SPUBLISH']) assert.ok(commands.delete(name), name)
    const server = await startRedis(t)
    const redis = await server.command()
    for (const name of commands) {
      await redis('ACL', 'SETUSER', name, 'on', `>${SECRET}`, '~*', '&*', '+@all', `-${name.toLowerCase()}`)
      const { findings } = await diagnose(t, server.url(`${name}:${SECRET}`))
      const told = findings.map(({ code, message }) => `${code} ${message}`)
      const expected =
        name === 'PUBLISH' ? /^notices /m : name === 'TIME' ? /^(?:denied|unchecked) .*TIME/m : /^denied .* refused /m
      assert.match(told.join('\n'), expected, name)
      assert.doesNotMatch(told.join('\n'), new RegExp(SECRET))
      // A user without DEL, for one, leaves the lock to its ttl.
      await until(`${name}: the lock to be free`, async () => (await redis('EXISTS', 'lock:leasehold-doctor')) === 0)
    }
  })

  test('the lock that a diagnosis tries is free afterwards, with the prefix of the client', async (t) => {
    const rules = '~app:* ~{app:* &* +@all'
    const server = await startRedis(t, { user: { name: 'app', password: SECRET, rules } })
    const url = server.url(`app:${SECRET}`)
    for (let i = 0; i < 2; i++) await diagnose(t, url, { prefix: 'app:' }).then(({ ok }) => assert.equal(ok, true))
    const locks = createLockClient({ store: url, prefix: 'app:' })
    atEnd(t, () => locks.close())
    assert.equal(await locks.inspect('leasehold-doctor'), null)
  })

  test('a server that does not answer, also when everybody else has given it up', async (t) => {
    const server = await startRedis(t)
    server.freeze()
    const { ms, value } = await timed(() => diagnose(t, server.url(), { storeTimeout: 300 }))
    assert.equal(only(value, 'timeout', []).level, 'error')
    assert.ok(ms < 2_000, `${ms} ms`)
    const locks = createLockClient({ store: server.url(), storeTimeout: 300 })
    atEnd(t, () => locks.close())
    await until('the breaker to open', async () => {
      await locks.tryAcquire('k').catch(() => {})
      return locks.stats().stores[0].state !== 'closed'
    })
    // With a request that is refused, in one go.
    const [, found] = await Promise.all([locks.tryAcquire('k').catch(() => {}), locks.diagnose()])
    assert.equal(only(found, 'timeout', []).level, 'error')
    server.thaw()
    // It is asked itself, whatever the breaker says.
    assert.equal((await locks.diagnose()).ok, true)
  })

  test('a round trip that is too slow for the ttl', async (t) => {
    const server = await startRedis(t)
    const delay = 30
    const port = await startTcp(t, (socket) => {
      const upstream = connect(server.port, '127.0.0.1')
      socket.pipe(upstream).on('error', () => {})
      upstream.on('data', (chunk) => setTimeout(() => socket.write(chunk), delay))
      upstream.on('close', () => socket.destroy())
    })
    const far = `redis://127.0.0.1:${port}`
    const found = await diagnose(t, far, { ttl: delay * 19 })
    const { level, message } = only(found, 'slow')
    assert.equal(level, 'warning')
    assert.ok(found.stores[0].roundTrip >= delay - 1, `${found.stores[0].roundTrip}`)
    // Not by the text: where it was rounded down here, it may be rounded up there.
    const told = Number(/takes (\d+\.\d) ms/.exec(message)?.[1])
    assert.ok(Math.abs(told - found.stores[0].roundTrip) <= 0.1, message)
    const codes = (await diagnose(t, far, { ttl: 60_000 })).findings.map(({ code }) => code)
    assert.deepEqual(codes, USUAL)
  })

  test('a replica, and a master that waits for none of its own', async (t) => {
    const master = await startRedis(t)
    const replica = await startRedis(t, { replicaOf: master.port })
    await followed(master, 1)
    assert.equal(only(await diagnose(t, replica.url()), 'readonly').level, 'error')
    const { level, message } = only(await diagnose(t, master.url()), 'replicas')
    assert.equal(level, 'info')
    assert.match(message, /^it has 1 replica and/)
    const tell = await master.command()
    await tell('CONFIG', 'SET', 'min-replicas-to-write', 1)
    assert.deepEqual(
      (await diagnose(t, master.url())).findings.map(({ code }) => code),
      USUAL,
    )
  })

  test('minReplicas: too few replicas, just as many, and one to spare', async (t) => {
    const master = await startRedis(t)
    const locks = createLockClient({ store: master.url(), minReplicas: 1, storeTimeout: 600 })
    atEnd(t, () => locks.close())
    const look = () => diagnose(t, master.url(), { minReplicas: 1 })
    const none = only(await look(), 'too-few-replicas')
    assert.equal(none.level, 'error')
    assert.match(none.message, /0 replicas connected, and minReplicas asks for 1:/)
    await assert.rejects(locks.tryAcquire('k'), StoreUnavailableError)

    await startRedis(t, { replicaOf: master.port })
    await followed(master, 1)
    const bare = only(await look(), 'no-spare-replica')
    assert.equal(bare.level, 'warning')
    assert.match(bare.message, /1 replica connected/)
    const lease = await locks.acquire('k')
    await lease.release()
    assert.match(
      only(await diagnose(t, master.url(), { minReplicas: 2 }), 'too-few-replicas').message,
      /1 replica conn.* for 2:/,
    )

    await startRedis(t, { replicaOf: master.port })
    await followed(master, 2)
    assert.deepEqual(
      (await look()).findings.map(({ code }) => code),
      USUAL,
    )
    assert.match(only(await diagnose(t, master.url()), 'replicas').message, /^it has 2 replicas and/)
  })

  test('a replica whose clock differs from that of its master by more than a tenth of the ttl', async (t) => {
    const master = await startRedis(t, { password: SECRET })
    let ahead = 6
    const clock = await startTcp(t, (socket) => {
      socket.on('data', (words) => {
        const seconds = String(Math.floor(Date.now() / 1000) + ahead)
        const time = `*2\r\n$${seconds.length}\r\n${seconds}\r\n$1\r\n0\r\n`
        socket.write(String(words).includes('AUTH') ? '+OK\r\n' : time)
      })
    })
    const args = ['--masterauth', SECRET, '--replica-announce-port', clock]
    await startRedis(t, { replicaOf: master.port, args })
    await followed(master, 1)
    const url = master.url()
    const { level, message } = only(await diagnose(t, url), 'replica-clock', [...USUAL, 'replicas'])
    assert.equal(level, 'warning')
    assert.ok(message.includes(`replica redis://127.0.0.1:${clock} is `) && /[56]\.\d s ahead/.test(message), message)
    // The difference is less than a tenth of this ttl.
    const codes = async (options) => (await diagnose(t, url, options)).findings.map(({ code }) => code)
    assert.ok(!(await codes({ ttl: 100_000 })).includes('replica-clock'))
    ahead = 0
    assert.ok(!(await codes({ ttl: 20_000 })).includes('replica-clock'))
  })

  test('minReplicas: a user who may not ask what replicas have', async (t) => {
    const server = await startRedis(t, { user: { name: 'app', password: SECRET, rules: '~* &* +@all -wait' } })
    const url = server.url(`app:${SECRET}`)
    const { level, message } = only(await diagnose(t, url, { minReplicas: 1 }), 'denied')
    assert.equal(level, 'error')
    assert.match(message, /\+wait/)
    assert.equal((await diagnose(t, url)).ok, true)
  })

  test('a server that is nearly full, and one that is', async (t) => {
    const server = await startRedis(t)
    const tell = await server.command()
    // So much that it does not matter what connections need.
    await tell('SETRANGE', 'ballast', 30_000_000, 'x')
    const used = Number(/^used_memory:(\d+)/m.exec(await tell('INFO', 'memory'))[1])
    const locks = createLockClient(server.url())
    atEnd(t, () => locks.close())
    await tell('CONFIG', 'SET', 'maxmemory', Math.round(used / 0.8))
    assert.equal((await diagnose(t, server.url())).ok, true)
    await tell('CONFIG', 'SET', 'maxmemory', Math.round(used / 0.95))
    assert.equal(only(await diagnose(t, server.url()), 'nearly-full').level, 'warning')
    await (await locks.acquire('k')).release()
    await tell('CONFIG', 'SET', 'maxmemory', Math.round(used * 0.9))
    const { level, message } = only(await diagnose(t, server.url()), 'full')
    assert.equal(level, 'error')
    assert.ok(message.includes(String(Math.round(used * 0.9))), message)
    await assert.rejects(locks.tryAcquire('k'), { reason: 'full' })
    await tell('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
    only(await diagnose(t, server.url()), 'eviction')
  })

  test('nearly as many clients as it takes', async (t) => {
    const server = await startRedis(t, { args: ['--maxclients', '12'] })
    for (let i = 0; i < 10; i++) {
      const command = await server.command()
      atEnd(t, () => command.close())
    }
    const { level, message } = only(await diagnose(t, server.url()), 'clients')
    assert.equal(level, 'warning')
    assert.match(message, /11 of its 12/)
  })
})
