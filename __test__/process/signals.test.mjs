// Tests the option releaseOnSignal with other copies of the package, with other listeners, and in
// containers.

import assert from 'node:assert/strict'
import { constants } from 'node:os'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { asFirstProcess, noPidNamespaces } from '../support/namespaces.mjs'

describe('releaseOnSignal', { timeout: 60_000 }, () => {
  /**
   * Starts a process that signals itself. Resolves with the way in which the process ended, and
   * with the sections that had ended before.
   */
  async function ended(t, options, how) {
    const child = startChild(t, 'signals.mjs', { clients: 1, ...options }, how)
    const end = await within('the end', child.ended, 10_000)
    return { ...end, over: child.events.filter(({ event }) => event === 'over').map(({ i }) => i) }
  }

  test('two copies of the package close their clients, and the process ends by the signal', async (t) => {
    assert.deepEqual(await ended(t, { clients: 2, copies: true }), { code: null, signal: 'SIGTERM', over: [0, 1] })
  })

  for (const listens of ['on', 'once', 'prependListener', 'prependOnceListener']) {
    test(`another listener decides when the process ends: ${listens}()`, async (t) => {
      assert.deepEqual(await ended(t, { listens }), { code: 7, signal: null, over: [0] })
    })
  }

  for (const raises of ['once', 'prependOnceListener']) {
    test(`a listener that raises the signal again ends the process after the drain: ${raises}()`, async (t) => {
      assert.deepEqual(await ended(t, { raises }), { code: null, signal: 'SIGTERM', over: [0] })
    })
  }

  for (const [how, options] of [
    ['once()', { raises: 'once' }],
    ['on()', { raises: 'on' }],
    ['prependOnceListener()', { raises: 'prependOnceListener' }],
    ['once(), after a while', { raises: 'once', after: 50 }],
  ]) {
    test(`a listener that raises another signal ends the process by that signal after the drain: ${how}`, async (t) => {
      const signals = [['SIGTERM', 'SIGINT']]
      const end = await ended(t, { ...options, raised: 'SIGINT', signals, lasts: [200] })
      assert.deepEqual(end, { code: null, signal: 'SIGINT', over: [0] })
    })
  }

  test('the signal that a listener raises also drains the clients that have listed only that signal', async (t) => {
    const signals = [['SIGTERM', 'SIGINT'], ['SIGINT']]
    const end = await ended(t, { clients: 2, raises: 'once', raised: 'SIGINT', signals, lasts: [100, 400] })
    assert.deepEqual(end, { code: null, signal: 'SIGINT', over: [0, 1] })
  })

  test('after the first signal, another one within 0.5 s does not cut the drain off', async (t) => {
    const signals = [['SIGTERM', 'SIGINT'], ['SIGTERM']]
    const options = { clients: 2, signals, lasts: [100, 400], second: 'SIGINT' }
    assert.deepEqual(await ended(t, options), { code: null, signal: 'SIGTERM', over: [0, 1] })
  })

  for (const [listens, how] of [
    ['on', { code: 7, signal: null }],
    ['once', { code: null, signal: 'SIGTERM' }],
  ]) {
    test(`a copy of the signal goes to another listener, or counts as raised by it: ${listens}()`, async (t) => {
      assert.deepEqual(await ended(t, { listens, second: 'SIGTERM' }), { ...how, over: [0] })
    })
  }

  test('a signal that ends no process by default is refused', async (t) => {
    const open = (name) => createLockClient({ store: 'memory:refused', releaseOnSignal: [name] })
    for (const name of ['SIGCHLD', 'SIGCONT', 'SIGTSTP', 'SIGTTIN', 'SIGTTOU', 'SIGURG', 'SIGWINCH']) {
      // Windows lacks most of these signals.
      if (!Object.hasOwn(constants.signals, name)) continue
      assert.throws(
        () => open(name),
        (error) => {
          assert.equal(error.code, 'ERR_INVALID_ARG_VALUE')
          assert.match(
            error.message,
            new RegExp(`releaseOnSignal": ${name} ends no process .* SIGTERM, SIGINT or SIGHUP$`),
          )
          return true
        },
      )
    }
    for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP']) {
      const locks = open(name)
      atEnd(t, () => locks.close())
    }
  })

  test('many signals cause no warning of too many listeners', async (t) => {
    const child = startChild(t, 'signals.mjs', { clients: 1, many: true })
    await within('the end', child.ended, 10_000)
    assert.doesNotMatch(child.stderr, /MaxListeners/)
  })

  test('a client listens again if other code has removed all listeners', async (t) => {
    assert.deepEqual(await ended(t, { clients: 2, removes: true }), { code: null, signal: 'SIGTERM', over: [0, 1] })
  })

  test('two versions of the package close their clients, and the last one ends the process', async (t) => {
    const options = { clients: 2, copies: true, versions: true }
    assert.deepEqual(await ended(t, options), { code: null, signal: 'SIGTERM', over: [0, 1] })
  })

  test('the package signal-exit does not keep the process alive, and its hooks run', async (t) => {
    const child = startChild(t, 'signals.mjs', { clients: 1, signalExit: true })
    assert.deepEqual(await within('the end', child.ended, 10_000), { code: null, signal: 'SIGTERM' })
    assert.deepEqual(
      child.events.map(({ event }) => event),
      ['over', 'exit-hook'],
    )
  })

  test('the first process of a container exits', { skip: noPidNamespaces }, async (t) => {
    assert.deepEqual(await ended(t, {}, { launcher: asFirstProcess }), { code: 143, signal: null, over: [0] })
  })
})
