// Checks that each fault of the relay does to a connection what it should.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect } from 'node:net'
import { describe, test } from 'node:test'
import { now, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRelay } from '../support/relay.mjs'
import { openResp } from '../support/resp.mjs'
import { startRedis } from '../support/servers.mjs'

/**
 * Starts a server, a relay in front of it, a connection through the relay, and one directly to the
 * server.
 */
async function setUp(t) {
  const server = await startRedis(t)
  const relay = await startRelay(t, server.port)
  const through = await openResp({ port: relay.port })
  const straight = await server.command()
  atEnd(t, () => through.close())
  atEnd(t, () => straight.close())
  assert.equal(await through('PING'), 'PONG')
  return { relay, through, straight }
}

const isPending = async (promise) => (await Promise.race([promise, undefined])) === undefined

describe('chaos: the relay', { timeout: 60_000 }, () => {
  test('slow: messages are delayed and keep their order', async (t) => {
    const { relay, through } = await setUp(t)
    relay.slow(40, { jitter: 20 })
    const start = now()
    const answers = await Promise.all([1, 2, 3].map((i) => through('ECHO', i)))
    assert.ok(now() - start >= 80, `${now() - start} ms`)
    assert.deepEqual(answers, ['1', '2', '3'])
    await relay.heal()
    const again = now()
    await through('PING')
    assert.ok(now() - again < 80)
  })

  test('deaf: a request arrives after the heal, though its sender is gone', async (t) => {
    const { relay, through, straight } = await setUp(t)
    relay.bar(['toServer'])
    const asked = through('SET', 'late', 1)
    asked.catch(() => {})
    // A later PING has not passed, either, so the request had time to arrive.
    const other = await openResp({ port: relay.port })
    const ping = other('PING')
    ping.catch(() => {})
    for (let i = 0; i < 100; i++) assert.equal(await straight('GET', 'late'), null)
    assert.ok(await isPending(ping))
    through.close()
    await assert.rejects(asked, /closed/)
    await relay.heal()
    await until('the late request', async () => (await straight('GET', 'late')) === '1')
    assert.equal(await ping, 'PONG')
    other.close()
  })

  test('mute: a request is carried out, and its reply arrives after the heal', async (t) => {
    const { relay, through, straight } = await setUp(t)
    relay.bar(['toClient'])
    const asked = through('SET', 'done', 1)
    await until('the request', async () => (await straight('GET', 'done')) === '1')
    assert.ok(await isPending(asked))
    await relay.heal()
    assert.equal(await within('the answer', asked), 'OK')
  })

  test('cut: both ends see the disconnect, and a new connection is accepted', async (t) => {
    const { relay } = await setUp(t)
    for (const how of ['RST', 'FIN']) {
      const socket = connect({ port: relay.port, host: '127.0.0.1' })
      atEnd(t, () => socket.destroy())
      socket.on('error', () => {})
      socket.resume()
      await once(socket, 'connect')
      socket.write('PING\r\n')
      await once(socket, 'data')
      const told = new Promise((resolve) => socket.once('close', resolve))
      relay.cut(how)
      assert.equal(await within(how, told), how === 'RST', 'whether the socket had an error')
    }
    await until('the connections to be gone', () => relay.connections === 0)
    const again = await openResp({ port: relay.port })
    assert.equal(await again('PING'), 'PONG')
    again.close()
  })

  test('refuse: no new connection is accepted until the heal', async (t) => {
    const { relay, through } = await setUp(t)
    relay.refuse()
    await assert.rejects(openResp({ port: relay.port }), { code: 'ECONNREFUSED' })
    assert.equal(await through('PING'), 'PONG')
    await relay.heal()
    const again = await openResp({ port: relay.port })
    assert.equal(await again('PING'), 'PONG')
    again.close()
  })
})
