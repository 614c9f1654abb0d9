// `leasehold run` killed (SIGKILL) while it starts its command: that either never runs, or is ended. Its standard output is the
// command's, so the end of that says that nothing is left.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { isThere, leasehold } from '../support/cli.mjs'
import { sleep, until, within } from '../support/clock.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const KILLED_AT = fileURLToPath(new URL('fixtures/killed-at.cjs', import.meta.url))
/** Never ends by itself. */
const COMMAND = ['sh', '-c', 'echo runs as $$; while :; do sleep 0.05; done']
/** The shells, which only wait, and their sleep. */
const END = 10_000

function starting(t, env = {}) {
  const store = `sqlite:${join(temporaryFolder(t), 'locks.db')}`
  return leasehold(t, ['run', 'k', '-s', store, '--grace', '0', '--json', '--', ...COMMAND], env)
}

/** Says whether the command had begun to run. */
async function nothingIsLeft(running, what) {
  const pid = () => Number(/^runs as (\d+)\n$/.exec(running.stdout)?.[1] ?? 0)
  try {
    const { signal } = await within(`the end of all, killed ${what}`, running.ended, END)
    assert.equal(signal, 'SIGKILL')
    if (pid() > 0) await until('the command to be gone', () => !isThere(pid()))
    return pid() > 0
  } catch (error) {
    // Lest it go on after the test as well.
    if (pid() > 0) process.kill(pid(), 'SIGKILL')
    throw error
  }
}

describe('leasehold run, killed while it starts', { timeout: 240_000 }, () => {
  const skip = process.versions.bun ? 'Bun does not hear --require in NODE_OPTIONS' : false
  test('at each step by which it starts the command and its guard', { skip }, async (t) => {
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
    const ran = []
    for (const at of steps.keys()) {
      const running = starting(t, env(file(`steps-${at}`), { KILL_AT: at + 1 }))
      ran.push(await nothingIsLeft(running, `at step ${at + 1}, ${steps[at]}`))
    }
    t.diagnostic(steps.map((step, i) => `${step}: ${ran[i] ? 'ran, and was ended' : 'never ran'}`).join('; '))
    assert.ok(ran.includes(false))
  })

  test('after any time', async (t) => {
    const ran = []
    for (let i = 0; i < 24; i++) {
      const running = starting(t)
      await running.says(/"acquired"/, 'stderr')
      await sleep(2 * i)
      running.signal('SIGKILL')
      ran.push(await nothingIsLeft(running, `after ${2 * i} ms`))
    }
    t.diagnostic(`it had begun to run in ${ran.filter(Boolean).length} of ${ran.length}`)
  })
})
