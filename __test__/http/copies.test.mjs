// Tests leasehold/express and leasehold/remix with a client from another copy of the package, such
// as a second installed version.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { createRequire } from 'node:module'
import { describe, test } from 'node:test'
import { lockRequest } from 'leasehold/express'
import { withRequestLock } from 'leasehold/remix'
import { atEnd } from '../support/endings.mjs'
import { frameworks, serve } from '../support/http-servers.mjs'
import { copyPackage } from '../support/packages.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const KEY = 'key'

describe('a client of another copy of the package', { timeout: 60_000 }, () => {
  test('a busy lock is answered with 423, and a closed client with 503', async (t) => {
    const { createLockClient } = createRequire(import.meta.url)(copyPackage(temporaryFolder(t), '0.0.1'))
    const locks = createLockClient({ store: `memory:${randomUUID()}` })
    atEnd(t, () => locks.close())
    const options = { key: () => KEY, wait: 10 }
    const url = await serve(
      t,
      frameworks['Express 5'](lockRequest(locks, options), (_request, response) => response.end()),
    )
    const action = withRequestLock(locks, options, () => new Response('done'))
    const statuses = async () => [(await fetch(url)).status, (await action(new Request(url))).status]
    const lease = await locks.acquire(KEY)
    assert.deepEqual(await statuses(), [423, 423])
    await lease.release()
    assert.deepEqual(await statuses(), [200, 200])
    await locks.close()
    assert.deepEqual(await statuses(), [503, 503])
  })
})
