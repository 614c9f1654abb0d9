// Checks the servers that the other tests break: their setup, and each way to break them.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { connect as connectTls } from 'node:tls'
import { within } from '../support/clock.mjs'
import { startCluster } from '../support/cluster.mjs'
import { startMasters } from '../support/masters.mjs'
import { openResp } from '../support/resp.mjs'
import { startSentinels } from '../support/sentinel.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'
import { createAuthority } from '../support/tls.mjs'

describe('chaos: topologies', { timeout: 120_000 }, () => {
  test('a master that keeps its data has it after a kill, but not after restartEmpty() or FLUSHALL', async (t) => {
    const [{ server }] = await startMasters(t, 1, { keep: true })
    await server.ask('SET', 'a', 1)
    await server.restart()
    assert.equal(await server.ask('GET', 'a'), '1')
    await server.restartEmpty()
    assert.equal(await server.ask('GET', 'a'), null)
    await server.ask('SET', 'a', 1)
    await server.ask('FLUSHALL')
    await server.restart()
    assert.equal(await server.ask('GET', 'a'), null)
  })

  test('sentinels fail over on demand, and survive the death of a master', async (t) => {
    const system = await startSentinels(t)
    assert.equal(await system.master(), system.servers[0])
    const ordered = await system.failOver()
    t.diagnostic(`failover on demand: ${ordered.ms.toFixed(0)} ms`)
    assert.notEqual(ordered.master, system.servers[0])

    const { killed, master, ms } = await system.loseMaster()
    t.diagnostic(`failover after a kill: ${ms.toFixed(0)} ms`)
    assert.equal(killed, ordered.master)
    assert.equal(await system.master(), master)
    assert.equal(await master.ask('SET', 'a', 1), 'OK')
  })

  test('a cluster moves a slot with its keys, fails over on demand, and survives the death of a master', async (t) => {
    const cluster = await startCluster(t)
    const slot = await cluster.slotOf('a')
    const before = await cluster.masterOf(slot)
    await before.server.ask('SET', 'a', 1)
    const others = (await cluster.masters()).filter(({ id }) => id !== before.id)
    assert.equal(others.length, 2)
    await cluster.moveSlot(slot, others[0])
    assert.equal(await others[0].server.ask('GET', 'a'), '1')
    await assert.rejects(before.server.ask('GET', 'a'), /^Error: MOVED/)

    const orderly = await cluster.failOver(slot)
    t.diagnostic(`planned failover: ${orderly.ms.toFixed(0)} ms`)
    assert.equal(orderly.old, others[0].server)
    assert.equal(await orderly.master.ask('GET', 'a'), '1')

    const lost = await cluster.loseMaster(slot)
    t.diagnostic(`failover after a kill: ${lost.ms.toFixed(0)} ms`)
    assert.equal(lost.old, orderly.master)
    assert.equal(await lost.master.ask('GET', 'a'), '1')
  })

  test('a TLS server shows its certificate, and may require one of the client', async (t) => {
    const authority = createAuthority(temporaryFolder(t))
    const tls = { ...authority.issue('server'), clients: 'yes' }
    const server = await startRedis(t, { tls })
    assert.equal(await server.ask('PING'), 'PONG')
    assert.match(server.url(), /^rediss:/)
    const stranger = createAuthority(temporaryFolder(t)).issue('stranger')
    await assert.rejects(openResp({ port: server.port, tls: stranger }), { code: 'SELF_SIGNED_CERT_IN_CHAIN' })
    const uninvited = connectTls({ port: server.port, host: '127.0.0.1', rejectUnauthorized: false })
    const error = await within('the refusal', new Promise((resolve) => uninvited.once('error', resolve)))
    assert.match(error.code, /CERTIFICATE_REQUIRED|ECONNRESET|HANDSHAKE_FAILURE/)
  })
})
