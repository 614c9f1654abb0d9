// Runs two commands under the same lock by `leasehold run`. Checks what the first command does, and
// when the second one begins.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { createLockClient } from 'leasehold'
import { leasehold } from './cli.mjs'
import { now, until } from './clock.mjs'
import { atEnd } from './endings.mjs'
import { Journal } from './journal.mjs'

/** Returns all running processes: { pid, parent, args } of each. */
export function processes() {
  if (process.platform === 'linux') return readdirSync('/proc').flatMap(processAt)
  const lines = execFileSync('ps', ['-A', '-ww', '-o', 'pid=,ppid=,args='], { encoding: 'utf8' }).split('\n')
  return lines.flatMap((line) => {
    const found = /^\s*(\d+)\s+(\d+)\s(.*)$/.exec(line)
    return found ? [{ pid: Number(found[1]), parent: Number(found[2]), args: found[3] }] : []
  })
}

/**
 * Returns an array with the process of a folder of /proc, or an empty array. This takes a fraction
 * of the processor time of a `ps`, and some tests call it many times per second.
 */
function processAt(name) {
  const pid = Number(name)
  if (!pid) return []
  try {
    // The name of a process may have a parenthesis.
    const [, parent] = /.*\) \w (\d+)/s.exec(readFileSync(`/proc/${pid}/stat`, 'latin1')) ?? []
    if (parent === undefined) return []
    const args = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replace(/\0$/, '').replaceAll('\0', ' ')
    return [{ pid, parent: Number(parent), args }]
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes(error.code)) return []
    throw error
  }
}

/**
 * Starts `first`, which works until SIGTERM and then cleans up for `clean` ms, and `second`, which
 * waits for the lock. `words` are the options of the first, and `wrap` is the program that runs its
 * command.
 */
export async function contend(t, url, key, { clean = 0, words = [], wrap = [], env = {} }) {
  const journal = new Journal(t)
  const start = (command, more, given) => leasehold(t, ['run', key, ...more, '--', ...command], given)
  const environment = { LEASEHOLD_URL: url }
  const spawned = now()
  const first = start([...wrap, ...journal.command('first', { clean })], words, { ...environment, ...env })
  const { pid, at } = await journal.seen('first', 'begin')
  // The longest time from the end of one command to the begin of the next: two Node processes may
  // have to start, on a machine that is as busy as now.
  const soon = 1_000 + 4 * (at - spawned)
  const second = start(journal.command('second', { work: 0 }), [], environment)
  const locks = createLockClient(url)
  atEnd(t, () => locks.close())
  const info = await until('the second command to wait', async () => {
    const found = await locks.inspect(key)
    return found.waiters.length === 1 && found
  })
  return { journal, first, second, pid, locks, key, holder: info.holder, soon }
}

/**
 * Asserts that the second begins soon after the first has ended. Returns when the first began and
 * ended.
 */
export async function assertInTurn(t, { journal, first, second, soon }) {
  assert.equal((await second.ended).code, 0)
  const [one, two] = [journal.span('first'), journal.span('second')]
  const pause = two.begin - one.end
  t.diagnostic(`the second began ${Math.round(pause)} ms after the end of the first; ${Math.round(soon)} are allowed`)
  assert.ok(pause > 0, `the second began ${-pause} ms before the first had ended\n${first.stderr}`)
  assert.ok(pause < soon, `${pause} ms`)
  return one
}

/** Asserts that the first cleaned up undisturbed. */
export async function assertCleanedUp({ journal }, { ended, end }, clean) {
  assert.ok(ended, 'the first command had time to clean up')
  const { at } = await journal.seen('first', 'clean')
  assert.ok(end - at >= clean - 10, `${end - at} ms`)
}
