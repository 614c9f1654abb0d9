// Behavior of the embedded store alone: its file, its default place, and its use by several
// processes.

import assert from 'node:assert/strict'
import { chmodSync, chownSync, lstatSync, mkdirSync, readdirSync, renameSync, rmSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createLockClient, StoreUnavailableError } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const clientOf = (t, store) => {
  const client = createLockClient({ store })
  atEnd(t, () => client.close())
  return client
}

describe('sqlite', { timeout: 120_000 }, () => {
  test('ten processes can create one file at the same time', async (t) => {
    const store = `sqlite:${join(temporaryFolder(t), 'locks.db')}`
    const children = Array.from({ length: 10 }, (_, i) => startChild(t, 'holder.mjs', { store, key: `k${i}` }))
    const held = await Promise.all(children.map((child) => child.next('held', 60_000)))
    assert.ok(held.every(({ isHeld }) => isHeld))
    const released = await Promise.all(children.map((child) => child.ask('release')))
    assert.ok(released.every((answer) => answer.released))
  })

  test('paths with spaces, unicode, percent and question marks are used as they are written', async (t) => {
    const folder = temporaryFolder(t)
    for (const name of ['with space.db', '鍵.db', '100%25.db', 'what?mode=memory.db', '#hash.db', "it's.db"]) {
      const lease = await clientOf(t, `sqlite:${join(folder, name)}`).acquire('k')
      assert.equal(await lease.release(), true)
      assert.ok(readdirSync(folder).includes(name), name)
    }
  })

  test('fences keep growing after every process has ended, and after the file is gone', async (t) => {
    const path = join(temporaryFolder(t), 'locks.db')
    const fences = []
    for (let i = 0; i < 4; i++) {
      if (i === 3) for (const end of ['', '-wal', '-shm']) rmSync(path + end, { force: true })
      const child = startChild(t, 'holder.mjs', { store: `sqlite:${path}`, key: 'k' })
      fences.push((await child.next('held')).fence)
      if (i % 2) await child.kill()
      else {
        child.tell('exit')
        await child.ended
      }
    }
    assert.ok(
      fences.every((fence, i) => i === 0 || fence > fences[i - 1]),
      fences.join(),
    )
  })

  test('a lease whose file was moved away is never held by two clients that see one file', async (t) => {
    const folder = temporaryFolder(t)
    const path = join(folder, 'locks.db')
    const locks = clientOf(t, `sqlite:${path}`)
    const lease = await locks.acquire('k', { ttl: 2_000 })
    for (const end of ['', '-wal', '-shm']) {
      try {
        renameSync(path + end, `${path}.old${end}`)
      } catch {
        // The -wal is not always present.
      }
    }
    const outcome = await lease.release().catch((error) => error)
    assert.ok(outcome === true || outcome === false || outcome instanceof StoreUnavailableError, String(outcome))
  })
})

describe('default store', { timeout: 120_000 }, () => {
  const place = (folder) => {
    const made = readdirSync(folder)
    assert.equal(made.length, 1, made.join())
    return join(folder, made[0])
  }
  const env = (folder, more = {}) => ({
    env: { TMPDIR: folder, LEASEHOLD_URL: '', REDIS_URL: '', XDG_RUNTIME_DIR: '', ...more },
  })

  test("is an SQLite file in a folder of the user, shared by the user's processes", async (t) => {
    const folder = temporaryFolder(t)
    const a = startChild(t, 'holder.mjs', { key: 'k' }, env(folder))
    const { fence } = await a.next('held')
    const own = lstatSync(place(folder))
    assert.ok(own.isDirectory())
    assert.equal(own.mode & 0o777, 0o700)
    const b = startChild(t, 'holder.mjs', { key: 'k' }, env(folder))
    await a.ask('release')
    assert.ok((await b.next('held')).fence > fence)
  })

  test('is LEASEHOLD_URL rather than REDIS_URL, and both rather than the file', async (t) => {
    const folder = temporaryFolder(t)
    const urls = { LEASEHOLD_URL: 'memory:x', REDIS_URL: 'redis://no-such-host.invalid' }
    const child = startChild(t, 'holder.mjs', { key: 'k' }, env(folder, urls))
    await child.next('held')
    assert.deepEqual(readdirSync(folder), [])
    const other = startChild(t, 'holder.mjs', { key: 'k' }, env(folder, { REDIS_URL: 'memory:y' }))
    await other.next('held')
    assert.deepEqual(readdirSync(folder), [])
  })

  test('is a quorum if LEASEHOLD_URL names several stores, which may be files with blanks in their paths', async (t) => {
    const folder = temporaryFolder(t)
    const holderOf = (name, url) => startChild(t, name, { key: 'k' }, env(folder, { LEASEHOLD_URL: url }))
    const files = ['a', 'b', 'c d'].map((name) => `sqlite:${join(folder, name)}`)
    const quorum = holderOf('holder.mjs', files.join(' '))
    const { fence } = await quorum.next('held')
    assert.ok(fence > 0)
    // A majority grants the lease, so one file may be created later.
    const created = () => readdirSync(folder).filter((name) => /^[a-d ]+$/.test(name))
    await until('three files', () => created().length >= 3)
    assert.deepEqual(created().sort(), ['a', 'b', 'c d'])
    const alone = holderOf('holder.mjs', `sqlite:${join(folder, 'of its own')}`)
    await alone.next('held')
    assert.ok(readdirSync(folder).includes('of its own'))
  })

  const spoil = {
    'a link': (path, folder) => {
      renameSync(path, join(folder, 'elsewhere'))
      symlinkSync(join(folder, 'elsewhere'), path)
    },
    'open to others': (path) => chmodSync(path, 0o777),
    "another user's": (path) => chownSync(path, 12_345, 12_345),
  }
  for (const [what, change] of Object.entries(spoil)) {
    const skip = what === "another user's" && process.getuid?.() !== 0 && 'only root can give a folder away'
    test(`is refused if the folder is ${what}`, { skip }, async (t) => {
      const folder = temporaryFolder(t)
      const first = startChild(t, 'holder.mjs', { key: 'k' }, env(folder))
      await first.next('held')
      first.tell('exit')
      await first.ended
      change(place(folder), folder)
      const child = startChild(t, 'holder.mjs', { key: 'k', acquire: false }, env(folder))
      await child.next('ready')
      const { error } = await child.ask('acquire', { wait: 200 })
      assert.equal(error?.code, 'ERR_STORE_UNAVAILABLE')
      assert.equal(error.reason, 'denied', error.message)
    })
  }

  test('is refused if another user has put a link in its place', async (t) => {
    const folder = temporaryFolder(t)
    const first = startChild(t, 'holder.mjs', { key: 'k' }, env(folder))
    await first.next('held')
    first.tell('exit')
    await first.ended
    const path = place(folder)
    rmSync(path, { recursive: true })
    const target = join(folder, 'target')
    mkdirSync(target)
    symlinkSync(target, path)
    const child = startChild(t, 'holder.mjs', { key: 'k', acquire: false }, env(folder))
    await child.next('ready')
    assert.equal((await child.ask('acquire', { wait: 200 })).error?.reason, 'denied')
    assert.deepEqual(readdirSync(target), [], 'nothing is written through the link')
  })
})
