// The Express example as its README describes it: one of several servers does the jobs, and another
// continues when it stops or is killed.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { before, describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { until } from '../support/clock.mjs'
import { EVERY, installExample, startExample } from '../support/examples.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'

const FIRST_JOBS = 12

function finished(server, count) {
  const isFinished = async () => {
    const state = await server.state()
    return state.finished >= count && state
  }
  return until(`${count} jobs`, isFinished, 20_000, EVERY)
}

const stores = {
  'the embedded store': (t) => {
    const folder = temporaryFolder(t)
    return { LEASEHOLD_URL: `sqlite:${join(folder, 'locks.db')}`, DATA_DIR: folder }
  },
  Redis: async (t) => ({ REDIS_URL: (await startRedis(t)).url() }),
}

describe('examples/express', () => {
  let folder
  let Jobs
  let openJournal
  let createClient

  before(async () => {
    folder = installExample('express')
    ;({ Jobs } = await import('../../examples/shared/jobs.mjs'))
    ;({ openJournal } = await import('../../examples/shared/journal.mjs'))
    ;({ createClient } = createRequire(join(folder, 'server.mjs'))('redis'))
  })

  for (const [name, open] of Object.entries(stores)) {
    test(`on ${name}, one server works, and another continues in order when it is stopped or killed`, async (t) => {
      const env = await open(t)
      const servers = await Promise.all(['anna', 'ben', 'cleo'].map((id) => startExample(t, id, { folder, env })))
      /**
       * Removes the holder of the lock from the list and returns it. All servers must agree on it.
       */
      const takeHolder = async () => {
        const agree = async () => {
          const all = await Promise.all(servers.map((server) => server.state()))
          const waiting = all.filter(({ server }) => server.state === 'waiting').length
          return waiting === all.length - 1 && all.some(({ server }) => server.state === 'working') && all
        }
        const states = await until('one to work and the others to wait', agree, 20_000, EVERY)
        const [holder] = servers.splice(
          states.findIndex(({ server }) => server.state === 'working'),
          1,
        )
        for (const state of states) assert.equal(state.holder.name, holder.id)
        return holder
      }
      const first = await takeHolder()

      // An open page must not keep the server from ending.
      const events = await fetch(`${first.url}/events`)
      const { value } = await events.body.getReader().read()
      assert.match(Buffer.from(value).toString(), /^data: \{.*\}\n\n/)

      assert.equal((await servers[0].post('{"count":100}')).status, 201)
      const count = FIRST_JOBS + 100
      await finished(first, FIRST_JOBS + 5)
      const ended = first.signal('SIGTERM')
      await until('the shutdown', () => first.log.includes('SIGTERM: shutting down'))
      // npm passes on a signal that its process group has got already.
      first.signal('SIGTERM')
      assert.equal(await ended, 0, first.log)
      assert.match(first.log, /Lock acquired. Starting work.*Doing some heavy work.*Stop work.*Releasing lock/s)

      const second = await takeHolder()
      await finished(second, FIRST_JOBS + 15)
      await second.signal('SIGKILL')

      const [third] = servers
      await finished(third, count)
      const settings = { name: 'express-example', redisUrl: env.REDIS_URL, dataDir: env.DATA_DIR }
      const jobs = new Jobs(await openJournal(settings, createClient))
      const { done, tenures } = await jobs.list()
      await jobs.close()
      assert.deepEqual(
        done.map((entry) => entry.done),
        Array.from({ length: count }, (_, i) => i + 1),
      )
      assert.deepEqual(
        tenures.map(({ tenure }) => tenure),
        [first.id, second.id, third.id],
      )
      const fences = done.map(({ fence }) => fence)
      assert.deepEqual(
        fences,
        fences.toSorted((a, b) => a - b),
      )
      assert.deepEqual(
        [...new Set(fences)],
        tenures.map(({ fence }) => fence),
      )
    })
  }

  test('jobs are added one request at a time within the limit, and a taken lock is a 423', async (t) => {
    const env = await stores['the embedded store'](t)
    const server = await startExample(t, 'anna', { folder, env: { ...env, JOB_MS: '60000' } })
    await until('the first jobs', async () => (await server.state()).count === FIRST_JOBS)
    const answers = await Promise.all(Array.from({ length: 10 }, () => server.post('{"count":100}')))
    const statuses = answers.map(({ status }) => status).sort()
    assert.deepEqual(statuses, [...Array(4).fill(201), ...Array(6).fill(409)])
    assert.equal((await server.state()).count, FIRST_JOBS + 400)

    const locks = createLockClient(env.LEASEHOLD_URL)
    t.after(() => locks.close())
    await locks.acquire('express-example-add')
    const busy = await server.post('{"count":1}')
    assert.equal(busy.status, 423)
    assert.match(busy.headers.get('retry-after'), /^\d+$/)
    assert.match((await busy.json()).detail, /Try again/)
  })

  test('bad requests get 400, and the page loads nothing from other hosts', async (t) => {
    const env = await stores['the embedded store'](t)
    const server = await startExample(t, '<b>anna</b>', { folder, env })
    for (const body of ['{"count":0}', '{"count":101}', '{"count":"1"}', '{}', 'null', '{', '']) {
      const answer = await server.post(body)
      assert.equal(answer.status, 400, body)
      assert.equal(typeof (await answer.json()).error, 'string', body)
    }
    const page = await fetch(server.url)
    assert.equal(page.headers.get('content-security-policy'), "default-src 'self'")
    assert.doesNotMatch(await page.text(), /<script(?![^>]* src=)| on\w+=| style=/)
  })
})
