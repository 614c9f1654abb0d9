// Servers that answer requests about many locks with more than the client can keep. The client's
// memory stays small, and leases at other stores live on.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { run } from '../support/cli.mjs'
import { sleep } from '../support/clock.mjs'
import { bulk, list, startFakeRedis } from '../support/fake-redis.mjs'
import { holdersOf } from '../support/healthy-leases.mjs'
import { startRedis } from '../support/servers.mjs'
import { storeNames } from '../support/stores.mjs'

/** How much memory a server may cost, in MB. */
const MOST_MB = 100
/** The slots of a cluster. */
const SLOTS = 16_384

/** Returns a lease of `holder`, in the form of the `inspect` script. */
const lease = (holder, fence = Date.now() * 1_000) =>
  list(':60000\r\n', bulk(holder), `:${fence}\r\n`, bulk('0123abcd'))
/** Returns a lock, in the form of the `inspect` script. */
const lock = (leases, waiters = []) => list(':0\r\n', list(...leases), list(...waiters))

/** Always gives the same reply. Encodes it only once, because that takes longer than sending it. */
function always(reply) {
  const bytes = Buffer.from(reply)
  return () => bytes
}

/**
 * Answers calls of the `inspect` script: `of(i)` is the i-th lock, the same in each call. Other
 * calls get the usual replies.
 */
function inspected(of) {
  /** The encoded replies, by the number of keys in the call of the script. */
  const replies = new Map()
  return ([, , count]) => {
    if (Number(count) === 0) return undefined
    if (!replies.has(count)) {
      replies.set(count, Buffer.from(list(...Array.from({ length: Number(count) / 2 }, (_, i) => of(i)))))
    }
    return replies.get(count)
  }
}

/**
 * Answers calls of the `inspect` script: the first lock of each call has 10 000 waiters. If
 * `inTurn`, sends the replies 30 ms apart.
 */
function crowded(inTurn) {
  let calls = 0
  const crowd = Array(10_000).fill(list(':1\r\n', bulk('0'), bulk('name')))
  const answer = inspected((i) => lock([lease('me')], i ? [] : crowd))
  return (words, socket) => {
    const reply = answer(words)
    if (!reply || !inTurn) return reply
    setTimeout(() => socket.write(reply), 30 * calls++)
    return ''
  }
}

/**
 * Returns `count` different keys of `length` bytes, encoded. `at` is the number of the first one.
 */
const keys = (count, length, at = 0) =>
  Array.from({ length: count }, (_, i) => bulk(`lock:${at + i}:`.padEnd(length, 'x')))

/** Answers SCAN with endless pages. `page(number)` returns the keys of a page, encoded. */
function endless(page) {
  let pages = 0
  return () => list(bulk('7'), list(...page(pages++)))
}

/**
 * Answers SCAN with endless pages of `count` keys of `length` bytes, which all differ. Only the
 * numbers of the keys change between pages, because to encode 10 MB takes longer than to send them.
 */
function endlessKeys(count, length) {
  const digits = 9
  const encode = (keys) => Buffer.from(list(bulk('7'), list(...keys)))
  const page = encode(Array(count).fill(bulk(`lock:${'0'.repeat(digits)}:`.padEnd(length, 'x'))))
  const size = bulk('x'.repeat(length)).length
  const first = page.indexOf('lock:') + 'lock:'.length
  let number = 0
  return () => {
    const next = Buffer.from(page)
    for (let i = 0; i < count; i++) next.latin1Write(String(number++).padStart(digits, '0'), first + i * size)
    return next
  }
}

/** Returns the reply to CLUSTER SLOTS if `count` masters share the slots, all at `port`. */
function mapOf(count, port) {
  const ranges = Array.from({ length: count }, (_, i) => {
    const [first, last] = [i, i + 1].map((part) => Math.floor((part * SLOTS) / count))
    // Different names of 127.0.0.1, with leading zeros.
    const host = `127.0.${'0'.repeat(1 + (i >> 5))}.${'0'.repeat(i & 31)}1`
    return list(`:${first}\r\n`, `:${last - 1}\r\n`, list(bulk(host), `:${port}\r\n`))
  })
  return list(...ranges)
}

/**
 * Starts a process with a client of `store`. `assertSmall(what)` fails if the process has taken
 * MOST_MB or more since then, and prints `what`.
 */
async function startClient(t, store, settings) {
  const child = startChild(t, 'memory.mjs', { store, ...settings })
  await child.next('started')
  const { peak: idle, error } = await child.ask(settings?.isDown ? 'peak' : 'ready', {}, 30_000)
  assert.equal(error, undefined)
  child.assertSmall = async (what) => {
    const { peak } = await child.ask('peak', {}, 60_000)
    t.diagnostic(`${Math.round(peak - idle)} MB more than ${Math.round(idle)} MB: ${JSON.stringify(what)}`)
    assert.ok(peak - idle < MOST_MB, `${Math.round(peak - idle)} MB more`)
  }
  return child
}

describe('hostile listings', { skip: !storeNames.includes('redis'), timeout: 280_000 }, () => {
  test('memory stays bounded if a listing has endless keys that are too long for a lock', async (t) => {
    const page = list(bulk('7'), list(...keys(7, 3_900_000)))
    const port = await startFakeRedis(t, { SCAN: always(page), EVALSHA: inspected(() => '$-1\r\n') })
    const child = await startClient(t, `redis://127.0.0.1:${port}`, { storeTimeout: 3_000 })
    const listed = await child.ask('list', {}, 60_000)
    await child.assertSmall(listed)
    assert.deepEqual([listed.count, listed.complete], [0, false])
  })

  test('memory stays bounded if locks have long keys and names, and the listing is reported as incomplete', async (t) => {
    const long = lock([lease('n'.repeat(28_000))])
    const port = await startFakeRedis(t, {
      SCAN: endlessKeys(1_000, 1_000),
      EVALSHA: inspected(() => long),
    })
    const child = await startClient(t, `redis://127.0.0.1:${port}`, { storeTimeout: 3_000 })
    const listed = await child.ask('list', { limit: 10_000 }, 60_000)
    await child.assertSmall(listed)
    assert.equal(listed.error, undefined, listed.error?.message)
    assert.ok(listed.count > 1_000 && listed.longest < 1_000, `${listed.count} locks, ${listed.longest} characters`)
    assert.equal(listed.complete, false)
  })

  test('ls, inspect and watch show a lock without leases', async (t) => {
    const port = await startFakeRedis(t, {
      SCAN: () => list(bulk('0'), list(bulk('lock:k'))),
      EVALSHA: inspected(() => lock([])),
    })
    const store = ['--store', `redis://127.0.0.1:${port}`]
    for (const [words, shown] of [
      [['ls'], /^k +alone +- +- +- +0$/m],
      [['inspect', 'k'], /^"k" is held\nnobody waits for it$/m],
      [['watch', '--looks', '1'], /"k" held by -, fence -, 0 waiting$/m],
    ]) {
      const { stdout, stderr } = await run(t, [...words, ...store])
      assert.match(stdout, shown, stderr)
      assert.doesNotMatch(stdout, /Infinity|undefined/)
    }
  })

  test('memory stays bounded if locks have many waiters with long names', async (t) => {
    const crowded = lock([lease('me')], Array(40).fill(list(':1\r\n', bulk('0'), bulk('n'.repeat(300)))))
    const port = await startFakeRedis(t, {
      SCAN: endlessKeys(1_000, 300),
      EVALSHA: inspected(() => crowded),
    })
    const child = await startClient(t, `redis://127.0.0.1:${port}`, { storeTimeout: 3_000 })
    const listed = await child.ask('list', { limit: 10_000 }, 60_000)
    await child.assertSmall(listed)
    assert.equal(listed.complete, false)
  })

  for (const [what, answer] of [
    ['names of 4 MB', () => lock(Array.from({ length: 7 }, () => lease('n'.repeat(4_000_000))))],
    ['many waiters', () => lock([lease('me')], Array(75_000).fill(list(':1\r\n', bulk('0'), bulk('name'))))],
  ]) {
    test(`memory stays bounded if a lock has ${what}`, async (t) => {
      const port = await startFakeRedis(t, { EVALSHA: inspected(answer) })
      const child = await startClient(t, `redis://127.0.0.1:${port}`)
      const shown = await child.ask('inspect', { key: 'k' }, 60_000)
      await child.assertSmall(shown)
      assert.ok(shown.error || shown.longest < 1_000, `${shown.longest} characters`)
    })
  }

  const LONG_INFO = bulk(`role:master\r\n${'x'.repeat(4_000_000)}`)
  const manyValues = always(`*80000\r\n${'_\r\n'.repeat(80_000)}`)
  let made = 0
  for (const [what, count, command, says] of [
    ['replies of 30 MB', 64, 'ready', { INFO: always(list(...Array(7).fill(bulk('x'.repeat(4_000_000))))) }],
    ['strings of 4 MB', 64, 'ready', { INFO: always(LONG_INFO) }],
    ['strings of 4 MB', 1_024, 'ready', { INFO: always(LONG_INFO) }],
    [
      'handshakes of many values',
      1_024,
      'ready',
      { CLIENT: ([, sub]) => (sub === 'SETNAME' ? manyValues() : undefined) },
    ],
    ['long lists of keys', 64, 'list', { SCAN: endlessKeys(10_000, 1_000) }],
    ['many waiters', 64, 'list', { SCAN: endless((page) => keys(20, 20, page * 20)), EVALSHA: crowded(false) }],
    [
      'many waiters, reported by one master after the other',
      64,
      'list',
      { SCAN: () => list(bulk('0'), list(...keys(2, 20, 2 * made++))), EVALSHA: crowded(true) },
    ],
  ]) {
    test(`memory stays bounded if a cluster of ${count} masters has ${what}`, async (t) => {
      let greeted = 0
      const usual = { CLIENT: () => '+OK\r\n' }
      // The first connection gets the usual replies, and so the client learns the map.
      const late = (answer, name) => (words, socket) => {
        socket.first ??= greeted++ === 0
        if (name === 'INFO' && words.length > 1) return undefined
        return (socket.first ? undefined : answer(words, socket)) ?? usual[name]?.(words)
      }
      const own = Object.entries(says).map(([name, answer]) => [name, late(answer, name)])
      let map
      const port = await startFakeRedis(t, {
        CLIENT: late(() => undefined, 'CLIENT'),
        ...Object.fromEntries(own),
        CLUSTER: () => map,
      })
      map = mapOf(count, port)
      const child = await startClient(t, `redis-cluster://127.0.0.1:${port}`, { storeTimeout: 3_000, isDown: true })
      const reply = await child.ask(command, { limit: 10_000 }, 60_000)
      await child.assertSmall(reply)
    })
  }

  test('memory stays bounded if a sentinel names 15 others', async (t) => {
    const master = await startRedis(t)
    let connections = 0
    const parts = (pairs) =>
      list(
        ...Object.entries(pairs)
          .flat()
          .map((word) => bulk(String(word))),
      )
    const id = () => `${connections++}`.padEnd(3_000_000, 'i')
    const facts = always(parts({ ip: '127.0.0.1', port: master.port, flags: 'master', junk: 'j'.repeat(4_000_000) }))
    let others
    const port = await startFakeRedis(t, {
      SENTINEL: ([, question]) => {
        if (question === 'MYID') return bulk(id())
        if (question === 'get-master-addr-by-name') return list(bulk('127.0.0.1'), bulk(String(master.port)))
        return question === 'MASTER' ? facts() : others()
      },
    })
    const other = (_, i) => parts({ ip: `127.0.0.${'0'.repeat(i + 1)}1`, port, runid: `${i}`.padEnd(1_900_000, 'r') })
    others = always(list(...Array.from({ length: 15 }, other)))
    const child = await startClient(t, `redis-sentinel://127.0.0.1:${port}/leasehold`, { isDown: true })
    for (let i = 0; i < 3; i++) {
      await child.ask('ask', {}, 60_000)
      await sleep(1_000)
    }
    await child.assertSmall({ connections })
  })

  const lines = always(bulk(`redis_version:7.0.15\r\nrole:master\r\n${'x\n'.repeat(2_000_000)}`))
  for (const [what, command, given, says, masters] of [
    ['an INFO of 2 million lines', 'diagnose', {}, { INFO: ([, section]) => (section ? undefined : lines()) }],
    ['an INFO of 2 million lines', 'ready', {}, { INFO: ([, section]) => (section ? undefined : lines()) }],
    ['an endless SCAN', 'list', {}, { SCAN: always(list(bulk('7'), list(...Array(100_000).fill(bulk('lock:a'))))) }],
    [
      'an endless SCAN of keys that take long to compare',
      'list',
      { pattern: `*${'a'.repeat(500)}b` },
      { SCAN: always(list(bulk('7'), list(...Array(8_000).fill(bulk(`lock:${'a'.repeat(1_000)}`))))) },
    ],
    [
      'an endless SCAN at each of 64 masters, of keys that take long to compare',
      'list',
      { pattern: `*${'\\a'.repeat(510)}b` },
      { SCAN: always(list(bulk('7'), list(...Array(40).fill(bulk(`lock:${'a'.repeat(1_250)}`))))) },
      64,
    ],
  ]) {
    test(`${command} costs no lease at another store if a server answers with ${what}`, async (t) => {
      const healthy = await startRedis(t)
      const port = await startFakeRedis(t, { ...says, CLUSTER: () => mapOf(masters, port) })
      const settings = { healthy: healthy.url(), storeTimeout: 6_000, isDown: true }
      const child = await startClient(t, `redis${masters ? '-cluster' : ''}://127.0.0.1:${port}`, settings)
      const holders = await holdersOf(t, child, healthy.url())
      // One endless listing lasts for storeTimeout, which is longer than the leases' ttl.
      for (let i = 0; i < (command === 'list' ? 1 : 3); i++) {
        await child.ask(command, given, 20_000)
        await holders.assertHeld(`after request ${i}`)
      }
    })
  }
})
