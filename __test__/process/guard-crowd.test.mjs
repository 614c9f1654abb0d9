// `leasehold run` is killed (SIGKILL) on a slow machine with many processes. The guard's search for
// the command's processes takes longer than the ttl, and the lock stays held until the command has
// ended.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { sleep } from '../support/clock.mjs'
import { assertCleanedUp, assertInTurn, contend, processes } from '../support/contend.mjs'
import { atEnd } from '../support/endings.mjs'
import { FOR_EVER } from '../support/journal.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const MANY = 'i=0; while [ $i -lt 1000 ]; do sleep 600 & i=$((i+1)); done; echo started; wait'
/**
 * For how long the guard's shell runs at a time, and is then stopped, in ms. Its search takes 10 s
 * or more.
 */
const [RUNS, STOPPED] = [1, 100]

/** Starts 1 000 processes before the tests, and ends them when the tests are over. */
function startMany() {
  let shell
  before(async () => {
    shell = spawn('sh', ['-c', MANY], { detached: true, stdio: ['ignore', 'pipe', 'inherit'] })
    await once(shell.stdout, 'data')
  })
  after(async () => {
    const ended = once(shell, 'exit')
    process.kill(-shell.pid, 'SIGKILL')
    await ended
  })
}

/** Stops a process for most of the time, until the process ends or the test is over. */
async function slowDown(t, pid) {
  let isOver = false
  const signal = (name) => {
    try {
      process.kill(pid, name)
    } catch {
      isOver = true
    }
  }
  const slowed = (async () => {
    while (!isOver) {
      signal('SIGSTOP')
      await sleep(STOPPED)
      signal('SIGCONT')
      await sleep(RUNS)
    }
  })()
  atEnd(t, () => {
    isOver = true
    return slowed
  })
}

const skip = process.platform === 'linux' ? false : 'the guard searches through /proc'
// The tests mostly wait for commands that clean up.
const options = { skip, timeout: 240_000, concurrency: 2 }
describe('leasehold run, killed on a slow machine with many processes', options, () => {
  startMany()
  for (const [what, words, clean] of [
    ['no other command gets the lock while the command cleans up', ['--grace', '20s'], 12_000],
    ['the guard kills a command that does not end after --grace', ['--grace', '6s'], FOR_EVER],
  ]) {
    test(what, async (t) => {
      const contended = await contend(t, `sqlite:${join(temporaryFolder(t), 'locks.db')}`, 'k', { clean, words })
      const guard = processes().find(
        ({ parent, args }) => parent === contended.first.pid && args.includes('leasehold-guard'),
      )
      slowDown(t, guard.pid)
      contended.first.signal('SIGKILL')
      // At 1 % of its usual speed, the guard takes seconds for a search, and longer on a busy
      // machine.
      const turn = await assertInTurn(t, { ...contended, soon: contended.soon + 60_000 })
      if (clean === FOR_EVER) assert.equal(turn.ended, false)
      else await assertCleanedUp(contended, turn, clean)
    })
  }
})
