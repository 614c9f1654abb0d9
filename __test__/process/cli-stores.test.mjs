// Tests which store the command `leasehold` uses: a quorum of the environment, and a master with
// its replicas.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { run } from '../support/cli.mjs'
import { startRedis } from '../support/servers.mjs'

describe('leasehold, and its store', { timeout: 120_000 }, () => {
  test('leasehold uses a quorum of the environment, and shows no password of it in a message', async (t) => {
    const urls = [1, 2, 3].map((port) => `redis://:hunter2@127.0.0.1:${port}`)
    const asked = (store) => run(t, ['inspect', 'k', '--json'], { LEASEHOLD_URL: store })
    for (const between of [' ', '\n', ' \t\n ']) {
      const { code, stderr } = await asked(` ${urls.join(between)}\n`)
      assert.equal(code, 69, stderr)
      const { error } = JSON.parse(stderr)
      const stores = error.votes.map(({ store }) => store)
      assert.deepEqual([error.code, stores], ['ERR_LOCK_QUORUM', urls.map((url) => url.replace(':hunter2@', ''))])
      assert.doesNotMatch(stderr, /hunter2/)
    }
    for (const [store, message] of [
      [urls.join(), /LEASEHOLD_URL .* with commas between .* with blanks between them in the environment$/],
      [urls.join(', '), /LEASEHOLD_URL .* with commas between .* with blanks between them in the environment$/],
      [urls.slice(1).join(' '), /LEASEHOLD_URL .*at least 3 independent stores.*: 2 were given$/],
      [`${urls.join(' ')} hunter2`, /./],
    ]) {
      const { code, stderr } = await asked(store)
      assert.equal(code, 64, stderr)
      assert.match(JSON.parse(stderr).error.message, message)
      assert.doesNotMatch(stderr, /hunter2/)
    }
  })

  test('--min-replicas acquires no lock that too few replicas have', async (t) => {
    const master = await startRedis(t)
    const words = ['--min-replicas', '1', '-s', master.url(), '--', 'echo', 'it has it']
    const { code, stdout, stderr } = await run(t, ['run', 'k', '--try', ...words])
    assert.deepEqual([code, stdout], [69, ''])
    assert.match(stderr, /fewer than the 1 of minReplicas/)
    const locked = run(t, ['run', 'k', '--wait', '25s', ...words])
    await startRedis(t, { replicaOf: master.port })
    const { code: done, stdout: said, stderr: wrong } = await locked
    assert.deepEqual([done, said], [0, 'it has it\n'], wrong)
  })

  test('doctor --strict fails if one server of a quorum has another password; doctor without --strict succeeds', async (t) => {
    const durable = ['--appendonly', 'yes', '--appendfsync', 'always']
    const servers = await Promise.all(
      [[], [], ['--requirepass', 'hunter2']].map((more) => startRedis(t, { args: [...durable, ...more] })),
    )
    const doctor = (last, ...words) => {
      const urls = [servers[0].url(), servers[1].url(), servers[2].url(last)]
      return run(t, ['doctor', ...words], { LEASEHOLD_URL: urls.join(' ') })
    }
    const fit = await doctor(':hunter2', '--strict')
    assert.equal(fit.code, 0, fit.stdout)
    for (const [words, exit] of [
      [[], 0],
      [['--strict'], 1],
    ]) {
      const { code, stdout, stderr } = await doctor(':hunter3', ...words)
      assert.equal(code, exit, stdout)
      assert.match(stdout, /^warning denied$/m)
      assert.doesNotMatch(stdout + stderr, /hunter/)
    }
  })
})
