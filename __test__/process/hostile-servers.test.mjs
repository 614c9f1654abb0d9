// Servers that send what no Redis server sends, after a normal start. The client's memory stays
// small, and leases at other stores live on.

import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { sleep, until } from '../support/clock.mjs'
import { holdersOf } from '../support/healthy-leases.mjs'
import { startSentinels } from '../support/sentinel.mjs'
import { startRedis, startTcp } from '../support/servers.mjs'
import { storeNames } from '../support/stores.mjs'

/** How much memory a server may cost, in MB. */
const MOST_MB = 100

/**
 * Starts a server that relays to `upstream` until `attack(parts)`. Then it sends these parts on
 * each connection that sends more bytes, or on all connections if `unasked`. `ended` resolves when
 * a client has closed its connection or has taken all parts.
 */
async function startImpostor(t, upstream) {
  const sockets = new Set()
  let parts
  let ended
  const strike = async (socket) => {
    if (socket.struck) return
    socket.struck = true
    socket.upstream.destroy()
    for (const part of parts()) {
      if (socket.destroyed) break
      if (!socket.write(part)) await drained(socket)
    }
    ended.resolve()
  }
  const port = await startTcp(t, (socket) => {
    sockets.add(socket)
    socket.upstream = connect({ host: '127.0.0.1', port: upstream })
    socket.upstream.on('error', () => socket.destroy())
    socket.upstream.on('data', (chunk) => socket.struck || socket.write(chunk))
    socket.on('data', (chunk) => (parts ? strike(socket) : socket.upstream.write(chunk)))
    socket.on('close', () => {
      sockets.delete(socket)
      socket.upstream.destroy()
    })
  })
  const attack = (what, { unasked = false } = {}) => {
    parts = what
    ended = deferred()
    return unasked ? Promise.all([...sockets].map(strike)) : ended.promise
  }
  return { port, attack }
}

/** Resolves when the socket can send more, or is closed. */
const drained = (socket) =>
  new Promise((resolve) => {
    const done = () => {
      socket.off('drain', done).off('close', done)
      resolve()
    }
    socket.on('drain', done).on('close', done)
    if (socket.destroyed) done()
  })

function deferred() {
  const result = {}
  result.promise = new Promise((resolve) => {
    result.resolve = resolve
  })
  return result
}

/** Returns `head`, and then `part` repeated up to `megabytes`. */
function* flood(head, part, megabytes) {
  yield Buffer.from(head)
  const block = Buffer.from(part.repeat(Math.ceil(2 ** 20 / part.length)))
  for (let i = 0; i < megabytes; i++) yield block
}

const PUSH = '>3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n1\r\n'

/** The parts of each attack, and the error that a request then gets. */
const ATTACKS = {
  'a push with a string without end': [() => flood('>2\r\n$99999999999\r\n', '0', 600), /string of more than/],
  'a push of values without end': [() => flood('>2000000000\r\n', '_\r\n', 134), /messages that take more than/],
  'a reply of values without end': [() => flood('*2000000000\r\n', '_\r\n', 134), /replies that take more than/],
  'a string without end': [() => flood('$99999999999\r\n', '0', 600), /string of more than/],
  'a line without end': [() => flood('+', '0', 600), /line or an error of more than/],
  'a reply that is nested without end': [() => flood('', '*1\r\n', 40), /nested more than/],
  'lists of one value without end': [
    () => flood('*300000\r\n', '*1\r\n*1\r\n:1\r\n', 40),
    /replies that take more than/,
  ],
  'replies without requests': [() => flood('', '*1\r\n*1\r\n$5\r\nhello\r\n', 24)],
  'pushes without end': [() => flood('', PUSH, 12)],
}

describe('hostile servers', { skip: !storeNames.includes('redis'), timeout: 280_000 }, () => {
  for (const [what, [parts, says]] of Object.entries(ATTACKS)) {
    test(`memory stays bounded after ${what}, and the store is unreachable`, async (t) => {
      const server = await startRedis(t)
      const impostor = await startImpostor(t, server.port)
      const child = startChild(t, 'memory.mjs', {
        store: `redis://127.0.0.1:${impostor.port}`,
        storeTimeout: says ? 30_000 : 10_000,
      })
      await child.next('started')
      const { error, peak: idle } = await child.ask('ready')
      assert.equal(error, undefined)
      const ended = impostor.attack(parts)
      const asked = await child.ask('ask', {}, 60_000)
      await ended
      const { peak } = await child.ask('peak', {}, 60_000)
      t.diagnostic(`${Math.round(peak - idle)} MB more than ${Math.round(idle)} MB: ${asked.error?.message}`)
      assert.ok(peak - idle < MOST_MB, `${Math.round(peak - idle)} MB more`)
      if (says) {
        assert.equal(asked.error.reason, 'unreachable', asked.error.message)
        assert.match(asked.error.message, says)
      }
    })
  }

  test('memory stays bounded after pushes without end on an idle connection', async (t) => {
    const server = await startRedis(t)
    const impostor = await startImpostor(t, server.port)
    const child = startChild(t, 'memory.mjs', { store: `redis://127.0.0.1:${impostor.port}` })
    await child.next('started')
    const { peak: idle } = await child.ask('ready')
    await impostor.attack(() => flood('', PUSH, 12), { unasked: true })
    const { peak } = await child.ask('peak', {}, 60_000)
    t.diagnostic(`${Math.round(peak - idle)} MB more`)
    assert.ok(peak - idle < MOST_MB, `${Math.round(peak - idle)} MB more`)
  })

  for (const [what, parts] of [
    ['a push of values without end', () => flood('>2000000000\r\n', '_\r\n', 134)],
    ['a push with a string without end', () => flood('>2\r\n$99999999999\r\n', '0', 600)],
    ['pushes without end', () => flood('', PUSH, 12)],
  ]) {
    test(`memory stays bounded after ${what} on the subscription of a sentinel`, async (t) => {
      const system = await startSentinels(t)
      const impostor = await startImpostor(t, system.sentinels[0].port)
      const child = startChild(t, 'memory.mjs', { store: `redis-sentinel://127.0.0.1:${impostor.port}/leasehold` })
      await child.next('started')
      const { error, peak: idle } = await child.ask('ready')
      assert.equal(error, undefined)
      const sentinel = await system.sentinels[0].command()
      // After its last request, the client only listens.
      const listens = / sub=[1-9].* cmd=sentinel\|get-master-addr-by-name/
      await until('the client to listen', async () => listens.test(await sentinel('CLIENT', 'LIST')))
      const struck = await impostor.attack(parts, { unasked: true })
      assert.ok(struck.length > 0, 'no client listens to this sentinel')
      const { peak } = await child.ask('peak', {}, 60_000)
      t.diagnostic(`${Math.round(peak - idle)} MB more`)
      assert.ok(peak - idle < MOST_MB, `${Math.round(peak - idle)} MB more`)
    })
  }

  for (const what of ['pushes without end', 'lists of one value without end', 'a reply of values without end']) {
    test(`no lease at another store is lost after repeated attacks: ${what}`, async (t) => {
      const server = await startRedis(t)
      const impostor = await startImpostor(t, server.port)
      const store = `redis://127.0.0.1:${impostor.port}`
      const child = startChild(t, 'memory.mjs', { store, healthy: server.url(), storeTimeout: 3_000 })
      await child.next('started')
      const holders = await holdersOf(t, child, server.url())
      assert.equal((await child.ask('ready')).error, undefined)
      impostor.attack(ATTACKS[what][0])
      for (let i = 0; i < 6; i++) {
        const { error } = await child.ask('ask', {}, 60_000)
        assert.equal(error?.code, 'ERR_STORE_UNAVAILABLE', `acquire ${i}: ${error?.message}`)
        // The other store's lease is renewed in this time.
        await sleep(500)
        await holders.assertHeld(`after acquire ${i}`)
      }
    })
  }

  test('no lease at another store is lost after many cluster maps of 16 384 masters', async (t) => {
    const server = await startRedis(t)
    const ranges = Array.from({ length: 16_384 }, (_, slot) => {
      const host = `127.${1 + (slot >> 8)}.${slot & 255}.1`
      return `*3\r\n:${slot}\r\n:${slot}\r\n*2\r\n$${host.length}\r\n${host}\r\n:1\r\n`
    })
    const map = Buffer.from(`*${ranges.length}\r\n${ranges.join('')}`)
    let maps = 0
    const port = await startTcp(t, (socket) => {
      const upstream = connect({ host: '127.0.0.1', port: server.port })
      upstream.on('error', () => socket.destroy())
      upstream.on('data', (chunk) => socket.write(chunk))
      socket.on('close', () => upstream.destroy())
      socket.on('data', (chunk) => {
        if (!/CLUSTER\r\n\$5\r\nSLOTS/.test(chunk.toString('latin1'))) return upstream.write(chunk)
        maps++
        socket.write(map)
      })
    })
    const child = startChild(t, 'memory.mjs', { store: `redis-cluster://127.0.0.1:${port}`, healthy: server.url() })
    await child.next('started')
    const holders = await holdersOf(t, child, server.url())
    const { peak: idle } = await child.ask('peak')
    for (let i = 0; i < 3; i++) {
      const { error } = await child.ask('ready', {}, 60_000)
      assert.equal(error?.code, 'ERR_STORE_UNAVAILABLE', error?.message)
      // The other store's lease is renewed in this time.
      await sleep(1_000)
      await holders.assertHeld(`after map ${i}`)
    }
    assert.ok(maps >= 3, `${maps} maps`)
    const { peak } = await child.ask('peak')
    t.diagnostic(`${Math.round(peak - idle)} MB more, ${maps} maps`)
    assert.ok(peak - idle < MOST_MB, `${Math.round(peak - idle)} MB more`)
  })
})
