// `leasehold run` is killed (SIGKILL) while it starts its command. The command then either never
// runs, or is ended. The command writes to the standard output of leasehold, so nothing is left
// when that output ends.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { isThere, leasehold } from '../support/cli.mjs'
import { now, sleep, until, within } from '../support/clock.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const KILLED_AT = fileURLToPath(new URL('fixtures/killed-at.cjs', import.meta.url))
/** A command that never ends by itself. */
const COMMAND = ['sh', '-c', 'echo runs as $$; while :; do sleep 0.05; done']
/** How long the shells and their sleep may take to end, in ms. */
const END = 30_000
/** How many runs are killed, each after a different time. */
const RUNS = 16

function starting(t, env = {}) {
  const store = `sqlite:${join(temporaryFolder(t), 'locks.db')}`
  const words = ['--ttl', '5m', '--grace', '0', '--json']
  return leasehold(t, ['run', 'k', '-s', store, ...words, '--', ...COMMAND], env)
}

/**
 * Asserts that nothing is left of `leasehold run`. Returns true if the command had begun to run.
 */
async function nothingIsLeft(running, what) {
  const pid = () => Number(/^runs as (\d+)\n$/.exec(running.stdout)?.[1] ?? 0)
  try {
    const { signal } = await within(`the end of all processes, killed ${what}`, running.ended, END)
    assert.equal(signal, 'SIGKILL')
    if (pid() > 0) await until('the command to be gone', () => !isThere(pid()))
    return pid() > 0
  } catch (error) {
    // Otherwise, the command would run on after the test.
    if (pid() > 0) process.kill(pid(), 'SIGKILL')
    throw error
  }
}

/** Calls `check` with each of `items`, two at a time. Returns the results in the same order. */
async function inPairs(items, check) {
  const results = []
  const next = [...items].entries()
  const work = async () => {
    for (const [i, item] of next) results[i] = await check(item)
  }
  await Promise.all([work(), work()])
  return results
}

describe('leasehold run, killed while it starts', { timeout: 240_000 }, () => {
  const skip = process.versions.bun ? 'Bun ignores --require in NODE_OPTIONS' : false
  test('killed at each step of starting the command and its guard, it leaves nothing running', { skip }, async (t) => {
    const file = (name) => join(temporaryFolder(t), name)
    const env = (steps, more) => ({ NODE_OPTIONS: `--require ${KILLED_AT}`, STEPS: steps, ...more })
    const all = file('steps')
    const whole = starting(t, env(all))
    await whole.says(/"started"/, 'stderr')
    await whole.says(/runs as/)
    const steps = readFileSync(all, 'utf8').trim().split('\n')
    whole.signal('SIGKILL')
    assert.equal(await nothingIsLeft(whole, 'when it runs'), true)
    assert.ok(steps.filter((step) => step === 'after spawn').length === 2, steps.join())
    const ran = await inPairs(steps.keys(), async (at) => {
      const running = starting(t, env(file(`steps-${at}`), { KILL_AT: at + 1 }))
      return await nothingIsLeft(running, `at step ${at + 1}, ${steps[at]}`)
    })
    t.diagnostic(steps.map((step, i) => `${step}: ${ran[i] ? 'ran, and was ended' : 'never ran'}`).join('; '))
    assert.ok(ran.includes(false))
  })

  test('killed after any time, it leaves nothing running', async (t) => {
    const whole = starting(t)
    await whole.says(/"acquired"/, 'stderr')
    const acquired = now()
    await whole.says(/runs as/)
    const took = now() - acquired
    whole.signal('SIGKILL')
    await nothingIsLeft(whole, 'when it runs')
    const ran = await inPairs(Array(RUNS).keys(), async (i) => {
      const running = starting(t)
      await running.says(/"acquired"/, 'stderr')
      const pause = (1.5 * took * i) / RUNS
      await sleep(pause)
      running.signal('SIGKILL')
      return await nothingIsLeft(running, `after ${pause} ms`)
    })
    t.diagnostic(`the command began after ${took} ms; in ${ran.filter(Boolean).length} of ${RUNS}, it had begun to run`)
  })
})
