// Processes of one host in different time namespaces, such as containers, share a lock file. Their
// clocks show different instants, but their leases end at the same one.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { timed } from '../support/clock.mjs'
import { inHiddenTimeNamespace, inTimeNamespace, noTimeNamespaces, withoutProc } from '../support/namespaces.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const TTL = 1_000

const NAMESPACES = [
  ['an hour ahead', inTimeNamespace({ boottime: 3_600 })],
  ['an hour ahead, the monotonic clock too', inTimeNamespace({ boottime: 3_600, monotonic: 3_600 })],
  ['two deep', [...inTimeNamespace({ boottime: 7_200 }), ...inTimeNamespace({ boottime: 50 })]],
]

async function startClient(t, store, launcher) {
  const child = startChild(t, 'client.mjs', { store }, { launcher })
  await child.next('ready')
  return child
}

describe('sqlite: time namespaces', { timeout: 120_000, skip: noTimeNamespaces }, () => {
  for (const [title, launcher] of NAMESPACES) {
    for (const direction of ['inside waits', 'outside waits']) {
      test(`${title}: leases are held, handed over and expire as in one namespace, ${direction}`, async (t) => {
        const store = `sqlite:${join(temporaryFolder(t), 'locks.db')}`
        const outside = await startClient(t, store)
        const inside = await startClient(t, store, launcher)
        const [holder, other] = direction === 'inside waits' ? [outside, inside] : [inside, outside]
        const key = randomUUID()

        assert.equal((await holder.ask('acquire', { key })).held, true)
        assert.equal((await other.ask('tryAcquire', { key })).held, false, 'held')

        const waits = other.ask('acquire', { key, wait: 10_000 })
        const held = timed(() => waits)
        await holder.ask('release')
        const { ms } = await held
        assert.ok(ms < 2_000, `handed over after ${ms} ms`)
        await other.ask('release')

        const runsOut = randomUUID()
        const since = Date.now()
        assert.equal((await holder.ask('acquire', { key: runsOut, ttl: TTL, autoRenew: false })).held, true)
        // The holder lives, but can neither renew nor release its lease.
        holder.signal('SIGSTOP')
        assert.equal((await other.ask('acquire', { key: runsOut, wait: 10_000 })).held, true)
        const after = Date.now() - since
        holder.signal('SIGCONT')
        assert.ok(after >= TTL - 20 && after < TTL + 1_000, `expired after ${after} ms`)
      })
    }
  }

  const HIDDEN = { 'whose offsets are hidden': inHiddenTimeNamespace, 'without /proc': withoutProc }
  for (const [which, launch] of Object.entries(HIDDEN)) {
    test(`a process ${which} can't compare its clock, so it refuses the file, and can use memory`, async (t) => {
      const folder = temporaryFolder(t)
      const path = join(folder, 'locks.db')
      const launcher = launch(folder)
      const refused = startChild(t, 'client.mjs', { store: `sqlite:${path}` }, { launcher })
      const { error } = await refused.next('refused')
      assert.equal(error.code, 'ERR_STORE_UNAVAILABLE')
      assert.match(error.message, /time namespace/)
      assert.ok(error.message.includes(path), error.message)
      const inMemory = await startClient(t, 'memory:hidden', launcher)
      assert.equal((await inMemory.ask('acquire', { key: randomUUID() })).held, true)
    })
  }
})
