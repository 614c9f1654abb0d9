// Links, lock files and journals that another user has put into a directory that everybody may
// write.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  lchownSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { alone, asUser, forgeJournal, inOpenFolder, tryAs } from '../support/other-users.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const [US, THEM, ROOT] = [54_001, 54_002, 0]
/** A group that the tests make this user a member of. */
const GROUP = 54_000

const skip = process.platform === 'win32' ? 'files have no mode there' : alone

/** Puts a link at `path` that belongs to `user`. */
function plantLink(user, target, path) {
  symlinkSync(target, path)
  lchownSync(path, user, user)
}

/** Puts a file at `path`. */
function plantFile(path, { user = THEM, group = user, mode, bytes = '' }) {
  writeFileSync(path, bytes)
  chownSync(path, user, group)
  chmodSync(path, mode)
}

/** Returns a directory of `user` in which everybody may create files. */
function folderOf(t, user) {
  const folder = temporaryFolder(t)
  chownSync(folder, user, user)
  chmodSync(folder, 0o777)
  return folder
}

function assertDenied(answer, ...reasons) {
  assert.equal(answer.reason, 'denied', JSON.stringify(answer))
  for (const reason of reasons) {
    const isIn = reason instanceof RegExp ? reason.test(answer.message) : answer.message.includes(reason)
    assert.ok(isIn, `${reason} is not in: ${answer.message}`)
  }
}

describe('sqlite: links that another user has planted', { timeout: 60_000, skip }, () => {
  /** Each makes a path that leads through a link of `user`, and returns the path and the link. */
  const places = {
    'the lock file': (_, open, target, user) => {
      plantLink(user, join(target, 'x.db'), open)
      return { path: open, link: open }
    },
    'a directory on the way': (_, open, target, user) => {
      const link = join(dirname(open), 'folder')
      plantLink(user, target, link)
      return { path: join(link, 'x.db'), link }
    },
    'the target of a link of this user': (t, open, target, user) => {
      const path = join(folderOf(t, US), 'locks.db')
      plantLink(user, join(target, 'x.db'), open)
      plantLink(US, open, path)
      return { path, link: open }
    },
    'a directory that a link of this user leads to': (t, open, target, user) => {
      const [folder, link] = [folderOf(t, US), join(dirname(open), 'folder')]
      plantLink(user, target, link)
      plantLink(US, `${dirname(link)}/./folder`, join(folder, 'ours'))
      return { path: join(folder, 'ours', 'x.db'), link }
    },
  }
  for (const [place, plant] of Object.entries(places)) {
    test(`another user's link in the place of ${place} is not followed`, (t) => {
      const target = folderOf(t, THEM)
      const { path, link } = plant(t, inOpenFolder(t), target, THEM)
      assertDenied(tryAs(path), `${link} is a symbolic link of another user (${THEM})`, /remove the link/)
      assert.deepEqual(readdirSync(target), [], 'nothing is created where it leads')
      plantFile(join(target, 'x.db'), { user: US, mode: 0o600 })
      assertDenied(tryAs(path), link)
    })

    test(`a link of a trusted user in the place of ${place} is followed`, (t) => {
      for (const user of [US, ROOT, 54_003]) {
        const [target, open] = [folderOf(t, US), inOpenFolder(t)]
        if (user === 54_003) chownSync(dirname(open), user, user)
        const { path } = plant(t, open, target, user)
        assert.deepEqual(tryAs(path), { isHeld: true }, `${user}`)
        assert.ok(readdirSync(target).includes('x.db'))
      }
    })
  }

  test("another user's link is followed in a directory that not everybody may write", (t) => {
    const [target, open] = [folderOf(t, US), inOpenFolder(t)]
    chmodSync(dirname(open), 0o755)
    plantLink(THEM, join(target, 'x.db'), open)
    assert.deepEqual(tryAs(open), { isHeld: true })
  })

  const noNamespace = spawnSync('setpriv', [...asUser(US).slice(1), 'unshare', '--user', 'true']).status !== 0
  test('in a user namespace, a link of a user without a number of its own is not followed', {
    skip: noNamespace && 'a user without rights can make no user namespace here',
  }, (t) => {
    // Root, who owns the directory, and the other user have the same number there.
    const [target, open] = [folderOf(t, US), inOpenFolder(t)]
    plantLink(THEM, join(target, 'x.db'), open)
    for (const more of [[], ['--map-root-user']]) {
      const answer = tryAs(open, { launcher: ['unshare', '--user', ...more] })
      assertDenied(answer, `${open} is a symbolic link of another user`)
    }
    assert.deepEqual(readdirSync(target), [])
  })

  test('a link with several names is not followed', (t) => {
    const [target, open] = [folderOf(t, US), inOpenFolder(t)]
    plantLink(ROOT, join(target, 'x.db'), `${open}.first`)
    linkSync(`${open}.first`, open)
    assertDenied(tryAs(open), `${open} is a symbolic link with several names`)
    assert.deepEqual(readdirSync(target), [])
  })

  test("a store in use does not follow another user's link to another file", async (t) => {
    const [ours, theirs, open] = [folderOf(t, US), folderOf(t, THEM), inOpenFolder(t)]
    plantLink(US, join(ours, 'x.db'), open)
    const holder = startChild(t, 'holder.mjs', { store: `sqlite:${open}`, key: 'k' }, { launcher: asUser(US) })
    await holder.next('held')
    plantLink(THEM, join(theirs, 'x.db'), `${open}.planted`)
    renameSync(`${open}.planted`, open)
    await holder.next('aborted')
    const { error } = await holder.ask('acquire', { wait: 200 })
    assertDenied(error, `${open} is a symbolic link of another user`)
    assert.deepEqual(readdirSync(theirs), [])
  })
})

describe('sqlite: lock files that another user has planted', { timeout: 60_000, skip }, () => {
  /** Lets `user` write the file at `path` by an access list. Returns false if nothing here can. */
  const allow = (user, path) => {
    // The version, and then the tag, the rights and the id of each entry.
    const script = `
import os, struct
entries = [(1, 6, -1), (2, 6, ${user}), (4, 0, -1), (16, 6, -1), (32, 0, -1)]
value = struct.pack('<I', 2) + b''.join(struct.pack('<HHi', *entry) for entry in entries)
os.setxattr(${JSON.stringify(path)}, 'system.posix_acl_access', value)`
    const commands = [
      ['setfacl', '-m', `u:${user}:rw`, path],
      ['python3', '-c', script],
    ]
    return commands.some(([command, ...args]) => spawnSync(command, args).status === 0)
  }

  test("another user's lock file that an access list lets this user write is refused", (t) => {
    const path = inOpenFolder(t)
    plantFile(path, { mode: 0o600 })
    if (!allow(US, path)) return t.skip('no setfacl, no python3, or no access lists on this file system')
    assertDenied(tryAs(path), `${path} failed: it lies in a directory that everybody may write`)
    assertDenied(tryAs(path), `belongs to another user (${THEM}), and it is not shared with a group of this process`)
    assert.equal(readFileSync(path).length, 0, 'the file stays as it is')
  })

  test("in a user namespace, another user's lock file is refused if its group has no number of its own", (t) => {
    const path = inOpenFolder(t)
    const launcher = ['unshare', '--user', '--map-root-user']
    if (spawnSync('setpriv', [...asUser(US).slice(1), ...launcher, 'true']).status !== 0) {
      return t.skip('a user without rights can make no user namespace here')
    }
    // The group of the directory has a number there. The two other groups have the same number.
    chownSync(dirname(path), ROOT, US)
    plantFile(path, { mode: 0o600 })
    if (!allow(US, path)) return t.skip('no setfacl, no python3, or no access lists on this file system')
    assertDenied(tryAs(path, { group: GROUP, launcher }), /not shared with a group of this process/)
    assert.equal(readFileSync(path).length, 0, 'the file stays as it is')
  })

  test("another user's lock file is refused for root, too", (t) => {
    const path = inOpenFolder(t)
    plantFile(path, { mode: 0o600 })
    assertDenied(tryAs(path, { user: ROOT }), `belongs to another user (${THEM})`)
  })

  test('a lock file that another user shares with a group of this user is used', (t) => {
    const path = inOpenFolder(t)
    plantFile(path, { group: GROUP, mode: 0o660 })
    assertDenied(tryAs(path), /not shared with a group of this process/)
    assert.deepEqual(tryAs(path, { group: GROUP }), { isHeld: true })
    chmodSync(path, 0o640)
    assertDenied(tryAs(path, { group: GROUP }), /not shared with a group of this process/)
  })

  test('a lock file that may have its group from the directory is refused', (t) => {
    const path = inOpenFolder(t)
    chownSync(dirname(path), ROOT, GROUP)
    plantFile(path, { group: GROUP, mode: 0o660 })
    chmodSync(dirname(path), 0o3777)
    assertDenied(tryAs(path, { group: GROUP }), /its group may be that of the directory by chance/)
    chmodSync(dirname(path), 0o3770)
    assert.deepEqual(tryAs(path, { group: GROUP }), { isHeld: true }, 'only the group may write the directory')
  })
})

describe('sqlite: files beside the lock file with its group', { timeout: 60_000, skip }, () => {
  /** Returns the path of a lock file that this user has used and shares with the group. */
  const shared = (t) => {
    const path = inOpenFolder(t)
    chownSync(dirname(path), ROOT, GROUP)
    chmodSync(dirname(path), 0o3777)
    assert.deepEqual(tryAs(path, { group: GROUP }), { isHeld: true })
    for (const end of ['', '-wal', '-shm']) chmodSync(`${path}${end}`, 0o660)
    chmodSync(`${path}.owners`, 0o2770)
    return path
  }
  const tryInGroup = (path, user) => tryAs(path, { user, group: GROUP })

  test('a journal that may have its group from the directory is not applied to the lock file', (t) => {
    const path = shared(t)
    const [before, journal] = [readFileSync(path), `${path}-journal`]
    const other = Buffer.from(before)
    // Set the version of the layout, which is at this offset of SQLite's header.
    other.writeUInt32BE(99, 60)
    plantFile(journal, { group: GROUP, mode: 0o666, bytes: forgeJournal(other) })
    assertDenied(tryInGroup(path), `${journal} is refused: it belongs to another user (${THEM})`)
    assert.ok(readFileSync(path).equals(before), 'the file stays as it is')
    // Without the sticky bit, SQLite can also remove the journal.
    chmodSync(dirname(path), 0o2770)
    assert.match(tryInGroup(path).message, /made by a newer version/, 'the journal of a member is applied')
  })

  for (const end of ['-journal', '-wal', '-shm']) {
    test(`another user's FIFO at locks.db${end} is refused and does not block the store`, (t) => {
      const path = inOpenFolder(t)
      assert.deepEqual(tryAs(path), { isHeld: true })
      rmSync(`${path}${end}`, { force: true })
      assert.equal(spawnSync('mkfifo', ['-m', '666', `${path}${end}`]).status, 0)
      chownSync(`${path}${end}`, THEM, THEM)
      assertDenied(tryAs(path), `${path}${end}`, 'it is not a regular file; remove it')
      rmSync(`${path}${end}`)
      assert.deepEqual(tryAs(path), { isHeld: true })
    })
  }

  for (const end of ['-wal', '-shm', '.owners']) {
    test(`another user's locks.db${end} is used only if not everybody may write the directory`, (t) => {
      const path = shared(t)
      rmSync(`${path}${end}`, { recursive: true })
      if (end === '.owners') {
        mkdirSync(`${path}${end}`)
        chownSync(`${path}${end}`, THEM, GROUP)
        chmodSync(`${path}${end}`, 0o2770)
      } else plantFile(`${path}${end}`, { group: GROUP, mode: 0o660 })
      assertDenied(tryInGroup(path), `${path}${end}`, `it belongs to another user (${THEM})`)
      for (const mode of [0o3770, 0o2770]) {
        chmodSync(dirname(path), mode)
        for (const user of [US, THEM]) assert.deepEqual(tryInGroup(path, user), { isHeld: true }, `${user}`)
      }
    })
  }
})
