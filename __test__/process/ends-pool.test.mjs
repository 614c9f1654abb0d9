// However JavaScript ends, the work that it has given to Node's thread pool goes on. The lock is
// free only after that work.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { closeSync, constants, mkdtempSync, openSync, rmSync } from 'node:fs'
import { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createLockClient, LockTimeoutError } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { now, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { openStore, sharedStoreNames } from '../support/stores.mjs'

/** Creates a named pipe. Returns its path, and a function that reads it to its end. */
function openPipe(t) {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-pipe-'))
  const pipe = join(folder, 'pipe')
  execFileSync('mkfifo', [pipe])
  // Without a reader, the child could not open the pipe.
  const fd = openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK)
  let socket
  atEnd(t, () => {
    if (socket === undefined) closeSync(fd)
    else socket.destroy()
    rmSync(folder, { recursive: true })
  })
  const read = () => {
    socket = new Socket({ fd, writable: false }).resume()
  }
  return { pipe, read }
}

const skip = process.platform === 'win32' && 'Windows has no named pipes of this kind'

for (const name of sharedStoreNames) {
  describe(`ends with work in the thread pool: ${name}`, { timeout: 60_000, skip }, () => {
    const ENDS = [
      ['process.exit()', { end: 'exit' }],
      ['an uncaught exception', { end: 'throw' }],
      ['process.exit() in a worker thread', { end: 'exit', inThread: true }],
      ['an uncaught exception in a worker thread', { end: 'throw', inThread: true }],
    ]
    for (const [title, how] of ENDS) {
      test(`${title}: the lock is free only after the work in the thread pool`, async (t) => {
        const store = await openStore(name, t)
        const locks = createLockClient(store)
        atEnd(t, () => locks.close())
        const { pipe, read } = openPipe(t)
        const child = startChild(t, 'pipe-writer.mjs', { store, pipe, ...how })
        await child.next('writing')
        await child.next('exiting')
        await assert.rejects(locks.acquire('pipe', { wait: 300 }), LockTimeoutError)
        const before = now()
        read()
        await within('the lock', locks.acquire('pipe', { wait: 10_000 }))
        assert.ok(now() - before < 5_000, 'the lock is free only after its ttl')
        await within('the end', child.ended, 10_000)
      })
    }
  })
}
