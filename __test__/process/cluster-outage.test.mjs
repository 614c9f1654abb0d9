// A Redis Cluster whose masters go, and whose slots move, while clients take turns at its locks.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createLockClient, LockError } from 'leasehold'
import { now, sleep } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startCluster, urlOf } from '../support/redis-cluster.mjs'

/** How much longer than the failover itself a lock may be out of reach. */
const SOON = 1_000

/** A key whose lock the node has. */
async function keyAt(node) {
  const ranges = (await node.ask('CLUSTER', 'NODES'))
    .split('\n')
    .find((line) => line.includes('myself'))
    .split(' ')
  const [first, last] = ranges[8].split('-').map(Number)
  for (let n = 0; ; n++) {
    const slot = await node.ask('CLUSTER', 'KEYSLOT', `lock:k${n}`)
    if (slot >= first && slot <= last) return `k${n}`
  }
}

/** The node among `nodes` that has the slot. */
async function ownerOf(nodes, slot) {
  const ranges = await nodes[0].ask('CLUSTER', 'SLOTS')
  const [, , [, port]] = ranges.find(([first, last]) => first <= slot && slot <= last)
  return nodes.find(({ server }) => server.port === port)
}

/** Moves a slot and what is in it, one key at a time, as slowly as a full one. */
async function moveSlot(slot, from, to) {
  const [source, target] = [await from.ask('CLUSTER', 'MYID'), await to.ask('CLUSTER', 'MYID')]
  await to.ask('CLUSTER', 'SETSLOT', slot, 'IMPORTING', source)
  await from.ask('CLUSTER', 'SETSLOT', slot, 'MIGRATING', target)
  for (;;) {
    const [key] = await from.ask('CLUSTER', 'GETKEYSINSLOT', slot, 1)
    if (!key) break
    await from.ask('MIGRATE', '127.0.0.1', to.server.port, '', 0, 5_000, 'KEYS', key)
    await sleep(10)
  }
  for (const node of [to, from]) await node.ask('CLUSTER', 'SETSLOT', slot, 'NODE', target)
}

/** Takes turns at `key`. Everything that happens is noted with its time. */
async function takeTurns(locks, key, notes, isOver) {
  while (!isOver()) {
    try {
      await locks.withLock(key, { wait: 20_000 }, async (lease) => {
        notes.push({ at: now(), key, fence: lease.fence })
        await sleep(2)
      })
    } catch (error) {
      // Each trouble is one of the library's own errors, told to whoever it concerns.
      assert.ok(error instanceof LockError, error)
      notes.push({ at: now(), key, error })
      await sleep(5)
    }
  }
}

for (const how of ['is killed', 'is frozen', 'gives way']) {
  test(`a master that ${how} under load is followed to its replica`, { timeout: 120_000 }, async (t) => {
    const nodes = await startCluster(t, { replicas: true })
    const clients = [1, 2, 3].map(() => createLockClient({ store: urlOf(nodes), ttl: 5_000 }))
    for (const client of clients) atEnd(t, () => client.close())
    await clients[0].ready()
    const keys = [await keyAt(nodes[0]), await keyAt(nodes[1])]
    const notes = []
    let isOver = false
    const work = keys.flatMap((key) =>
      clients.flatMap((client) => [1, 2].map(() => takeTurns(client, key, notes, () => isOver))),
    )
    await sleep(500)
    const begun = now()
    const [master, , , replica] = nodes
    if (how === 'is killed') await master.server.kill()
    else if (how === 'is frozen') master.server.freeze()
    else await replica.ask('CLUSTER', 'FAILOVER')
    for (;;) {
      const [role, state] = [await replica.ask('ROLE'), await replica.ask('CLUSTER', 'INFO')]
      if (role[0] === 'master' && state.includes('cluster_state:ok')) break
      assert.ok(now() - begun < 30_000, 'no failover')
      await sleep(5)
    }
    const served = now()
    // A lease that the old master granted and did not pass on ends by its ttl; this long the others may have to wait.
    await sleep(how === 'gives way' ? 2_000 : 8_000)
    isOver = true
    await Promise.all(work)
    const turns = (key) => notes.filter((note) => note.key === key && note.fence)
    const back = turns(keys[0]).find(({ at }) => at > served)
    assert.ok(back, 'nobody gets the lock any more')
    // A lease that was held when the master went is not released, or handed to somebody who does not hear of it.
    t.diagnostic(`failover ${Math.round(served - begun)} ms, service ${Math.round(back.at - begun)} ms after the loss`)
    const lost = notes.filter((note) => note.error)
    t.diagnostic(`${notes.length} turns; troubles told: ${lost.map(({ error }) => error.code).join() || 'none'}`)
    assert.ok(back.at - served < SOON, `${back.at - served} ms later than the failover`)
    // Fences only grow, whoever had them.
    for (const key of keys) {
      const fences = turns(key).map(({ fence }) => fence)
      assert.ok(fences.length > 100 && fences.every((fence, i) => i === 0 || fence > fences[i - 1]), key)
    }
    if (how === 'is frozen') master.server.thaw()
  })
}

test('slots that move under load lose nothing', { timeout: 120_000 }, async (t) => {
  const nodes = await startCluster(t)
  const clients = [1, 2, 3].map(() => createLockClient({ store: urlOf(nodes), ttl: 2_000 }))
  for (const client of clients) atEnd(t, () => client.close())
  const lost = []
  for (const client of clients) client.on('lost', (lease, error) => lost.push(`${lease.key}: ${error.message}`))
  const keys = ['a', 'b', 'c', 'd']
  const held = await Promise.all(keys.map((key) => clients[0].acquire(`held:${key}`)))
  const notes = []
  let isOver = false
  const work = keys.flatMap((key) =>
    clients.flatMap((client) => [1, 2].map(() => takeTurns(client, key, notes, () => isOver))),
  )
  const begun = now()
  let moves = 0
  for (; now() - begun < 6_000; moves++) {
    const key = keys[moves % keys.length]
    for (const name of [key, `held:${key}`]) {
      const slot = await nodes[0].ask('CLUSTER', 'KEYSLOT', `lock:${name}`)
      const from = await ownerOf(nodes, slot)
      const others = nodes.filter((node) => node !== from)
      await moveSlot(slot, from, others[Math.floor(moves / keys.length) % 2])
    }
  }
  isOver = true
  await Promise.all(work)
  t.diagnostic(`${2 * moves} slots moved, ${notes.length} turns`)
  assert.deepEqual(lost, [])
  for (const lease of held) {
    assert.ok(lease.isHeld)
    assert.equal(await lease.release(), true)
  }
  for (const key of keys) {
    const turns = notes.filter((note) => note.key === key)
    assert.deepEqual(
      turns.filter(({ error }) => error),
      [],
    )
    assert.ok(turns.length > 100, `${turns.length} turns`)
    assert.ok(
      turns.every(({ fence }, i) => i === 0 || fence > turns[i - 1].fence),
      key,
    )
    const gap = Math.max(...turns.slice(1).map(({ at }, i) => at - turns[i].at))
    assert.ok(gap < 2_000, `nobody had ${key} for ${gap} ms`)
  }
})
