// The lock file and its log are copied, moved and removed in use. A holder knows of it before
// another client gets its lock.

import assert from 'node:assert/strict'
import { linkSync, mkdirSync, renameSync, rmSync, symlinkSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { createLockClient, StoreUnavailableError } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { now, sleep } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { faults, readHistory } from '../support/history.mjs'
import { randomFrom } from '../support/random.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const ENDS = ['', '-wal', '-shm']

const removeAll = (path, ends) => {
  for (const end of ends) rmSync(path + end)
}

/** Changes to the files at `path`. */
const ACCIDENTS = {
  'its -wal and -shm are removed': (path) => removeAll(path, ENDS.slice(1)),
  'its -wal is removed': (path) => rmSync(`${path}-wal`),
  'its -shm is removed': (path) => rmSync(`${path}-shm`),
  'the main file is removed': (path) => rmSync(path),
  'all three are removed': (path) => removeAll(path, ENDS),
  'all three are moved': (path) => {
    for (const end of ENDS) renameSync(path + end, `${path}.old${end}`)
  },
}

const clientOf = (t, store) => {
  const client = createLockClient({ store })
  atEnd(t, () => client.close())
  return client
}

describe('sqlite: files that do not stay', { timeout: 120_000 }, () => {
  for (const [what, happen] of Object.entries(ACCIDENTS)) {
    for (const opened of [true, false]) {
      const who = opened ? 'with the file open' : 'that opens the file then'
      test(`if ${what}, the holder knows before a client ${who} gets the lock`, async (t) => {
        const path = join(temporaryFolder(t), 'locks.db')
        const store = `sqlite:${path}`
        const holder = startChild(t, 'holder.mjs', { store, key: 'k', ttl: 20_000 })
        const { fence } = await holder.next('held')
        const other = startChild(t, 'holder.mjs', { store, key: 'k', ttl: 20_000, acquire: false })
        await other.next('ready')
        if (opened) assert.equal((await other.ask('acquire', { wait: 500 })).error?.code, 'ERR_LOCK_TIMEOUT')
        holder.tell('watch')
        happen(path)
        const granted = await other.ask('acquire', { wait: 10_000 })
        assert.equal(granted.error, undefined)
        assert.ok(granted.fence > fence, `${granted.fence} after ${fence}`)
        const { lastTrue, firstFalse } = await holder.next('watch', 2_000)
        assert.ok(lastTrue < granted.at, `held until ${firstFalse}, granted at ${granted.at}`)
        assert.equal((await holder.next('aborted', 2_000)).error.reason, 'missing')
        assert.equal((await holder.ask('release')).released, false)
      })
    }
  }

  for (const place of ['moved.db', 'elsewhere/locks.db']) {
    test(`the holder notices that its main file was moved to ${place} and replaced by a link to it`, async (t) => {
      const folder = temporaryFolder(t)
      const path = join(folder, 'locks.db')
      const holder = startChild(t, 'holder.mjs', { store: `sqlite:${path}`, key: 'k', ttl: 20_000 })
      await holder.next('held')
      mkdirSync(join(folder, 'elsewhere'))
      renameSync(path, join(folder, place))
      symlinkSync(place, path)
      assert.equal((await holder.next('aborted', 2_000)).error.reason, 'missing')
      assert.equal((await holder.ask('release')).released, false)
    })
  }

  test('while the holder is stopped no other client gets the lock, and the error says why', async (t) => {
    const path = join(temporaryFolder(t), 'locks.db')
    const store = `sqlite:${path}`
    const holder = startChild(t, 'holder.mjs', { store, key: 'k', ttl: 20_000 })
    await holder.next('held')
    holder.tell('watch')
    const other = startChild(t, 'holder.mjs', { store, key: 'k', ttl: 20_000, acquire: false })
    await other.next('ready')
    holder.signal('SIGSTOP')
    removeAll(path, ENDS)
    const { error } = await other.ask('acquire', { wait: 1_500 })
    assert.equal(error?.code, 'ERR_STORE_UNAVAILABLE')
    assert.match(
      error.message,
      new RegExp(`moved, replaced or removed while process ${holder.pid} was using it.*another device.*resume`),
    )
    other.tell('acquire', { wait: 20_000 })
    await sleep(200)
    holder.signal('SIGCONT')
    const granted = await other.next('acquire')
    assert.equal(granted.error, undefined)
    const { lastTrue, firstFalse } = await holder.next('watch', 2_000)
    assert.ok(lastTrue < granted.at, `held until ${firstFalse}, granted at ${granted.at}`)
  })

  test('no two clients hold one lock at a time while files vanish many times', async (t) => {
    const random = randomFrom(t)
    const folder = temporaryFolder(t)
    const path = join(folder, 'locks.db')
    const entries = [fileURLToPath(new URL('../../dist/index.js', import.meta.url))]
    const options = { entries, store: `sqlite:${path}`, key: 'k', forgiving: true }
    const children = [0, 1, 2].map(() => startChild(t, 'copies.mjs', options))
    await Promise.all(children.map((child) => child.next('ready')))
    const history = join(folder, 'history')
    const ms = 6_000
    const told = children.map((child) => child.ask('contend', { ms, path: history, longest: 150 }))
    const end = now() + ms
    let accidents = 0
    while (now() < end) {
      await sleep(100 + random() * 300)
      const ends = ENDS.filter(() => random() < 0.5)
      for (const which of ends) rmSync(path + which, { force: true })
      accidents += ends.length > 0 ? 1 : 0
    }
    const turns = (await Promise.all(told)).map((said) => said.turns?.[0])
    const tenures = readHistory(history)
    assert.deepEqual(faults(tenures), [])
    // On a busy machine, most of the time passes while the clients start again.
    assert.ok(accidents > 8 && tenures.length > 10, `${accidents} accidents, ${tenures.length} leases, turns ${turns}`)
  })

  test('the holder copies the directory of the file, and keeps its lease', async (t) => {
    const path = join(temporaryFolder(t), 'locks', 'locks.db')
    mkdirSync(dirname(path))
    const store = `sqlite:${path}`
    const holder = startChild(t, 'holder.mjs', { store, key: 'k', ttl: 1_000 })
    await holder.next('held')
    await holder.ask('copy', { from: dirname(path), to: `${dirname(path)}-copy` })
    const others = [0, 1].map(() => startChild(t, 'closer.mjs', { store, key: 'k', ms: 3_000 }))
    for (const other of others) {
      const { granted, errors, rounds } = await other.next('done')
      assert.deepEqual([granted, errors], [[], []])
      assert.ok(rounds > 10)
    }
    assert.equal((await holder.ask('look')).isHeld, true)
    assert.equal((await holder.ask('release')).released, true)
    const next = startChild(t, 'holder.mjs', { store, key: 'k' })
    await next.next('held')
  })

  test('a file with a second name is refused', async (t) => {
    const folder = temporaryFolder(t)
    const path = join(folder, 'locks.db')
    const first = clientOf(t, `sqlite:${path}`)
    await (await first.acquire('k')).release()
    linkSync(path, join(folder, 'second.db'))
    const second = clientOf(t, `sqlite:${join(folder, 'second.db')}`)
    await assert.rejects(second.tryAcquire('k'), (error) => {
      assert.ok(error instanceof StoreUnavailableError, String(error))
      assert.equal(error.reason, 'unsupported')
      assert.match(error.message, /second\.db.*hard link/)
      return true
    })
  })

  test('links and relative paths lead to one store', async (t) => {
    const folder = temporaryFolder(t)
    const path = join(folder, 'locks.db')
    symlinkSync(path, join(folder, 'link.db'))
    const held = await clientOf(t, `sqlite:${path}`).acquire('k')
    for (const other of [join(folder, 'link.db'), relative(process.cwd(), path)]) {
      assert.equal(await clientOf(t, `sqlite:${other}`).tryAcquire('k'), null, other)
    }
    // Another process also looks for owners in the directory of the file itself.
    const child = startChild(t, 'holder.mjs', { store: `sqlite:${join(folder, 'link.db')}`, key: 'k', acquire: false })
    await child.next('ready')
    assert.equal((await child.ask('acquire', { wait: 500 })).error?.code, 'ERR_LOCK_TIMEOUT')
    assert.equal(await held.release(), true)
    assert.ok((await child.ask('acquire')).fence > held.fence)
  })

  test('worker threads share the file', async (t) => {
    const store = `sqlite:${join(temporaryFolder(t), 'locks.db')}`
    const source = `
      const { createLockClient } = require(${JSON.stringify(fileURLToPath(new URL('../../dist/index.js', import.meta.url)))})
      const { parentPort } = require('node:worker_threads')
      const locks = createLockClient({ store: ${JSON.stringify(store)} })
      ;(async () => {
        let turns = 0
        for (let i = 0; i < 50; i++) {
          const lease = await locks.acquire('k')
          parentPort.postMessage(lease.fence)
          turns += await lease.release() ? 1 : 0
        }
        await locks.close()
        parentPort.postMessage({ turns })
      })()`
    const fences = []
    const turns = await Promise.all(
      [0, 1].map(
        () =>
          new Promise((resolve, reject) => {
            const worker = new Worker(source, { eval: true })
            worker.on('error', reject)
            worker.on('message', (said) => (said.turns === undefined ? fences.push(said) : resolve(said.turns)))
          }),
      ),
    )
    assert.deepEqual(turns, [50, 50])
    assert.equal(new Set(fences).size, 100)
    assert.ok((await (await clientOf(t, store).acquire('k')).fence) > Math.max(...fences))
  })

  test('nothing wakes a process that holds no lease', { skip: process.platform !== 'linux' }, async (t) => {
    const store = `sqlite:${join(temporaryFolder(t), 'locks.db')}`
    const child = startChild(t, 'holder.mjs', { store, key: 'k' })
    await child.next('held')
    await child.ask('release')
    // The process checks its files for a while, and tidies up after 1 and 2 more seconds.
    await sleep(5_000)
    const before = await child.ask('switches', { thread: 'leasehold-sqlite' })
    await sleep(3_000)
    const after = await child.ask('switches', { thread: 'leasehold-sqlite' })
    assert.ok(before.count > 0)
    assert.ok(after.count - before.count <= 2, `woken ${after.count - before.count} times in 3 s`)
  })
})
