// schedule.stop() in its own job does not wait for runs that wait for it, and waits for all others.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { until, within } from '../support/clock.mjs'
import { gate } from '../support/gate.mjs'
import { overStores } from '../support/stores.mjs'

const EACH_SECOND = '* * * * * *'

/** Returns true if `promise` settles before the next two turns of the event loop are over. */
async function isSettled(promise) {
  let settled = false
  promise.then(() => {
    settled = true
  })
  await new Promise((resolve) => setImmediate(() => setImmediate(resolve)))
  return settled
}

overStores('schedule.stop() in its own job', (store) => {
  test('a job may await stop(): it keeps its lock, is the last run, and other callers wait for it', async (t) => {
    const locks = store.client(t)
    const [stopped, end] = [gate(), gate()]
    let runs = 0
    const schedule = locks.schedule(store.key(), EACH_SECOND, async (lease) => {
      runs++
      // The call may be in another function, after other awaits.
      await locks.ready()
      await (async () => schedule.stop())()
      assert.equal(lease.isHeld, true)
      stopped.pass()
      await end.passed
      assert.equal(lease.isHeld, true)
    })
    schedule.on('error', (error) => assert.fail(error))
    await within('stop()', stopped.passed)
    assert.equal(schedule.next, null)
    const outside = schedule.stop()
    await locks.ready()
    assert.equal(await isSettled(outside), false, 'the job still runs')
    end.pass()
    await within('the end of the job', outside)
    assert.deepEqual([runs, locks.stats().held], [1, 0])
  })

  test('two jobs that stop each other do not deadlock', async (t) => {
    const locks = store.client(t)
    const [oneBegan, otherBegan, oneEnded, otherEnded] = Array.from({ length: 4 }, gate)
    const one = locks.schedule(store.key(), EACH_SECOND, async () => {
      oneBegan.pass()
      await otherBegan.passed
      await other.stop()
      oneEnded.pass()
    })
    const other = locks.schedule(store.key(), EACH_SECOND, async () => {
      otherBegan.pass()
      await oneBegan.passed
      await one.stop()
      otherEnded.pass()
    })
    await within('both', Promise.all([oneEnded.passed, otherEnded.passed]))
    await within('their ends', Promise.all([one.stop(), other.stop()]))
    assert.equal(locks.stats().held, 0)
  })

  test('a job may ignore the promise of stop(), or use await using', async (t) => {
    const locks = store.client(t)
    for (const stop of [(schedule) => void schedule.stop(), (schedule) => schedule[Symbol.asyncDispose]()]) {
      const ended = gate()
      const schedule = locks.schedule(store.key(), EACH_SECOND, async () => {
        await stop(schedule)
        await locks.ready()
        ended.pass()
      })
      await within('the end of the job', ended.passed)
      await within('the stop', schedule.stop())
      assert.equal(locks.stats().held, 0)
    }
  })

  test('with overlap, stop() waits for the other runs, except those that also called stop()', async (t) => {
    const locks = store.client(t)
    const runs = []
    const job = () => {
      const [stop, stopped, end] = [gate(), gate(), gate()]
      runs.push({ stop: stop.pass, stopped: stopped.passed, end: end.pass })
      return stop.passed
        .then(() => schedule.stop())
        .then(stopped.pass)
        .then(() => end.passed)
    }
    const schedule = locks.schedule(store.key(), EACH_SECOND, job, { overlap: true })
    await until('three runs at a time', () => runs.length >= 3)
    const [first, second, ...rest] = runs
    first.stop()
    await until('the stop', () => schedule.next === null)
    for (const run of rest) run.stop()
    for (const { end } of rest) end()
    await locks.ready()
    assert.equal(await isSettled(first.stopped), false, 'the second run has not called stop() yet')
    second.stop()
    await within('both stops', Promise.all([first.stopped, second.stopped]))
    const outside = schedule.stop()
    first.end()
    await locks.ready()
    assert.equal(await isSettled(outside), false, 'the second run has not ended')
    second.end()
    await within('the end', outside)
    assert.equal(locks.stats().held, 0)
  })

  test('stop() in a promise of an earlier run waits for the current run', async (t) => {
    const locks = store.client(t)
    const [later, end] = [gate(), gate()]
    let runs = 0
    let stopping
    const schedule = locks.schedule(store.key(), EACH_SECOND, async () => {
      if (++runs > 1) await end.passed
      else stopping = later.passed.then(() => schedule.stop())
    })
    await until('the second run', () => runs === 2)
    later.pass()
    await until('the stop', () => schedule.next === null)
    await locks.ready()
    assert.equal(await isSettled(stopping), false)
    end.pass()
    await within('the stop', stopping)
  })

  test('stop() in the job of another schedule waits, even if the job created that schedule', async (t) => {
    const locks = store.client(t)
    const [called, end] = [gate(), gate()]
    let other
    const schedule = locks.schedule(store.key(), EACH_SECOND, async () => {
      other ??= locks.schedule(store.key(), EACH_SECOND, async () => {
        const stopping = schedule.stop()
        called.pass({ stopping })
        await stopping
      })
      await end.passed
    })
    const { stopping } = await within('the other job', called.passed)
    await locks.ready()
    assert.equal(await isSettled(stopping), false)
    end.pass()
    await within('the stops', Promise.all([stopping, other.stop()]))
    assert.equal(locks.stats().held, 0)
  })

  test('a job that awaits close() waits for the drain, sees its signal abort, and keeps the lock', async (t) => {
    const locks = store.client(t)
    const other = store.client(t)
    const failures = []
    locks.on('error', (error) => failures.push(error.reason))
    const [closed, end] = [gate(), gate()]
    const schedule = locks.schedule(store.key(), EACH_SECOND, async (lease) => {
      await locks.close({ drain: 100 })
      closed.pass(lease)
      await end.passed
    })
    const lease = await within('close()', closed.passed)
    assert.equal(lease.isHeld, false)
    assert.equal(lease.signal.reason.reason, 'closed')
    assert.equal(await other.tryAcquire(schedule.name), null)
    end.pass()
    await within('stop()', schedule.stop())
    assert.ok(await other.tryAcquire(schedule.name))
    assert.deepEqual(failures, [])
  })
})
