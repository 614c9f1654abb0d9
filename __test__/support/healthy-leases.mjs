// Leases at a healthy store, in a process that also uses a hostile store.

import assert from 'node:assert/strict'
import { startChild } from './child.mjs'

/**
 * Acquires a lease at the healthy store in `child`, which also uses a hostile store, and another
 * one in a control process, which does not. `assertHeld()` fails if only `child` lost its lease. If
 * both lost theirs, the machine was too busy: `assertHeld()` acquires both again, at most three
 * times.
 */
export async function holdersOf(t, child, healthy) {
  const control = startChild(t, 'memory.mjs', { store: healthy, healthy })
  await control.next('started')
  const holders = [child, control]
  const hold = () => Promise.all(holders.map((holder, i) => holder.ask('hold', { key: `${i}`, ttl: 1_500 })))
  let busy = 0
  await hold()
  return {
    async assertHeld(when) {
      const [own, other] = await Promise.all(holders.map((holder) => holder.ask('state')))
      if (own.isHeld) return
      assert.equal(other.isHeld, false, `the lease at the healthy store was lost ${when}`)
      assert.ok(++busy < 4, 'both processes lost their leases 4 times: the machine is too busy')
      await hold()
    },
  }
}
