// The Remix example as its README describes it. __test__/browser/ tests its page.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { before, describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { atEnd } from '../support/endings.mjs'
import { installExample, startExample } from '../support/examples.mjs'
import { temporaryFolder } from '../support/servers.mjs'

describe('examples/remix', { timeout: 240_000 }, () => {
  let folder

  before(() => {
    folder = installExample('remix')
  })

  test('npm run dev runs the app with a worker and an action under a lock, and ends in order', async (t) => {
    const data = temporaryFolder(t)
    const store = `sqlite:${join(data, 'locks.db')}`
    const env = { LEASEHOLD_URL: store, DATA_DIR: data, JOB_MS: '200' }
    const server = await startExample(t, 'anna', { folder, env })
    await server.reached('working')

    const page = await (await fetch(server.url)).text()
    assert.match(page, /<h2>Holds the lock<\/h2><p id="holder-name" class="big">anna<\/p>/)
    const events = await fetch(`${server.url}/events`)
    assert.match(events.headers.get('content-type'), /^text\/event-stream/)
    const { value } = await events.body.getReader().read()
    assert.match(Buffer.from(value).toString(), /^data: \{.*\}\n\n/)

    /** Adds jobs like the buttons of the page. */
    const add = (count) =>
      fetch(`${server.url}/_root.data?index`, { method: 'POST', body: new URLSearchParams({ count }) })
    const { count } = await server.state()
    assert.equal((await add('3')).status, 201)
    assert.equal((await server.state()).count, count + 3)
    assert.equal((await add('0')).status, 400)

    const locks = createLockClient(store)
    atEnd(t, () => locks.close())
    await locks.acquire('remix-example-add')
    const busy = await add('1')
    assert.equal(busy.status, 423)
    assert.match(busy.headers.get('retry-after'), /^\d+$/)
    assert.match(await busy.text(), /Try again in/)

    // The server ends its job and releases its lock before it exits, even with an open page.
    assert.equal(await server.signal('SIGTERM'), 0, server.log)
    assert.match(server.log, /Stop work.*Releasing lock/s)
  })
})
