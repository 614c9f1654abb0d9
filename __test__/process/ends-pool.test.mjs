// JavaScript may end in several ways. After each, the work that it has given to Node's thread pool
// continues. The lock is free only after that work.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { constants, mkdtempSync, openSync, rmSync } from 'node:fs'
import { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createLockClient, LockTimeoutError } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { now, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { openStore, sharedStoreNames } from '../support/stores.mjs'

/** Creates a named pipe. Returns its path, and a socket that reads from it. */
function openPipe(t) {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-pipe-'))
  const path = join(folder, 'pipe')
  execFileSync('mkfifo', [path])
  // Without a reader, the child could not open the pipe.
  const reader = new Socket({ fd: openSync(path, constants.O_RDONLY | constants.O_NONBLOCK), writable: false })
  atEnd(t, () => {
    reader.destroy()
    rmSync(folder, { recursive: true })
  })
  return { path, reader }
}

const skip = process.platform === 'win32' && 'Windows has no named pipes of this kind'

for (const name of sharedStoreNames) {
  describe(`ends with work in the thread pool: ${name}`, { timeout: 60_000, skip }, () => {
    const ENDS = [
      ['process.exit()', { how: 'exit' }],
      ['an uncaught exception', { how: 'throw' }],
      ['process.exit() in a worker thread', { how: 'exit', inThread: true }],
      ['an uncaught exception in a worker thread', { how: 'throw', inThread: true }],
      ['terminate() of a worker thread', { how: 'terminate', inThread: true }],
      ['process.exit() while a worker thread works', { how: 'main', inThread: true }],
    ]
    /** Starts a child that writes into a pipe under the lock. Resolves when it writes. */
    async function startWriter(t, store, options) {
      const { path, reader } = openPipe(t)
      const child = startChild(t, 'pipe-writer.mjs', { store, pipe: path, ...options })
      // Node cancels a write that has not begun.
      await within('the write', once(reader, 'readable'))
      /** Ends the child's JavaScript. */
      const end = async () => {
        child.tell('end')
        await child.next('exiting')
      }
      return { reader, child, end }
    }

    /**
     * Starts such a child, and ends its JavaScript. Returns a client, the reader of the pipe, and
     * the child.
     */
    async function endWhileWriting(t, options) {
      const store = await openStore(name, t)
      const locks = createLockClient(store)
      atEnd(t, () => locks.close())
      const { reader, child, end } = await startWriter(t, store, options)
      await end()
      return { locks, reader, child }
    }

    for (const [title, how] of ENDS) {
      test(`${title}: the lock is free only after the work in the thread pool`, async (t) => {
        const { locks, reader, child } = await endWhileWriting(t, how)
        await assert.rejects(locks.acquire('pipe', { wait: 300 }), LockTimeoutError)
        const before = now()
        reader.resume()
        await within('the lock', locks.acquire('pipe', { wait: 10_000 }))
        assert.ok(now() - before < 5_000, 'the lock is free only after its ttl')
        // The child may have ended by itself.
        await within('the end', child.kill(), 10_000)
      })

      test(`${title}: the lock is renewed for longer than maxStall`, async (t) => {
        const { locks, reader, child } = await endWhileWriting(t, { ...how, ttl: 500, maxStall: 100 })
        await assert.rejects(locks.acquire('pipe', { wait: 1_500 }), LockTimeoutError)
        reader.resume()
        await within('the lock', locks.acquire('pipe', { wait: 10_000 }))
        // The child may have ended by itself.
        await within('the end', child.kill(), 10_000)
      })
    }

    for (const [title, how] of ENDS.slice(0, 4)) {
      test(`${title}: no waiting acquire gets its lock any more`, async (t) => {
        const store = await openStore(name, t)
        const locks = createLockClient(store)
        atEnd(t, () => locks.close())
        const lease = await locks.acquire('other')
        const waiting = async () => (await locks.inspect('other')).waiters.length
        const { end } = await startWriter(t, store, { ...how, waitsFor: 'other' })
        await until('the acquire to wait', async () => (await waiting()) === 1)
        await end()
        await until('the acquire to leave the queue', async () => (await waiting()) === 0)
        await lease.release()
        await within('the lock', locks.acquire('other'))
      })
    }
  })
}
