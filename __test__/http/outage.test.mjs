// leasehold/express on a real Redis, which dies and comes back.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { lockRequest } from 'leasehold/express'
import { sleep } from '../support/clock.mjs'
import { frameworks, open, serve } from '../support/http-servers.mjs'
import { startRedis } from '../support/servers.mjs'

const KEY = 'key'

describe('lockRequest on Redis', { timeout: 60_000 }, () => {
  test('two servers on one Redis exclude each other; when it dies they say so, and serve again when it is back', async (t) => {
    const redis = await startRedis(t)
    let busy = 0
    let most = 0
    const work = async (_request, response) => {
      most = Math.max(most, ++busy)
      await sleep(5)
      busy--
      response.end()
    }
    const urls = await Promise.all(
      ['anna', 'ben'].map((name) => {
        const locks = open(t, { store: redis.url(), name })
        return serve(t, frameworks['Express 5'](lockRequest(locks, { key: () => KEY, wait: 5_000 }), work))
      }),
    )
    const ask = async (url) => (await fetch(url)).status
    const all = () => Promise.all(Array.from({ length: 10 }, (_, i) => ask(urls[i % 2])))
    assert.deepEqual(await all(), Array(10).fill(200))
    assert.equal(most, 1)

    await redis.kill()
    const locks = open(t, { store: redis.url(), name: 'cleo' })
    const impatient = await serve(t, frameworks['Express 5'](lockRequest(locks, { key: () => KEY, wait: 100 }), work))
    const response = await fetch(impatient)
    assert.deepEqual([response.status, response.headers.get('retry-after')], [503, '5'])

    // Who has the patience waits for it to come back.
    const patient = all()
    await redis.start()
    assert.deepEqual(await patient, Array(10).fill(200))
    assert.equal(most, 1)
  })
})
