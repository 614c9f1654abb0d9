// Containers of LXC and systemd-nspawn have a boot id of their own, although they share the kernel of
// the host. Their processes and those of the host exclude each other on one lock file.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { CLI, start } from '../support/cli.mjs'
import { inContainer, noContainers } from '../support/namespaces.mjs'
import { temporaryFolder } from '../support/servers.mjs'

describe('sqlite: containers with boot ids of their own', { timeout: 60_000, skip: noContainers }, () => {
  /** Starts a client on the host and one in a container, where the boot has the id `boot`. */
  async function startBoth(t, boot) {
    const path = join(temporaryFolder(t), 'locks.db')
    const startClient = async (launcher) => {
      const child = startChild(t, 'client.mjs', { store: `sqlite:${path}` }, { launcher })
      await child.next('ready')
      return child
    }
    return { path, outside: await startClient(), inside: await startClient(inContainer(boot)) }
  }

  for (const [title, boot] of [
    ['another id', randomUUID()],
    ['no id', ''],
  ]) {
    test(`${title}: a stopped holder has its lock for its ttl and no longer`, async (t) => {
      const { outside, inside } = await startBoth(t, boot)
      const key = randomUUID()
      const ttl = 1_000
      const begin = performance.now()
      assert.equal((await inside.ask('acquire', { key, ttl })).held, true)
      inside.signal('SIGSTOP')
      const { held } = await outside.ask('acquire', { key, wait: 10_000 })
      const ms = performance.now() - begin
      inside.signal('SIGCONT')
      assert.equal(held, true)
      assert.ok(ms >= ttl && ms < 5_000, `${ms} ms`)
    })

    test(`${title}: a holder knows that the files were replaced before others get its lock`, async (t) => {
      const { outside, inside, path } = await startBoth(t, boot)
      const key = randomUUID()
      assert.equal((await inside.ask('acquire', { key, ttl: 20_000 })).held, true)
      for (const end of ['', '-wal', '-shm']) rmSync(path + end, { force: true })
      assert.equal((await outside.ask('acquire', { key, wait: 10_000 })).held, true)
      assert.equal((await inside.ask('state')).isHeld, false)
    })
  }

  test('what leasehold run holds there is held on the host', async (t) => {
    const store = `sqlite:${join(temporaryFolder(t), 'locks.db')}`
    const [launcher, ...args] = inContainer(randomUUID())
    const command = [process.execPath, CLI, 'run', 'k', '--store', store, '--', 'sh', '-c', 'echo begun; cat']
    const run = start(t, launcher, [...args, ...command], {}, 'pipe')
    await run.says(/begun/)
    const host = startChild(t, 'client.mjs', { store })
    await host.next('ready')
    // Each looks at the rows in another way.
    for (const key of ['another', 'k']) {
      assert.equal((await host.ask('tryAcquire', { key })).held, key === 'another')
    }
    run.process.stdin.end()
    const { code, stderr } = await run.ended
    assert.deepEqual([code, stderr], [0, ''])
  })
})
