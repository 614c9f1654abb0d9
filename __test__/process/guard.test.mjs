// Kills `leasehold run` (SIGKILL) on a slow machine, or after its renewals have failed. No other
// command may begin before the processes of the command have ended.

import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { until } from '../support/clock.mjs'
import { assertCleanedUp, assertInTurn, contend } from '../support/contend.mjs'
import { FOR_EVER } from '../support/journal.mjs'
import { startRelay } from '../support/relay.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'

const SLOW_LOOK = fileURLToPath(new URL('fixtures/slow-look.cjs', import.meta.url))
/** A shell that runs a command in another session. */
const SETSID = ['sh', '-c', 'setsid "$0" "$@" & wait']

const storeOf = (t) => `sqlite:${join(temporaryFolder(t), 'locks.db')}`

const skip = process.platform === 'linux' ? false : 'needs /proc'
// The tests mostly wait for ttls and for commands that clean up.
describe('leasehold run, killed', { skip, timeout: 240_000, concurrency: 2 }, () => {
  const onBun = process.versions.bun ? 'Bun ignores --require in NODE_OPTIONS' : false
  test('the command cleans up although the search for processes takes longer than the ttl', {
    skip: onBun,
  }, async (t) => {
    const words = ['--ttl', '5s', '--grace', '30s']
    const env = { NODE_OPTIONS: `--require ${SLOW_LOOK}`, LOOK: '6000' }
    const contended = await contend(t, storeOf(t), 'k', { clean: 8_000, words, env })
    contended.first.signal('SIGKILL')
    const turn = await assertInTurn(t, { ...contended, soon: contended.soon + 8_000 })
    await assertCleanedUp(contended, turn, 8_000)
  })

  /** A shell that runs a command without the mark: only the parent leads to that command. */
  const UNMARKED = ['sh', '-c', 'env -i PATH="$PATH" setsid "$0" "$@" & wait']

  test('with --grace 0, a process without the mark ends, too', async (t) => {
    const words = ['--grace', '0']
    const contended = await contend(t, storeOf(t), 'k', { clean: FOR_EVER, wrap: UNMARKED, words })
    contended.first.signal('SIGKILL')
    await assertInTurn(t, contended)
  })

  test('while the store is out of reach, a process without the mark gets SIGTERM and can clean up', async (t) => {
    const { relay, contended } = await contendThroughRelay(t, 9_000, { clean: 300, wrap: UNMARKED })
    relay.bar()
    contended.first.signal('SIGKILL')
    const turn = await assertInTurn(t, { ...contended, soon: contended.soon + 9_000 })
    await assertCleanedUp(contended, turn, 300)
  })

  test('while the store refuses the guard, the command has time to clean up', async (t) => {
    const server = await startRedis(t)
    const words = ['--ttl', '9s', '--grace', '30s']
    const contended = await contend(t, server.url(), 'k', { clean: 500, words })
    await server.ask('ACL', 'SETUSER', 'default', '-evalsha', '-eval', '-script')
    contended.first.signal('SIGKILL')
    await contended.journal.seen('first', 'clean')
    await server.ask('ACL', 'SETUSER', 'default', '+@all')
    const turn = await assertInTurn(t, { ...contended, soon: contended.soon + 9_000 })
    await assertCleanedUp(contended, turn, 500)
  })

  /** Contends for a lock with a `ttl` in ms, which is renewed through a relay. */
  async function contendThroughRelay(t, ttl, options) {
    const server = await startRedis(t)
    const relay = await startRelay(t, server.port)
    const words = ['--ttl', `${ttl}ms`, '--grace', '30s']
    const env = { LEASEHOLD_URL: `redis://127.0.0.1:${relay.port}` }
    const contended = await contend(t, server.url(), 'k', { ...options, words, env })
    const remaining = async () => (await contended.locks.inspect('k')).remaining
    return { relay, contended, remaining }
  }

  for (const [what, wrap, ttl] of [
    ['the command', [], 6_000],
    ['a process in another session', SETSID, 4_000],
  ]) {
    test(`after failed renewals, the guard kills ${what} before the lock is free`, async (t) => {
      const { relay, contended, remaining } = await contendThroughRelay(t, ttl, { clean: FOR_EVER, wrap })
      // Two thirds of the ttl are left at the next renewal.
      await until('the next renewal to be near', async () => (await remaining()) < 0.72 * ttl)
      relay.bar()
      await until('the lock to end soon', async () => (await remaining()) < 0.25 * ttl)
      contended.first.signal('SIGKILL')
      await assertInTurn(t, { ...contended, soon: contended.soon + 6_000 })
    })
  }

  test('after one failed renewal, a process in another session has time to clean up', async (t) => {
    // The process has about 2 s. On a machine with a high load, it has less.
    const [clean, ttl] = [100, 6_000]
    const { relay, contended, remaining } = await contendThroughRelay(t, ttl, { clean, wrap: SETSID })
    // The lock was safe until 4 s after the acquire. A guard that knew of no renewal would kill the
    // process at once.
    for (let renewal = 0; renewal < 3; renewal++) {
      await until('the lock to be renewed', async () => (await remaining()) > 0.87 * ttl)
      await until('the next renewal to be near', async () => (await remaining()) < 0.73 * ttl)
    }
    relay.bar()
    contended.first.signal('SIGKILL')
    const turn = await assertInTurn(t, { ...contended, soon: contended.soon + 6_000 })
    await assertCleanedUp(contended, turn, clean)
  })
})
