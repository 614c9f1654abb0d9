// Entries of the embedded store that outlive their process also outlive a reboot: the ids of
// once(), the ticks of a schedule, and detached leases.

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

/** Returns why the test is skipped, if a reboot can't be simulated on this machine. */
function place(t) {
  const folder = temporaryFolder(t)
  const missing = noReboot(folder)
  if (missing) t.skip(missing)
  return { folder, store: `sqlite:${join(folder, 'locks.db')}`, missing }
}

/**
 * Starts a process that carries out the test's commands. If `launcher` simulates a reboot, the
 * process starts after it.
 */
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
  test('work that once() ran does not run again, however often the machine starts', async (t) => {
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

  test('a schedule does not catch up on a tick that ran before the reboot', async (t) => {
    const { folder, store, missing } = place(t)
    if (missing) return
    const options = { store, name: randomUUID(), cron: `*/${EVERY / 1_000} * * * * *` }
    // The tick has to be the last one for both processes.
    const shown = Date.now() % EVERY
    if (shown > EVERY / 2) await sleep(EVERY - shown)
    const first = startChild(t, 'scheduler.mjs', options)
    const { tick } = await first.next('ran')
    await first.ask('stop')
    await within('the end of the process', first.ended)
    const next = startChild(t, 'scheduler.mjs', options, { launcher: afterReboot(folder) })
    await next.next('ready')
    assert.ok(Date.now() < tick + EVERY, 'the next process came too late for this test')
    assert.ok((await next.next('began')).tick > tick)
    await next.ask('stop')
  })

  test('a detached lease is still held, and a process can adopt it', async (t) => {
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

  test('the lock of a process that is gone is free', async (t) => {
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
