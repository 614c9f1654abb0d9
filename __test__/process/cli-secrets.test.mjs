// No message of the command line shows a secret that is part of a key or of a holder's name. Only
// `leasehold ls` and the JSON of a command have whole keys.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { run } from '../support/cli.mjs'
import { atEnd } from '../support/endings.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const KEY = 'https://h.example/x?access_token=hunter2'
const SHOWN = 'https://h.example/x?access_token=…'

/** Returns a client whose name has secrets, and a function that runs `leasehold` at its store. */
function open(t) {
  const store = `sqlite:${join(temporaryFolder(t), 'locks.db')}`
  const locks = createLockClient({ store, name: 'https://me:hunter2@h.example/?pwd=hunter2' })
  atEnd(t, () => locks.close())
  const env = { LEASEHOLD_URL: store }
  /** Checks the exit code, and that the output shows the key, or the name, without its secret. */
  const check = async (words, code, shown = SHOWN) => {
    const ended = await run(t, words, env)
    const output = ended.stdout + ended.stderr
    assert.equal(ended.code, code, output)
    assert.ok(output.includes(shown), output)
    assert.doesNotMatch(output, /hunter2/, words.join(' '))
  }
  return { locks, env, check }
}

describe('leasehold and a key with a secret', { timeout: 60_000 }, () => {
  test('no message about a lock shows a secret in its key or in the name of its holder', async (t) => {
    const { locks, check } = open(t)
    const name = 'https://…@h.example/?pwd=…'
    await check(['inspect', KEY], 1)
    await check(['run', KEY], 64)
    await check(['release', KEY], 64)
    await check(['release', KEY, '--force', '--yes'], 1)
    await locks.acquire(KEY)
    await check(['run', KEY, '--try', '--', 'true'], 75)
    await check(['run', KEY, '--wait', '500ms', '--verbose', '--', 'true'], 75)
    for (const shown of [SHOWN, name]) {
      await check(['inspect', KEY], 0, shown)
      await check(['watch', '--looks', '1'], 0, shown)
    }
    await check(['release', KEY, '--force', '--yes'], 0, name)
  })

  test('the message about a command that was stopped shows no secret in the key', async (t) => {
    const { check } = open(t)
    const limits = ['--max-hold', '300ms', '--ttl', '200ms', '--grace', '100ms']
    await check(['run', KEY, ...limits, '--', process.execPath, '-e', 'setInterval(() => {}, 1_000)'], 70)
  })

  test('leasehold ls and the JSON of a command have the whole key', async (t) => {
    const { locks, env } = open(t)
    await locks.acquire(KEY)
    for (const words of [['ls'], ['ls', '--json'], ['inspect', KEY, '--json'], ['watch', '--looks', '1', '--json']]) {
      const { stdout } = await run(t, words, env)
      assert.ok(stdout.includes(KEY), stdout)
    }
    // The name of a holder is not needed to use its lock.
    assert.match((await run(t, ['ls'], env)).stdout, /https:\/\/…@h\.example\/\?pwd=…/)
  })
})
