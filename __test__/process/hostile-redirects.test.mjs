// Checks what a hostile node of a cluster, or a hostile sentinel, costs. The node redirects each
// request to another place. The sentinel names another master all the time.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { now, sleep, until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { bulk, list, startFakeRedis } from '../support/fake-redis.mjs'
import { storeNames } from '../support/stores.mjs'

const SECONDS = 5
const CALLERS = 20
/** How many connections the client may have at a time to places that only redirects name. */
const MOST = 5
/** The most masters that the client takes into its map. */
const MASTERS = 1_024
const SLOTS = 16_384

/** Returns a different spelling of 127.0.0.1 for each number. */
const place = (number) => `127.${'0'.repeat(number % 60)}0.${'0'.repeat(Math.floor(number / 60) % 60)}0.1`

/** Returns the slot of a key: the CRC-16 (XMODEM) of what its braces contain. */
function slotOf(key) {
  let sum = 0
  for (const byte of Buffer.from(/\{(.+?)\}/.exec(key)?.[1] ?? key, 'latin1')) {
    sum ^= byte << 8
    for (let bit = 0; bit < 8; bit++) sum = (sum & 0x8000 ? (sum << 1) ^ 0x1021 : sum << 1) & 0xffff
  }
  return sum % SLOTS
}

/**
 * Returns a map that has no room for another master. Only one of its masters has slots, so the
 * client asks few nodes for the next map.
 */
function fullMap(port) {
  const range = (first, last, host) => list(`:${first}\r\n`, `:${last}\r\n`, list(bulk(host), `:${port}\r\n`))
  const others = Array.from({ length: MASTERS - 1 }, (_, i) => range(1, 0, place(i + 1)))
  return list(range(0, SLOTS - MASTERS, '127.0.0.1'), ...others)
}

/** The answer of a cluster's node to INFO. */
const INFO = () => bulk('redis_version:7.0.15\r\nredis_mode:cluster\r\nrole:master\r\nloading:0\r\nrun_id:fa4e\r\n')

/**
 * Starts a server to which requests are redirected. Resolves to its port and, as `most`, to the
 * highest number of connections that it had at a time.
 */
async function startCounted(t, says) {
  const sockets = new Set()
  const counted = { port: 0, most: 0 }
  const HELLO = (_, socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    counted.most = Math.max(counted.most, sockets.size)
    return undefined
  }
  counted.port = await startFakeRedis(t, { ...says, HELLO })
  return counted
}

function openCluster(t, port) {
  const locks = createLockClient({ store: `redis-cluster://127.0.0.1:${port}`, storeTimeout: 2_000 })
  locks.on('error', () => {})
  atEnd(t, () => locks.close())
  return locks
}

describe('hostile redirects', { skip: !storeNames.includes('redis'), timeout: 60_000 }, () => {
  test('a cluster node that redirects each request to another place does not cost more and more connections', async (t) => {
    let [maps, redirects, elsewhere] = [0, 0, 0]
    const says = {
      INFO,
      CLUSTER: () => (maps++ === 0 ? fullMap(port) : '-ERR no map\r\n'),
      EVALSHA: ([, , count, key]) =>
        count === '0' ? undefined : `-MOVED ${slotOf(key)} ${place(redirects++)}:${elsewhere}\r\n`,
    }
    const port = await startFakeRedis(t, says)
    const counted = await startCounted(t, says)
    elsewhere = counted.port
    const locks = openCluster(t, port)
    const end = now() + SECONDS * 1_000
    const call = async (caller) => {
      while (now() < end) {
        await locks.tryAcquire(`key-${caller}`).catch(() => {})
        await sleep(10)
      }
    }
    await Promise.all(Array.from({ length: CALLERS }, (_, caller) => call(caller)))
    t.diagnostic(
      `${redirects} redirects, ${maps} questions for the map, at most ${counted.most} connections to those places`,
    )
    assert.ok(redirects > 100, `${redirects} redirects`)
    assert.ok(counted.most < MOST, `${counted.most} connections`)
  })

  test('a cluster node that answers each request with ASK and another place does not cost more and more connections', async (t) => {
    let [asks, elsewhere] = [0, 0]
    const says = {
      INFO,
      CLUSTER: () => list(list(':0\r\n', ':16383\r\n', list(bulk('127.0.0.1'), `:${port}\r\n`))),
      ASKING: () => '+OK\r\n',
      EVALSHA: ([, , count, key]) =>
        count === '0' ? undefined : `-ASK ${slotOf(key)} ${place(asks++)}:${elsewhere}\r\n`,
    }
    const port = await startFakeRedis(t, says)
    const counted = await startCounted(t, says)
    elsewhere = counted.port
    const locks = openCluster(t, port)
    const end = now() + SECONDS * 1_000
    const call = async (caller) => {
      while (now() < end) await locks.inspect(`key-${caller}`).catch(() => {})
    }
    await Promise.all(Array.from({ length: 3 * CALLERS }, (_, caller) => call(caller)))
    t.diagnostic(`${asks} redirects, at most ${counted.most} connections to those places`)
    assert.ok(asks > 100, `${asks} redirects`)
    // 64 to nodes that are not in the map, and some that are closing.
    assert.ok(counted.most < 130, `${counted.most} connections`)
  })

  test('a sentinel that names another master all the time costs few connections', async (t) => {
    let [connections, switches, current] = [0, 0, 0]
    const says = {
      HELLO: () => {
        connections++
        return undefined
      },
    }
    const masters = [await startFakeRedis(t, says), await startFakeRedis(t, says)]
    const master = () => ['127.0.0.1', String(masters[current])]
    const pairs = (record) => list(...Object.entries(record).flat().map(bulk))
    const listeners = new Set()
    const port = await startFakeRedis(t, {
      INFO: () => bulk('redis_version:7.0.15\r\nredis_mode:sentinel\r\nrun_id:fa4e\r\n'),
      SENTINEL: ([, question]) => {
        const asked = question.toLowerCase()
        if (asked === 'get-master-addr-by-name') return list(...master().map(bulk))
        if (asked === 'master') return pairs({ ip: master()[0], port: master()[1], flags: 'master' })
        return asked === 'myid' ? bulk('5e47') : list()
      },
      SUBSCRIBE: (channels, socket) => {
        listeners.add(socket)
        socket.on('close', () => listeners.delete(socket))
        return channels
          .slice(1)
          .map((channel, i) => `>3\r\n${bulk('subscribe')}${bulk(channel)}:${i + 1}\r\n`)
          .join('')
      },
    })
    const locks = createLockClient({ store: `redis-sentinel://127.0.0.1:${port}/main`, storeTimeout: 1_000 })
    locks.on('error', () => {})
    atEnd(t, () => locks.close())
    await locks.tryAcquire('k').catch(() => {})
    await until('the client to listen', () => listeners.size > 0)
    const [before, end] = [connections, now() + SECONDS * 1_000]
    while (now() < end) {
      const [, old] = master()
      current = 1 - current
      switches++
      const message = `main 127.0.0.1 ${old} ${master().join(' ')}`
      for (const socket of listeners) {
        socket.write(`>3\r\n${bulk('message')}${bulk('+switch-master')}${bulk(message)}`)
      }
      await sleep(2)
    }
    const made = connections - before
    t.diagnostic(`${switches} switches, ${made} connections`)
    assert.ok(switches > 500, `${switches} switches`)
    // A task connects at most once in 100 ms, and may need two connections each time.
    assert.ok(made > 0 && made < SECONDS * 40, `${made} connections`)
  })
})
