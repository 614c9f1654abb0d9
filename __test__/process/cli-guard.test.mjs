// `leasehold run` killed (SIGKILL) while its command runs: the lock stays held until that command has ended.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { leasehold } from '../support/cli.mjs'
import { now, until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { FOR_EVER, Journal } from '../support/journal.mjs'
import { startRedis } from '../support/servers.mjs'
import { overStores, sharedStoreNames } from '../support/stores.mjs'

/** How long after the end of one command the next may begin: the start of a guard's Node and of the command, on a busy machine. */
const SOON = 1_500

/** What runs: [pid, parent, arguments]. */
function processes() {
  const lines = execFileSync('ps', ['-A', '-ww', '-o', 'pid=,ppid=,args='], { encoding: 'utf8' }).split('\n')
  return lines.flatMap((line) => {
    const found = /^\s*(\d+)\s+(\d+)\s(.*)$/.exec(line)
    return found ? [{ pid: Number(found[1]), parent: Number(found[2]), args: found[3] }] : []
  })
}

/** The guard that `leasehold` has started. */
const guardOf = ({ pid }) => processes().find(({ parent, args }) => parent === pid && args.includes('leasehold-guard'))

/** The processes that `pid` has started, and those of theirs. */
function below(pid) {
  const all = processes()
  const of = (parent) => all.filter((one) => one.parent === parent).flatMap((one) => [one, ...of(one.pid)])
  return of(pid)
}

/** Two commands that want the same lock: `first` works until SIGTERM, `second` waits for the lock. */
async function contend(t, url, key, { clean, words = [], env }) {
  const journal = new Journal(t)
  const start = (name, options, more) =>
    leasehold(t, ['run', key, ...(url ? ['-s', url] : []), ...more, '--', ...journal.command(name, options)], env)
  const first = start('first', { clean }, words)
  const { pid } = await journal.seen('first', 'begin')
  const guard = guardOf(first)
  const second = start('second', { work: 0 }, [])
  const locks = createLockClient(url ?? env.LEASEHOLD_URL)
  atEnd(t, () => locks.close())
  await until('the second to wait', async () => (await locks.inspect(key)).waiters.length === 1)
  return { journal, first, second, guard, pid, locks }
}

/** The second begins after the first has ended, and soon. */
async function isInTurn(t, { journal, second }) {
  assert.equal((await second.ended).code, 0)
  const [one, two] = [journal.span('first'), journal.span('second')]
  const pause = two.begin - one.end
  t.diagnostic(`the second began ${Math.round(pause)} ms after the end of the first`)
  assert.ok(pause > 0, `the second began ${-pause} ms before the first had ended`)
  assert.ok(pause < SOON, `${pause} ms`)
  return one
}

overStores(
  'leasehold run, killed',
  (store) => {
    for (const [what, words] of [
      ['a ttl longer than that', []],
      ['a ttl shorter than that', ['--ttl', '500ms']],
      ['a ttl shorter than what is left to it', ['--ttl', '1200ms', '--grace', '10s']],
    ]) {
      test(`while its command cleans up, with ${what}, nobody else has the lock`, async (t) => {
        const contended = await contend(t, store.url, store.key(), { clean: 2_000, words })
        contended.first.signal('SIGKILL')
        const { ended, end } = await isInTurn(t, contended)
        assert.ok(ended, 'it had its time')
        const { at } = await contended.journal.seen('first', 'clean')
        assert.ok(end - at >= 1_990)
      })
    }

    test('a command that ends when it is asked to: the next begins soon, not after a ttl', async (t) => {
      const contended = await contend(t, store.url, store.key(), { clean: 0, words: ['--ttl', '20s'] })
      contended.first.signal('SIGKILL')
      await isInTurn(t, contended)
    })

    test('a command that does not end is killed after --grace, and the lock is held until then', async (t) => {
      const words = ['--ttl', '1s', '--grace', '2s']
      const contended = await contend(t, store.url, store.key(), { clean: FOR_EVER, words })
      contended.first.signal('SIGKILL')
      const { ended } = await isInTurn(t, contended)
      assert.equal(ended, false)
    })

    test('and its guard, too: the lock is free after a ttl', async (t) => {
      const contended = await contend(t, store.url, store.key(), { clean: FOR_EVER, words: ['--ttl', '2s'] })
      const { guard, first, second, journal } = contended
      process.kill(guard.pid, 'SIGKILL')
      first.signal('SIGKILL')
      const start = now()
      assert.equal((await second.ended).code, 0)
      const waited = journal.span('second').begin - start
      assert.ok(waited > 1_000 && waited < 2_000 + SOON, `${waited} ms`)
    })

    test('and who holds the lock in its place, too: the lock is free after a ttl', async (t) => {
      const words = ['--ttl', '2s', '--grace', '20s']
      const contended = await contend(t, store.url, store.key(), { clean: FOR_EVER, words })
      const { guard, first, second, journal, locks } = contended
      const [key] = (await locks.list()).locks.filter(({ waiters }) => waiters.length > 0).map((lock) => lock.key)
      const { holder } = await locks.inspect(key)
      first.signal('SIGKILL')
      await until('another to hold it', async () => {
        const info = await locks.inspect(key)
        return info.holder !== holder
      })
      const [standIn] = below(guard.pid).filter(({ args }) => args.includes(process.execPath))
      process.kill(standIn.pid, 'SIGKILL')
      const start = now()
      assert.equal((await second.ended).code, 0)
      const waited = journal.span('second').begin - start
      assert.ok(waited > 1_000 && waited < 2_000 + SOON, `${waited} ms`)
    })
  },
  sharedStoreNames,
)

describe('leasehold run, killed', { timeout: 60_000 }, () => {
  const skip = process.platform === 'linux' ? false : 'needs /proc'
  test('no secret is among the arguments, or in the environment, of who holds the lock then', { skip }, async (t) => {
    const server = await startRedis(t, { password: 'hunter2' })
    const env = { LEASEHOLD_URL: server.url() }
    const contended = await contend(t, undefined, 'k', { clean: 2_000, words: ['--ttl', '1s'], env })
    const { first, guard, locks } = contended
    const { holder } = await locks.inspect('k')
    first.signal('SIGKILL')
    await until('another to hold it', async () => (await locks.inspect('k')).holder !== holder)
    const standIns = [guard, ...below(guard.pid)]
    assert.ok(standIns.length >= 2)
    for (const { pid, args } of standIns) {
      assert.doesNotMatch(args, /hunter2|eyJ/)
      const given = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0')
      const ours = given.filter((line) => !line.startsWith('LEASEHOLD_URL='))
      assert.doesNotMatch(ours.join('\n'), /hunter2|eyJ/)
    }
    await isInTurn(t, contended)
  })
})
