// diagnose(): what is wrong with a store is told in plain words, each thing on a real server that has just that.

import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { inspect } from 'node:util'
import { createLockClient, LockClosedError } from 'leasehold'
import { timed, until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { freePort } from '../support/ports.mjs'
import { startRedis, startTcp, temporaryFolder } from '../support/servers.mjs'
import { allStoreNames, overStores } from '../support/stores.mjs'

const SECRET = 'hunter2-is-a-secret'
/** What every server here has, that keeps nothing. */
const USUAL = ['persistence']
const DURABLE = ['--appendonly', 'yes', '--appendfsync', 'always']

async function diagnose(t, store, options = {}) {
  const locks = createLockClient({ store, storeTimeout: 2_000, ...options })
  atEnd(t, () => locks.close())
  const found = await locks.diagnose()
  assert.ok(!inspect(found, { depth: 9 }).includes(SECRET))
  for (const { level, code, message } of found.findings) {
    assert.ok(['info', 'warning', 'error'].includes(level), level)
    assert.match(code, /^[a-z-]+$/)
    assert.ok(message.length > 20, message)
  }
  assert.equal(found.ok, !found.findings.some(({ level }) => level !== 'info'))
  return found
}

/** The finding of that code, beside which there are only those of `others`. */
function only({ findings }, code, others = USUAL) {
  const unexpected = findings.filter((finding) => finding.code !== code && !others.includes(finding.code))
  assert.deepEqual(unexpected, [])
  const found = findings.filter((finding) => finding.code === code)
  assert.equal(found.length, 1, `${code}: ${inspect(findings)}`)
  return found[0]
}

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
    const look = await replica.command()
    await until('the replica to follow', async () => /master_link_status:up/.test(await look('INFO', 'replication')))
    assert.equal(only(await diagnose(t, replica.url()), 'readonly').level, 'error')
    assert.equal(only(await diagnose(t, master.url()), 'replicas').level, 'info')
    const tell = await master.command()
    await tell('CONFIG', 'SET', 'min-replicas-to-write', 1)
    assert.deepEqual(
      (await diagnose(t, master.url())).findings.map(({ code }) => code),
      USUAL,
    )
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
