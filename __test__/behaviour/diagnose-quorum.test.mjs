// diagnose() of a quorum finds faults of the nodes together and faults of each node.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { diagnose } from '../support/diagnoses.mjs'
import { startRedis } from '../support/servers.mjs'

/** Starts `count` servers that keep their data. */
const start = (t, count) => Promise.all(Array.from({ length: count }, () => startRedis(t, { keep: true })))

/** Returns the findings as [store, level, code], without those about the age of the servers. */
const codesOf = ({ findings }) =>
  findings.filter(({ code }) => code !== 'old').map(({ store, level, code }) => [store, level, code])

describe('diagnose: a quorum', { timeout: 240_000 }, () => {
  test('three separate servers have no findings, and four servers have a warning', async (t) => {
    const urls = (await start(t, 4)).map((server) => server.url())
    const found = await diagnose(t, urls.slice(0, 3))
    assert.deepEqual(codesOf(found), [])
    assert.equal(found.ok, true)
    assert.ok(found.stores.every((facts) => !('runId' in facts)))
    assert.deepEqual(codesOf(await diagnose(t, urls)), [[urls[0], 'warning', 'even']])
  })

  test('two nodes that are the same server, by two names of its host, are an error', async (t) => {
    const [one, other] = await start(t, 2)
    const again = one.url().replace('127.0.0.1', 'localhost')
    const found = await diagnose(t, [one.url(), other.url(), again])
    assert.equal(found.ok, false)
    assert.deepEqual(codesOf(found), [[again, 'error', 'same-server']])
    const { message } = found.findings.find(({ code }) => code === 'same-server')
    assert.ok(message.startsWith(`two nodes, ${one.url()} and ${again}, are one and the same server`), message)
  })

  test('if the user has no permission for INFO, the nodes count as unchecked and not as the same server', async (t) => {
    const user = { name: 'app', password: 'secret', rules: '~* &* +@all -info' }
    const [one, other] = [await startRedis(t, { keep: true, user }), await startRedis(t, { keep: true, user })]
    const urls = [one, other].map((server) => server.url('app:secret'))
    const found = await diagnose(t, [...urls, urls[0].replace('127.0.0.1', 'localhost')])
    assert.deepEqual(new Set(codesOf(found).map(([, , code]) => code)), new Set(['unchecked']))
    assert.equal(found.ok, true)
  })

  test('a bare majority is a warning, and no majority is an error', async (t) => {
    const servers = await start(t, 3)
    const urls = servers.map((server) => server.url())
    await servers[2].kill()
    const bare = await diagnose(t, urls)
    assert.equal(bare.ok, false)
    assert.deepEqual(codesOf(bare), [
      [urls[0], 'warning', 'bare-majority'],
      [urls[2], 'warning', 'unreachable'],
    ])
    const { message } = bare.findings.find(({ code }) => code === 'bare-majority')
    assert.match(message, /^only 2 of the quorum's 3 nodes/)
    assert.ok(message.includes(urls[2]), message)
    await servers[1].kill()
    assert.deepEqual(codesOf(await diagnose(t, urls)), [
      [urls[1], 'error', 'unreachable'],
      [urls[2], 'error', 'unreachable'],
    ])
  })
})
