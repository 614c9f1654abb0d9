// A long run to see that nothing grows: 1 000 000 pairs of acquire and release, then 100 clients
// opened and closed. Not part of `npm test` (which has a short run in process/soak.test.mjs).
//
//   node --expose-gc __test__/soak.mjs [memory|sqlite|redis ...]
//   PAIRS=100000 CYCLES=10 node --expose-gc __test__/soak.mjs redis
//   PAIRS=10000000 node __test__/soak.mjs faults    leases of a Redis with a fault every second;
//                                                   with MASTERS=5, of a quorum, with two faults

import { createLockClient } from 'leasehold'
import { soakThroughFaults } from './support/chaos/soak.mjs'
import { measure, useClients, usePairs } from './support/soak.mjs'
import { openStore, storeNames } from './support/stores.mjs'

const PAIRS = Number(process.env.PAIRS ?? 1_000_000)
const CYCLES = Number(process.env.CYCLES ?? 100)
const names = process.argv.length > 2 ? process.argv.slice(2) : storeNames

if (!globalThis.gc && names.some((name) => name !== 'faults'))
  console.log('(without --expose-gc the heap shown includes garbage)')

for (const name of names) {
  const endings = []
  if (name === 'faults') {
    const t = { after: (ending) => endings.push(ending), diagnostic: (text) => console.log(text) }
    const { rows, grown, faults, seconds } = await soakThroughFaults(t, {
      leases: PAIRS,
      masters: Number(process.env.MASTERS ?? 1),
    })
    console.log(`\nfaults: ${PAIRS.toLocaleString('en')} leases in ${seconds.toFixed(1)} s, ${faults} faults`)
    console.table(rows)
    if (grown.length) {
      console.error(`has grown: ${grown.join(', ')}`)
      process.exitCode = 1
    }
    for (const ending of endings) await ending()
    continue
  }
  const store = await openStore(name, { after: (ending) => endings.push(ending) })
  const rows = {}
  const locks = createLockClient({ store, wait: Infinity })
  // Everything that is created once is created before the first measurement.
  await usePairs(locks, Math.min(PAIRS, 20_000))
  await useClients(store, 5)
  rows.before = measure()
  const start = performance.now()
  for (let part = 1; part <= 4; part++) {
    await usePairs(locks, PAIRS / 4)
    rows[`${((PAIRS / 4) * part).toLocaleString('en')} pairs`] = measure()
  }
  const seconds = (performance.now() - start) / 1_000
  await locks.close()
  for (let part = 1; part <= 2; part++) {
    await useClients(store, CYCLES / 2)
    rows[`${(CYCLES / 2) * part} clients`] = measure()
  }
  console.log(`\n${name}: ${PAIRS.toLocaleString('en')} pairs in ${seconds.toFixed(1)} s`)
  console.table(rows)
  for (const ending of endings.reverse()) await ending()
}
