// diagnose() reports each fault of a store in plain words. Each test has a real server with that
// fault.

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
    test('diagnose() of a good store names the store, and finds at most the reach of its locks', async (t) => {
      const locks = store.client(t)
      const { ok, findings, stores } = await locks.diagnose()
      assert.equal(ok, true, inspect(findings))
      // A cluster has facts of each master.
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

/** Resolves when the master has `count` replicas that are in sync. */
const replicated = (master, count) =>
  until(`${count} replicas`, async () => {
    const info = await master.ask('INFO', 'replication')
    return info.match(/^slave\d+:.*state=online/gm)?.length === count
  })

test('diagnose() of a cluster reports each master that has too few replicas', async (t) => {
  const cluster = await startCluster(t, { replicas: false })
  const { findings, stores } = await diagnose(t, cluster.url(), { minReplicas: 1 })
  const few = findings.filter(({ code, level }) => code === 'too-few-replicas' && level === 'error')
  assert.deepEqual(few.map(({ store }) => store).sort(), stores.map(({ store }) => store).sort())
  assert.equal(few.length, 3)
})

test('diagnose() reports a lock file in a missing folder', async (t) => {
  const found = await diagnose(t, `sqlite:${join(temporaryFolder(t), 'missing', 'locks.db')}`)
  assert.equal(found.findings.length, 1)
  assert.equal(found.findings[0].level, 'error')
  assert.equal(found.ok, false)
})

describe('diagnose: one Redis server', { timeout: 240_000 }, () => {
  test('a durable server has no finding, and one that may lose data has an info', async (t) => {
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
    assert.equal(new Set(words).size, 3, 'each has its own message')
  })

  test('eviction that may drop locks is a warning', async (t) => {
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

  test('a user without permission for settings and notices gets findings about both', async (t) => {
    const rules = '~* resetchannels +@all -config -info'
    const server = await startRedis(t, { user: { name: 'app', password: SECRET, rules } })
    const found = await diagnose(t, server.url(`app:${SECRET}`))
    assert.match(only(found, 'unchecked', ['notices']).message, /INFO, CONFIG GET/)
    assert.equal(only(found, 'notices', ['unchecked']).level, 'warning')
    assert.equal(found.stores[0].version, null)
  })

  test('missing permission for scripts, a wrong password and a wrong port are findings', async (t) => {
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
    ['only other keys', '~other:* &* +@all'],
    ['no command of the queue', '~* &* +@all -zadd'],
  ]) {
    test(`a user with permission for ${what} gets a finding`, async (t) => {
      const server = await startRedis(t, { user: { name: 'app', password: SECRET, rules } })
      const { level, message } = only(await diagnose(t, server.url(`app:${SECRET}`)), 'denied')
      assert.equal(level, 'error')
      assert.match(message, /refused \((NOPERM|ERR The user executing the script can't run)/)
    })
  }

  test('a user without permission for any command of the scripts gets a finding', async (t) => {
    const scripts = new URL('../../src/store/redis/scripts/', import.meta.url)
    const names = readdirSync(scripts, { recursive: true }).filter((name) => name.endsWith('.lua'))
    const texts = names.map((name) => readFileSync(new URL(name, scripts), 'utf8'))
    const calls = texts.join().matchAll(/call\('([A-Z]+)'/g)
    const commands = new Set([...calls].map(([, name]) => name))
    assert.ok(commands.size > 20 && commands.has('ZSCORE'), [...commands].join())
    // Only clusters use SPUBLISH.
    assert.ok(commands.delete('SPUBLISH'))
    const server = await startRedis(t)
    const redis = await server.command()
    for (const name of commands) {
      await redis('ACL', 'SETUSER', name, 'on', `>${SECRET}`, '~*', '&*', '+@all', `-${name.toLowerCase()}`)
      const { findings } = await diagnose(t, server.url(`${name}:${SECRET}`))
      const lines = findings.map(({ code, message }) => `${code} ${message}`).join('\n')
      const others = { PUBLISH: /^notices /m, PUBSUB: /^slow-notices /m, TIME: /^(?:denied|unchecked) .*TIME/m }
      assert.match(lines, others[name] ?? /^denied .* refused /m, name)
      assert.doesNotMatch(lines, new RegExp(SECRET))
      // For example, a user without DEL can't release the lock, which then expires.
      await until(`${name}: the lock to be free`, async () => (await redis('EXISTS', 'lock:leasehold-doctor')) === 0)
    }
  })

  test('a user without a right that locks can do without learns what does not work', async (t) => {
    for (const [without, code, says] of [
      ['-scan', 'no-listing', /list\(\), leasehold ls and leasehold watch fail; .* \+scan$/],
      ['-pubsub|numsub', 'slow-notices', /takes a round trip more .* \+pubsub\|numsub$/],
      ['-pubsub', 'slow-notices', / \+pubsub\|numsub$/],
    ]) {
      const server = await startRedis(t, { user: { name: 'app', password: SECRET, rules: `~* &* +@all ${without}` } })
      const url = server.url(`app:${SECRET}`)
      const found = await diagnose(t, url)
      const { level, message } = only(found, code)
      assert.equal(level, 'info')
      assert.match(message, says)
      assert.equal(found.ok, true)
      const locks = createLockClient(url)
      atEnd(t, () => locks.close())
      await (await locks.acquire('k')).release()
      if (code === 'no-listing') await assert.rejects(locks.list(), { reason: 'denied', message: /\+scan/ })
    }
  })

  test('a cluster: a user without a right that locks can do without', async (t) => {
    const cluster = await startCluster(t, { replicas: false })
    for (const { server } of await cluster.masters()) {
      const tell = await server.command()
      await tell('ACL', 'SETUSER', 'app', 'on', `>${SECRET}`, '~*', '&*', '+@all', '-scan', '-pubsub|shardnumsub')
    }
    const { findings, stores } = await diagnose(t, cluster.url().replace('://', `://app:${SECRET}@`))
    for (const code of ['no-listing', 'slow-notices']) {
      const found = findings.filter((finding) => finding.code === code)
      assert.equal(found.length, stores.length, code)
    }
    assert.match(findings.find(({ code }) => code === 'slow-notices').message, / \+pubsub\|shardnumsub$/)
  })

  test('diagnose() uses a lock with the prefix of the client, and releases it', async (t) => {
    const rules = '~app:* ~{app:* &* +@all'
    const server = await startRedis(t, { user: { name: 'app', password: SECRET, rules } })
    const url = server.url(`app:${SECRET}`)
    for (let i = 0; i < 2; i++) await diagnose(t, url, { prefix: 'app:' }).then(({ ok }) => assert.equal(ok, true))
    const locks = createLockClient({ store: url, prefix: 'app:' })
    atEnd(t, () => locks.close())
    assert.equal(await locks.inspect('leasehold-doctor'), null)
  })

  test('a silent server is a time-out, also while its breaker is open', async (t) => {
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
    // In one batch with a request that the breaker refuses.
    const [, found] = await Promise.all([locks.tryAcquire('k').catch(() => {}), locks.diagnose()])
    assert.equal(only(found, 'timeout', []).level, 'error')
    server.thaw()
    // diagnose() asks the server although the breaker is open.
    assert.equal((await locks.diagnose()).ok, true)
  })

  test('a round trip that is too slow for the ttl is a warning', async (t) => {
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
    // Compares numbers, because the message may round the time the other way.
    const shown = Number(/takes (\d+\.\d) ms/.exec(message)?.[1])
    assert.ok(Math.abs(shown - found.stores[0].roundTrip) <= 0.1, message)
    const codes = (await diagnose(t, far, { ttl: 60_000 })).findings.map(({ code }) => code)
    assert.deepEqual(codes, USUAL)
  })

  test('a replica is an error, and a master that waits for no replica has an info', async (t) => {
    const master = await startRedis(t)
    const replica = await startRedis(t, { replicaOf: master.port })
    await replicated(master, 1)
    assert.equal(only(await diagnose(t, replica.url()), 'readonly').level, 'error')
    const { level, message } = only(await diagnose(t, master.url()), 'replicas')
    assert.equal(level, 'info')
    assert.match(message, /^it has 1 replica and/)
    const redis = await master.command()
    await redis('CONFIG', 'SET', 'min-replicas-to-write', 1)
    assert.deepEqual(
      (await diagnose(t, master.url())).findings.map(({ code }) => code),
      USUAL,
    )
  })

  test('minReplicas: too few replicas are an error, just enough are a warning', async (t) => {
    const master = await startRedis(t)
    const locks = createLockClient({ store: master.url(), minReplicas: 1, storeTimeout: 600 })
    atEnd(t, () => locks.close())
    const check = () => diagnose(t, master.url(), { minReplicas: 1 })
    const none = only(await check(), 'too-few-replicas')
    assert.equal(none.level, 'error')
    assert.match(none.message, /0 replicas connected, and minReplicas asks for 1:/)
    await assert.rejects(locks.tryAcquire('k'), StoreUnavailableError)

    await startRedis(t, { replicaOf: master.port })
    await replicated(master, 1)
    const bare = only(await check(), 'no-spare-replica')
    assert.equal(bare.level, 'warning')
    assert.match(bare.message, /1 replica connected/)
    const lease = await locks.acquire('k')
    await lease.release()
    assert.match(
      only(await diagnose(t, master.url(), { minReplicas: 2 }), 'too-few-replicas').message,
      /1 replica conn.* for 2:/,
    )

    await startRedis(t, { replicaOf: master.port })
    await replicated(master, 2)
    assert.deepEqual(
      (await check()).findings.map(({ code }) => code),
      USUAL,
    )
    assert.match(only(await diagnose(t, master.url()), 'replicas').message, /^it has 2 replicas and/)
  })

  test('minReplicas: a server that waits before it copies its data to a replica has a warning', async (t) => {
    // The default of Redis. The servers of the tests do not wait unless they get these arguments.
    const slow = await startRedis(t, { args: ['--repl-diskless-sync', 'yes', '--repl-diskless-sync-delay', 5] })
    const few = ['too-few-replicas', ...USUAL]
    const check = (minReplicas) => diagnose(t, slow.url(), { minReplicas })
    const codes = async (minReplicas) => (await check(minReplicas)).findings.map(({ code }) => code).sort()
    const { level, message } = only(await check(1), 'copy-delay', few)
    assert.equal(level, 'warning')
    assert.match(message, /^it waits 5 s before .* set repl-diskless-sync-delay 0 on /)
    assert.deepEqual(await codes(0), USUAL, 'without minReplicas, no grant waits for a replica')
    const redis = await slow.command()
    await redis('CONFIG', 'SET', 'repl-diskless-sync', 'no')
    assert.deepEqual(await codes(1), few.toSorted(), 'a copy over the disk begins at once')
    await redis('CONFIG', 'SET', 'repl-diskless-sync', 'yes')
    await redis('CONFIG', 'SET', 'repl-diskless-sync-delay', 0)
    assert.deepEqual(await codes(1), few.toSorted())
  })

  test('a replica whose clock differs from its master by more than a tenth of the ttl is a warning', async (t) => {
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
    await replicated(master, 1)
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

  test('minReplicas: a user without permission for WAIT is an error', async (t) => {
    const server = await startRedis(t, { user: { name: 'app', password: SECRET, rules: '~* &* +@all -wait' } })
    const url = server.url(`app:${SECRET}`)
    const { level, message } = only(await diagnose(t, url, { minReplicas: 1 }), 'denied')
    assert.equal(level, 'error')
    assert.match(message, /\+wait/)
    assert.equal((await diagnose(t, url)).ok, true)
  })

  test('a nearly full server is a warning, and a full one is an error', async (t) => {
    const server = await startRedis(t)
    const redis = await server.command()
    // Large enough that the memory of connections does not matter.
    await redis('SETRANGE', 'ballast', 30_000_000, 'x')
    const used = Number(/^used_memory:(\d+)/m.exec(await redis('INFO', 'memory'))[1])
    const locks = createLockClient(server.url())
    atEnd(t, () => locks.close())
    await redis('CONFIG', 'SET', 'maxmemory', Math.round(used / 0.8))
    assert.equal((await diagnose(t, server.url())).ok, true)
    await redis('CONFIG', 'SET', 'maxmemory', Math.round(used / 0.95))
    assert.equal(only(await diagnose(t, server.url()), 'nearly-full').level, 'warning')
    await (await locks.acquire('k')).release()
    await redis('CONFIG', 'SET', 'maxmemory', Math.round(used * 0.9))
    const { level, message } = only(await diagnose(t, server.url()), 'full')
    assert.equal(level, 'error')
    assert.ok(message.includes(String(Math.round(used * 0.9))), message)
    await assert.rejects(locks.tryAcquire('k'), { reason: 'full' })
    await redis('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
    only(await diagnose(t, server.url()), 'eviction')
  })

  test('a server near its limit of clients is a warning', async (t) => {
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
