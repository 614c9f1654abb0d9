// A cluster of six nodes whose slots move and whose masters fail over under load: every loss is told, no rejection is left
// unhandled, and service is back within the failover's own time and a second.
//
// A failover that nobody ordered may lose what the replica has not got yet (as with sentinels); one in good order and a slot
// that moves lose nothing, so there nobody may overlap.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { BUSY, LONG, startCrew } from '../support/chaos/crew.mjs'
import { notYet } from '../support/chaos/offered.mjs'
import { assertBack, assertSafe, assertTold, disturb, tell } from '../support/chaos/scenario.mjs'
import { now, sleep } from '../support/clock.mjs'
import { startCluster } from '../support/cluster.mjs'

const SECONDS = Number(process.env.LEASEHOLD_TEST_SECONDS ?? 4)
const skip = notYet('redis-cluster://127.0.0.1:1')

async function setUp(t) {
  const cluster = await startCluster(t, { keep: true })
  const crew = await startCrew(t, { store: cluster.url(), contenders: 4, client: { storeTimeout: 250 } })
  const slots = await Promise.all([BUSY, LONG].map((lock) => cluster.slotOf(`lock:${lock}`)))
  return { cluster, crew, slots }
}

/** What `action` did to a node, as a fault that healed when all nodes said that the cluster works. */
async function fault(t, name, action) {
  const began = now()
  const { ms } = await action()
  t.diagnostic(`${name}: ${ms.toFixed(0)} ms`)
  return { node: 'a master', fault: name, began, healed: now() }
}

describe('chaos: a cluster', { skip, timeout: SECONDS * 2_000 + 180_000 }, () => {
  test('the slots of the locks move from master to master all the time: nothing is lost, nobody overlaps', async (t) => {
    const { cluster, crew, slots } = await setUp(t)
    const result = await disturb(crew, async () => {
      const faults = []
      for (const end = now() + SECONDS * 1_000; now() < end; ) {
        faults.push(await fault(t, 'moved', async () => ({ ms: await cluster.reshard(slots) })))
        await sleep(300)
      }
      return faults
    })
    tell(t, result)
    assertSafe(result)
    assertBack(result, 1_000)
    assert.equal(result.counts.lost, 0, 'a slot that moves costs no lease')
  })

  test('a replica takes over in good order, of the one lock and of the other', async (t) => {
    const { cluster, crew, slots } = await setUp(t)
    const result = await disturb(crew, async () => {
      const faults = []
      for (const slot of slots) {
        faults.push(await fault(t, 'failed over', () => cluster.failOver(slot)))
        await crew.worked(50)
      }
      return faults
    })
    tell(t, result)
    assertSafe(result)
    assertBack(result, 1_000)
  })

  test('the master of the busy lock is killed, and is back later as a replica', async (t) => {
    const { cluster, crew, slots } = await setUp(t)
    const result = await disturb(crew, async () => {
      let dead
      const lost = await fault(t, 'killed', async () => {
        const { old, ms } = await cluster.loseMaster(slots[0])
        dead = old
        return { ms }
      })
      await crew.worked(50)
      await dead.start()
      await cluster.settled()
      return [lost]
    })
    tell(t, result)
    assertTold(result)
    assertBack(result, 1_000)
  })
})
