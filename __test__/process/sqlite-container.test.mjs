// Tests that processes in containers and processes on the host exclude each other with one lock
// file. Containers of LXC and systemd-nspawn share the kernel of the host, but have a boot id of
// their own.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { CLI, start } from '../support/cli.mjs'
import { inContainer, noBindMounts, noContainers, withBindMount } from '../support/namespaces.mjs'
import { temporaryFolder } from '../support/servers.mjs'

describe('sqlite: containers with boot ids of their own', { timeout: 60_000, skip: noContainers }, () => {
  /** Starts a client on the host and another one in a container that reads the boot id `boot`. */
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
    test(`${title}: a stopped holder keeps its lock for the ttl and no longer`, async (t) => {
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

    test(`${title}: when the files are replaced, the holder knows it before another client gets its lock`, async (t) => {
      const { outside, inside, path } = await startBoth(t, boot)
      const key = randomUUID()
      assert.equal((await inside.ask('acquire', { key, ttl: 20_000 })).held, true)
      for (const end of ['', '-wal', '-shm']) rmSync(path + end, { force: true })
      assert.equal((await outside.ask('acquire', { key, wait: 10_000 })).held, true)
      assert.equal((await inside.ask('state')).isHeld, false)
    })
  }

  test('a lock that leasehold run holds in a container is also held on the host', async (t) => {
    const store = `sqlite:${join(temporaryFolder(t), 'locks.db')}`
    const [launcher, ...args] = inContainer(randomUUID())
    const command = [process.execPath, CLI, 'run', 'k', '--store', store, '--', 'sh', '-c', 'echo begun; cat']
    const run = start(t, launcher, [...args, ...command], {}, 'pipe')
    await run.says(/begun/)
    const host = startChild(t, 'client.mjs', { store })
    await host.next('ready')
    // The request for each key reads the rows in a different way.
    for (const key of ['another', 'k']) {
      assert.equal((await host.ask('tryAcquire', { key })).held, key === 'another')
    }
    run.process.stdin.end()
    const { code, stderr } = await run.ended
    assert.deepEqual([code, stderr], [0, ''])
  })
})

describe('sqlite: a folder that is mounted twice', { timeout: 60_000, skip: noBindMounts }, () => {
  for (const exists of [false, true]) {
    test(`both paths are one store in one process, ${exists ? 'if' : 'also before'} the file exists`, async (t) => {
      const folders = [temporaryFolder(t), temporaryFolder(t)]
      const paths = folders.map((folder) => join(folder, 'locks.db'))
      if (exists) writeFileSync(paths[0], '')
      const child = startChild(t, 'two-paths.mjs', { paths }, { launcher: withBindMount(...folders) })
      const { both, inTurn, error } = await child.next('locked')
      assert.deepEqual({ both, inTurn, error }, { both: false, inTurn: true, error: undefined })
    })
  }

  test('both paths are one store in two processes', async (t) => {
    const folders = [temporaryFolder(t), temporaryFolder(t)]
    const [here, there] = folders.map((folder) => `sqlite:${join(folder, 'locks.db')}`)
    const first = startChild(t, 'client.mjs', { store: here })
    await first.next('ready')
    const second = startChild(t, 'client.mjs', { store: there }, { launcher: withBindMount(...folders) })
    await second.next('ready')
    assert.equal((await first.ask('acquire', { key: 'k' })).held, true)
    assert.equal((await second.ask('tryAcquire', { key: 'k' })).held, false)
  })

  test('a single file that is mounted is refused, because its log is not shared', async (t) => {
    const folders = [temporaryFolder(t), temporaryFolder(t)]
    const [here, there] = folders.map((folder) => join(folder, 'locks.db'))
    const first = startChild(t, 'client.mjs', { store: `sqlite:${here}` })
    await first.next('ready')
    assert.equal((await first.ask('acquire', { key: 'k' })).held, true)
    writeFileSync(there, '')
    const second = startChild(t, 'client.mjs', { store: `sqlite:${there}` }, { launcher: withBindMount(here, there) })
    const { error } = await second.next('refused')
    assert.equal(error.code, 'ERR_STORE_UNAVAILABLE')
    assert.match(error.message, /locks\.db is mounted as a single file.* mount its directory instead/)
  })
})
