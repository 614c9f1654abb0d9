// What outlives its process in the embedded store outlives the machine's run: the ids of once(),
// the ticks of a schedule, and detached leases.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { sleep, within } from '../support/clock.mjs'
import { afterReboot, noReboot } from '../support/namespaces.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const HOUR = 3_600_000
/** The time from one tick of the schedule to the next. */
const EVERY = 10_000

/** Tells why a test is skipped, if the machine can't be made to seem started again. */
function place(t) {
  const folder = temporaryFolder(t)
  const missing = noReboot(folder)
  if (missing) t.skip(missing)
  return { folder, store: `sqlite:${join(folder, 'locks.db')}`, missing }
}

/** A process that does what it is told, after a reboot if `launcher` makes one. */
async function startClient(t, store, launcher) {
  const child = startChild(t, 'client.mjs', { store }, { launcher })
  await child.next('ready')
  return child
}

async function end(child) {
  await child.ask('close')
  assert.equal((await within('the end of the process', child.ended)).code, 0, child.stderr)
}

describe('sqlite: after a reboot', { timeout: 120_000 }, () => {
  test('what ran once does not run again, however often the machine starts', async (t) => {
    const { folder, store, missing } = place(t)
    if (missing) return
    const [key, id] = [randomUUID(), 'order-1']
    const first = await startClient(t, store)
    assert.equal((await first.ask('once', { key, id, keep: HOUR })).ran, true)
    await end(first)
    for (let boot = 0; boot < 3; boot++) {
      const next = await startClient(t, store, afterReboot(folder))
      assert.equal((await next.ask('once', { key, id, keep: HOUR })).ran, false)
      assert.equal((await next.ask('once', { key, id: `boot-${boot}`, keep: HOUR })).ran, true)
      await end(next)
    }
  })

  test('a tick of a schedule that ran is not caught up on', async (t) => {
    const { folder, store, missing } = place(t)
    if (missing) return
    const options = { store, name: randomUUID(), cron: `*/${EVERY / 1_000} * * * * *` }
    // The tick has to be the last one for both.
    const shown = Date.now() % EVERY
    if (shown > EVERY / 2) await sleep(EVERY - shown)
    const first = startChild(t, 'scheduler.mjs', options)
    const { tick } = await first.next('ran')
    await first.ask('stop')
    await within('the end of the process', first.ended)
    const next = startChild(t, 'scheduler.mjs', options, { launcher: afterReboot(folder) })
    await next.next('ready')
    assert.ok(Date.now() < tick + EVERY, 'the next process came too late to prove anything')
    assert.ok((await next.next('began')).tick > tick)
    await next.ask('stop')
  })

  test('a detached lease is still held, and can be adopted', async (t) => {
    const { folder, store, missing } = place(t)
    if (missing) return
    const key = randomUUID()
    const first = await startClient(t, store)
    const { fence } = await first.ask('acquire', { key })
    const { ticket } = await first.ask('detach', { time: HOUR })
    await end(first)
    const next = await startClient(t, store, afterReboot(folder))
    assert.equal((await next.ask('tryAcquire', { key })).held, false)
    assert.equal((await next.ask('adopt', { ticket })).fence, fence)
    assert.equal((await next.ask('release')).released, true)
    assert.ok((await next.ask('tryAcquire', { key })).fence > fence)
    await end(next)
  })

  test('what a process held that is gone is free', async (t) => {
    const { folder, store, missing } = place(t)
    if (missing) return
    const key = randomUUID()
    const first = await startClient(t, store)
    const { fence } = await first.ask('acquire', { key, ttl: HOUR })
    await first.kill()
    const next = await startClient(t, store, afterReboot(folder))
    assert.ok((await next.ask('tryAcquire', { key })).fence > fence)
    await end(next)
  })
})
